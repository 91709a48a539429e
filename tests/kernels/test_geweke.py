"""Joint distribution test (Geweke 2004) of the whole transition: data and state drawn in turn.

The joint law of data y, rung k and state x that the chain should keep is

    p(y) r_k pi_k(x | y),    pi_k(x | y) = p(x) p(y | x)^beta_k / Z_k(y),

with p(y) the marginal law of the data. One way to draw from it is directly; the other is to
iterate the chain at fixed y, with the exact Z_k(y), and to draw y given (x, k), whose density
p(y) p(y | x)^beta_k / Z_k(y) is Gaussian when prior and likelihood are. Both must agree.

The data lie in the second coordinate of the state, with a metric of zero, so that one compiled
density serves all of them and no kernel moves them.
"""

from functools import cache

import numba
import numpy as np
import pytest
from numba import types
from support.compiled_density import compiled_density
from support.gaussian_path import BETAS, PLANTED, SKEWED, ToyPath, ToyReference, batch_z

from pymc_tempering.chain.chains import new_record, start_chain
from pymc_tempering.chain.loop import (
    CHAIN,
    LADDER_MOVES,
    N_DRAWS,
    RECORD,
    REF_USED,
    RUNG,
    RUNGS,
    WORK,
    new_work,
    run,
)
from pymc_tempering.chain.plan import Plan, Tuning
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.kernels import HMC, NUTS
from pymc_tempering.kernels.contract import on_all
from pymc_tempering.model.compiled import DENSITY, EXPLORE, MATRIX, PARTS, RNG
from pymc_tempering.model.jit import njit

M, S, SIGMA = 0.7, 1.5, 0.6
N = 100_000


@compiled_density
def density(x, values, grads):
    """x[0] is the parameter, x[1] the datum."""
    z, r = (x[0] - M) / S, (x[1] - x[0]) / SIGMA
    values[0] = -0.5 * z * z
    values[1] = -0.5 * r * r
    grads[:] = 0.0
    grads[0, 0] = -z / S
    grads[1, 0] = r / SIGMA


@njit(
    types.void(EXPLORE, PARTS, DENSITY, RUNGS, CHAIN, RECORD, RNG, WORK, numba.float64[::1],
               MATRIX),
)  # fmt: skip
def successive(explore, parts, density, rungs, chain, record, rng, work, log_weights, out):
    """Turn by turn: the constants of the ladder for y, one iteration, y given (x, k)."""
    reference = np.empty((1, 2))
    y = M + np.sqrt(S**2 + SIGMA**2) * rng.standard_normal()
    for i in range(out.shape[0]):
        for k in range(rungs.betas.size):
            shrink = S**2 * rungs.betas[k] / SIGMA**2
            log_z = -0.5 * np.log1p(shrink)
            log_z -= 0.5 * (y - M) ** 2 * rungs.betas[k] / SIGMA**2 / (1.0 + shrink)
            rungs.offsets[k] = log_weights[k] - log_z
        reference[0, 0] = M + S * rng.standard_normal()
        reference[0, 1] = y
        chain.counters[REF_USED] = 0
        chain.counters[N_DRAWS] = 0
        chain.point.x[1] = y
        density.code(chain.point.x, chain.point.values, chain.point.grads, density.data)
        run(density, explore, parts, rungs, chain, record, reference, rng, work, 2, 1)
        # The rung after the move, at the state that the exploration left
        beta = rungs.betas[chain.counters[RUNG]]
        x = chain.point.x[0]
        precision = 1.0 / (S**2 + SIGMA**2)
        pull = M * precision
        if beta > 0.0:
            wide = 1.0 / (S**2 + SIGMA**2 / beta)
            precision += beta / SIGMA**2 - wide
            pull += beta / SIGMA**2 * x - wide * M
        y = pull / precision + rng.standard_normal() / np.sqrt(precision)
        out[i, 0] = chain.counters[RUNG]
        out[i, 1] = x
        out[i, 2] = y


def features(draws):
    """Statistics of the joint law: of the rung, of the data, and of the state at each rung."""
    k, x, y = draws.T
    at = k[:, None] == np.arange(len(BETAS))
    u = (x - M) / S
    v = (y - M) / np.hypot(S, SIGMA)
    by_rung = [at[:, j] * values for j in range(5) for values in (u, u**2, u * v, v)]
    return np.column_stack([at, v, v**2, v**3, np.tanh(v), u, u**2, *by_rung])


def direct(rng, n):
    """Draw from the joint law itself."""
    k = rng.choice(5, size=n, p=np.exp(SKEWED))
    y = M + np.hypot(S, SIGMA) * rng.standard_normal(n)
    precision = S**-2 + BETAS[k] / SIGMA**2
    mean = (M / S**2 + BETAS[k] * y / SIGMA**2) / precision
    return np.column_stack([k, mean + rng.standard_normal(n) / np.sqrt(precision), y])


@cache
def drawn_directly(n=5 * N):
    """Means of the features under the joint law, and their errors."""
    values = features(direct(np.random.default_rng(1), n))
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(n)


def scores(move, kernel=None, log_weights=SKEWED, seed=0):
    """z-scores of all features between the two ways to draw."""
    kernel = kernel or HMC()
    ladder = Ladder(BETAS, np.zeros(5), SKEWED)
    precision = S**-2 + BETAS / SIGMA**2
    scales = np.column_stack([precision**-0.5, np.zeros(5)])
    steps = np.full((5, 1), 0.8)
    compound = on_all(kernel, 2)
    tuning = Tuning(
        BETAS, steps, scales, (None,) * compound.n_blocks, np.tile(compound.options[0], (5, 1))
    )
    plan = Plan(ToyReference(ToyPath(density)), compound, ladder, tuning, move)
    state = start_chain(plan, np.random.default_rng(seed))
    out = np.empty((N, 3))
    successive(
        plan.kernel.explore, plan.kernel.parts, density, plan.rungs, state.chain,
        new_record(2, 5, 2), state.rng, new_work(plan.kernel, 5, 2), log_weights, out,
    )  # fmt: skip
    ours = features(out[2000:])
    mean, noise = drawn_directly()
    z = batch_z(ours, mean)
    error = np.abs(ours.mean(axis=0) - mean) / np.abs(z)
    return z * error / np.hypot(error, noise)


@pytest.mark.parametrize("move", LADDER_MOVES)
def test_data_and_states_drawn_in_turn_keep_the_joint_law(move):
    # 31 |z| < 4.5: false alarm 2e-4 a move, seed fixed
    assert np.abs(scores(move)).max() < 4.5


@pytest.mark.slow("repeats")
def test_nuts_keeps_the_joint_law():
    # The datum has a metric of zero, so its momentum stays and few trajectories ever turn.
    assert np.abs(scores("gibbs", NUTS(max_treedepth=3))).max() < 4.5


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("bug", ["no accept step", "beta off by a rung"])
def test_planted_bugs_of_the_exploration_are_seen(bug):
    assert np.abs(scores("gibbs", PLANTED[bug]())).max() > 8.0


@pytest.mark.parametrize("move", LADDER_MOVES)
def test_weights_of_another_rung_are_seen(move):
    assert np.abs(scores(move, log_weights=np.roll(SKEWED, 1))).max() > 8.0
