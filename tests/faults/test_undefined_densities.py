"""A likelihood that is no number at some draws, or raises an error: counted, and judged."""

import itertools
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.compile.ops import wrap_py
from scipy import stats

import pymc_tempering as pmt
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.result import MAX_UNDEFINED_SHARE, Evidence, with_undefined

OBSERVED = 0.4
EXACT = stats.norm.logpdf(OBSERVED, 0.0, np.sqrt(5.0))
"""Log evidence without the hole. The hole is in a direction that the data say nothing of, so that
the posterior has the same share in it as the prior: log Z is off by log(1 - share)."""

SHORT = {"draws": 400, "random_seed": 1, "cores": 1, "quiet": True}


def model_with_hole(value=np.nan):
    with pm.Model() as model:
        edge = pm.Data("edge", 9.0)
        x = pm.Normal("x", shape=2)
        pm.Normal("y", x[0], 2.0, observed=[OBSERVED])
        pm.Potential("hole", pt.switch(x[1] > edge, value, 0.0))
    return model


@pytest.fixture(scope="module")
def compiled():
    return pmt.compile(model_with_hole())


def hole_of(share, compiled):
    return compiled.with_data(edge=float(stats.norm.isf(share)))


def sample_with_hole(share, compiled, **kwargs):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        idata = pmt.sample(model=hole_of(share, compiled), **SHORT | kwargs)
    return idata, " ".join(str(one.message) for one in said)


def error_before_the_alarm(evidence):
    return np.hypot(evidence.details["chain_mcse"], evidence.details["reference_mcse"])


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("reference", ["prior", "auto"])
def test_one_per_cent_is_counted_told_and_not_ok(compiled, reference, tmp_path):
    share = 0.01
    idata, said = sample_with_hole(share, compiled, reference=reference)
    evidence = estimate_quietly(idata)
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert evidence.log_z_curve_mcse[0] == 0.0
    # |z| < 4.5: false alarm 7e-6
    error = error_before_the_alarm(evidence)
    assert abs(evidence.log_z - (EXACT + np.log1p(-share))) < 4.5 * error
    lost, n = evidence.details["undefined_draws"], int(read_cycles(idata).visits[..., 0].sum())
    n += idata["tempering_reference"].sizes["reference_draw"]
    assert f"{lost:,.0f} of {n:,} reference draws ({lost / n:.2%})" in said
    assert f"about {-np.log1p(-lost / n):.2g} nats" in said
    assert "not a number at" in said  # at draws from the prior, before the run
    if reference == "prior":  # a fitted one has wider tails
        assert abs(lost - n * share) < 5.0 * np.sqrt(n * share)  # false alarm 6e-7
    idata.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "run.nc", engine="h5netcdf") as stored:
        assert estimate_quietly(stored).warnings == evidence.warnings
    assert "no number" in pmt.diagnose(idata).verdict


@pytest.mark.slow("compiles models of its own", quick=["prior"])
@pytest.mark.parametrize("reference", ["prior", "auto"])
def test_a_hundredth_of_a_per_cent_is_counted_and_no_alarm(compiled, reference):
    idata, _ = sample_with_hole(1e-4, compiled, reference=reference, reference_draws=100_000)
    evidence = estimate_quietly(idata)
    assert evidence.verdict == "ok"
    assert 0 < evidence.details["undefined_draws"] < 1e-3 * 100_000
    assert abs(evidence.log_z - EXACT) < 4.5 * evidence.mcse
    assert not any("no number" in sentence for sentence in evidence.warnings)


@pytest.mark.slow("compiles models of its own")
def test_a_likelihood_that_is_zero_there_is_no_alarm():
    idata, said = sample_with_hole(0.01, pmt.compile(model_with_hole(-np.inf)), reference="prior")
    evidence = estimate_quietly(idata)
    assert evidence.verdict == "ok"
    assert int(idata.sample_stats["n_zero_likelihood"].sum()) > 0
    assert int(idata.sample_stats["n_undefined"].sum()) == 0
    assert "undefined_draws" not in evidence.details
    assert not said
    assert abs(evidence.log_z - (EXACT + np.log1p(-0.01))) < 4.5 * evidence.mcse


