"""Particles keep pi_beta, weights are unbiased in both directions, planted bugs are seen."""

from functools import cache, partial
from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from scipy import stats as sps
from support.compiled_systems import prior, system
from support.planted import with_bug
from support.riemann_sums import riemann_log_weights

from pymc_tempering.annealed.schedule import BetaSchedule
from pymc_tempering.chain.particles import carry, draw_particles, place, sweep
from pymc_tempering.chain.plan import Tuning
from pymc_tempering.core.weighting import log_mean
from pymc_tempering.exceptions import KernelError
from pymc_tempering.kernels import HMC, RandomWalkMetropolis, hmc, on_all
from pymc_tempering.kernels.hmc import Persistent, refresh_share
from pymc_tempering.references.compile import compile_model

BETA = 0.4
KERNELS = {
    "hmc": partial(HMC, path_length=1.2),
    "leapfrog": partial(HMC, max_steps=1),
    "persistent": Persistent,
    "metropolis": RandomWalkMetropolis,
}
STEPS = {"hmc": 0.7, "leapfrog": 1.0, "persistent": 0.8, "metropolis": 1.2}


def moments(beta):
    """Mean and standard deviation of the Gaussian test system at beta, each of shape (d,)."""
    mean, variance = system("gaussian").moments(beta)["x"]
    return mean, np.sqrt(variance)


def compound(name, kernel=None):
    return on_all(kernel or KERNELS[name](), moments(BETA)[0].size)


def tuned(kernel, betas, step, scales):
    """Schedule of a compound of one kernel with the same step size everywhere."""
    steps = np.full((betas.size, 1), step)
    lengths = np.tile(kernel.options[0], (betas.size, 1))
    return BetaSchedule(kernel, Tuning(betas, steps, scales, (None,), lengths))


def schedule(name, betas, wrong=1.0, kernel=None):
    """Schedule with the exact standard deviations, but for a factor `wrong`."""
    scales = wrong * np.array([moments(beta)[1] for beta in betas])
    return tuned(compound(name, kernel), betas, STEPS[name], scales)


def row_at(name, beta=BETA, kernel=None):
    """Tuning numbers of a kernel at one beta."""
    return schedule(name, np.array([0.0, beta, 1.0]), kernel=kernel).params[1]


def at_equilibrium(n, name, beta=BETA, seed=1, kernel=None):
    """Particles drawn from pi_beta exactly."""
    rng = np.random.default_rng(seed)
    mean, sd = moments(beta)
    xs = mean + sd * rng.normal(size=(n, mean.size))
    return place(prior("gaussian"), compound(name, kernel), xs, rng)


def momenta(group):
    return group.scratch[:, 0]


def faults_of_law(group, beta=BETA):
    """Sentences where states and carried momenta are not those of pi_beta and a standard normal.

    Kolmogorov-Smirnov tests, z-tests of the variance and of the product of a state with its
    momentum at 1e-4 each, 10 in all: false alarm 1e-3.
    """
    mean, sd = moments(beta)
    n = group.n
    columns = {"state": (group.xs - mean) / sd}
    if group.kernel.carries:
        columns["momentum"] = momenta(group)
    for name, columns_of in columns.items():
        for i, column in enumerate(columns_of.T):
            if sps.kstest(column, "norm").pvalue < 1e-4:
                yield f"{name} {i} has another law"
            if abs(column.var() - 1.0) > 3.9 * np.sqrt(2.0 / n):
                yield f"variance of {name} {i} is {column.var():.3f}"
    if group.kernel.carries:
        product = np.mean(columns["state"] * columns["momentum"], axis=0)
        if np.max(np.abs(product)) > 3.9 / np.sqrt(n):
            yield f"state and momentum depend on each other: {product}"


