"""Estimators from a run: correlated states, planted faults, empty rungs, gaps, TI and its rules."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import xarray as xr
from support.estimator_contract import CONTRACT, estimate_run, estimates, target
from support.look_checks import stats_of
from support.pymbar_answers import pymbar_error
from support.repeated_runs import (
    BETAS,
    GAUSSIAN_TOY,
    TOYS,
    calibration_faults,
    ratio_moments,
    repeated_runs,
    shift_ladder,
)
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering import evidence as ev
from pymc_tempering.core.cycles import FreshLooks
from pymc_tempering.core.weighting import error_of_influence
from pymc_tempering.evidence import integrate
from pymc_tempering.evidence.bar import _stepwise, bar_step, stone_step
from pymc_tempering.evidence.datatree import read_check
from pymc_tempering.evidence.estimators import ESTIMATORS, estimate_quietly
from pymc_tempering.evidence.pieces import error_of_neighbors
from pymc_tempering.evidence.reference_check import compare_looks
from pymc_tempering.exceptions import NotTemperedError, SolverError, TemperingWarning

TI_RULES = {name: row.rule for name, row in CONTRACT.items() if row.rule}
BY_TRACE = [name for name, row in ESTIMATORS.items() if row.reads == "trace"]


CORRELATED = {"rho": 0.9, "draws": 300}


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("method", ["counts", "bar"])
def test_errors_hold_where_states_are_correlated(method):
    found = estimates(method, "gauss", 200, **CORRELATED)
    assert not list(calibration_faults(found, target(method, "gauss"), 200))


@pytest.mark.slow("repeats")
def test_pymbars_own_error_does_not_hold_there():
    """The planted fault: errors that take all states for independent."""
    ours = estimates("mbar", "gauss", 60, **CORRELATED)
    runs = repeated_runs(60, "gauss", **CORRELATED)
    found = [replace(e, mcse=pymbar_error(run)) for e, run in zip(ours, runs, strict=True)]
    assert any(
        "sd of z" in fault for fault in calibration_faults(found, target("mbar", "gauss"), 60)
    )


@pytest.mark.slow("compiles models of its own", quick=["backward"])
@pytest.mark.parametrize("method", ["counts", "forward", "backward"])
def test_a_ladder_off_by_a_rung_is_seen(method):
    runs = repeated_runs(200, "gauss")[:60]
    wrong = [replace(run, stats=shift_ladder(run.stats)) for run in runs]
    found = [estimate_run(method, run) for run in wrong]
    assert list(calibration_faults(found, target(method, "gauss"), 60))


def without_counts(lower, upper):
    """Bennett's equation as if both rungs had been visited equally often."""
    step = bar_step(lower, upper)
    return step._replace(increment=step.increment + np.log(lower.size / upper.size))


def without_noise_of_counts(lower, upper):
    step = bar_step(lower, upper)
    return step._replace(lower=step.lower + 1.0 / lower.size, upper=step.upper - 1.0 / upper.size)


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("bug", [without_counts, without_noise_of_counts])
def test_bugs_in_bennetts_equation_are_seen(bug):
    """With weights that are not even, so that visits are not."""
    found = [_stepwise("bar", run, bug) for run in repeated_runs(200, "gauss")]
    assert list(calibration_faults(found, target("bar", "gauss"), 200))


def test_ti_that_forgets_the_zero_likelihood_is_seen():
    runs = [run.stats for run in repeated_runs(120, "cut")[:60]]
    found = [ev.ti(replace(stats, n_zero_likelihood=None)) for stats in runs]
    assert list(calibration_faults(found, target("ti", "cut"), 60))


@pytest.mark.slow("repeats", every=4)
@pytest.mark.parametrize("toy", ["gauss", "gamma"])
@pytest.mark.parametrize("method", TI_RULES)
def test_stated_discretization_error_is_the_real_one(method, toy):
    """The mean over 200 runs; the estimate is made of other noise than the value. |z| < 4."""
    n = CONTRACT[method].repeats[toy]
    bias = np.array([e.bias for e in estimates(method, toy, n)])
    exact = target(method, toy) - float(TOYS[toy].log_z(1.0))
    noise = bias.std() / np.sqrt(n)
    assert abs(bias.mean() - exact) < 4.0 * noise + 0.02 * abs(exact)
    assert np.sign(bias.mean()) == np.sign(exact)


def far_off(z):
    """Whether scores are larger than those of a standard normal: 1e-3 of false alarms, or fewer."""
    return np.mean(np.abs(z) > 2.0) > 0.0455 + 4.0 * np.sqrt(0.0455 / z.size)


