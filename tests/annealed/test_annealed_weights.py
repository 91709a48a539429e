"""The numbers of weighted particles, islands and quadratures, on fixed arrays and simple laws."""

import re

import numpy as np
import pytest
from scipy.special import logsumexp
from support.riemann_sums import riemann_log_weights

from pymc_tempering.annealed.smc import Island, combine
from pymc_tempering.annealed.thermodynamic_integration import (
    Rung,
    discretization,
    evidence_of_chains,
)
from pymc_tempering.arrays.carried import (
    Carried,
    batch_error,
    bootstrap_error,
    carried_evidence,
    curve_from_sums,
    merge_sums,
)
from pymc_tempering.core.weighting import effective_number, log_mean
from pymc_tempering.evidence import integrate
from pymc_tempering.evidence.ti import rule_weights
from pymc_tempering.exceptions import LikelihoodError


def evidence(log_w, **kwargs):
    done = Carried(np.asarray(log_w, float), np.empty((len(log_w), 0)))
    kwargs = {"method": "ais", "n_evaluations": 1, "seconds": 0.0} | kwargs
    return carried_evidence(done, np.random.default_rng(0), **kwargs)


def test_log_weight_is_the_riemann_sum():
    """Equation (23) of the RTS paper, against products of density ratios."""
    rng = np.random.default_rng(1)
    betas = np.array([0.0, 0.1, 0.35, 0.8, 1.0])
    x = rng.normal(size=(6, 4))
    log_reference, log_ratio = -0.5 * x**2, -((x - 1.0) ** 2)

    def log_f(beta, k):
        return log_reference[:, k] + beta * log_ratio[:, k]

    ratios = [log_f(betas[k + 1], k) - log_f(betas[k], k) for k in range(4)]
    np.testing.assert_allclose(riemann_log_weights(betas, log_ratio), np.sum(ratios, axis=0))


def test_mean_error_and_effective_number_of_known_weights():
    log_w = np.log([1.0, 2.0, 3.0, 6.0]) + 700.0
    assert log_mean(log_w) == pytest.approx(np.log(3.0) + 700.0)
    assert effective_number(log_w) == pytest.approx(144.0 / 50.0)
    assert log_mean(np.full(3, -np.inf)) == -np.inf
    assert effective_number(np.full(3, -np.inf)) == 0.0
    # a weight of zero counts in the mean
    assert log_mean(np.array([0.0, -np.inf])) == pytest.approx(-np.log(2.0))


@pytest.mark.slow("repeats", quick=["0.3"])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_bootstrap_error_is_calibrated(spread):
    """400 repeats of 300 lognormal weights: sd of z within 0.035 x 3.7, false alarm 2e-4."""
    rng = np.random.default_rng(2)
    z = []
    for _ in range(400):
        log_w = spread * rng.normal(size=300) - 0.5 * spread**2
        z.append(log_mean(log_w) / bootstrap_error(log_w, rng))
    assert 0.87 < np.std(z) < 1.13
    naive = [np.std(spread * rng.normal(size=300)) / 300 for _ in range(400)]
    assert not 0.87 < np.std(np.array(z) / np.array(naive)) < 1.13


@pytest.mark.slow("repeats")
def test_batch_error_knows_that_draws_of_a_chain_are_alike():
    rng = np.random.default_rng(3)
    estimates, errors, plain = [], [], []
    chain = np.repeat(np.arange(4), 400)
    for _ in range(200):
        x = np.empty((4, 400))
        x[:, 0] = rng.normal(size=4)
        noise = rng.normal(size=(4, 400)) * np.sqrt(1.0 - 0.8**2)
        for t in range(1, 400):
            x[:, t] = 0.8 * x[:, t - 1] + noise[:, t]
        log_w = 0.5 * x.ravel() - 0.125
        estimates.append(log_mean(log_w))
        errors.append(batch_error(log_w, chain))
        plain.append(bootstrap_error(log_w, rng))
    z = np.array(estimates) / np.array(errors)
    # 200 repeats: standard error 0.05; batches of 20 draws at an autocorrelation time of 9 leave
    # some of the variance out.
    assert 0.85 < z.std() < 1.3
    assert np.std(np.array(estimates) / np.array(plain)) > 2.0
    assert evidence(log_w, chain=chain).mcse == errors[-1] > 1.5 * evidence(log_w).mcse


