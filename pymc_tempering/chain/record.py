"""What a chain writes while it runs: arrays, the positions in them, and their compiled types."""

from typing import NamedTuple

import numpy as np
from numba import float64, int64, types

from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.kernels.contract import N_INFO
from pymc_tempering.model.compiled import MATRIX, POINT, VECTOR, Point

# What a cycle sums for each rung, in the order of `RUNG_STATS`: rows of `Chain.per_rung`.
(
    RB_WEIGHT, RB_HEAD, VISITS, SUM, SQSUM, RB_SUM, RB_SQSUM, JUMP_SQSUM, ACCEPT, UP_ACCEPT,
) = range(len(RUNG_STATS))  # fmt: skip

SCALAR_STATS = (
    "tempering_steps",
    "lowest_rung",
    "tour_start",
    "n_steps",
    "n_divergences",
    "diverging",
    "n_zero_likelihood",
    "n_undefined",
    "lp",
    "log_ratio",
)
"""What a cycle counts once: entries of `Chain.scalars`. The last two are those of its draw."""
(
    STEPS, LOWEST, TOUR_START, N_STEPS, N_DIVERGENCES, DIVERGING, N_ZERO, N_UNDEFINED,
    DRAW_LP, DRAW_LOG_RATIO,
) = range(len(SCALAR_STATS))  # fmt: skip

# Positions in `Chain.counters`.
RUNG, DIRECTION, AWAITS_TOUR, REF_USED, N_DRAWS, N_TRACE, N_ITERATIONS = range(7)
N_COUNTERS = 7

COUNTERS = int64[::1]


class Rungs(NamedTuple):
    """A frozen ladder.

    Attributes
    ----------
    betas : array, shape (K,)
    offsets : array, shape (K,)
        log r - log Z-hat.
    params : array, shape (K, P)
        Tuning numbers of the kernels.
    """

    betas: np.ndarray
    offsets: np.ndarray
    params: np.ndarray


class Chain(NamedTuple):
    """State of one chain, written in place.

    Attributes
    ----------
    point : Point
        Where the chain is.
    counters : array of int
        Rung, direction on the ladder, whether the next arrival at beta = 0 starts a tour,
        reference draws used, draws and iterations in the record, and iterations so far.
    per_rung : array, shape (len(RUNG_STATS), K)
        Sums of the present cycle, for each rung.
    scalars : array, shape (len(SCALAR_STATS),)
        Its other numbers.
    accept : array, shape (B, K)
        Summed acceptance of each kernel at each rung, for tuning.
    """

    point: Point
    counters: np.ndarray
    per_rung: np.ndarray
    scalars: np.ndarray
    accept: np.ndarray


class Record(NamedTuple):
    """Space for N draws, and for a flat trace of T iterations.

    Attributes
    ----------
    x : array, shape (N, d)
        Draws, unconstrained.
    per_rung : array, shape (N, len(RUNG_STATS), K)
        Sums of the cycle that each draw ends.
    scalars : array, shape (N, len(SCALAR_STATS))
    trace_log_ratio : array, shape (T,)
        Empty where no trace is kept, as `trace_rung` is.
    trace_rung : array of int, shape (T,)
    trace_x : array, shape (T, d)
        No rows where the states of the trace are not kept.
    """

    x: np.ndarray
    per_rung: np.ndarray
    scalars: np.ndarray
    trace_log_ratio: np.ndarray
    trace_rung: np.ndarray
    trace_x: np.ndarray


class Work(NamedTuple):
    """Space for the numbers of one iteration; compiled code that counts no references makes none.

    Attributes
    ----------
    infos : array, shape (B, N_INFO)
        What each kernel says of its move.
    info : array, shape (N_INFO,)
        What they say together.
    weights : array, shape (K,)
        q(beta_k | x).
    """

    infos: np.ndarray
    info: np.ndarray
    weights: np.ndarray


def new_work(n_kernels: int, n_rungs: int) -> Work:
    """Make the space for a number of kernels and of rungs."""
    return Work(np.zeros((n_kernels, N_INFO)), np.zeros(N_INFO), np.empty(n_rungs))


RUNGS = types.NamedTuple((VECTOR, VECTOR, MATRIX), Rungs)
CHAIN = types.NamedTuple((POINT, COUNTERS, MATRIX, VECTOR, MATRIX), Chain)
RECORD = types.NamedTuple((MATRIX, float64[:, :, ::1], MATRIX, VECTOR, int64[::1], MATRIX), Record)
WORK = types.NamedTuple((MATRIX, VECTOR, VECTOR), Work)
