"""Chains whose log Z-hat adapts at every iteration, compiled: SAMS and Wang-Landau.

Both are stochastic approximation. After an iteration that explored x at rung L,

    log Z-hat_k  <-  log Z-hat_k + gain * q(beta_k | x) / r_k      (SAMS; RTS eq. 19, Tan 2017)
    log Z-hat_k  <-  log Z-hat_k + gain * 1{L = k} / r_k           (Wang & Landau 2001)

up to the constant that keeps log Z-hat_0 = 0. The mean of either step, at log Z-hat = log Z + d,
is gain * (const - d_k) to first order, so that gains of 1 / t make log Z-hat - log Z the mean of
the noise: no sequence of gains does better (Tan 2017). With SAMS that noise is the one of RTS
(eqs. 12 and 16); with Wang-Landau it is that of counts.

The gains before the 1 / t ones forget the start. SAMS: the smallest r_k until every rung was
reached (gains that fall at once may be spent before: log Z-hat has to travel from 0 to log Z), then
t^-0.8 until a burn-in of t0 iterations is over, then 1 / (t - t0 + t0^0.8). Wang-Landau: log f / K,
with log f halved whenever the histogram of visits is flat; once that is below K / t, the gain is
1 / t for good (Belardinelli & Pereyra 2007: with halving alone the error ends on a plateau).

Z. Tan: Optimally adjusted mixture sampling and locally weighted histogram analysis, Journal of
Computational and Graphical Statistics 26, 2017. F. Wang, D. Landau: Efficient, multiple-range
random walk algorithm to calculate the density of states, Physical Review Letters 86, 2001.
R. Belardinelli, V. Pereyra: Fast algorithm to calculate density of states, Physical Review E 75,
2007.
"""

import numpy as np
from numba import int64

from pymc_tempering.chain.loop import RUNNING, run, rung_weights
from pymc_tempering.chain.record import CHAIN, N_TRACE, RECORD, RUNG, RUNGS, WORK
from pymc_tempering.model.compiled import DENSITY, EXPLORE, MATRIX, PARTS, RNG, VECTOR
from pymc_tempering.model.jit import njit

SAMS, WANG_LANDAU = range(2)

# Positions in `schedule`: iterations so far, with SAMS from when all rungs were reached; where the
# burn-in of SAMS ended, 0 while it lasts; log f of Wang-Landau, 0 once its gain is 1 / t, with SAMS
# 1 and 0 once all rungs were reached; what a histogram needs to be flat, the smallest share over
# its target; the gain of the last iteration; and the factor of the 1 / t gains.
T, BURN_IN, LOG_F, FLATNESS, GAIN, FACTOR = range(6)
N_SCHEDULE = 6

POWER = 0.8
"""The gains of the burn-in fall as t^-0.8. With 1 / t the start would be forgotten too slowly."""

FLAT = 0.2
"""A histogram is flat when every rung has this share of its target. The 1 / t gains do the rest;
with 0.8, the usual choice for halving alone, they would begin much later."""


def new_schedule(*, flatness: float = FLAT, factor: float = 1.0) -> np.ndarray:
    """Gains from the beginning.

    Parameters
    ----------
    flatness : float, default 0.2
        Smallest share of visits over its target in a flat histogram.
    factor : float, default 1.0
        The gains are `factor` / t in the end. With 1 the variance is smallest; it is
        factor^2 / (2 factor - 1) times as large with others above 1/2. With 0 Wang-Landau goes on
        halving.
    """
    schedule = np.zeros(N_SCHEDULE)
    schedule[LOG_F], schedule[FLATNESS], schedule[FACTOR] = 1.0, flatness, factor
    return schedule


@njit()
def _is_flat(histogram, targets, flatness):  # type: ignore[no-untyped-def]
    """Whether each rung has had `flatness` of its share of visits, and one at least."""
    total = histogram.sum()
    for k in range(histogram.size):
        if histogram[k] < 1.0 or histogram[k] < flatness * targets[k] * total:
            return False
    return True


@njit(error_model="numpy")
def update(method, offsets, targets, schedule, histogram, weights, rung):  # type: ignore[no-untyped-def]
    """Move log Z-hat in `offsets` = log r - log Z-hat after one iteration.

    `targets` is r (K,), `weights` is q(beta_k | x) (K,), `rung` the one that was explored.
    """
    n_rungs = offsets.size
    schedule[T] += 1.0
    t = schedule[T]
    if method == SAMS:
        burn_in, gain = schedule[BURN_IN], targets.min()
        if schedule[LOG_F] > 0.0:
            for k in range(n_rungs):
                histogram[k] += weights[k]
            if int64(t) % n_rungs == 0 and _is_flat(histogram, targets, schedule[FLATNESS]):
                schedule[LOG_F] = 0.0
                schedule[T] = gain ** (-1.0 / POWER)
        elif burn_in > 0.0:
            gain = min(gain, schedule[FACTOR] / (t - burn_in + burn_in**POWER))
        else:
            gain = min(gain, t**-POWER)
        for k in range(n_rungs):
            offsets[k] -= gain * weights[k] / targets[k]
    else:
        final = schedule[FACTOR] / t
        if schedule[LOG_F] > 0.0:
            histogram[rung] += 1.0
            if int64(t) % n_rungs == 0 and _is_flat(histogram, targets, schedule[FLATNESS]):
                histogram[:] = 0.0
                schedule[LOG_F] *= 0.5
                if schedule[LOG_F] / n_rungs <= final:
                    schedule[LOG_F] = 0.0
        gain = schedule[LOG_F] / n_rungs if schedule[LOG_F] > 0.0 else final
        offsets[rung] -= gain / targets[rung]
    schedule[GAIN] = gain


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
        VECTOR,
        VECTOR,
        VECTOR,
        MATRIX,
        int64,
        WORK,
    ),
    error_model="numpy",
)
def adapt(  # type: ignore[no-untyped-def]
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
    method,
    targets,
    schedule,
    histogram,
    batches,
    n_iter,
    work,
):
    """Run at most `n_iter` iterations of the loop, and move `rungs.offsets` after each of them.

    The record has room for all of them: its trace has the length of the round. `batches` (B, K)
    sums q(beta_k | x) of equal parts of the round. Returns what `run` does: NEEDS_REFERENCE where
    the reference draws are used up.
    """
    betas, offsets = rungs.betas, rungs.offsets
    n_rungs = betas.size
    counters = chain.counters
    weights = np.empty(n_rungs)
    for _ in range(n_iter):
        rung, at = counters[RUNG], counters[N_TRACE]
        status = run(
            density, explore, parts, rungs, chain, record, references, circular, scratch, rng,
            move, record.x.shape[0] + 1, 1, work,
        )  # fmt: skip
        if counters[N_TRACE] == at:
            return status
        rung_weights(record.trace_log_ratio[at], betas, offsets, weights)
        batch = at * batches.shape[0] // record.trace_rung.size
        for k in range(n_rungs):
            batches[batch, k] += weights[k]
        update(method, offsets, targets, schedule, histogram, weights, rung)
    return RUNNING
