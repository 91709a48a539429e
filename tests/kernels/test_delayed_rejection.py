"""HMC's second trajectory, of shorter steps: it keeps the law, and it leaves and enters necks."""

import numpy as np
import pytest
from numba import float64, int64
from scipy import stats
from support.compiled_density import compiled_density
from support.moves import Moves

from pymc_tempering.kernels import ACCEPTANCE, DIVERGED, HMC, N_EVALUATIONS, Block, hmc as module
from pymc_tempering.kernels.hmc import keep_state, put_back, second_trajectory
from pymc_tempering.model.compiled import (
    DENSITY,
    INDICES,
    MATRIX,
    POINT,
    RNG,
    VECTOR,
    new_point,
)
from pymc_tempering.model.jit import njit

SD = 1.5
"""Of the log of the funnel's width."""


@compiled_density
def funnel(x, values, grads):
    """Neal's funnel in two dimensions: v, and an effect of variance exp(v)."""
    v, effect = x[0], x[1]
    precision = np.exp(-v)
    values[0] = -0.5 * v * v / (SD * SD) - 0.5 * effect * effect * precision - 0.5 * v
    values[1] = 0.0
    grads[0, 0] = -v / (SD * SD) + 0.5 * effect * effect * precision - 0.5
    grads[0, 1] = -effect * precision
    grads[1, :] = 0.0


def energy_and_force(z, p):
    """Energy of many states of the funnel, and its gradient with the sign turned."""
    v, effect = z.T
    with np.errstate(over="ignore", invalid="ignore"):
        squares = effect**2 * np.exp(-v)
        energy = 0.5 * (v**2 / SD**2 + squares + v + (p**2).sum(axis=1))
        slope = np.column_stack([-v / SD**2 + 0.5 * squares - 0.5, -effect * np.exp(-v)])
    return energy, slope


def leapfrog(z, p, step, n):
    """Follow a trajectory from each of many states."""
    slope = energy_and_force(z, p)[1]
    for _ in range(n):
        with np.errstate(over="ignore", invalid="ignore"):
            p = p + 0.5 * step * slope
            z = z + step * p
            slope = energy_and_force(z, p)[1]
            p = p + 0.5 * step * slope
    return z, p


def walk_of(step, seed):
    """A point of the funnel under HMC of one step size, in units of x."""
    kernel = HMC(path_length=1.2, max_steps=16)
    return Moves(kernel, funnel, 2, Block.real(2), step, np.ones(2), beta=1.0, seed=seed)


@pytest.mark.parametrize("step", [0.7, 2.0])
def test_exact_draws_of_a_funnel_keep_their_law(step):
    """False alarm 2e-4 a case. A tenth and a third of the transitions need a second trajectory.

    Planted and seen to fail: the way back left out of the acceptance of the second trajectory.
    """
    n, times = 6000, 5
    walk, rng = walk_of(step, seed=1), np.random.default_rng(2)
    v = SD * rng.normal(size=n)
    before = np.column_stack([v, np.exp(0.5 * v) * rng.normal(size=n)])
    after, told, _ = walk.each(before, times)
    seconds = (told[:, ACCEPTANCE] < np.exp(-module.HOPELESS)).sum()
    assert seconds > 0.05 * n * times
    assert stats.kstest(after[:, 0] / SD, "norm").pvalue > 1e-4
    assert stats.kstest(after[:, 1] * np.exp(-0.5 * after[:, 0]), "norm").pvalue > 1e-4


@njit(int64(DENSITY, POINT, INDICES, VECTOR, MATRIX, RNG, VECTOR, float64[::1], int64))
def count_accepted(density, point, block, params, scratch, rng, momentum, numbers, n):
    """How many of n second trajectories from one state, with one momentum, are accepted."""
    shorter, step, n_steps, energy, first_error = numbers
    log_p, log_ratio = point.values
    keep_state(point, block, scratch, module.START)
    accepted = 0
    for _ in range(n):
        scratch[module.MOMENTUM] = momentum
        accepted += second_trajectory(
            density, point, 1.0, block, params, scratch, rng, shorter, step, n_steps, energy,
            first_error,
        )[0]  # fmt: skip
        put_back(point, block, scratch, module.START, log_p, log_ratio)
    return accepted