@pytest.mark.slow("repeats", every=3)
@pytest.mark.parametrize("toy", ["gauss", "gamma"])
@pytest.mark.parametrize("method", TI_RULES)
def test_error_of_ti_covers_log_z_itself_on_any_ladder(method, toy):
    """Sampling and rule in one mcse. Without that of the rule it would not (planted)."""
    exact = float(TOYS[toy].log_z(1.0))
    found = estimates(method, toy, CONTRACT[method].repeats[toy])
    off = np.array([e.log_z - exact for e in found])
    assert not far_off(off / [e.mcse for e in found])
    sampling = np.array([e.details["sampling_mcse"] for e in found])
    if abs(target(method, toy) - exact) > 3.0 * sampling.mean():
        assert far_off(off / sampling)
    curve = np.array([e.log_z_curve_mcse for e in found])
    np.testing.assert_allclose(curve[:, -1], [e.mcse for e in found])
    assert method in ("ti_corrected", "ti_corrected_rb", "ti_simpson") or far_off(off / sampling)


def test_ti_says_where_its_rule_is_off_and_to_which_side():
    idata = gaussian_run(draws=400, random_seed=3)
    with pytest.warns(TemperingWarning, match=r"'ti' is off by about -0.2\d nats on this ladder"):
        found = pmt.log_marginal_likelihood(idata, method="ti")
    assert found.bias_direction == "below"
    exact = float(GAUSSIAN_TOY.log_z(1.0))
    assert found.details["lower"] < exact < found.details["upper"]
    fine = gaussian_run(draws=400, random_seed=3, betas=np.linspace(0.0, 1.0, 25) ** 3)
    found = pmt.log_marginal_likelihood(fine, method="ti_corrected")
    assert found.warnings == ()
    assert abs(found.bias) < 0.1 * found.mcse
    assert found.bias_direction == ""
    assert estimate_quietly(fine, "ti_riemann").bias_direction == "above"


@pytest.mark.parametrize("rule", ["trapezoid", "corrected", "simpson"])
def test_rules_are_exact_for_the_polynomials_that_they_should_be(rule):
    betas = np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    degree = {"trapezoid": 1, "corrected": 3, "simpson": 2}[rule]
    for power in range(degree + 1):
        slope = power * betas ** max(power - 1, 0)
        found = integrate(rule, betas, betas**power, slope)
        np.testing.assert_allclose(found, betas ** (power + 1) / (power + 1), atol=1e-14)
    above = integrate(rule, betas, betas ** (degree + 1), (degree + 1) * betas**degree)
    assert abs(above[-1] - 1.0 / (degree + 2)) > 1e-4


def test_riemann_sums_bound_the_integral():
    mean, variance = ratio_moments(GAUSSIAN_TOY, BETAS)
    low, high = (integrate(r, BETAS, mean, variance)[-1] for r in ("left_riemann", "riemann"))
    assert low < float(GAUSSIAN_TOY.log_z(1.0)) < high


def emptied(run, rung):
    """A run in which one rung was never visited: its iterations are those of the rung above."""
    visits, first, second = (
        getattr(run.stats, name).copy() for name in ("visits", "log_ratio_sum", "log_ratio_sqsum")
    )
    for values in (visits, first, second):
        values[..., rung + 1] += values[..., rung]
        values[..., rung] = 0.0
    stats = replace(run.stats, visits=visits, log_ratio_sum=first, log_ratio_sqsum=second)
    moved = np.where(run.trace.rung == rung, rung + 1, run.trace.rung)
    return ev.Run(stats, replace(run.trace, rung=moved))


@pytest.mark.parametrize("method", ["counts", "ti", "ti_simpson", "bar", "stepping_stone", "mbar"])
def test_an_empty_rung_is_said_and_has_no_error(method):
    found = estimate_run(method, emptied(repeated_runs(200, "gauss")[0], 2))
    assert any("Rung 2 was never visited" in sentence for sentence in found.warnings)
    assert found.log_z_curve_mcse[2] == np.inf
    assert np.isfinite(found.log_z)
    if method.startswith("ti"):  # the integral goes through it
        assert (found.mcse, found.verdict) == (np.inf, "unchecked")
    else:
        assert np.isfinite(found.mcse)


def test_bar_bridges_over_an_empty_rung():
    """BAR between rungs 1 and 3 is still consistent: within 4 of its errors of the exact value."""
    run = repeated_runs(200, "gauss")[0]
    away = run.trace.rung != 2
    trace = replace(run.trace, **{
        name: getattr(run.trace, name)[away]
        for name in ("log_ratio", "rung", "cycle", "head", "iteration")
    })  # fmt: skip
    found = ev.bar(ev.Run(run.stats, trace))
    assert abs(found.log_z - float(GAUSSIAN_TOY.log_z(1.0))) < 4.0 * found.mcse