@pytest.mark.parametrize("name", KERNELS)
def test_transition_keeps_its_law(name):
    group = at_equilibrium(10_000, name)
    start = group.xs.copy()
    sweep(group, BETA, row_at(name), 5)
    assert not list(faults_of_law(group))
    moved = np.mean(np.abs(group.xs - start) > 1e-12)
    assert moved > 0.9  # it does something
    again = place(prior("gaussian"), group.kernel, group.xs, np.random.default_rng(0))
    np.testing.assert_array_equal(group.values, again.values)
    if group.kernel.uses_gradient:
        np.testing.assert_array_equal(group.grads, again.grads)


@pytest.mark.parametrize("name", ["hmc", "persistent"])
def test_transition_forgets_where_it_began(name):
    """From prior draws the law of pi_beta is reached."""
    group = draw_particles(prior("gaussian"), compound(name), 5_000, np.random.default_rng(2))
    assert list(faults_of_law(group))
    sweep(group, BETA, row_at(name), 30)
    assert not list(faults_of_law(group))


def test_half_of_the_momentum_power_is_renewed_per_unit_of_time():
    for step in (0.05, 0.2, 0.5):
        gamma = refresh_share(step)
        assert (1.0 - gamma) ** (1.0 / step) == pytest.approx(0.5)
        row = compound("persistent").pack(np.array([step]), np.ones(2), None)
        # v' = -keep v + ...: the correlation over a unit of time is sqrt(1/2) in size
        assert row[hmc.KEEP] ** (1.0 / step) == pytest.approx(np.sqrt(0.5))


# Bugs are planted into the source text of the compiled kernel.
BUGS = {
    "the misprint of HAIS": ("np.sqrt(1.0 - keep * keep)", "1.0 - keep * keep", "momentum"),
    "no Metropolis": ("if rng.random() < info[ACCEPTANCE]:", "if True:", "state"),
    "momentum not turned after a rejection": (
        "momentum[i] = start_v[i]", "momentum[i] = -start_v[i]", "depend on each other",
    ),
    "another beta": ("set_force(point, beta,", "set_force(point, 0.3 * beta + 0.6,", "state"),
    "turned twice": ("-keep * momentum[i]", "keep * momentum[i]", None),
}  # fmt: skip


@cache
def planted(bug):
    """Persistent kernel with a bug in its source."""
    right, wrong, _ = BUGS[bug]
    namespace = with_bug(hmc, right, wrong, after="def refresh_share(")
    return namespace["Persistent"]()


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("bug", [bug for bug, (*_, fault) in BUGS.items() if fault is not None])
def test_law_sees_a_planted_bug(bug):
    """With large steps, so that a part of them is rejected."""
    fault = BUGS[bug][-1]
    kernel = planted(bug)
    group = at_equilibrium(10_000, "persistent", kernel=kernel)
    row = compound("persistent", kernel).pack(np.array([1.7]), moments(BETA)[1], None)
    sweep(group, BETA, row, 5)
    found = list(faults_of_law(group))
    assert any(fault in sentence for sentence in found)
    right = at_equilibrium(10_000, "persistent")
    sweep(right, BETA, row, 5)
    assert not list(faults_of_law(right))


@pytest.mark.slow("compiles models of its own")
def test_a_momentum_that_turns_back_moves_less():
    """The law cannot see it, the distance does."""

    def distance(kernel):
        group = at_equilibrium(4_000, "persistent", kernel=kernel)
        start = group.xs.copy()
        row = group.kernel.pack(np.array([0.15]), moments(BETA)[1], None)
        sweep(group, BETA, row, 8)
        return np.mean(((group.xs - start) / moments(BETA)[1]) ** 2)

    assert distance(planted("turned twice")) < 0.5 * distance(Persistent())


# From each rung down to the next the weights have finite variance, with room.
LADDER = np.array([0.0, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0])
REPEATS = {"metropolis": 12, "leapfrog": 3}


