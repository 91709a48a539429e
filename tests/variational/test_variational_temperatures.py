"""Grids, schedules, q(T), the test of convergence, and the evidence from weights: plain numbers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta as beta_law

from pymc_tempering.core.weighting import khat_limit
from pymc_tempering.variational.assess import elbo_drift, psis
from pymc_tempering.variational.temperatures import (
    GivenTemperature,
    LearnedTemperature,
    annealing_schedule,
    beta_grid,
    check_grid,
    exponential_grid,
    inverse_grid,
)


def test_default_grids():
    grid = exponential_grid()
    assert grid.size == 100
    assert (grid[0], grid[-1]) == (1.0, 10.0)
    np.testing.assert_allclose(np.diff(np.log(grid)), np.log(10) / 99)
    np.testing.assert_allclose(np.diff(1 / inverse_grid()), -0.1)
    assert inverse_grid()[0] == 1.0


@pytest.mark.parametrize(
    ("temperatures", "sentence"),
    [
        ([0.5, 1.0, 2.0], "at least 1; 0.5 is not"),
        ([1.5, 2.0], "must contain 1"),
        ([1.0, 3.0, 2.0], "3 is followed by 2"),
        ([1.0, 1.0], "must increase"),
        ([], "one or more numbers"),
        ([1.0, np.inf], "finite"),
    ],
)
def test_bad_temperatures_are_refused(temperatures, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_grid(temperatures)


@pytest.mark.parametrize(
    ("schedule", "middle"),
    [("linear", 5.0), ("exponential", 3.0), (lambda share: 1.0 + 8.0 * (1 - share) ** 2, 3.0)],
)
def test_schedules_begin_hot_fall_and_end_at_one(schedule, middle):
    made = annealing_schedule(schedule, 9.0, 1000)
    temperature = 1 / np.array([made.inverse_temperature(i) for i in range(1500)])
    np.testing.assert_allclose(temperature[[0, 500]], [9.0, middle])
    assert (np.diff(temperature) <= 0).all()
    assert (temperature[1000:] == 1.0).all()
    assert temperature[999] > 1.0
    setting = GivenTemperature(made).setting(500)
    np.testing.assert_allclose([setting.weights, setting.inverse_temperature], 1 / middle)


@pytest.mark.parametrize("bad", ["cosine", lambda share: 0.5, lambda share: np.nan])
def test_bad_schedules_are_refused(bad):
    with pytest.raises(ValueError, match="schedule"):
        annealing_schedule(bad, 10.0, 100)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 1.0), (0.5, 3.0)])
def test_beta_grid_has_the_moments_of_the_beta_distribution(a, b):
    temperatures, weights = beta_grid(a, b)
    assert (temperatures[0], weights[0]) == (1.0, 0.0)
    for power in range(1, 8):
        moment = weights @ (1 / temperatures) ** power
        np.testing.assert_allclose(moment, beta_law(a, b).moment(power), rtol=1e-8)
    with pytest.raises(ValueError, match="positive"):
        beta_grid(0.0, b)


def bayes_by_enumeration(loglik, temperatures, log_c):
    weight = np.exp(loglik / temperatures - log_c)
    return weight / weight.sum()


def test_q_is_equation_nine_and_damping_comes_to_it_slowly():
    temperatures = np.array([1.0, 2.0, 4.0])
    log_c, loglik, start = np.array([0.0, 1.0, 2.5]), -3.0, np.zeros(3)
    exact = bayes_by_enumeration(loglik, temperatures, log_c)
    np.testing.assert_allclose(LearnedTemperature(temperatures, start, log_c, 0.0).q, 1 / 3)
    energies = np.full((5, 1), loglik)
    now = LearnedTemperature(temperatures, start, log_c, damping=0.0).after(energies)
    np.testing.assert_allclose(now.q, exact)
    np.testing.assert_allclose(now.inverse_temperature, exact @ (1 / temperatures))
    damped = LearnedTemperature(temperatures, start, log_c, damping=0.9)
    off = []
    for _ in range(200):
        damped = damped.after(energies)
        off.append(np.abs(damped.q - exact).max())
    assert off[0] > 0.5 * off[1] > 0.0
    assert off[-1] < 1e-6
    assert damped.at_rest_from == 0
    # the sign of log C, planted wrongly, is seen
    wrong = LearnedTemperature(temperatures, start, -log_c, damping=0.0).after(energies)
    assert np.abs(wrong.q - exact).max() > 0.2


def test_offset_makes_the_loss_the_tempered_elbo():
    rng = np.random.default_rng(2)
    log_c = rng.normal(size=5)
    now = LearnedTemperature(np.arange(1.0, 6.0), rng.normal(size=5), log_c, 0.9)
    by_hand = (now.q * (np.log(0.2) - log_c - np.log(now.q))).sum()  # equation (5)
    np.testing.assert_allclose(now.setting(0).offset, by_hand)
    alone = LearnedTemperature(np.ones(1), np.zeros(1), np.zeros(1), 0.9)
    assert alone.setting(0).offset == 0.0
    np.testing.assert_allclose(replace(now, scale=4.0).setting(0).offset, by_hand / 4)


def drifts(slope, seeds=200, n=4000, tails=None):
    out = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=n) if tails is None else rng.standard_t(tails, size=n)
        out.append(elbo_drift(-100.0 + noise + slope * np.arange(n)).converged)
    return np.mean(out)


def test_convergence_passes_rest_and_finds_drift():
    assert drifts(0.0) >= 0.98
    assert drifts(0.0, tails=1.5) >= 0.95  # far draws do not matter
    assert drifts(5e-4) == 0.0  # 0.5 nats between the halves of the last 2000
    noisy = np.random.default_rng(1).normal(size=4000) * 50.0
    assert elbo_drift(noisy).tolerance == pytest.approx(15.0, rel=0.1)
    short = elbo_drift(np.zeros(500))
    assert not short.converged
    assert "too few to judge" in str(short)


def scores(shift, scale, repeats=300, draws=1000, jacobian=True):
    """Errors of log Z (exactly 0) in units of their stated error: p = N(0, 1), q wider."""
    out = []
    for seed in range(repeats):
        z = np.random.default_rng(seed).normal(size=draws)
        x = shift + scale * z
        log_z, error, khat, _ = psis(-0.5 * x**2 + 0.5 * z**2 + jacobian * np.log(scale))
        assert khat < khat_limit(draws)
        out.append(log_z / error)
    return np.array(out)


def test_psis_log_z_is_right_within_its_stated_error():
    z = scores(0.3, 1.2)
    # the mean of 300 scores of sd 1 is beyond 0.25 by chance in 1.5e-5 of the cases; the sd, with
    # its own error of 0.04, below 0.85 or above 1.15 in 2e-4
    assert abs(z.mean()) < 0.25
    assert 0.85 < z.std() < 1.15
    # planted: q without its scale
    assert abs(scores(0.3, 1.2, 20, jacobian=False).mean()) > 1.0


def test_psis_of_extreme_weights():
    log_z, error, _, ess = psis(np.full(50, 3.25))
    assert (log_z, error, ess) == (3.25, 0.0, 50.0)
    half = np.where(np.arange(1000) % 3 == 0, -np.inf, np.random.default_rng(1).normal(size=1000))
    log_z, error, *_ = psis(half)
    assert abs(log_z - np.log(2 / 3) - 0.5) < 4 * error
    assert psis(np.full(10, -np.inf))[0] == -np.inf
    heavy = np.random.default_rng(3).pareto(0.5, size=2000) + 1.0
    assert psis(np.log(heavy))[2] > khat_limit(2000)
