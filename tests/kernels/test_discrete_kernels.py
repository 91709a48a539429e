"""Kernels of discrete variables, on a path whose law at every beta is enumerated."""

import itertools
from importlib import import_module

import numpy as np
import pytest
from scipy import stats
from support.compiled_density import compiled_density
from support.moves import Moves
from support.planted import with_bug

from pymc_tempering.kernels import (
    ACCEPTANCE,
    DIVERGED,
    N_EVALUATIONS,
    Block,
    DiscreteLangevin,
    Gibbs,
    RandomWalkMetropolis,
    Slice,
)
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, new_point
from pymc_tempering.model.jit import njit

slice_module = import_module("pymc_tempering.kernels.gradient_free")

# Three coupled binary variables, one with four values and one without an upper bound.
FIELD = np.array([0.4, -0.7, 0.2])
COUPLING = np.array([1.3, -0.9, 0.6])
CATEGORY = np.array([0.1, 0.4, 0.3, 0.2])
RATE, MANY = 2.5, 24
BETAS = (0.05, 0.4, 1.0)

LOG_CATEGORY = np.log(CATEGORY)
LOG_FACTORIAL = np.cumsum(np.log(np.maximum(np.arange(400), 1)))


@compiled_density
def density(x, values, grads):
    """The prior has independent variables, the likelihood couples all of them."""
    n = int(x[4])
    if n < 0 or n >= 400:
        values[:] = -np.inf
        return
    if x[:4].min() < 0 or x[:3].max() > 1 or x[3] > 3:
        values[:] = 50.0  # it does not know those bounds; kernels have to
        return
    values[0] = FIELD[0] * x[0] + FIELD[1] * x[1] + FIELD[2] * x[2]
    values[0] += LOG_CATEGORY[int(x[3])] + n * np.log(RATE) - LOG_FACTORIAL[n]
    pairs = COUPLING[0] * x[0] * x[1] + COUPLING[1] * x[1] * x[2] + COUPLING[2] * x[0] * x[2]
    tilt = x[0] - 0.5 * x[1]
    values[1] = 2.0 * pairs + 0.3 * tilt * x[3] - 0.05 * (n - 1.0 - x[3]) ** 2
    if grads.shape[0] > 0:
        grads[:] = 0.0
        grads[0, :3] = FIELD
        grads[1, 0] = 2.0 * (COUPLING[0] * x[1] + COUPLING[2] * x[2]) + 0.3 * x[3]
        grads[1, 1] = 2.0 * (COUPLING[0] * x[0] + COUPLING[1] * x[2]) - 0.15 * x[3]
        grads[1, 2] = 2.0 * (COUPLING[1] * x[1] + COUPLING[2] * x[0])


STATES = np.array(list(itertools.product((0, 1), (0, 1), (0, 1), range(4), range(MANY))), float)


def probabilities(beta):
    """Exact probabilities of all states."""
    point = new_point(5)
    log_p = np.empty(len(STATES))
    for i, x in enumerate(STATES):
        density(x, point.values, point.grads)
        log_p[i] = point.values[0] + beta * point.values[1]
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


BINARIES = Block(np.arange(3), np.zeros(3), np.ones(3), np.ones(3, dtype=bool))
BOUNDED = Block(np.arange(4), np.zeros(4), np.array([1.0, 1.0, 1.0, 3.0]), np.ones(4, dtype=bool))
ALL = Block(
    np.arange(5), np.array([0, 0, 0, 0, -np.inf]), np.array([1, 1, 1, 3, np.inf]),
    np.ones(5, dtype=bool),
)  # fmt: skip

# name: (factory, block that it moves, step size)
ROWS = {
    "gibbs": (Gibbs, BOUNDED, 1.0),
    "langevin": (DiscreteLangevin, BINARIES, 0.6),
    "langevin, bold": (DiscreteLangevin, BINARIES, 5.0),
    "slice": (Slice, ALL, 1.0),
    "slice, wide": (lambda: Slice(width=9.0), ALL, 1.0),
    "slice, narrow": (lambda: Slice(width=0.5), ALL, 1.0),
    "metropolis": (lambda: RandomWalkMetropolis(n_steps=4), ALL, 0.7),
}


def moves_of(name, beta, seed, transition=None):
    """A state under a kernel at one beta."""
    factory, block, step = ROWS[name]
    scales = np.ones(block.size)
    return Moves(
        factory(), density, 5, block, step, scales, beta=beta, seed=seed, transition=transition
    )


