"""The compiled transitions keep pi_beta, weights are unbiased in both directions, bugs are seen."""

from functools import cache
from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from scipy import stats as sps
from support.compiled_systems import prior, system

from pymc_tempering.annealed import linked_importance_sampling as linked
from pymc_tempering.annealed import particles, transition
from pymc_tempering.annealed.particle_weights import log_mean, riemann_log_weights
from pymc_tempering.annealed.particles import anneal, draw_particles, place, sweep
from pymc_tempering.annealed.schedule import BetaSchedule
from pymc_tempering.annealed.transition import SCALE, STEP, TRANSITIONS, pack, refresh_share
from pymc_tempering.references.compile import compile_model

BETA = 0.4
NAMES = list(TRANSITIONS)
STEPS = {"hmc": 0.7, "leapfrog": 1.0, "persistent": 0.8, "metropolis": 1.2}


def moments(beta):
    """Mean and standard deviation of the Gaussian test system at beta, each of shape (d,)."""
    mean, variance = system("gaussian").moments(beta)["x"]
    return mean, np.sqrt(variance)


def schedule(name, betas, wrong=1.0):
    """Schedule with the exact standard deviations, but for a factor `wrong`."""
    scales = wrong * np.array([moments(beta)[1] for beta in betas])
    return BetaSchedule(betas, pack(name, np.full(betas.size, STEPS[name]), scales), 0)


def at_equilibrium(n, beta=BETA, seed=1):
    """Particles drawn from pi_beta exactly."""
    rng = np.random.default_rng(seed)
    mean, sd = moments(beta)
    return place(prior("gaussian"), mean + sd * rng.normal(size=(n, mean.size)), rng)


def faults_of_law(group, beta=BETA):
    """Sentences where states and momenta are not those of pi_beta and a standard normal.

    Kolmogorov-Smirnov tests and z-tests of the variance at 1e-4 each, 8 in all: false alarm 1e-3.
    """
    mean, sd = moments(beta)
    n = len(group.xs)
    columns = [(group.xs - mean) / sd, group.momenta]
    for name, columns_of in zip(("state", "momentum"), columns, strict=True):
        for i, column in enumerate(columns_of.T):
            if sps.kstest(column, "norm").pvalue < 1e-4:
                yield f"{name} {i} has another law"
            if abs(column.var() - 1.0) > 3.9 * np.sqrt(2.0 / n):
                yield f"variance of {name} {i} is {column.var():.3f}"


@pytest.mark.parametrize("name", NAMES)
def test_transition_keeps_its_law(name):
    group = at_equilibrium(10_000)
    row = schedule(name, np.array([0.0, BETA, 1.0])).params[1]
    start = group.xs.copy()
    sweep(group, BETA, row, 5)
    assert not list(faults_of_law(group))
    moved = np.mean(np.abs(group.xs - start) > 1e-12)
    assert moved > 0.9  # it does something
    # values and gradients are those of the state
    again = place(prior("gaussian"), group.xs, np.random.default_rng(0))
    np.testing.assert_array_equal(group.values, again.values)
    np.testing.assert_array_equal(group.grads, again.grads)


@pytest.mark.parametrize("name", ["hmc", "persistent"])
def test_transition_forgets_where_it_began(name):
    """From prior draws the law of pi_beta is reached."""
    group = draw_particles(prior("gaussian"), 5_000, np.random.default_rng(2))
    row = schedule(name, np.array([0.0, BETA, 1.0])).params[1]
    assert list(faults_of_law(group))
    sweep(group, BETA, row, 30)
    assert not list(faults_of_law(group))


def test_half_of_the_momentum_power_is_renewed_per_unit_of_time():
    for step in (0.05, 0.2, 0.5):
        gamma = refresh_share(step)
        assert (1.0 - gamma) ** (1.0 / step) == pytest.approx(0.5)
        row = pack("persistent", np.array([step]), np.ones((1, 2)))[0]
        # v' = -keep v + ...: the correlation over a unit of time is sqrt(1/2) in size
        assert row[transition.KEEP] ** (1.0 / step) == pytest.approx(np.sqrt(0.5))


# Bugs are planted into the interpreted source of the compiled functions.


def refresh_with_the_misprint(momentum, keep, rng):
    momentum[:] = -keep * momentum + (1.0 - keep**2) * rng.standard_normal(momentum.size)


def refresh_without_the_sign(momentum, keep, rng):
    momentum[:] = keep * momentum + np.sqrt(1.0 - keep**2) * rng.standard_normal(momentum.size)


