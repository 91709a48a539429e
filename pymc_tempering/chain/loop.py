"""The compiled loop of simulated tempering: explore, accumulate, move on the ladder.

It runs without the interpreter and without its lock, in chunks: it returns when it has the
draws, iterations or reference draws that it was given space for, and goes on from there.
"""

from typing import NamedTuple

import numba
import numpy as np
from numba import int64, types

from pymc_tempering.kernels.contract import ACCEPTANCE, DIVERGED, N_EVALUATIONS, N_INFO
from pymc_tempering.model.circle import wrap
from pymc_tempering.model.compiled import DENSITY, EXPLORE, MATRIX, PARTS, POINT, RNG, VECTOR, Point
from pymc_tempering.model.jit import njit
from pymc_tempering.references.mixture import evaluate

# What a cycle accumulates for each rung; rows of `Cycle.per_rung`.
RUNG_STATS = (
    "rb_weight",
    "rb_weight_head",
    "visits",
    "log_ratio_sum",
    "log_ratio_sqsum",
    "rb_log_ratio_sum",
    "rb_log_ratio_sqsum",
    "jump_sqsum",
    "accept_sum",
    "up_accept_sum",
)
(
    RB_WEIGHT, RB_HEAD, VISITS, SUM, SQSUM, RB_SUM, RB_SQSUM, JUMP_SQSUM, ACCEPT, UP_ACCEPT,
) = range(len(RUNG_STATS))  # fmt: skip

# What it accumulates once; entries of `Cycle.scalars`.
SCALAR_STATS = (
    "tempering_steps",
    "lowest_rung",
    "tour_start",
    "n_steps",
    "n_divergences",
    "diverging",
    "n_zero_likelihood",
    "lp",
    "log_ratio",
)
STEPS, LOWEST, TOUR_START, N_STEPS, N_DIVERGENCES, DIVERGING, N_ZERO, LP, LOG_RATIO = range(
    len(SCALAR_STATS)
)

# Positions in `Chain.counters`.
RUNG, DIRECTION, AWAITS_TOUR, REF_USED, N_DRAWS, N_TRACE, N_ITERATIONS = range(7)
N_COUNTERS = 7

METROPOLIZED, GIBBS, NONREVERSIBLE = range(3)
LADDER_MOVES = {
    "metropolized_gibbs": METROPOLIZED,
    "gibbs": GIBBS,
    "nonreversible": NONREVERSIBLE,
}

RUNNING, NEEDS_REFERENCE, DONE = 0, 1, 2
"""Why `run` returned: iterations used up, reference draws used up, draws complete."""


class Rungs(NamedTuple):
    """A frozen ladder: `betas` (K,), `offsets` (K,) = log r - log Z-hat, `params` (K, P)."""

    betas: np.ndarray
    offsets: np.ndarray
    params: np.ndarray


class Chain(NamedTuple):
    """State of one chain, written in place.

    `counters` holds rung, direction, whether the next arrival at beta = 0 starts a tour,
    reference draws used, how much of the record is filled, and iterations so far. `accept`,
    shape (B, K), sums the acceptance of each kernel at each rung, for tuning.
    """

    point: Point
    counters: np.ndarray
    per_rung: np.ndarray
    scalars: np.ndarray
    accept: np.ndarray


class Record(NamedTuple):
    """Space for draws, and for the flat trace of the iterations.

    `trace_log_ratio` and `trace_rung` have length 0 if no trace is kept, and `trace_x` has no
    rows if the states of the trace are not.
    """

    x: np.ndarray
    per_rung: np.ndarray
    scalars: np.ndarray
    trace_log_ratio: np.ndarray
    trace_rung: np.ndarray
    trace_x: np.ndarray


RUNGS = types.NamedTuple((VECTOR, VECTOR, MATRIX), Rungs)
CHAIN = types.NamedTuple((POINT, int64[::1], MATRIX, VECTOR, MATRIX), Chain)
RECORD = types.NamedTuple(
    (MATRIX, numba.float64[:, :, ::1], MATRIX, VECTOR, int64[::1], MATRIX), Record
)


@njit(int64(VECTOR, int64, int64, numba.float64))
def _choose(weights, n_rungs, without, u):  # type: ignore[no-untyped-def]
    """Rung where the cumulative weight, leaving out rung `without`, exceeds `u`."""
    last = 0
    for k in range(n_rungs):
        if k != without and weights[k] > 0.0:
            last = k
            u -= weights[k]
            if u < 0.0:
                break
    return last


@njit(int64(VECTOR, int64, int64, int64[::1], int64, RNG))
def _move(weights, n_rungs, rung, counters, move, rng):  # type: ignore[no-untyped-def]
    """Next rung, given the probabilities `weights` of all rungs at the present state."""
    if move == GIBBS:  # RTS eq. (7)
        return _choose(weights, n_rungs, -1, rng.random())
    if move == METROPOLIZED:  # Liu (1996): propose another rung, always
        rest = 1.0 - weights[rung]
        if rest <= 0.0:
            return rung
        proposal = _choose(weights, n_rungs, rung, rng.random() * rest)
        accepted = rng.random() * (1.0 - weights[proposal]) < rest
        return proposal if accepted else rung
    # Sakai & Hukushima (2016): keep the direction until a rejection.
    proposal = rung + counters[DIRECTION]
    if 0 <= proposal < n_rungs and rng.random() * weights[rung] < weights[proposal]:
        return proposal
    counters[DIRECTION] = -counters[DIRECTION]
    return rung