def test_running_sums_of_blocks_add_up_to_the_curve():
    rng = np.random.default_rng(4)
    betas = np.linspace(0.0, 1.0, 4)
    log_w = np.concatenate([np.zeros((90, 1)), 300.0 * rng.normal(size=(90, 3)).cumsum(1)], axis=1)
    log_w[5, 2:] = -np.inf
    parts = []
    for block in np.split(log_w, 3):
        peak = block.max(axis=0)
        w = np.exp(block - peak)
        parts.append(np.column_stack([peak, w.sum(axis=0), (w**2).sum(axis=0)]))
    curve = curve_from_sums(betas, merge_sums(parts), 90)
    np.testing.assert_allclose(curve["log_z_curve"], logsumexp(log_w, axis=0) - np.log(90))
    ess = np.array([effective_number(column) for column in log_w.T])
    error = np.sqrt(1.0 / ess - 1.0 / 90)
    np.testing.assert_allclose(curve["log_z_curve_mcse"][1:], error[1:], atol=1e-9)


@pytest.mark.parametrize(
    ("log_w", "sentence"),
    [
        ([0.0] * 99 + [50.0], r"One of 100 particles holds 100% .*effective number 1\.0"),
        ([0.0] * 995 + [7.0, 7.1, 7.2, 7.0, 7.1], "A few of 1000 particles hold nearly all"),
        ([-np.inf] * 50, "All 50 particles have weight zero"),
    ],
)
def test_collapsed_weights_have_no_error(log_w, sentence):
    result = evidence(log_w)
    assert (result.verdict, result.mcse) == ("unchecked", np.inf)
    assert re.search(sentence, result.warnings[0])
    assert "use more rungs" in result.warnings[0]


def test_few_effective_weights_are_said():
    rng = np.random.default_rng(1)
    result = evidence(1.5 * rng.normal(size=200))
    assert 10.0 < result.ess < 50.0
    assert np.isfinite(result.mcse)
    assert "rough" in result.warnings[0]
    assert evidence(0.5 * rng.normal(size=200)).warnings == ()
    heavy = evidence(0.8 * rng.exponential(size=40_000))
    assert heavy.ess > 50.0
    assert "heavy tail (Pareto k" in heavy.warnings[0]


def test_inverse_weights_turn_the_sign():
    log_w = np.log(np.random.default_rng(5).uniform(1.0, 2.0, size=100))
    up, down = evidence(log_w), evidence(log_w, inverse=True)
    assert (up.log_z, down.log_z) == (pytest.approx(log_mean(log_w)), -up.log_z)
    assert (up.bias_direction, down.bias_direction) == ("below", "above")
    assert up.bias == pytest.approx(-0.5 * up.mcse**2)
    assert down.bias > 0.0
    assert up.halves == pytest.approx((log_mean(log_w[:50]), log_mean(log_w[50:])))


def test_islands_average_z_and_not_its_logarithm():
    betas = np.array([0.0, 1.0])
    log_z = np.random.default_rng(10).normal(scale=0.5, size=20)

    def island(value):
        return Island(np.array([0.0, value]), 10, 0, np.empty((50, 1)), np.full(50, value))

    results = [island(v) for v in log_z]
    both = combine(results, betas, 5, 0.0, 50)
    assert both.log_z == pytest.approx(log_mean(log_z))
    assert both.n_evaluations == 205
    z = np.exp(log_z)
    assert both.mcse == pytest.approx(z.std(ddof=1) / z.mean() / np.sqrt(20))
    results[0] = island(30.0)
    alone = combine(results, betas, 5, 0.0, 50)
    assert (alone.verdict, alone.mcse) == ("unchecked", np.inf)
    assert "A few of 20 islands" in alone.warnings[0]


def gaussian_path(betas, shift=3.0, precision=4.0):
    """Mean and variance of log_ratio along the path N(0, 1) exp(-b p (x - s)^2 / 2), and log Z."""
    total = 1.0 + betas * precision
    mu, var = betas * precision * shift / total, 1.0 / total
    square = var + (mu - shift) ** 2
    mean = -0.5 * precision * square
    spread = 0.25 * precision**2 * (2.0 * var**2 + 4.0 * var * (mu - shift) ** 2)
    log_z = -0.5 * np.log(total) - 0.5 * betas * precision * shift**2 / total
    return mean, spread, log_z