def always_accept(density, point, momentum, beta, params, scratch, rng, totals):
    """One leapfrog step without Metropolis."""
    half = 0.5 * params[STEP] * params[SCALE:]
    momentum += half * (point.grads[0] + beta * point.grads[1])
    point.x[:] += 2.0 * half * momentum
    particles.evaluate_rows(
        prior("gaussian").path.density, point.x[None], point.values[None], point.grads[None],
        np.empty((0, 0)),
    )  # fmt: skip
    momentum += half * (point.grads[0] + beta * point.grads[1])
    momentum *= -1.0


def planted(monkeypatch, **bugs):
    """Let `sweep` and `anneal` run interpreted, with other functions in the transition."""
    for name, bug in bugs.items():
        monkeypatch.setattr(transition, name, bug)
    monkeypatch.setattr(particles, "move", transition.move.py_func)
    monkeypatch.setattr(particles, "_sweep", particles._sweep.py_func)
    monkeypatch.setattr(particles, "_anneal", particles._anneal.py_func)


@pytest.mark.parametrize(
    ("bug", "fault"),
    [
        ({"refresh": refresh_with_the_misprint}, "momentum"),
        ({"leapfrog": always_accept}, "state"),
    ],
)
def test_law_sees_a_planted_bug(bug, fault, monkeypatch):
    planted(monkeypatch, **bug)
    group = at_equilibrium(2_000)
    sweep(group, BETA, schedule("persistent", np.array([0.0, BETA, 1.0])).params[1], 5)
    assert any(fault in sentence for sentence in faults_of_law(group))


def test_a_momentum_that_turns_back_moves_less(monkeypatch):
    """The sign of step 4 undoes that of step 3; the law cannot see it, the distance does."""

    def distance(n):
        group = at_equilibrium(n)
        start = group.xs.copy()
        row = pack("persistent", np.array([0.15]), moments(BETA)[1][None])[0]
        sweep(group, BETA, row, 8)
        return np.mean(((group.xs - start) / moments(BETA)[1]) ** 2)

    right = distance(4_000)
    planted(monkeypatch, refresh=refresh_without_the_sign)
    assert distance(500) < 0.5 * right


# From each rung down to the next the weights have finite variance, with room.
LADDER = np.array([0.0, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0])
REPEATS = {"metropolis": 12}


def log_weights(name, n, down=False, rungs=None, seed=3):
    """Log weights along a short ladder, up from the prior or down from the exact posterior."""
    # One random walk step a rung leaves the weights of harmonic means: of infinite variance.
    plan = rungs or schedule(name, np.repeat(LADDER, REPEATS.get(name, 1)), wrong=0.8)
    group = (
        at_equilibrium(n, 1.0, seed)
        if down
        else draw_particles(prior("gaussian"), n, np.random.default_rng(seed))
    )
    top = plan.betas.size - 1
    log_w, sums = np.zeros(n), np.zeros((top + 1, 3))
    sums[:, 0] = -np.inf
    trace = np.zeros((n, top))
    anneal(group, plan.betas, plan.params, 0, 2, log_w, sums, down=down, trace=trace)
    anneal(group, plan.betas, plan.params, 2, top, log_w, sums, down=down, trace=trace)
    return log_w, sums, trace, plan.betas[::-1] if down else plan.betas


def bias_in_errors(log_w, exact):
    """Mean of w / Z less one, in standard errors."""
    w = np.exp(log_w - exact)
    return (w.mean() - 1.0) / (w.std(ddof=1) / np.sqrt(w.size))


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_weights_are_unbiased_and_their_logarithms_are_not(name, down):
    """|z| < 4 each: false alarm 6e-5; the logarithm is off by more than 10 errors."""
    n = 8_000
    exact = system("gaussian").log_evidence * (-1.0 if down else 1.0)
    log_w, sums, trace, betas = log_weights(name, n, down)
    assert abs(bias_in_errors(log_w, exact)) < 4.0
    assert log_w.mean() - exact < -10.0 * log_w.std() / np.sqrt(n)
    # the weight of each particle is the Riemann sum over its path, RTS equation (23)
    np.testing.assert_allclose(log_w, riemann_log_weights(betas, trace))
    # and each partial sum is unbiased for its rung
    k = betas.size // 2
    middle = np.cumsum(np.diff(betas) * trace, axis=1)[:, k - 1]
    at = system("gaussian").log_z(float(betas[k])) - system("gaussian").log_z(float(betas[0]))
    assert abs(bias_in_errors(middle, at)) < 4.0
    assert sums[k, 0] + np.log(sums[k, 1] / n) == pytest.approx(log_mean(middle))