@njit(error_model="numpy")
def rung_weights(log_ratio, betas, offsets, weights):  # type: ignore[no-untyped-def]
    """Write q(beta_k | x) of all rungs into `weights`, for `offsets` = log r - log Z-hat."""
    largest = -np.inf
    for k in range(betas.size):
        weights[k] = offsets[k]
        if k > 0:  # 0 * (-inf) is NaN
            weights[k] += betas[k] * log_ratio
        largest = max(largest, weights[k])
    total = 0.0
    for k in range(betas.size):
        weights[k] = np.exp(weights[k] - largest)
        total += weights[k]
    for k in range(betas.size):
        weights[k] /= total


@njit(
    int64(
        DENSITY,
        EXPLORE,
        PARTS,
        RUNGS,
        CHAIN,
        RECORD,
        MATRIX,
        int64[::1],
        MATRIX,
        RNG,
        int64,
        int64,
        int64,
    ),
    error_model="numpy",
)
def run(  # type: ignore[no-untyped-def]
    density,
    explore,
    parts,
    rungs,
    chain,
    record,
    references,
    circular,
    scratch,
    rng,
    move,
    n_draws,
    n_iter,
):
    """Run at most `n_iter` iterations, or until the record holds `n_draws` draws."""
    betas, offsets = rungs.betas, rungs.offsets
    point, counters, per_rung, scalars = chain.point, chain.counters, chain.per_rung, chain.scalars
    n_rungs = betas.size
    top = n_rungs - 1
    n_blocks = parts.table.shape[0]
    infos = np.zeros((n_blocks, N_INFO))
    info = np.zeros(N_INFO)
    weights = np.empty(n_rungs)
    keeps_trace = record.trace_rung.size > 0
    for _ in range(n_iter):
        if counters[N_DRAWS] >= n_draws:
            return DONE
        if keeps_trace and counters[N_TRACE] >= record.trace_rung.size:
            return RUNNING
        rung = counters[RUNG]
        # Explore
        before = point.values[1]
        if rung == 0:
            if counters[REF_USED] >= references.shape[0]:
                return NEEDS_REFERENCE
            point.x[:] = references[counters[REF_USED]]
            counters[REF_USED] += 1
            evaluate(density, point)
            info[ACCEPTANCE] = 1.0
            info[N_EVALUATIONS] = 1.0
            info[DIVERGED] = 0.0
            log_ratio = point.values[1]
            if not (np.isfinite(point.values[0]) and log_ratio < np.inf):  # NaN too
                info[DIVERGED] = 1.0
                log_ratio = -np.inf
            if log_ratio == -np.inf:
                point.values[1] = log_ratio
                scalars[N_ZERO] += 1.0
            if counters[AWAITS_TOUR]:
                counters[AWAITS_TOUR] = 0
                scalars[TOUR_START] = 1.0
                per_rung[RB_HEAD] = per_rung[RB_WEIGHT]
        else:
            explore(density, point, betas[rung], parts, rungs.params[rung], scratch, rng, infos)
            info[:] = 0.0
            for b in range(n_blocks):
                chain.accept[b, rung] += infos[b, ACCEPTANCE]
                info[ACCEPTANCE] += infos[b, ACCEPTANCE] / n_blocks
                info[N_EVALUATIONS] += infos[b, N_EVALUATIONS]
                info[DIVERGED] = max(info[DIVERGED], infos[b, DIVERGED])
            wrap(point.x, circular)
            log_ratio = point.values[1]
            per_rung[JUMP_SQSUM, rung] += (log_ratio - before) ** 2
        # Accumulate
        rung_weights(log_ratio, betas, offsets, weights)
        for k in range(n_rungs):
            per_rung[RB_WEIGHT, k] += weights[k]
            if weights[k] > 0.0 and log_ratio > -np.inf:
                per_rung[RB_SUM, k] += weights[k] * log_ratio
                per_rung[RB_SQSUM, k] += weights[k] * log_ratio * log_ratio
        per_rung[VISITS, rung] += 1.0
        per_rung[ACCEPT, rung] += info[ACCEPTANCE]
        if log_ratio > -np.inf:
            per_rung[SUM, rung] += log_ratio
            per_rung[SQSUM, rung] += log_ratio * log_ratio
        if rung < top and weights[rung] > 0.0:
            per_rung[UP_ACCEPT, rung] += min(1.0, weights[rung + 1] / weights[rung])
        counters[N_ITERATIONS] += 1
        scalars[STEPS] += 1.0
        scalars[LOWEST] = min(scalars[LOWEST], rung)
        scalars[N_STEPS] += info[N_EVALUATIONS]
        scalars[N_DIVERGENCES] += info[DIVERGED]
        if keeps_trace:
            record.trace_log_ratio[counters[N_TRACE]] = log_ratio
            record.trace_rung[counters[N_TRACE]] = rung
            if record.trace_x.shape[0] > 0:
                record.trace_x[counters[N_TRACE]] = point.x
            counters[N_TRACE] += 1
        if rung == top:
            scalars[DIVERGING] = info[DIVERGED]
            scalars[LP] = point.values[0] + log_ratio
            scalars[LOG_RATIO] = log_ratio
            i = counters[N_DRAWS]
            record.x[i] = point.x
            record.per_rung[i] = per_rung
            record.scalars[i] = scalars
            counters[N_DRAWS] += 1
            counters[AWAITS_TOUR] = 1
            per_rung[:] = 0.0
            scalars[:] = 0.0
            scalars[LOWEST] = top
        counters[RUNG] = _move(weights, n_rungs, rung, counters, move, rng)
    return DONE if counters[N_DRAWS] >= n_draws else RUNNING
