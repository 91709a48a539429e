"""Particles: many states, moved by kernels at one inverse temperature, or along a schedule."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numba
import numpy as np
from numba import int64, types

from pymc_tempering.borrowed.private import NOT_COUNTED
from pymc_tempering.chain.loop import wrap_angles
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import Pace
from pymc_tempering.kernels import ACCEPTANCE, N_EVALUATIONS, N_INFO, Compound
from pymc_tempering.model.compiled import (
    DENSITY,
    EXPLORE,
    LOG_RATIO,
    MATRIX,
    MIXTURE,
    NO_MIXTURE,
    PARTS,
    RNG,
    VECTOR,
    Density,
    Mixing,
    Point,
    call_loop,
)
from pymc_tempering.model.jit import njit
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.prior import Reference

ROWS = numba.float64[:, :, ::1]
NOT_CIRCULAR = np.empty(0, dtype=np.int64)


class States(NamedTuple):
    """Arrays of n states that compiled code moves in place.

    `scratch` has one layer for all states, or one for each if kernels keep something in it.
    `infos` and `totals`, shape (B, N_INFO), hold what the kernels said of the last move, and the
    sums of it over all moves.
    """

    xs: np.ndarray
    values: np.ndarray
    grads: np.ndarray
    mixture: Mixing
    scratch: np.ndarray
    circular: np.ndarray
    infos: np.ndarray
    totals: np.ndarray


STATES = types.NamedTuple((MATRIX, MATRIX, ROWS, MIXTURE, ROWS, int64[::1], MATRIX, MATRIX), States)


@njit(**NOT_COUNTED)
def move_state(density, explore, parts, states, i, beta, params, rng):  # type: ignore[no-untyped-def]
    """Move the state `i` once at `beta` by all kernels."""
    point = Point(states.xs[i], states.values[i], states.grads[i], states.mixture)
    scratch = states.scratch[i if states.scratch.shape[0] > 1 else 0]
    explore(density, point, beta, parts, params, scratch, rng, states.infos)
    wrap_angles(point, states.circular)
    for b in range(states.totals.shape[0]):
        for j in range(N_INFO):
            states.totals[b, j] += states.infos[b, j]


@njit(
    types.void(DENSITY, EXPLORE, PARTS, STATES, numba.float64, VECTOR, MATRIX, RNG),
    **NOT_COUNTED,
)
def sweep_states(density, explore, parts, states, beta, params, trace, rng):  # type: ignore[no-untyped-def]
    """Move all states once for each row of `trace`, and write their log_ratio there."""
    for s in range(trace.shape[0]):
        for i in range(states.xs.shape[0]):
            move_state(density, explore, parts, states, i, beta, params, rng)
            trace[s, i] = states.values[i, LOG_RATIO]


@dataclass
class Particles:
    """States of n particles with their densities; compiled code changes them.

    Attributes
    ----------
    density : callable
        Compiled log density, see `Path`.
    circular : array of int
        Coordinates that live on a circle.
    kernel : Compound
        What moves them.
    rng : numpy.random.Generator
        The one of these particles.
    xs : array, shape (n, d)
        Unconstrained.
    values : array, shape (n, 2)
        log_reference and log_ratio; a NaN became minus infinity, which is zero likelihood.
    grads : array, shape (n, 2, d)
    scratch : array, shape (n or 1, n_scratch, d)
        Of each particle where the kernel keeps a momentum in it, of all otherwise.
    totals : array, shape (B, N_INFO)
        Sums over all moves of acceptance, evaluations and divergences of each kernel.
    n_nan : int
        Starting states whose log_ratio was not a number.
    """

    density: Density
    circular: np.ndarray
    kernel: Compound
    rng: np.random.Generator
    xs: np.ndarray
    values: np.ndarray
    grads: np.ndarray
    mixture: Mixing
    scratch: np.ndarray
    totals: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    n_nan: int = 0

    def __post_init__(self) -> None:
        if not self.totals.size:
            self.totals = np.zeros((self.kernel.n_blocks, N_INFO))

    @property
    def n(self) -> int:
        """Number of particles."""
        return len(self.xs)

    @property
    def log_ratio(self) -> np.ndarray:
        """Of each particle, shape (n,), in nats; a view."""
        return self.values[:, LOG_RATIO]

    @property
    def n_evaluations(self) -> int:
        """Density evaluations of all moves so far."""
        return int(self.totals[:, N_EVALUATIONS].sum())

    @property
    def accepted(self) -> np.ndarray:
        """Sums of the acceptance of each kernel, shape (B,)."""
        return self.totals[:, ACCEPTANCE].copy()

    def states(self, part: slice = slice(None)) -> States:
        """Give views of a part of the particles, as compiled code takes them."""
        own = self.scratch[part] if len(self.scratch) > 1 else self.scratch
        return States(
            self.xs[part], self.values[part], self.grads[part], self.mixture, own,
            self.circular, np.zeros(self.totals.shape), self.totals,
        )  # fmt: skip

    def select(self, index: np.ndarray) -> None:
        """Replace the particles by those with the given indices."""
        for name in ("xs", "values", "grads"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[index]))
        if len(self.scratch) > 1:
            self.scratch = np.ascontiguousarray(self.scratch[index])

    def moved_by(self, kernel: Compound) -> "Particles":
        """Give the same particles, in the same arrays, to other kernels."""
        scratch = _scratch(kernel, self.n, self.xs.shape[1], self.rng)
        return replace(self, kernel=kernel, scratch=scratch, totals=np.empty((0, 0)))


def _scratch(kernel: Compound, n: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Scratch space for n particles; fresh momenta where the kernel keeps them."""
    if kernel.carries:
        return rng.standard_normal((n, kernel.n_scratch, dim))
    return np.empty((1, kernel.n_scratch, dim))