@pytest.mark.slow("repeats", quick=["stepping_stone"])
@pytest.mark.parametrize("method", ["bar", "stepping_stone", "mbar"])
def test_a_gap_in_the_ladder_gives_no_error(method):
    """Exact states of rungs that hardly overlap: pymbar states a small error, ours is infinite."""
    betas, toy = np.array([0.0, 0.5, 1.0]), GaussianToy(8.0, 0.3)
    run = ev.read_run(gaussian_run(draws=200, random_seed=2, betas=betas))
    x = toy.explore(0.0 * run.trace.log_ratio, betas[run.trace.rung], 0.0, np.random.default_rng(1))
    apart = replace(run, trace=replace(run.trace, log_ratio=toy.log_ratio(x)))
    found = estimate_run(method, apart)
    assert (found.mcse, found.verdict) == (np.inf, "unchecked")
    assert any("effective tours" in sentence and "rung" in sentence for sentence in found.warnings)
    off = abs(found.log_z - float(toy.log_z(1.0)))
    if method == "mbar":
        assert off > 4.0 * pymbar_error(apart)
    else:
        assert off > 1.0


@pytest.mark.slow("repeats")
def test_a_wider_gap_has_a_larger_error_while_there_is_one():
    errors = []
    for y in (1.0, 2.0, 3.0):
        betas = np.array([0.0, 0.5, 1.0])
        idata = gaussian_run(draws=2000, random_seed=2, betas=betas, toy=GaussianToy(y, 0.5))
        errors.append([estimate_quietly(idata, m).mcse for m in ("bar", "stepping_stone", "mbar")])
    assert np.all(np.diff(errors, axis=0) > 0.0)


def test_a_solver_failure_is_raised():
    with pytest.raises(SolverError, match="zero likelihood"):
        bar_step(np.full(5, -np.inf), np.full(4, -np.inf))
    with pytest.raises(SolverError, match="no solution"):
        bar_step(np.full(5, -np.inf), np.zeros(4))
    with pytest.raises(SolverError, match="zero likelihood"):
        stone_step(np.full(3, -np.inf), np.zeros(2))
    counts, betas = np.array([20.0, 20.0]), np.array([0.0, 1.0])
    module = "pymc_tempering.evidence.bar.MAX_STEPS"
    with patch(module, 0), pytest.raises(SolverError, match="misses the MBAR"):
        ev.mbar_log_z(np.linspace(-3.0, 0.0, 40), counts, betas)
    with pytest.raises(SolverError, match="all states have zero likelihood"):
        ev.mbar_log_z(np.full(6, -np.inf), np.array([3.0, 3.0]), betas)


def test_mbar_of_many_states_goes_through_them_in_chunks():
    run = repeated_runs(200, "gauss")[0]
    whole = ev.mbar(run)
    with patch("pymc_tempering.evidence.datatree.CHUNK", 3000):
        found = ev.mbar(run)
    np.testing.assert_allclose(found.log_z_curve, whole.log_z_curve, atol=1e-10)
    np.testing.assert_allclose(found.log_z_curve_mcse, whole.log_z_curve_mcse, rtol=1e-9)


def test_without_a_trace_the_message_says_how_to_keep_one():
    idata = gaussian_run(draws=30)
    del idata["tempering_trace"]
    for method in BY_TRACE:
        with pytest.raises(NotTemperedError, match='keep="log_ratio"'):
            pmt.log_marginal_likelihood(idata, method=method)


def test_tours_that_share_a_cycle_have_the_error_of_their_sum():
    """Blocks e_b = u_b + a u_{b-1}: the sum of n has the variance n (1 + a)^2, to order 1/n."""
    rng, n = np.random.default_rng(5), 400
    u = rng.standard_normal((500, n + 1))
    blocks = u[:, 1:] + 0.4 * u[:, :-1]
    chain = np.repeat([0, 1], n // 2)
    found = np.array([error_of_neighbors(b[:, None], chain)[0] for b in blocks])
    assert np.mean(found) == pytest.approx(1.4 * np.sqrt(n), rel=0.02)
    plain = np.array([error_of_influence(b[:, None])[0] for b in blocks])
    assert np.mean(plain) < 0.85 * 1.4 * np.sqrt(n)


def test_the_check_of_a_fitted_reference_is_of_the_run_and_not_of_the_method():
    """TI is off by its rule; the looks agree with the run all the same."""
    idata, dims = gaussian_run(draws=400, random_seed=3), ("chain", "draw")
    stats = idata["sample_stats"].to_dataset()
    shape = stats["tour_start"].shape
    numbers = stats_of(FreshLooks(float(GAUSSIAN_TOY.log_z(1.0)), 0.02, 100.0, 100.0, 0.0, 60.0))
    stats = stats.assign({name: (dims, np.full(shape, v)) for name, v in numbers.items()})
    idata["sample_stats"] = xr.DataTree(stats)
    found = estimate_quietly(idata, "ti")
    assert found.check.verdict == "agreed"
    assert found.details["sampling_mcse"] < 0.1 < abs(found.bias)
    # The planted fault: the check of what the method says.
    alone = replace(found, mcse=found.details["sampling_mcse"])
    assert compare_looks(alone, read_check(idata)).verdict == "disagreed"
