"""The compiled loop of annealing: particles along a whole schedule, with their weights."""

import numpy as np
from numba import int64, types

from pymc_tempering.borrowed.private import NOT_COUNTED
from pymc_tempering.chain.particles import STATES, Particles, move_state
from pymc_tempering.model.compiled import (
    DENSITY,
    EXPLORE,
    LOG_RATIO,
    MATRIX,
    PARTS,
    RNG,
    VECTOR,
    call_loop,
)
from pymc_tempering.model.jit import njit

LARGEST, SUM, SUM_OF_SQUARES = range(3)
"""Columns of the running sums of weights: the largest log weight, and sums scaled by it."""


@njit(types.void(VECTOR, types.float64), **NOT_COUNTED)
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
        DENSITY,
        EXPLORE,
        PARTS,
        STATES,
        VECTOR,
        MATRIX,
        types.boolean,
        int64,
        int64,
        VECTOR,
        MATRIX,
        MATRIX,
        RNG,
    ),
    **NOT_COUNTED,
)
def carry_states(  # type: ignore[no-untyped-def]
    density, explore, parts, states, betas, params, down, first, last, log_w, sums, trace, rng
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
            log_ratio = states.values[i, LOG_RATIO]
            if trace.shape[0] > 0:
                trace[i, k] = log_ratio
            log_w[i] += (betas[there] - betas[here]) * log_ratio
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
    trace: np.ndarray | None = None,
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
    trace : array, shape (n, K - 1), optional
        Receives the log_ratio that enters each increment.
    """
    trace = np.empty((0, 0)) if trace is None else trace
    kernel = particles.kernel
    call_loop(
        carry_states, particles.density, kernel.explore, kernel.parts, particles.states(), betas,
        params, down, first, last, log_w, sums, trace, particles.rng,
    )  # fmt: skip
