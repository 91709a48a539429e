"""The table holds what theory says of the toy, and the verdict names the trouble that is there."""

import numpy as np
import pytest
from support.repeated_runs import (
    BETAS,
    GAUSSIAN_TOY,
    LOG_WEIGHT,
    LOG_Z_LADDER,
    join_chains,
    with_stats,
)
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt


def expected_rejection(log_weight, log_z_ladder):
    """1 - E min(w_k, w_{k+1}) / min(E w_k, E w_{k+1}) over the joint law, by quadrature."""
    x, width = np.linspace(-12.0, 12.0, 40_001, retstep=True)
    prior = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    tilt = np.exp(log_weight - log_z_ladder + BETAS * GAUSSIAN_TOY.log_ratio(x)[:, None])
    weight = prior[:, None] * tilt * width
    both = np.minimum(weight[:, :-1], weight[:, 1:]).sum(axis=0)
    total = weight.sum(axis=0)
    return 1.0 - both / np.minimum(total[:-1], total[1:]), total / total.sum()


def expected_autocorrelation(rho):
    """Of the quadratic log_ratio of a Gaussian AR(1) process at every rung but the first.

    log_ratio = a + b u + c u^2 with u standard normal: var = b^2 + 2 c^2, and the powers of u
    have autocorrelation rho and rho^2.
    """
    mean, sd = GAUSSIAN_TOY.moments(BETAS[1:])
    linear = ((GAUSSIAN_TOY.y - mean) * sd / GAUSSIAN_TOY.sigma**2) ** 2
    square = 2.0 * (sd**2 / (2.0 * GAUSSIAN_TOY.sigma**2)) ** 2
    return (linear * rho + square * rho**2) / (linear + square)


@pytest.mark.parametrize("ladder_move", ["gibbs", "nonreversible"])
@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_table_holds_the_exact_values(rho, ladder_move):
    idata = gaussian_run(
        2000, 4, rho=rho, ladder_move=ladder_move, log_z_ladder=LOG_Z_LADDER, log_weight=LOG_WEIGHT,
        random_seed=3,
    )  # fmt: skip
    table = pmt.diagnose(idata).table
    rejection, occupancy = expected_rejection(LOG_WEIGHT, LOG_Z_LADDER)
    # Some 5,000 visits a rung, correlated: standard errors below 0.01; |z| < 4 and a margin.
    np.testing.assert_allclose(table["rejection"][:-1], rejection, atol=0.04)
    np.testing.assert_allclose(table["occupancy"], occupancy, atol=0.02)
    np.testing.assert_allclose(table["target"], np.exp(LOG_WEIGHT))
    correlation = table["autocorrelation"].to_numpy()
    np.testing.assert_allclose(correlation[1:], expected_autocorrelation(rho), atol=0.08)
    assert correlation[0] == 0.0
    # the same figures off by a rung are seen to be wrong
    assert np.abs(table["rejection"][1:-1].to_numpy() - rejection[:-1]).max() > 0.04
    assert np.abs(np.roll(table["occupancy"], 1) - occupancy).max() > 0.02


@pytest.mark.slow("compiles models of its own")
def test_barrier_is_the_sum_of_rejections_and_hardly_depends_on_the_ladder():
    coarse, fine = gaussian_run(1000), gaussian_run(1000, betas=np.linspace(0.0, 1.0, 40) ** 3)
    first, second = pmt.diagnose(coarse), pmt.diagnose(fine)
    assert first.barrier == pytest.approx(first.table["rejection"].sum())
    assert np.all(np.diff(second.table["barrier"]) >= 0.0)
    assert first.barrier == pytest.approx(second.barrier, rel=0.15)


def test_counts_are_those_of_the_trace():
    idata = gaussian_run(200, 3)
    diagnosis = pmt.diagnose(idata)
    rung = idata["tempering_trace"]["rung"].values
    assert diagnosis.table["visits"].tolist() == [int(np.sum(rung == k)) for k in range(5)]
    assert diagnosis.n_tours == sum(diagnosis.round_trips) == diagnosis.evidence.n_tours
    counted = with_stats(idata, n_divergences=lambda values: values + 2)
    assert pmt.diagnose(counted).divergences == 2 * 600


def test_converted_run_has_the_same_diagnosis():
    idata = gaussian_run(200, 3)
    assert repr(pmt.diagnose(pmt.convert(idata))) == repr(pmt.diagnose(idata))


def slow_kernel():
    return gaussian_run(400, rho=0.98)


def slow_kernel_and_many_tours():
    return gaussian_run(2000, rho=0.98)


def wide_ladder():
    return gaussian_run(400, betas=[0.0, 0.05, 1.0], toy=GaussianToy(2.0, 0.02))


def few_tours():
    return gaussian_run(10, 2)


def contradiction():
    shared = {"betas": BETAS, "log_z_ladder": GAUSSIAN_TOY.log_z(BETAS)}
    other = gaussian_run(300, 2, random_seed=2, toy=GaussianToy(1.0, 0.5), **shared)
    return join_chains(gaussian_run(300, 2, random_seed=1, **shared), other)


def copied_chain():
    one = gaussian_run(300, 1)
    return join_chains(one, one)


def slow_kernel_on_a_wide_ladder():
    """More rungs would not help before the kernel moves."""
    return gaussian_run(400, rho=0.98, betas=[0.0, 0.1, 1.0], toy=GaussianToy(2.0, 0.1))


@pytest.mark.parametrize(
    ("make", "verdict"),
    [
        (gaussian_run, "ok: "),
        (slow_kernel, "bad kernel: "),
        (slow_kernel_and_many_tours, "ok: "),
        (wide_ladder, "bad ladder: "),
        (few_tours, "few tours: "),
        (contradiction, "disagreed, with care: "),
        (copied_chain, "alarm: "),
        (slow_kernel_on_a_wide_ladder, "bad kernel: "),
    ],
)
def test_verdict_names_the_trouble_in_one_line(make, verdict):
    diagnosis = pmt.diagnose(make())
    assert diagnosis.verdict.startswith(verdict)
    assert "\n" not in diagnosis.verdict
    assert repr(diagnosis).splitlines()[-1] == diagnosis.verdict


def test_repr_shows_the_table_and_the_evidence():
    diagnosis = pmt.diagnose(gaussian_run(400))
    text = repr(diagnosis)
    assert all(column in text for column in diagnosis.table)
    assert f"barrier {diagnosis.barrier:.2f} on 5 rungs" in text
    assert f"first half {diagnosis.halves[0]:.3f}" in text
