"""The compiled loop of simulated tempering: explore, accumulate, move on the ladder.

It runs without the interpreter and without its lock, in chunks: it returns when it has the
draws, iterations or reference draws that it was given space for, and goes on from there. What it
writes are arrays, in which each number has its position.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64, types

from pymc_tempering.borrowed.private import NOT_COUNTED
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.kernels import ACCEPTANCE, DIVERGED, N_EVALUATIONS, N_INFO, Compound
from pymc_tempering.model.compiled import (
    DENSITY,
    EXPLORE,
    INDICES,
    LOG_RATIO,
    LOG_REFERENCE,
    MATRIX,
    PARTS,
    POINT,
    RNG,
    VECTOR,
    Point,
)
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.jit import borrowing, njit
from pymc_tempering.references.compiled_mixture import evaluate

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
    """A frozen plan in the form that compiled code reads.

    Attributes
    ----------
    betas : array, shape (K,)
    offsets : array, shape (K,)
        log r - log Z-hat.
    params : array, shape (K, P)
        Tuning numbers of the kernels.
    circular : array of int
        Coordinates that live on a circle.
    move : int
        How the chain moves on the ladder, see `LADDER_MOVES`.
    """

    betas: np.ndarray
    offsets: np.ndarray
    params: np.ndarray
    circular: np.ndarray
    move: int


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
    """Space for one iteration; compiled code that counts no references makes none.

    Attributes
    ----------
    scratch : array, shape (n_scratch, d)
        Of the kernels.
    infos : array, shape (B, N_INFO)
        What each kernel says of its move.
    info : array, shape (N_INFO,)
        What they say together.
    weights : array, shape (K,)
        q(beta_k | x).
    """

    scratch: np.ndarray
    infos: np.ndarray
    info: np.ndarray
    weights: np.ndarray


def new_work(kernel: Compound, n_rungs: int, dim: int) -> Work:
    """Make the space for some kernels on a ladder."""
    infos, scratch = np.zeros((kernel.n_blocks, N_INFO)), np.empty((kernel.n_scratch, dim))
    return Work(scratch, infos, np.zeros(N_INFO), np.empty(n_rungs))


def new_record(n_draws: int, n_rungs: int, dim: int, n_trace: int = 0) -> Record:
    """Space for `n_draws` draws and a flat trace of `n_trace` iterations, without states."""
    return Record(
        np.empty((n_draws, dim)),
        np.empty((n_draws, len(RUNG_STATS), n_rungs)),
        np.empty((n_draws, len(SCALAR_STATS))),
        np.empty(n_trace),
        np.empty(n_trace, dtype=np.int64),
        np.empty((0, dim)),
    )


def new_chain(point: Point, n_kernels: int, n_rungs: int) -> Chain:
    """Put a chain where a tour starts, on its way down."""
    counters = np.zeros(N_COUNTERS, dtype=np.int64)
    counters[DIRECTION] = -1
    counters[AWAITS_TOUR] = 1
    scalars = np.zeros(len(SCALAR_STATS))
    scalars[LOWEST] = n_rungs - 1
    per_rung, accept = np.zeros((len(RUNG_STATS), n_rungs)), np.zeros((n_kernels, n_rungs))
    return Chain(point, counters, per_rung, scalars, accept)


RUNGS = types.NamedTuple((VECTOR, VECTOR, MATRIX, INDICES, int64), Rungs)
CHAIN = types.NamedTuple((POINT, COUNTERS, MATRIX, VECTOR, MATRIX), Chain)
RECORD = types.NamedTuple((MATRIX, float64[:, :, ::1], MATRIX, VECTOR, int64[::1], MATRIX), Record)
WORK = types.NamedTuple((MATRIX, MATRIX, VECTOR, VECTOR), Work)


METROPOLIZED, GIBBS, NONREVERSIBLE = range(3)
LADDER_MOVES = {
    "metropolized_gibbs": METROPOLIZED,
    "gibbs": GIBBS,
    "nonreversible": NONREVERSIBLE,
}

RUNNING, NEEDS_REFERENCE, DONE = 0, 1, 2
"""Why `run` returned: iterations used up, reference draws used up, draws complete."""


@njit(**NOT_COUNTED)
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


@njit(**NOT_COUNTED)
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


@njit(error_model="numpy", **NOT_COUNTED)
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


@borrowing
def wrap_angles(point, circular):  # type: ignore[no-untyped-def]
    """Bring circular coordinates back to [-pi, pi)."""
    for j in circular:
        point.x[j] = (point.x[j] + np.pi) % (2.0 * np.pi) - np.pi


@borrowing
def _draw_from_reference(density, point, counters, per_rung, scalars, references, info):  # type: ignore[no-untyped-def]
    """Go to the next reference draw; `log_ratio` is -inf there if the likelihood is zero or NaN.

    A draw that overflows has zero likelihood; what is known of that is judged before the run. The
    first such draw after a visit to beta = 1 starts a tour.
    """
    finite = True
    for j in range(point.x.size):
        point.x[j] = references[counters[REF_USED], j]
        finite = finite and np.isfinite(point.x[j])
    counters[REF_USED] += 1
    evaluate(density, point)
    values = point.values
    sound = np.isfinite(values[LOG_REFERENCE]) and values[LOG_RATIO] < np.inf  # not NaN either
    sound = sound and finite
    if not sound:
        values[LOG_RATIO] = -np.inf
        scalars[N_UNDEFINED] += finite
    if values[LOG_RATIO] == -np.inf:
        scalars[N_ZERO] += 1.0
    info[ACCEPTANCE] = 1.0
    info[N_EVALUATIONS] = 1.0
    info[DIVERGED] = 0.0 if sound else 1.0
    if counters[AWAITS_TOUR]:
        counters[AWAITS_TOUR] = 0
        scalars[TOUR_START] = 1.0
        for k in range(per_rung.shape[1]):
            per_rung[RB_HEAD, k] = per_rung[RB_WEIGHT, k]


@borrowing
def _pool(infos, accept, info):  # type: ignore[no-untyped-def]
    """Sum up in `info` what the kernels say in `infos`, and their acceptance in `accept` (B,)."""
    info[:] = 0.0
    for b in range(infos.shape[0]):
        accept[b] += infos[b, ACCEPTANCE]
        info[ACCEPTANCE] += infos[b, ACCEPTANCE] / infos.shape[0]
        info[N_EVALUATIONS] += infos[b, N_EVALUATIONS]
        info[DIVERGED] = max(info[DIVERGED], infos[b, DIVERGED])


@borrowing
def _accumulate(per_rung, scalars, weights, rung, log_ratio, info):  # type: ignore[no-untyped-def]
    """Add an iteration to the sums of its cycle; `weights` are q(beta_k | x) of all rungs."""
    for k in range(weights.size):
        per_rung[RB_WEIGHT, k] += weights[k]
        if weights[k] > 0.0 and log_ratio > -np.inf:
            per_rung[RB_SUM, k] += weights[k] * log_ratio
            per_rung[RB_SQSUM, k] += weights[k] * log_ratio * log_ratio
    per_rung[VISITS, rung] += 1.0
    per_rung[ACCEPT, rung] += info[ACCEPTANCE]
    if log_ratio > -np.inf:
        per_rung[SUM, rung] += log_ratio
        per_rung[SQSUM, rung] += log_ratio * log_ratio
    if rung < weights.size - 1 and weights[rung] > 0.0:
        per_rung[UP_ACCEPT, rung] += min(1.0, weights[rung + 1] / weights[rung])
    scalars[STEPS] += 1.0
    scalars[LOWEST] = min(scalars[LOWEST], rung)
    scalars[N_STEPS] += info[N_EVALUATIONS]
    scalars[N_DIVERGENCES] += info[DIVERGED]


@borrowing
def _record_iteration(record, i, point, rung):  # type: ignore[no-untyped-def]
    """Write an iteration to the flat trace."""
    record.trace_log_ratio[i] = point.values[LOG_RATIO]
    record.trace_rung[i] = rung
    if record.trace_x.shape[0] > 0:
        copy_numbers(record.trace_x[i], point.x)


@borrowing
def _record_draw(record, i, point, per_rung, scalars, info):  # type: ignore[no-untyped-def]
    """Write a draw at beta = 1 with the cycle that it ends, and begin the next cycle."""
    scalars[DIVERGING] = info[DIVERGED]
    scalars[DRAW_LP] = point.values[LOG_REFERENCE] + point.values[LOG_RATIO]
    scalars[DRAW_LOG_RATIO] = point.values[LOG_RATIO]
    copy_numbers(record.x[i], point.x)
    for stat in range(per_rung.shape[0]):
        copy_numbers(record.per_rung[i, stat], per_rung[stat])
    copy_numbers(record.scalars[i], scalars)
    per_rung[:] = 0.0
    scalars[:] = 0.0
    scalars[LOWEST] = per_rung.shape[1] - 1


@njit(
    int64(DENSITY, EXPLORE, PARTS, RUNGS, CHAIN, RECORD, MATRIX, RNG, WORK, int64, int64),
    error_model="numpy", **NOT_COUNTED,
)  # fmt: skip
def run(  # type: ignore[no-untyped-def]
    density, explore, parts, rungs, chain, record, references, rng, work, n_draws, n_iter
):
    """Run at most `n_iter` iterations, or until the record holds `n_draws` draws."""
    betas, offsets = rungs.betas, rungs.offsets
    point, counters, per_rung, scalars = chain.point, chain.counters, chain.per_rung, chain.scalars
    n_rungs = betas.size
    scratch, infos, info, weights = work
    keeps_trace = record.trace_rung.size > 0
    for _ in range(n_iter):
        if counters[N_DRAWS] >= n_draws:
            return DONE
        if keeps_trace and counters[N_TRACE] >= record.trace_rung.size:
            return RUNNING
        rung = counters[RUNG]
        if rung == 0:
            if counters[REF_USED] >= references.shape[0]:
                return NEEDS_REFERENCE
            _draw_from_reference(density, point, counters, per_rung, scalars, references, info)
        else:
            before = point.values[LOG_RATIO]
            explore(density, point, betas[rung], parts, rungs.params[rung], scratch, rng, infos)
            _pool(infos, chain.accept[:, rung], info)
            wrap_angles(point, rungs.circular)
            per_rung[JUMP_SQSUM, rung] += (point.values[LOG_RATIO] - before) ** 2
        log_ratio = point.values[LOG_RATIO]
        rung_weights(log_ratio, betas, offsets, weights)
        _accumulate(per_rung, scalars, weights, rung, log_ratio, info)
        counters[N_ITERATIONS] += 1
        if keeps_trace:
            _record_iteration(record, counters[N_TRACE], point, rung)
            counters[N_TRACE] += 1
        if rung == n_rungs - 1:
            _record_draw(record, counters[N_DRAWS], point, per_rung, scalars, info)
            counters[N_DRAWS] += 1
            counters[AWAITS_TOUR] = 1
        counters[RUNG] = _move(weights, n_rungs, rung, counters, rungs.move, rng)
    return DONE if counters[N_DRAWS] >= n_draws else RUNNING
