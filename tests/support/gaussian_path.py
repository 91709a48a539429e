"""A Gaussian path in closed form, written for the compiled layer without PyMC, and bugs for it."""

from dataclasses import dataclass, field
from functools import partial

import numba
import numpy as np
from scipy import stats
from scipy.special import logsumexp

from pymc_tempering.chain.chains import start_chain
from pymc_tempering.chain.plan import Plan, Tuning
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.kernels import HMC, Kernel, on_all
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, NO_MIXTURE, Mixing
from pymc_tempering.model.jit import njit
from support.compiled_density import compiled_density

# No symmetry in which a sign, an index or a factor could hide.
MEAN, SD = np.array([1.0, -0.5]), np.array([2.0, 0.8])
DATA, NOISE = np.array([-1.2, 0.9]), np.array([0.4, 0.7])
NO_INDICES = np.array([], dtype=np.int64)


@numba.njit
def gaussian(x, values, grads):
    values[:] = 0.0
    for i in range(2):
        z, r = (x[i] - MEAN[i]) / SD[i], (DATA[i] - x[i]) / NOISE[i]
        values[0] -= 0.5 * z * z + np.log(SD[i]) + 0.5 * np.log(2.0 * np.pi)
        values[1] -= 0.5 * r * r
        grads[0, i] = -z / SD[i]
        grads[1, i] = r / NOISE[i]


gaussian_density = compiled_density(gaussian)

WALL = 0.5
"""Beyond it, in x[0], the likelihood is zero or not a number."""


@compiled_density
def walled_density(x, values, grads):
    gaussian(x, values, grads)
    if x[0] > WALL:
        values[1] = -np.inf
        grads[1, :] = np.nan


@compiled_density
def nan_density(x, values, grads):
    gaussian(x, values, grads)
    if x[0] > WALL:
        values[1] = np.nan
        grads[1, :] = np.nan


def law(beta):
    """Mean and standard deviation, each (2,), of the Gaussian pi_beta."""
    precision = SD**-2 + beta * NOISE**-2
    return (MEAN / SD**2 + beta * DATA / NOISE**2) / precision, precision**-0.5


def log_z(betas, wall=np.inf):
    """Exact log Z of the path; with a wall, of the likelihood that is zero beyond it."""
    out = []
    for beta in np.atleast_1d(betas):
        mean, sd = law(beta)
        residual = (DATA - MEAN) ** 2 * beta / (NOISE**2 + beta * SD**2)
        value = -0.5 * residual.sum() - 0.5 * np.log1p(beta * SD**2 / NOISE**2).sum()
        inside = stats.norm.logcdf(wall, mean[0], sd[0]) if beta > 0 else 0.0
        out.append(value + inside)
    return np.array(out)


@dataclass(frozen=True)
class ToyPath:
    density: object = gaussian_density
    dim: int = 2
    circular: np.ndarray = field(default_factory=lambda: NO_INDICES)


@dataclass(frozen=True)
class ToyReference:
    """The reference of the path, with the methods of `Prior`."""

    path: ToyPath = ToyPath()
    name: str = "toy"
    mixture: Mixing = NO_MIXTURE

    def spawn(self, rng):
        return rng.spawn(1)

    def draw(self, n, rngs):
        return MEAN + SD * rngs[0].standard_normal((n, 2))


BETAS = np.array([0.0, 0.02, 0.12, 0.45, 1.0])
SKEWED = np.log(np.array([3.0, 1.0, 2.0, 1.5, 2.5]) / 10.0)
"""Log weights of the rungs of `BETAS`, all different."""


def make_plan(
    move="gibbs",
    *,
    kernel=None,
    density=gaussian_density,
    log_weights=None,
    log_zs=None,
    betas=BETAS,
    wall=np.inf,
    circular=NO_INDICES,
):
    """Plan on a ladder that is exact unless `log_zs` says otherwise."""
    log_weights = np.zeros(len(betas)) if log_weights is None else log_weights
    exact = log_z(betas, wall)
    ladder = Ladder(betas, exact if log_zs is None else log_zs, log_weights)
    scales = np.array([law(beta)[1] for beta in betas])
    reference = ToyReference(ToyPath(density, 2, circular))
    compound = on_all(kernel or HMC(), 2)
    lengths = np.tile(compound.options[0], (len(betas), 1))
    tuning = Tuning(ladder.betas, np.full((len(betas), 1), 0.8), scales, (None,), lengths)
    return Plan(reference, compound, ladder, tuning, move)


def chain_on(plan, seed):
    return start_chain(plan, np.random.default_rng(seed))


# Planted bugs. They wrap the kernel under test, of whatever kind it is.

_HMC = HMC().transition


