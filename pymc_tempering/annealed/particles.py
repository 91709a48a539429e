"""Compiled loops over particles: along a whole schedule with weights, or at one beta."""

from dataclasses import dataclass, field

import numba
import numpy as np
from numba import int64, types

from pymc_tempering.annealed.transition import N_SCRATCH, N_TOTALS, move
from pymc_tempering.model.compiled import DENSITY, MATRIX, RNG, VECTOR, Point
from pymc_tempering.model.jit import njit
from pymc_tempering.references.mixture import evaluate_rows
from pymc_tempering.references.prior import Reference

ROWS = numba.float64[:, :, ::1]


@dataclass
class Particles:
    """States of n particles with their densities and momenta; compiled code changes them.

    Attributes
    ----------
    reference : Reference
    rng : numpy.random.Generator
        The one of these particles.
    xs, momenta : array, shape (n, d)
        Unconstrained.
    values : array, shape (n, 2)
        log_reference and log_ratio; a NaN became minus infinity, which is zero likelihood.
    grads : array, shape (n, 2, d)
    totals : array
        Sums of acceptance, evaluations and divergences: positions in `transition`.
    n_nan : int
        Starting states whose log_ratio was not a number.
    """

    reference: Reference
    rng: np.random.Generator
    xs: np.ndarray
    momenta: np.ndarray
    values: np.ndarray
    grads: np.ndarray
    mixture: np.ndarray
    scratch: np.ndarray
    totals: np.ndarray = field(default_factory=lambda: np.zeros(N_TOTALS))
    n_nan: int = 0

    @property
    def log_ratio(self) -> np.ndarray:
        """Of each particle, shape (n,), in nats; a view."""
        return self.values[:, 1]

    def select(self, index: np.ndarray) -> None:
        """Replace the particles by those with the given indices."""
        for name in ("xs", "momenta", "values", "grads"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[index]))


def place(reference: Reference, xs: np.ndarray, rng: np.random.Generator) -> Particles:
    """Place particles at states of shape (n, d), with fresh momenta."""
    n, dim = xs.shape
    xs = np.ascontiguousarray(xs, dtype=float)
    values, grads = np.empty((n, 2)), np.empty((n, 2, dim))
    mixture = reference.mixture.copy()
    evaluate_rows(reference.path.density, xs, values, grads, mixture)
    bad = np.isnan(values[:, 1]) | (values[:, 1] == np.inf)
    outside = ~np.isfinite(xs).all(axis=1)
    values[bad | outside, 1] = -np.inf
    momenta = rng.standard_normal((n, dim))
    return Particles(
        reference, rng, xs, momenta, values, grads, mixture, np.empty((N_SCRATCH, dim)),
        n_nan=int(np.sum(bad & ~outside)),
    )  # fmt: skip


def draw_particles(reference: Reference, n: int, rng: np.random.Generator) -> Particles:
    """Draw n particles from the reference, exactly and independently."""
    return place(reference, reference.draw(n, reference.spawn(rng)), rng)


@njit(types.void(VECTOR, numba.float64))
def add_in_log(sums, log_w):  # type: ignore[no-untyped-def]
    """Add w and w^2 to running sums [largest log w, sum w, sum w^2], scaled by the largest."""
    if log_w == -np.inf:
        return
    if log_w > sums[0]:
        shrink = np.exp(sums[0] - log_w)
        sums[0] = log_w
        sums[1] *= shrink
        sums[2] *= shrink * shrink
    w = np.exp(log_w - sums[0])
    sums[1] += w
    sums[2] += w * w