@pytest.mark.parametrize("method", ["ais", "smc", "ti"])
def test_the_estimators_from_independent_runs_say_it_too(compiled, method):
    door = {"ti": pmt.thermodynamic_integration}.get(method) or getattr(pmt.annealed, method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        evidence = door(hole_of(0.02, compiled), random_seed=1, progressbar=False, cores=1)
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert "reference draws (" in evidence.warnings[0]
    assert abs(evidence.log_z - (EXACT + np.log1p(-0.02))) < 0.1


def test_the_other_front_door_counts_them(compiled):
    model = hole_of(0.01, compiled).model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        step = pmt.SimulatedTempering(model=model, random_seed=1, reference="prior")
        idata = pm.sample(
            800, step=step, model=model, chains=2, cores=1, random_seed=2, progressbar=False,
            quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
        evidence = pmt.log_marginal_likelihood(pmt.convert(idata))
    assert int(idata.sample_stats["n_undefined"].sum()) == evidence.details["undefined_draws"] > 0
    assert evidence.verdict == "unchecked"


def python_model(fails):
    """A likelihood in Python which calls `fails(x)` first."""

    @wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])
    def solver(x):
        if fails(x):
            raise ArithmeticError("the solver did not converge")
        return np.asarray(stats.norm.logpdf(OBSERVED, x[0], 2.0))

    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("solved", solver(x))
        pm.Normal("fine", x[1], 1.0, observed=[0.0])
    return model


@pytest.mark.slow("compiles models of its own")
def test_a_python_likelihood_that_raises_now_and_then_is_counted():
    """Every hundredth call raises: log Z is off by log(0.99), whatever the state is."""
    calls = itertools.count(1)
    model = python_model(lambda x: next(calls) % 100 == 0)
    with pytest.warns(pmt.TemperingWarning, match=r"0\.\d%|1\.\d%") as caught:
        idata = pmt.sample(
            model=model, reference="prior", kernel="slice", reference_draws=3000, **SHORT
        )
    evidence = estimate_quietly(idata)
    assert evidence.verdict == "unchecked"
    lost, n = evidence.details["undefined_draws"], 3000 + read_cycles(idata).visits[..., 0].sum()
    assert lost == pytest.approx(0.01 * n, rel=0.2)
    assert any("which count as zero likelihood" in str(one.message) for one in caught)
    exact = EXACT + stats.norm.logpdf(0.0, 0.0, np.sqrt(2.0)) + np.log1p(-0.01)
    assert abs(evidence.log_z - exact) < 5.0 * error_before_the_alarm(evidence)


@pytest.mark.slow("compiles models of its own")
def test_a_python_likelihood_that_often_raises_is_refused_with_its_name_and_words():
    words = r"'solved' \(100\.0% of them, which raises ArithmeticError: the solver did not converge"
    with pytest.raises(pmt.exceptions.LikelihoodError, match=words) as error:
        pmt.sample(model=python_model(lambda x: x[1] > 0.5), **SHORT)
    assert "'fine'" not in str(error.value)
    assert "Restrict the prior" in str(error.value)


def evidence_of(**changes):
    curve = {"log_z_curve": np.zeros(3), "log_z_curve_mcse": np.array([0.0, 0.1, 0.1])}
    return Evidence(log_z=-3.0, mcse=0.1, method="rts", verdict="ok", **curve | changes)


@pytest.mark.parametrize("n", [0, 1, 10])
def test_up_to_a_thousandth_the_verdict_stands(n):
    found = with_undefined(evidence_of(warnings=("other",)), n, 10_000)
    assert (found.verdict, found.mcse, found.warnings) == ("ok", 0.1, ("other",))
    assert found.details == ({"undefined_draws": n} if n else {})
    assert MAX_UNDEFINED_SHARE == 1e-3


@pytest.mark.parametrize(("n", "words"), [(11, "0.0011 nats"), (10_000, "log Z is not known")])
def test_above_it_the_verdict_is_not_ok(n, words):
    found = with_undefined(evidence_of(warnings=("other",)), n, 10_000)
    assert (found.verdict, found.mcse, found.warnings[1:]) == ("unchecked", np.inf, ("other",))
    assert words in found.warnings[0]
    assert found.log_z_curve_mcse.tolist() == [0.0, np.inf, np.inf]