def law_pvalue(name, beta, seed, n=6000, times=2, transition=None):
    """Chi-square p-value of the joint law after a few moves of exact draws, and what moved."""
    moves = moves_of(name, beta, seed, transition)
    p = probabilities(beta)
    start = moves.rng.choice(len(p), n, p=p)
    weights = np.array([4 * MANY * 4, 4 * MANY * 2, 4 * MANY, MANY, 1])
    ends, *_ = moves.each(STATES[start], times)
    end = (np.minimum(ends, [1, 1, 1, 3, MANY - 1]) @ weights).astype(int)
    # Cells in the order of their probability, joined until each expects 20
    order = np.argsort(p)
    cells = np.empty(len(p), dtype=int)
    cells[order] = np.minimum(np.cumsum(p[order]) * n // 20, n // 20 - 1).astype(int)
    expected = np.bincount(cells, p) * n
    found = np.bincount(cells[end], minlength=expected.size)
    kept = expected > 0
    return stats.chisquare(found[kept], expected[kept]).pvalue, (start != end).mean()


@pytest.mark.slow("repeats", every=2)
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("name", ROWS)
def test_exact_draws_keep_their_law(name, beta):
    # p > 1e-4: false alarm 1e-4 a case, seed fixed
    p, moved = law_pvalue(name, beta, seed=1)
    assert p > 1e-4
    assert moved > 0.1


@njit(KERNEL_SIGNATURE)
def _langevin_without_reverse(density, point, beta, block, params, scratch, rng, info):
    """Accept by the ratio of the densities alone."""
    before = point.values[0] + beta * point.values[1]
    for i in range(block.size):
        j = block[i]
        odds = 0.5 * (1.0 - 2.0 * point.x[j]) * (point.grads[0, j] + beta * point.grads[1, j])
        scratch[0, i] = 1.0 if rng.random() * (1.0 + np.exp(-odds)) < 1.0 else 0.0
    for i in range(block.size):
        if scratch[0, i] > 0:
            point.x[block[i]] = 1.0 - point.x[block[i]]
    density.code(point.x, point.values, point.grads, density.data)
    if rng.random() >= np.exp(point.values[0] + beta * point.values[1] - before):
        for i in range(block.size):
            if scratch[0, i] > 0:
                point.x[block[i]] = 1.0 - point.x[block[i]]
        density.code(point.x, point.values, point.grads, density.data)


@njit(KERNEL_SIGNATURE)
def _gibbs_from_below(density, point, beta, block, params, scratch, rng, info):
    """Draw from the conditional without the temperature."""
    for i in range(block.size):
        j = block[i]
        log_p = np.empty(2)
        for v in range(2):
            point.x[j] = v
            density.code(point.x, point.values, point.grads, density.data)
            log_p[v] = point.values[0] + point.values[1]
        point.x[j] = 1.0 if rng.random() * (1.0 + np.exp(log_p[0] - log_p[1])) < 1.0 else 0.0
    density.code(point.x, point.values, point.grads, density.data)


@njit(KERNEL_SIGNATURE)
def _slice_that_is_too_thin(density, point, beta, block, params, scratch, rng, info):
    """Draw the level from the upper half of its range."""
    j = 4
    floor = point.values[0] + beta * point.values[1] + np.log(1.0 - 0.5 * rng.random())
    x0 = point.x[j]
    while True:
        point.x[j] = max(0.0, x0 - 6.0) + np.floor(rng.random() * 13.0)
        density.code(point.x, point.values, point.grads, density.data)
        if point.values[0] + beta * point.values[1] > floor:
            break


@pytest.mark.slow("repeats", quick=["thin slice"])
@pytest.mark.parametrize(
    ("name", "transition"),
    [
        ("langevin", _langevin_without_reverse),
        ("langevin", _gibbs_from_below),
        ("slice", _slice_that_is_too_thin),
    ],
    ids=["no reverse proposal", "no temperature", "thin slice"],
)
def test_planted_bugs_change_the_law(name, transition):
    p, _ = law_pvalue(name, 0.4, seed=1, n=20_000, times=3, transition=transition)
    assert p < 1e-8


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients_are_those_of_the_state(name):
    moves = moves_of(name, 0.4, seed=3)
    moves.start([1.0, 0.0, 1.0, 2.0, 3.0])
    fresh = new_point(5)
    seen = set()
    for _ in range(200):
        x = moves()
        density(x, fresh.values, fresh.grads)
        np.testing.assert_array_equal(moves.point.values, fresh.values)
        if moves.kernel.uses_gradient:
            np.testing.assert_array_equal(moves.point.grads, fresh.grads)
        assert 0.0 <= moves.info[ACCEPTANCE] <= 1.0
        # a proposal beyond the bounds needs no evaluation
        assert moves.info[N_EVALUATIONS] >= (0.0 if name == "metropolis" else 1.0)
        assert moves.info[DIVERGED] == 0.0
        np.testing.assert_array_equal(x, np.rint(x))
        still = np.setdiff1d(np.arange(5), moves.block.indices)
        np.testing.assert_array_equal(x[still], np.array([1.0, 0.0, 1.0, 2.0, 3.0])[still])
        seen.add(tuple(x))
    assert len(seen) > 5


# Integers whose likely values have gaps between them: an interval of two integers must be as likely
# from each of them.
GAPS = np.array([0.02, 0.02, 1.0, 0.02, 1.0, 0.02, 1.0, 0.02, 0.02])
LOG_GAPS = np.log(GAPS / GAPS.sum())


@compiled_density
def gaps(x, values, grads):
    """Nine integers; anything else has no density."""
    n = int(x[0])
    values[0] = LOG_GAPS[n] if 0 <= n < 9 else -np.inf
    values[1] = 0.0


def pvalue_with_gaps(transition):
    """Chi-square p-value of the law after ten updates of exact draws, cells of two integers."""
    block = Block(np.zeros(1, int), np.full(1, -np.inf), np.full(1, np.inf), np.ones(1, bool))
    moves = Moves(
        Slice(width=2.0), gaps, 1, block, 1.0, np.ones(1), beta=1.0, seed=11, transition=transition
    )
    p = np.exp(LOG_GAPS)
    starts = moves.rng.choice(9, 40_000, p=p)
    ends, *_ = moves.each(starts[:, None], times=10)
    counts = np.bincount(ends[:, 0].astype(int), minlength=9)
    return stats.chisquare(counts, counts.sum() * p).pvalue


@pytest.mark.slow("repeats")
def test_slices_with_gaps_keep_the_law():
    """p > 1e-4; planted: the two ends ask different integers whether to go on."""
    assert pvalue_with_gaps(Slice().transition) > 1e-4
    planted = with_bug(slice_module, "point.x[j] = low\n", "point.x[j] = low - 1.0\n")
    assert pvalue_with_gaps(planted["slice_transition"]) < 1e-8