@njit(
    types.void(
        DENSITY,
        MATRIX,
        MATRIX,
        MATRIX,
        ROWS,
        MATRIX,
        VECTOR,
        MATRIX,
        types.boolean,
        int64,
        int64,
        VECTOR,
        MATRIX,
        MATRIX,
        int64[::1],
        MATRIX,
        RNG,
        VECTOR,
    ),
)
def _anneal(  # type: ignore[no-untyped-def]
    density, xs, momenta, values, grads, mixture, betas, params, down, first, last, log_w, sums,
    trace, circular, scratch, rng, totals,
):  # fmt: skip
    top = betas.size - 1
    # Rungs outside, particles inside: where a caller cuts the path must not change the draws.
    for k in range(first, last):
        here = top - k if down else k
        there = here - 1 if down else here + 1
        for i in range(xs.shape[0]):
            if log_w[i] == -np.inf:
                continue
            point = Point(xs[i], values[i], grads[i], mixture)
            if down and k == 0:
                move(density, point, momenta[i], betas[top], params[top], circular, scratch, rng,
                     totals)  # fmt: skip
            if trace.shape[0] > 0:
                trace[i, k] = values[i, 1]
            log_w[i] += (betas[there] - betas[here]) * values[i, 1]
            add_in_log(sums[k + 1], log_w[i])
            if k < top - 1 and log_w[i] > -np.inf:
                move(density, point, momenta[i], betas[there], params[there], circular, scratch,
                     rng, totals)  # fmt: skip


def anneal(
    particles: Particles,
    betas: np.ndarray,
    params: np.ndarray,
    first: int,
    last: int,
    log_w: np.ndarray,
    sums: np.ndarray,
    *,
    down: bool = False,
    trace: np.ndarray | None = None,
) -> None:
    """Carry particles over the intervals `first` to `last` of a schedule, adding to their weights.

    Upward the weight grows by (beta_k+1 - beta_k) log_ratio(x), and then x moves at beta_k+1,
    except at beta = 1: equation (23) of Carlson et al. (2016). Downward it is the same path in
    reverse, after one move at beta = 1, which leaves draws from
    the target what they are.

    Parameters
    ----------
    particles : Particles
    betas : array, shape (K,)
    params : array, shape (K, P)
    first, last : int
        Intervals, counted from where the particles start; all are 0 to K - 1.
    log_w : array, shape (n,)
        Log weights, added to; minus infinity ends a particle.
    sums : array, shape (K, 3)
        Running sums of the weights at each rung, see `add_in_log`.
    down : bool, default False
    trace : array, shape (n, K - 1), optional
        Receives the log_ratio that enters each increment.
    """
    trace = np.empty((0, 0)) if trace is None else trace
    path = particles.reference.path
    _anneal(
        path.density, particles.xs, particles.momenta, particles.values, particles.grads,
        particles.mixture, betas, params, down, first, last, log_w, sums, trace, path.circular,
        particles.scratch, particles.rng, particles.totals,
    )  # fmt: skip


@njit(
    types.void(
        DENSITY,
        MATRIX,
        MATRIX,
        MATRIX,
        ROWS,
        MATRIX,
        numba.float64,
        VECTOR,
        MATRIX,
        int64[::1],
        MATRIX,
        RNG,
        VECTOR,
    ),
)
def _sweep(  # type: ignore[no-untyped-def]
    density, xs, momenta, values, grads, mixture, beta, params, out, circular, scratch, rng, totals
):
    for s in range(out.shape[0]):
        for i in range(xs.shape[0]):
            point = Point(xs[i], values[i], grads[i], mixture)
            move(density, point, momenta[i], beta, params, circular, scratch, rng, totals)
            out[s, i] = values[i, 1]


def sweep(particles: Particles, beta: float, params: np.ndarray, n: int = 1) -> np.ndarray:
    """Move each particle n times at `beta`; returns log_ratio after each sweep, shape (n, N)."""
    out = np.empty((n, len(particles.xs)))
    path = particles.reference.path
    _sweep(
        path.density, particles.xs, particles.momenta, particles.values, particles.grads,
        particles.mixture, beta, params, out, path.circular, particles.scratch, particles.rng,
        particles.totals,
    )  # fmt: skip
    return out