@pytest.mark.parametrize("down", [False, True])
def test_where_the_path_is_cut_does_not_change_the_draws(down):
    """Pieces are cut by the clock; same seeds must give the same numbers all the same."""
    plan, results = schedule("persistent", LADDER), []
    for cuts in ([0, 8], [0, 1, 2, 3, 8]):
        group = at_equilibrium(10, 1.0)
        log_w, sums = np.zeros(10), np.full((9, 3), -np.inf)
        for first, last in pairwise(cuts):
            anneal(group, plan.betas, plan.params, first, last, log_w, sums, down=down)
        results.append(log_w)
    np.testing.assert_array_equal(*results)
    links = []
    for cuts in ([1, 9], [1, 2, 5, 9]):
        rng = np.random.default_rng(9)
        group, log_r = linked.start_links(prior("gaussian"), 10, 4, plan.betas, rng)
        for first, last in pairwise(cuts):
            linked.link_rungs(group, plan, first, last, 4, log_r)
        links.append(log_r)
    np.testing.assert_array_equal(*links)


def test_unbiasedness_sees_planted_bugs(monkeypatch):
    exact, n = system("gaussian").log_evidence, 1_200
    plan = schedule("persistent", LADDER, wrong=0.8)
    right = plan.betas.copy()
    planted(monkeypatch)
    real_move = particles.move

    def late(density, point, momentum, beta, *rest):
        k = int(np.argmin(np.abs(right - beta)))
        real_move(density, point, momentum, right[k - 1] if k else 0.0, *rest)

    monkeypatch.setattr(particles, "move", late)  # beta off by one
    assert abs(bias_in_errors(log_weights("persistent", n, rungs=plan)[0], exact)) > 4.0
    monkeypatch.setattr(particles, "move", real_move)
    plan = BetaSchedule(plan.betas, pack("leapfrog", np.full(9, 1.5), plan.params[:, SCALE:]), 0)
    assert abs(bias_in_errors(log_weights("leapfrog", n, rungs=plan)[0], exact)) < 4.0
    monkeypatch.setattr(transition, "leapfrog", always_accept)  # no Metropolis
    assert abs(bias_in_errors(log_weights("leapfrog", n, rungs=plan)[0], exact)) > 4.0


def test_linked_estimates_are_unbiased():
    rng = np.random.default_rng(4)
    plan = schedule("hmc", np.array([0.0, 0.1, 0.4, 1.0]), wrong=0.8)
    exact = system("gaussian").log_evidence

    def log_r(length, n):
        group, log_r = linked.start_links(prior("gaussian"), n, length, plan.betas, rng)
        for first in range(1, 4):
            linked.link_rungs(group, plan, first, first + 1, length, log_r)
        return log_r

    for length in (1, 2, 5):
        assert abs(bias_in_errors(log_r(length, 8_000), exact)) < 4.0
    # one state a rung with its geometric bridge is annealed importance sampling
    assert np.std(log_r(10, 2_000)) < 0.6 * np.std(log_r(1, 2_000))


def test_links_that_ignore_their_weights_are_seen():
    rng = np.random.default_rng(5)
    plan = schedule("hmc", np.array([0.0, 0.5, 1.0]))
    _, log_r = linked.start_links(prior("gaussian"), 8_000, 5, plan.betas, rng)
    group = draw_particles(prior("gaussian"), 8_000, rng)  # planted bug
    for first in (1, 2):
        linked.link_rungs(group, plan, first, first + 1, 5, log_r)
    assert abs(bias_in_errors(log_r, system("gaussian").log_evidence)) > 4.0


@cache
def half_dead():
    """A prior of which a part has zero likelihood: log Z = log P(x > 0) = log(1/2)."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("half", pm.math.switch(x > 0.0, 0.0, -np.inf))
    return compile_model(model)


def test_particles_of_zero_likelihood_weigh_nothing():
    n = 2_000
    group = draw_particles(half_dead(), n, np.random.default_rng(6))
    betas = np.array([0.0, 0.5, 1.0])
    params = pack("hmc", np.full(3, 0.5), np.ones((3, 1)))
    log_w, sums = np.zeros(n), np.full((3, 3), -np.inf)
    anneal(group, betas, params, 0, 2, log_w, sums)
    assert set(np.unique(log_w)) == {-np.inf, 0.0}
    share = np.mean(log_w == 0.0)
    assert abs(share - 0.5) < 4.0 * 0.5 / np.sqrt(n)
    assert (group.xs[log_w == 0.0] > 0.0).all()