def log_weights(name, n, down=False, rungs=None, seed=3):
    """Log weights along a short ladder, up from the prior or down from the exact posterior."""
    # One short step a rung leaves the weights of harmonic means: of infinite variance.
    plan = rungs or schedule(name, np.repeat(LADDER, REPEATS.get(name, 1)), wrong=0.8)
    own = plan.reversed() if down else plan
    kernel = own.kernel.kernels[0]
    group = (
        at_equilibrium(n, name, 1.0, seed, kernel)
        if down
        else draw_particles(prior("gaussian"), own.kernel, n, np.random.default_rng(seed))
    )
    top = plan.betas.size - 1
    log_w, sums = np.zeros(n), np.zeros((top + 1, 3))
    sums[:, 0] = -np.inf
    trace = np.zeros((n, top))
    steps = np.diff(plan.betas[::-1] if down else plan.betas)
    for k in range(top):
        trace[:, k], before = group.log_ratio, log_w.copy()
        carry(group, plan.betas, own.params, k, k + 1, log_w, sums, down=down)
        if down and k == 0:  # they moved before
            trace[:, k] = (log_w - before) / steps[k] if steps[k] else 0.0  # it then counts nothing
    return log_w, sums, trace, plan.betas[::-1] if down else plan.betas


def bias_in_errors(log_w, exact):
    """Mean of w / Z less one, in standard errors."""
    w = np.exp(log_w - exact)
    return (w.mean() - 1.0) / (w.std(ddof=1) / np.sqrt(w.size))


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("name", KERNELS)
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
        group = at_equilibrium(10, "persistent", 1.0)
        log_w, sums = np.zeros(10), np.full((9, 3), -np.inf)
        for first, last in pairwise(cuts):
            carry(group, plan.betas, plan.params, first, last, log_w, sums, down=down)
        results.append(log_w)
    np.testing.assert_array_equal(*results)


@pytest.mark.slow("repeats")
def test_unbiasedness_sees_planted_bugs():
    exact, n = system("gaussian").log_evidence, 8_000
    plan = schedule("persistent", LADDER, wrong=0.8)
    assert abs(bias_in_errors(log_weights("persistent", n, rungs=plan)[0], exact)) < 4.0
    late = np.concatenate([LADDER[:1], LADDER[:-1]])  # each move at the beta of the rung before
    group = draw_particles(prior("gaussian"), plan.kernel, n, np.random.default_rng(3))
    log_w = np.zeros(n)
    for k in range(LADDER.size - 1):
        log_w += (LADDER[k + 1] - LADDER[k]) * group.log_ratio
        sweep(group, max(late[k + 1], 1e-9), plan.params[k + 1])
    assert abs(bias_in_errors(log_w, exact)) > 4.0
    for bug in ("no Metropolis", "another beta"):
        wrong = tuned(compound("persistent", planted(bug)), LADDER, 1.5, plan.tuning.scales)
        assert abs(bias_in_errors(log_weights("persistent", n, rungs=wrong)[0], exact)) > 4.0


def test_a_kernel_without_a_known_reversal_is_named():
    from pymc_tempering.kernels import NUTS

    with pytest.raises(KernelError, match="reversal in time of the kernel 'nuts' is not known"):
        on_all(NUTS(), 2).reversed()


@cache
def half_dead():
    """A prior of which a part has zero likelihood: log Z = log P(x > 0) = log(1/2)."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("half", pm.math.switch(x > 0.0, 0.0, -np.inf))
    return compile_model(model)


@pytest.mark.slow("compiles models of its own")
def test_particles_of_zero_likelihood_weigh_nothing():
    n = 2_000
    plan = tuned(on_all(HMC(path_length=1.2), 1), np.array([0.0, 0.5, 1.0]), 0.5, np.ones((3, 1)))
    group = draw_particles(half_dead(), plan.kernel, n, np.random.default_rng(6))
    log_w, sums = np.zeros(n), np.full((3, 3), -np.inf)
    carry(group, plan.betas, plan.params, 0, 2, log_w, sums)
    assert set(np.unique(log_w)) == {-np.inf, 0.0}
    share = np.mean(log_w == 0.0)
    assert abs(share - 0.5) < 4.0 * 0.5 / np.sqrt(n)
    assert (group.xs[log_w == 0.0] > 0.0).all()