@pytest.mark.slow("compiles models of its own")
def test_a_second_trajectory_is_accepted_as_often_as_it_must_be():
    """False alarm 6e-5 a state, by the binomial law of 40,000 second trajectories each.

    What first trajectories leave over changes the probability by 8 to 15 per cent, too little for
    the laws above. Planted and seen to fail: that share left out, ten errors off at each state.
    """
    step, shorter, n_steps, n = 1.6, 0.5, 2, 40_000
    rng = np.random.default_rng(7)
    v = SD * rng.normal(size=20_000)
    z = np.column_stack([v, np.exp(0.5 * v) * rng.normal(size=v.size)])
    p = rng.normal(size=z.shape)
    start = energy_and_force(z, p)[0]
    first = energy_and_force(*leapfrog(z, p, step, n_steps))[0] - start
    there, turned = leapfrog(z, p, shorter, n_steps)
    second = energy_and_force(there, turned)[0] - start
    back = energy_and_force(*leapfrog(there, -turned, step, n_steps))[0] - start - second
    left_over = np.expm1(-back) / np.expm1(-first)
    wanted = np.exp(-second) * left_over
    serves = (first > module.HOPELESS) & (back > module.HOPELESS) & (first < 1000) & (back < 1000)
    serves &= (np.abs(left_over - 1.0) > 0.08) & (wanted > 0.3) & (wanted < 0.8)
    chosen = np.flatnonzero(serves)[:20]
    assert chosen.size == 20
    assert (left_over[chosen] > 1.0).any()
    assert (left_over[chosen] < 1.0).any()
    walk = walk_of(step, seed=8)
    for i in chosen:
        walk.start(z[i])
        numbers = np.array([shorter, step, n_steps, start[i], first[i]])
        seen = count_accepted(
            funnel, walk.point, walk.block.indices, walk.params, walk.scratch, walk.rng, p[i],
            numbers, n,
        ) / n  # fmt: skip
        error = np.sqrt(wanted[i] * (1 - wanted[i]) / n)
        assert abs(seen - wanted[i]) < 4 * error
        assert abs(seen - np.exp(-second[i])) > 10 * error


def test_a_chain_leaves_a_neck_that_is_far_too_narrow_for_its_step():
    """Width .011, step .5: a first trajectory alone is never accepted there."""
    walk = walk_of(0.5, seed=3)
    walk.start([-9.0, 0.005])
    path, told, _ = walk.follow(2000)
    assert ((path[:, 0] < -6.0) & (told[:, ACCEPTANCE] > 0.5)).sum() < 10
    assert path[:, 0].max() > -1.0


def test_values_gradients_and_what_is_told_are_those_of_the_state():
    walk, fresh = walk_of(1.5, seed=4), new_point(2)
    walk.start([-2.0, 0.1])
    before, rescued = walk.point.x.copy(), 0
    for _ in range(500):
        x = walk()
        funnel(x, fresh.values, fresh.grads)
        np.testing.assert_array_equal(walk.point.values, fresh.values)
        np.testing.assert_array_equal(walk.point.grads, fresh.grads)
        moved, second = (x != before).any(), walk.info[ACCEPTANCE] < np.exp(-module.HOPELESS)
        if moved and second and walk.info[ACCEPTANCE] == 0.0:
            rescued += 1
            assert walk.info[DIVERGED] == 0.0
        assert walk.info[N_EVALUATIONS] <= 3 * 16
        before = x
    assert rescued > 5


def test_where_steps_fit_a_second_trajectory_is_rare():
    a_wide_place = [3.0, 4.0] + 0.3 * np.random.default_rng(6).normal(size=(2000, 2))
    _, told, _ = walk_of(0.5, seed=5).each(a_wide_place, times=1)
    assert (told[:, ACCEPTANCE] < np.exp(-module.HOPELESS)).sum() <= 20