@njit(KERNEL_SIGNATURE)
def _no_accept(density, point, beta, block, params, scratch, rng, info):
    """Leapfrog steps without the Metropolis test."""
    dim = point.x.size
    step = params[0]
    for i in range(dim):
        scratch[0, i] = rng.standard_normal()
    for _ in range(2):
        for i in range(dim):
            force = point.grads[0, i] + beta * point.grads[1, i]
            scratch[0, i] += 0.5 * step * params[3 + i] * force
            point.x[i] += step * params[3 + i] * scratch[0, i]
        density.code(point.x, point.values, point.grads, density.data)
        for i in range(dim):
            force = point.grads[0, i] + beta * point.grads[1, i]
            scratch[0, i] += 0.5 * step * params[3 + i] * force
    info[:] = 0.0
    info[0] = 1.0


@njit(KERNEL_SIGNATURE)
def _off_by_a_rung(density, point, beta, block, params, scratch, rng, info):
    """Explore at the beta of the rung below."""
    k = np.searchsorted(BETAS, beta)
    _HMC(density, point, BETAS[max(k - 1, 0)], block, params, scratch, rng, info)


@njit(KERNEL_SIGNATURE)
def _stale_values(density, point, beta, block, params, scratch, rng, info):
    """Forget to put the values back after a rejection."""
    value = point.values[1]
    _HMC(density, point, beta, block, params, scratch, rng, info)
    if rng.random() < 0.2:
        point.values[1] = value


def _planted(transition, target_accept=0.8):
    kernel = HMC(target_accept)
    return Kernel(
        "bug",
        transition,
        kernel.n_scratch,
        kernel.pack,
        (_planted, (transition,)),
        target_accept=0.8,
        uses_gradient=True,
    )


PLANTED = {
    "no accept step": partial(_planted, _no_accept),
    "beta off by a rung": partial(_planted, _off_by_a_rung),
    "stale values": partial(_planted, _stale_values),
}
"""Kernels with a bug, by what the bug is."""


# Statistics of correlated draws.


def batch_z(values, mean, n_batches=50):
    """z-scores of the means of a correlated series, shape (n,) or (n, m), by batch means."""
    values = np.asarray(values, dtype=float)
    batches = np.array([part.mean(axis=0) for part in np.array_split(values, n_batches)])
    return (values.mean(axis=0) - mean) / (batches.std(axis=0, ddof=1) / np.sqrt(n_batches))


def thin(values, n_batches=50):
    """Every m-th row, with m from batch means, so that the rows are nearly independent."""
    features = np.column_stack([values, (values - values.mean(axis=0)) ** 2])
    size = len(values) // n_batches
    batches = features[: size * n_batches].reshape(n_batches, size, -1).mean(axis=1)
    inflation = size * batches.var(axis=0, ddof=1) / features.var(axis=0)
    return values[:: max(1, int(np.ceil(1.5 * inflation.max())))]


def law_pvalues(x, beta):
    """KS p-values of draws (n, 2), independent, against the exact pi_beta: four statistics."""
    mean, sd = law(beta)
    z = (x - mean) / sd
    normal = [z[:, 0], z[:, 1], (z[:, 0] - z[:, 1]) / np.sqrt(2.0)]
    p = [stats.kstest(values, "norm").pvalue for values in normal]
    return np.array([*p, stats.kstest((z**2).sum(axis=1), "chi2", args=(2,)).pvalue])


def recount(ladder, log_ratio, rungs):
    """All sums of each cycle but `accept_sum`, from the trace of iterations, in plain Python."""
    top, cycles = ladder.n_rungs - 1, []
    sums, steps, tour_start, lowest, n_zero = {}, 0, False, top, 0
    came_from_top, before = True, 0.0
    zeros = {name: np.zeros(ladder.n_rungs) for name in RUNG_STATS}
    for ratio, k in zip(log_ratio, rungs, strict=True):
        if steps == 0:
            sums = {name: values.copy() for name, values in zeros.items()}
            tour_start, lowest, n_zero = False, top, 0
        if k == 0 and came_from_top:
            tour_start, came_from_top = True, False
            sums["rb_weight_head"] = sums["rb_weight"].copy()
        tilt = np.array([b * ratio if b > 0 else 0.0 for b in ladder.betas])
        log_q = ladder.log_weights - ladder.log_z + tilt
        q = np.exp(log_q - logsumexp(log_q))
        sums["rb_weight"] += q
        sums["visits"][k] += 1
        if ratio > -np.inf:
            sums["log_ratio_sum"][k] += ratio
            sums["log_ratio_sqsum"][k] += ratio**2
            sums["rb_log_ratio_sum"] += q * ratio
            sums["rb_log_ratio_sqsum"] += q * ratio**2
        if k > 0:
            sums["jump_sqsum"][k] += (ratio - before) ** 2
        if k < top:
            sums["up_accept_sum"][k] += min(1.0, q[k + 1] / q[k])
        steps, lowest, n_zero, before = (
            steps + 1,
            min(lowest, k),
            n_zero + (ratio == -np.inf),
            ratio,
        )
        if k == top:
            cycles.append((sums, steps, tour_start, lowest, n_zero))
            came_from_top, steps = True, 0
    return cycles