def place(
    reference: Reference,
    kernel: Compound,
    xs: np.ndarray,
    rng: np.random.Generator,
    deadline: Deadline = NEVER,
) -> Particles:
    """Place particles at states of shape (n, d), with fresh momenta if the kernel keeps them."""
    path = reference.path
    return place_under(path.density, kernel, xs, rng, path.circular, reference.mixture, deadline)


def place_under(
    density: Density,
    kernel: Compound,
    xs: np.ndarray,
    rng: np.random.Generator,
    circular: np.ndarray = NOT_CIRCULAR,
    mixture: Mixing = NO_MIXTURE,
    deadline: Deadline = NEVER,
) -> Particles:
    """Place particles under any compiled density; after a deadline only those that were, or one."""
    n, dim = xs.shape
    xs = np.ascontiguousarray(xs, dtype=float)
    values, grads = np.empty((n, 2)), np.empty((n, 2, dim))
    mixture, done = mixture.copy(), 0
    pace = Pace(1 if deadline.limited else n)
    for begin, end in pace.pieces(n, lambda: deadline.late, least=1):
        evaluate_rows(density, xs[begin:end], values[begin:end], grads[begin:end], mixture)
        done = end
    n, xs, values, grads = done, xs[:done], values[:done], grads[:done]
    bad = np.isnan(values[:, LOG_RATIO]) | (values[:, LOG_RATIO] == np.inf)
    outside = ~np.isfinite(xs).all(axis=1)
    values[bad | outside, LOG_RATIO] = -np.inf
    scratch = _scratch(kernel, n, dim, rng)
    n_nan = int(np.sum(bad & ~outside))
    return Particles(
        density, circular, kernel, rng, xs, values, grads, mixture, scratch, n_nan=n_nan
    )


def draw_particles(
    reference: Reference,
    kernel: Compound,
    n: int,
    rng: np.random.Generator,
    deadline: Deadline = NEVER,
) -> Particles:
    """Draw n particles from the reference, exactly and independently.

    After a deadline there are only those whose density was known by then, one at least.
    """
    return place(reference, kernel, reference.draw(n, reference.spawn(rng)), rng, deadline)


