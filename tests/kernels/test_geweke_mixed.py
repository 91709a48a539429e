"""Joint distribution test (Geweke 2004) of a compound kernel: real and binary variables at once.

As in tests/kernels/test_geweke.py, but with one of three data sets y, so that p(y | x, k),
proportional to p(y) p(y | x)^beta_k / Z_k(y), is enumerated; Z_k(y) comes from a grid over the real
variable. The state is (mu, s, index of y); no kernel moves the last.
"""

from functools import cache

import numba
import numpy as np
import pytest
from numba import types
from scipy import stats
from support.compiled_density import compiled_density
from support.gaussian_path import BETAS, SKEWED, ToyPath, ToyReference, batch_z

from pymc_tempering.chain.chains import new_record, start_chain
from pymc_tempering.chain.loop import (
    CHAIN,
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
from pymc_tempering.kernels import HMC, Block, Compound, Gibbs, RandomWalkMetropolis, Slice
from pymc_tempering.model.compiled import DENSITY, EXPLORE, MATRIX, PARTS, RNG
from pymc_tempering.model.jit import njit

M, S, ON, GAP, SIGMA = 0.3, 1.2, 0.35, 1.6, 0.7
DATA = np.array([-1.0, 0.6, 2.4])
N = 60_000


@compiled_density
def density(x, values, grads):
    """x[0] is real, x[1] binary, x[2] says which of the data."""
    if x[1] < 0.0 or x[1] > 1.0:
        values[:] = -np.inf
        return
    z, center = (x[0] - M) / S, x[0] + GAP * x[1]
    values[0] = -0.5 * z * z + (np.log(ON) if x[1] > 0.5 else np.log(1.0 - ON))
    energies = -0.5 * ((DATA - center) / SIGMA) ** 2
    weights = np.exp(energies - energies.max())
    weights /= weights.sum()
    j = int(x[2])
    values[1] = np.log(weights[j])
    if grads.shape[0] > 0:
        grads[:] = 0.0
        grads[0, 0] = -z / S
        slopes = (DATA - center) / SIGMA**2
        grads[1, 0] = slopes[j] - (weights * slopes).sum()


GRID = np.linspace(M - 8 * S, M + 8 * S, 4001)


@cache
def exact():
    """Unnormalized pi_k(mu, s | y) on the grid, (K, Y, 2, G), and log Z_k(y), (K, Y)."""
    center = GRID + GAP * np.arange(2)[:, None]
    energies = -0.5 * ((DATA[:, None, None] - center) / SIGMA) ** 2
    log_p = energies - np.logaddexp.reduce(energies, axis=0)
    prior = stats.norm.pdf(GRID, M, S) * (GRID[1] - GRID[0]) * np.array([[1 - ON], [ON]])
    joint = prior * np.exp(BETAS[:, None, None, None] * log_p)
    return joint, np.log(joint.sum(axis=(2, 3)))


@njit(
    types.void(EXPLORE, PARTS, DENSITY, RUNGS, CHAIN, RECORD, RNG, WORK, numba.float64[::1],
               MATRIX, MATRIX),
)  # fmt: skip
def successive(explore, parts, density, rungs, chain, record, rng, work, log_weights, log_z, out):
    """Turn by turn: the constants of the ladder for y, one iteration, y given (x, k)."""
    reference = np.empty((1, 3))
    y = 1
    chance = np.empty(3)
    for i in range(out.shape[0]):
        for k in range(rungs.betas.size):
            rungs.offsets[k] = log_weights[k] - log_z[k, y]
        reference[0, 0] = M + S * rng.standard_normal()
        reference[0, 1] = 1.0 if rng.random() < ON else 0.0
        reference[0, 2] = y
        chain.counters[REF_USED] = 0
        chain.counters[N_DRAWS] = 0
        chain.point.x[2] = y
        density.code(chain.point.x, chain.point.values, chain.point.grads, density.data)
        run(density, explore, parts, rungs, chain, record, reference, rng, work, 2, 1)
        k = chain.counters[RUNG]
        x = chain.point.x
        total = 0.0
        for j in range(3):
            x[2] = j
            density.code(x, chain.point.values, chain.point.grads, density.data)
            log_p = log_z[rungs.betas.size - 1, j] - log_z[k, j]
            chance[j] = np.exp(log_p + rungs.betas[k] * chain.point.values[1])
            total += chance[j]
        u = rng.random() * total
        y = 0
        while y < 2 and u >= chance[y]:
            u -= chance[y]
            y += 1
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = k, x[0], x[1], y


def features(draws):
    """Statistics of the joint law: rung, data and state, and their products."""
    k, mu, s, y = draws.T
    at_rung = k[:, None] == np.arange(len(BETAS))
    at_data = y[:, None] == np.arange(3)
    u = (mu - M) / S
    by_rung = [at_rung[:, j] * v for j in range(5) for v in (u, u**2, s, s * u, s * at_data[:, 2])]
    return np.column_stack([at_rung, at_data, u, u**2, s, s * u, u[:, None] * at_data, *by_rung])


@cache
def drawn_directly(n=400_000):
    """Means of the features under the joint law, and their errors."""
    rng = np.random.default_rng(1)
    joint, log_z = exact()
    k = rng.choice(5, n, p=np.exp(SKEWED))
    y = rng.choice(3, n, p=np.exp(log_z[-1]))
    s, mu = np.empty(n), np.empty(n)
    for rung in range(5):
        for data in range(3):
            here = (k == rung) & (y == data)
            p = joint[rung, data].ravel()
            cell = rng.choice(p.size, here.sum(), p=p / p.sum())
            s[here] = cell // GRID.size
            mu[here] = GRID[cell % GRID.size] + (rng.random(here.sum()) - 0.5) * (GRID[1] - GRID[0])
    values = features(np.column_stack([k, mu, s, y]))
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(n)


def block(index, lower=-np.inf, upper=np.inf):
    whole = np.isfinite([lower])
    return Block(np.array([index]), np.array([lower]), np.array([upper]), whole)


COMPOUNDS = {
    "hmc + gibbs": (HMC(), Gibbs()),
    "slice + slice": (Slice(), Slice()),
    "hmc + metropolis": (HMC(), RandomWalkMetropolis(n_steps=3)),
}


def scores(name, log_weights=SKEWED):
    """z-scores of all features between the two ways to draw."""
    kernel = Compound(COMPOUNDS[name], (block(0), block(1, 0.0, 1.0)))
    scales = np.tile([0.8, 0.5, 1.0], (5, 1))
    plan = Plan(
        ToyReference(ToyPath(density, 3)), kernel, Ladder(BETAS, np.zeros(5), SKEWED),
        Tuning(
            BETAS, np.full((5, 2), 0.8), scales, (None,) * 2, np.tile(kernel.options[0], (5, 1))
        ),
        "gibbs",
    )  # fmt: skip
    state = start_chain(plan, np.random.default_rng(0))
    out = np.empty((N, 4))
    successive(
        kernel.explore, kernel.parts, density, plan.rungs, state.chain, new_record(2, 5, 3),
        state.rng, new_work(kernel, 5, 3), log_weights, exact()[1], out,
    )  # fmt: skip
    ours = features(out[1000:])
    mean, noise = drawn_directly()
    z = batch_z(ours, mean)
    error = np.abs(ours.mean(axis=0) - mean) / np.abs(z)
    return z * error / np.hypot(error, noise)


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("name", COMPOUNDS)
def test_real_and_binary_states_keep_the_joint_law(name):
    # 40 |z| < 4.5: false alarm 3e-4 a compound, seed fixed
    assert np.abs(scores(name)).max() < 4.5


@pytest.mark.slow("compiles models of its own")
def test_weights_of_another_rung_are_seen():
    assert np.abs(scores("hmc + gibbs", np.roll(SKEWED, 1))).max() > 8.0


@pytest.mark.slow("compiles models of its own")
def test_a_block_with_another_beta_is_seen(monkeypatch):
    """The planted bug: the binary variable is drawn at beta = 1."""
    from pymc_tempering.model.compiled import KERNEL_SIGNATURE

    cold = Gibbs().transition

    @numba.njit(KERNEL_SIGNATURE)
    def at_one(density, point, beta, block, params, scratch, rng, info):
        cold(density, point, 1.0, block, params, scratch, rng, info)

    gibbs = Gibbs()
    bug = type(gibbs)("bug", at_one, 0, gibbs.pack, gibbs.rebuild, gibbs.kinds)
    monkeypatch.setitem(COMPOUNDS, "bug", (HMC(), bug))
    assert np.abs(scores("bug")).max() > 8.0