@pytest.mark.parametrize(("rule", "order"), [("trapezoid", 2), ("corrected", 4)])
def test_quadrature_converges_at_its_order_and_knows_its_error(rule, order):
    errors, stated = [], []
    for n in (33, 65, 129):
        betas = np.linspace(0.0, 1.0, n) ** 3
        mean, variance, log_z = gaussian_path(betas)
        errors.append(integrate(rule, betas, mean, variance)[-1] - log_z[-1])
        stated.append(discretization(betas, mean, variance, rule))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.2)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.1)
    np.testing.assert_allclose(stated, errors, rtol=0.2)


def rungs_of_path(betas, draws, rng, rho=0.0):
    """Chains of log_ratio along the Gaussian path, autocorrelated by rho."""
    rungs = []
    for beta in betas:
        total = 1.0 + 4.0 * beta
        x = np.empty((4, draws))
        x[:, 0] = rng.normal(size=4)
        noise = rng.normal(size=(4, draws)) * np.sqrt(1.0 - rho**2)
        for t in range(1, draws):
            x[:, t] = rho * x[:, t - 1] + noise[:, t]
        state = 12.0 * beta / total + x / np.sqrt(total)
        rungs.append(Rung(-2.0 * (state - 3.0) ** 2, draws))
    return rungs


@pytest.mark.slow("repeats")
def test_integration_states_the_real_error_of_autocorrelated_chains():
    """150 repeats: sd of z within 3.5 standard errors of 0.058; false alarm 5e-4."""
    rng = np.random.default_rng(11)
    betas = np.linspace(0.0, 1.0, 13) ** 3
    exact = gaussian_path(betas)[2]
    runs = [
        evidence_of_chains(betas, rungs_of_path(betas, 200, rng, 0.6), "corrected", 0, 0.0)
        for _ in range(150)
    ]
    z = np.array([(run.log_z - exact[-1]) / run.mcse for run in runs])
    assert 0.8 < z.std() < 1.2
    assert abs(z.mean()) < 0.35
    middle = np.array([(r.log_z_curve[6] - exact[6]) / r.log_z_curve_mcse[6] for r in runs])
    assert 0.8 < middle.std() < 1.2
    # planted bug: an error that takes draws for independent
    n = 4 * 200
    of_means = rule_weights("corrected", betas)[0][-1]
    naive = np.sqrt(sum(
        np.var(of_means[k] * v) / n
        for k, (v, *_) in enumerate(rungs_of_path(betas, 200, rng, 0.6))
    ))  # fmt: skip
    assert np.std([(run.log_z - exact[-1]) / naive for run in runs]) > 1.4


def test_integration_says_what_is_wrong():
    rng = np.random.default_rng(12)
    betas = np.linspace(0.0, 1.0, 5)
    coarse = evidence_of_chains(betas, rungs_of_path(betas, 5000, rng), "trapezoid", 0, 0.0)
    assert "discretization error" in coarse.warnings[0]
    assert abs(coarse.log_z - gaussian_path(betas)[2][-1]) < 3.0 * coarse.mcse
    slow = evidence_of_chains(betas, rungs_of_path(betas, 100, rng, 0.95), "corrected", 0, 0.0)
    assert (slow.verdict, slow.mcse) == ("unchecked", np.inf)
    assert "effective draws" in slow.warnings[0]


def test_draws_of_zero_likelihood_enter_integration_by_their_share():
    rng = np.random.default_rng(13)
    betas = np.linspace(0.0, 1.0, 13) ** 3
    rungs = rungs_of_path(betas, 500, rng)
    whole = evidence_of_chains(betas, rungs, "corrected", 0, 0.0)
    rungs[0] = rungs[0]._replace(n_dead=2000)
    half = evidence_of_chains(betas, rungs, "corrected", 0, 0.0)
    assert half.log_z == pytest.approx(whole.log_z + np.log(0.5))
    assert half.mcse == pytest.approx(np.hypot(whole.mcse, np.sqrt(1.0 / 4000)))
    rungs[3] = Rung(np.full((4, 500), -np.inf), 500)
    with pytest.raises(LikelihoodError, match="nothing to integrate"):
        evidence_of_chains(betas, rungs, "corrected", 0, 0.0)