def sweep(
    particles: Particles, beta: float, params: np.ndarray, n: int = 1, part: slice = slice(None)
) -> np.ndarray:
    """Move each particle, or each of a part of them, n times at `beta`.

    Parameters
    ----------
    particles : Particles
    beta : float
    params : array, shape (P,)
        Tuning numbers of their kernel at `beta`, see `Compound.pack`.
    n : int, default 1
    part : slice, optional

    Returns
    -------
    array, shape (n, number of particles)
        log_ratio after each sweep.
    """
    kernel, states = particles.kernel, particles.states(part)
    trace = np.empty((n, len(states.xs)))
    call_loop(
        sweep_states, particles.density, kernel.explore, kernel.parts, states, beta, params,
        trace, particles.rng,
    )  # fmt: skip
    return trace


LARGEST, SUM, SUM_OF_SQUARES = range(3)
"""Columns of the running sums of weights: the largest log weight, and sums scaled by it."""


@njit(**NOT_COUNTED)
def add_in_log(sums, log_w):  # type: ignore[no-untyped-def]
    """Add w and w^2 to running sums [largest log w, sum w, sum w^2], scaled by the largest."""
    if log_w == -np.inf:
        return
    if log_w > sums[LARGEST]:
        shrink = np.exp(sums[LARGEST] - log_w)
        sums[LARGEST] = log_w
        sums[SUM] *= shrink
        sums[SUM_OF_SQUARES] *= shrink * shrink
    w = np.exp(log_w - sums[LARGEST])
    sums[SUM] += w
    sums[SUM_OF_SQUARES] += w * w


@njit(
    types.void(
        DENSITY, EXPLORE, PARTS, STATES, VECTOR, MATRIX, types.boolean, int64, int64, VECTOR,
        MATRIX, RNG,
    ),
    **NOT_COUNTED,
)  # fmt: skip
def carry_states(  # type: ignore[no-untyped-def]
    density, explore, parts, states, betas, params, down, first, last, log_w, sums, rng
):
    """Carry all states over the intervals `first` to `last`, see `carry`."""
    top = betas.size - 1
    # Rungs outside, particles inside: where a caller cuts the path must not change the draws.
    for k in range(first, last):
        here = top - k if down else k
        there = here - 1 if down else here + 1
        for i in range(states.xs.shape[0]):
            if log_w[i] == -np.inf:
                continue
            if down and k == 0:
                move_state(density, explore, parts, states, i, betas[top], params[top], rng)
            log_w[i] += (betas[there] - betas[here]) * states.values[i, LOG_RATIO]
            add_in_log(sums[k + 1], log_w[i])
            if k < top - 1 and log_w[i] > -np.inf:
                move_state(density, explore, parts, states, i, betas[there], params[there], rng)


def carry(
    particles: Particles,
    betas: np.ndarray,
    params: np.ndarray,
    first: int,
    last: int,
    log_w: np.ndarray,
    sums: np.ndarray,
    *,
    down: bool = False,
) -> None:
    """Carry particles over the intervals `first` to `last` of a schedule, adding to their weights.

    Upward the weight grows by (beta_k+1 - beta_k) log_ratio(x), and then x moves at beta_k+1,
    except at beta = 1: equation (23) of Carlson et al. (2016). Downward it is the same path in
    reverse, after one move at beta = 1, which leaves draws from the target what they are; the
    kernel of the particles must then be the reversal of the one that goes up.

    Parameters
    ----------
    particles : Particles
    betas : array, shape (K,)
    params : array, shape (K, P)
        Tuning numbers of the particles' kernel.
    first, last : int
        Intervals, counted from where the particles start; all are 0 to K - 1.
    log_w : array, shape (n,)
        Log weights, added to; minus infinity ends a particle.
    sums : array, shape (K, 3)
        Running sums of the weights at each rung, see `add_in_log`.
    down : bool, default False
    """
    kernel = particles.kernel
    call_loop(
        carry_states, particles.density, kernel.explore, kernel.parts, particles.states(), betas,
        params, down, first, last, log_w, sums, particles.rng,
    )  # fmt: skip
