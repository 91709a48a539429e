"""Rounds of the warm-up that learn log Z-hat: by RTS after each round, or at every iteration.

The latter is stochastic approximation, compiled. After an iteration that explored x at rung L,

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

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numba import int64

from pymc_tempering.chain.chains import ChainState, call_chain, clear_record, make_runner
from pymc_tempering.chain.loop import (
    CHAIN,
    N_TRACE,
    RECORD,
    RUNG,
    RUNGS,
    RUNNING,
    VISITS,
    WORK,
    Record,
    new_record,
    new_work,
    run,
    rung_weights,
)
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.core.threads import paced, run_all
from pymc_tempering.model.compiled import DENSITY, EXPLORE, MATRIX, PARTS, RNG, VECTOR
from pymc_tempering.model.jit import njit

SAMS, WANG_LANDAU = range(2)

# Positions in `schedule`: iterations so far, with SAMS from when all rungs were reached; where the
# burn-in of SAMS ended, 0 while it lasts; log f of Wang-Landau, 0 once its gain is 1 / t, with SAMS
# 1 and 0 once all rungs were reached; the gain of the last iteration; and the factor of the 1 / t
# gains.
T, BURN_IN, LOG_F, GAIN, FACTOR = range(5)
N_SCHEDULE = 5

POWER = 0.8
"""The gains of the burn-in fall as t^-0.8. With 1 / t the start would be forgotten too slowly."""

FLAT = 0.2
"""A histogram is flat when every rung has this share of its target. The 1 / t gains do the rest;
with 0.8, the usual choice for halving alone, they would begin much later."""


def new_schedule(factor: float = 1.0) -> np.ndarray:
    """Gains from the beginning.

    Parameters
    ----------
    factor : float, default 1.0
        The gains are `factor` / t in the end. With 1 the variance is smallest; it is
        factor^2 / (2 factor - 1) times as large with others above 1/2. With 0 Wang-Landau goes on
        halving.
    """
    schedule = np.zeros(N_SCHEDULE)
    schedule[LOG_F], schedule[FACTOR] = 1.0, factor
    return schedule


@njit()
def _is_flat(histogram, targets):  # type: ignore[no-untyped-def]
    """Whether each rung has had enough of its share of visits, and one at least."""
    total = histogram.sum()
    for k in range(histogram.size):
        if histogram[k] < 1.0 or histogram[k] < FLAT * targets[k] * total:
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
            if int64(t) % n_rungs == 0 and _is_flat(histogram, targets):
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
            if int64(t) % n_rungs == 0 and _is_flat(histogram, targets):
                histogram[:] = 0.0
                schedule[LOG_F] *= 0.5
                if schedule[LOG_F] / n_rungs <= final:
                    schedule[LOG_F] = 0.0
        gain = schedule[LOG_F] / n_rungs if schedule[LOG_F] > 0.0 else final
        offsets[rung] -= gain / targets[rung]
    schedule[GAIN] = gain


@njit(
    int64(
        DENSITY, EXPLORE, PARTS, RUNGS, CHAIN, RECORD, MATRIX, RNG, WORK, int64,
        VECTOR, VECTOR, VECTOR, MATRIX, int64,
    ),
    error_model="numpy",
)  # fmt: skip
def adapt(  # type: ignore[no-untyped-def]
    density, explore, parts, rungs, chain, record, references, rng, work, method,
    targets, schedule, histogram, batches, n_iter,
):  # fmt: skip
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
            density, explore, parts, rungs, chain, record, references, rng, work,
            record.x.shape[0] + 1, 1,
        )  # fmt: skip
        if counters[N_TRACE] == at:
            return status
        rung_weights(record.trace_log_ratio[at], betas, offsets, weights)
        batch = at * batches.shape[0] // record.trace_rung.size
        for k in range(n_rungs):
            batches[batch, k] += weights[k]
        update(method, offsets, targets, schedule, histogram, weights, rung)
    return RUNNING


N_BATCHES = 8
"""Parts of a round of one chain, for the error of an occupancy."""


MAX_ERROR = 0.7
"""A rung counts as hardly seen if its log occupancy has a larger error: two batches hold it all."""

MAX_BLIND_STEP = 1.0
"""Largest change of log Z-hat, in nats, between two rungs of which one was hardly seen."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned from a round of C chains.

    Attributes
    ----------
    log_z : array, shape (K,)
        Log Z-hat after the round, in nats.
    off, error : array, shape (K,)
        log(c_k / r_k) of the occupancies c_k, and its error. Where log Z-hat adapts within the
        round they are those of its second half.
    log_ratio : array, shape (C, n)
        Of fewer iterations than asked where a deadline ended the round.
    counts : array, shape (K,)
        The mixture that `log_ratio` is a sample of: states of each rung.
    visits : array, shape (K,)
    accept : array, shape (B, K)
        Summed acceptance of each kernel.
    gain : float
        Gain of the last iteration; 1 for RTS, which takes the full step.
    """

    log_z: np.ndarray
    off: np.ndarray
    error: np.ndarray
    log_ratio: np.ndarray
    counts: np.ndarray
    visits: np.ndarray
    accept: np.ndarray
    gain: float


def _occupancy(sums: np.ndarray, ladder: Ladder) -> tuple[np.ndarray, np.ndarray]:
    """log(c / r) (K,) and its error, of batches of Rao-Blackwell sums (batches, K)."""
    total = sums.sum(axis=0)
    with np.errstate(divide="ignore"):
        log_c = np.log(total) - np.log(total.sum())
    sums = sums[sums.sum(axis=1) > 0.0]  # some batches of a round that was cut short are empty
    shares = sums / sums.sum(axis=1, keepdims=True)
    if len(sums) < 2:
        return log_c - ladder.log_weights, np.full(ladder.n_rungs, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = shares.std(axis=0, ddof=1) / np.sqrt(len(sums)) / shares.mean(axis=0)
    return log_c - ladder.log_weights, error


def updated(log_z: np.ndarray, off: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, bool]:
    """Update log Z-hat after a round by eq. (12), in small steps where little was seen.

    RTS estimates the occupancy of a rung that no chain came near from the few states that were
    nearest, and can be off by any factor. A short round that did not reach beta = 1 would move
    log Z-hat there by tens of nats, and the chains would stay at that end. So between two rungs
    of which one was hardly seen, log Z-hat moves by at most `MAX_BLIND_STEP`; the next round sees
    more.

    Parameters
    ----------
    log_z, off, error : array, shape (K,)
        Log Z-hat in the round, log(c_k / r_k), and its error.

    Returns
    -------
    log_z : array, shape (K,)
    whole : bool
        Whether no rung was hardly seen.
    """
    known = error < MAX_ERROR  # NaN where nothing was seen
    if known.all():
        return log_z + off - off[0], True
    with np.errstate(invalid="ignore"):
        steps = np.nan_to_num(np.diff(off), nan=0.0)
    limit = np.where(known[1:] & known[:-1], np.inf, MAX_BLIND_STEP)
    return log_z + np.concatenate([[0.0], np.cumsum(np.clip(steps, -limit, limit))]), False


def _batches(log_ratio: np.ndarray, ladder: Ladder) -> np.ndarray:
    """Rao-Blackwell sums by batch of iterations, shape (chains * N_BATCHES, K)."""
    q = ladder.probabilities(log_ratio)
    parts = np.array_split(q, N_BATCHES, axis=2)
    return np.concatenate([part.sum(axis=2).T for part in parts])


@dataclass
class InitialIterations:
    """The initial iterations of RTS (section 2.4): frozen rounds, with eq. (12) after each.

    It is called with a plan, the iterations of each chain and a deadline, and each round goes on
    where the last one ended; so is `Adapting`.
    """

    states: list[ChainState]
    cores: int
    seen: bool = False

    def __call__(self, plan: Plan, n_iterations: int, deadline: Deadline = NEVER) -> Learned:
        """Run a round with log Z-hat frozen."""
        advance = make_runner(plan)
        ladder = plan.ladder

        def one(state: ChainState, stop: threading.Event) -> tuple[np.ndarray, ...] | None:
            record = _start_round(state, plan, n_iterations)
            for begin, end in paced(n_iterations, stop, deadline):
                advance(state, record, n_iterations + 1, end - begin)
            return None if stop.is_set() and state.n_trace < n_iterations else _seen(state, record)

        results = run_all([partial(one, state) for state in self.states], self.cores, deadline)
        log_ratio, visits, accept = _pool(results)
        off, error = _occupancy(_batches(log_ratio, ladder), ladder)
        # The mixture that the chains drew from is q, with Rao-Blackwell occupancies.
        counts = np.exp(off + ladder.log_weights) * log_ratio.size
        log_z, self.seen = updated(ladder.log_z, off, error)
        if log_ratio.shape[1] < n_iterations and not self.seen:
            log_z = ladder.log_z  # a deadline ended the round, and none sees more
        return Learned(log_z, off, error, log_ratio, counts, visits, accept, 1.0)

    def is_final(self) -> bool:
        """Every round that saw all rungs may be the last."""
        return self.seen

    def place(self, passed: bool) -> bool:
        """Rungs are placed anew after the first round that saw them all."""
        return self.seen


class Adapting:
    """Rounds whose log Z-hat adapts at every iteration: each chain's own, their mean at the end.

    To first order the 1 / t gains make a chain's log Z-hat the mean of its noise, so that the mean
    of the chains is as good as one chain of their joint length.
    """

    def __init__(
        self, states: list[ChainState], cores: int, method: int, schedule: np.ndarray | None = None
    ) -> None:
        self.states, self.cores, self.method = states, cores, method
        first = new_schedule() if schedule is None else schedule
        self.schedules = [first.copy() for _ in states]
        self.histograms = [np.empty(0) for _ in states]
        self.burned_in = False

    def __call__(self, plan: Plan, n_iterations: int, deadline: Deadline = NEVER) -> Learned:
        """Run a round; log Z-hat adapts from that of the plan."""
        ladder = plan.ladder
        self.burned_in = self._burn_in_is_over()
        if self.histograms[0].size != ladder.n_rungs:
            self.histograms = [np.zeros(ladder.n_rungs) for _ in self.states]

        def one(i: int, stop: threading.Event) -> tuple[np.ndarray, ...] | None:
            state = self.states[i]
            record = _start_round(state, plan, n_iterations)
            log_z, sums = adapt_round(
                plan, self.method, state, record, self.schedules[i], self.histograms[i],
                paced(n_iterations, stop, deadline),
            )  # fmt: skip
            short = stop.is_set() and state.n_trace < n_iterations
            return None if short else (*_seen(state, record), log_z, sums)

        tasks = [partial(one, i) for i in range(len(self.states))]
        results = run_all(tasks, self.cores, deadline)
        log_ratio, visits, accept = _pool([result[:3] for result in results])
        log_z = np.mean([result[3] for result in results], axis=0)
        if log_ratio.shape[1] < n_iterations and not self.is_final():
            log_z = ladder.log_z  # the gains were large when a deadline ended the round
        late = np.concatenate([_second_half(result[4]) for result in results])
        off, error = _occupancy(late, ladder)
        gain = max(schedule[GAIN] for schedule in self.schedules)
        return Learned(log_z, off, error, log_ratio, visits, visits, accept, float(gain))

    def _burn_in_is_over(self) -> bool:
        """Whether all gains are 1 / t by now."""
        if self.method == SAMS:
            return all(schedule[BURN_IN] > 0 for schedule in self.schedules)
        return all(schedule[LOG_F] == 0 for schedule in self.schedules)

    def is_final(self) -> bool:
        """Whether the round had gains of 1 / t: all of it with SAMS, its end with Wang-Landau."""
        return self.burned_in if self.method == SAMS else self._burn_in_is_over()

    def place(self, passed: bool) -> bool:
        """End the burn-in of SAMS with the first round that passed; then rungs may be placed."""
        reached = all(schedule[LOG_F] == 0 for schedule in self.schedules)
        if self.method == SAMS and passed and reached and not self._burn_in_is_over():
            for schedule in self.schedules:
                schedule[BURN_IN] = schedule[T]
        return self._burn_in_is_over()


def adapt_round(
    plan: Plan, method: int, state: ChainState, record: Record,
    schedule: np.ndarray, histogram: np.ndarray, pieces: Iterable[tuple[int, int]],
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Fill the trace of a record, up to the end of the last of some pieces.

    Returns
    -------
    log_z : array, shape (K,)
        Log Z-hat.
    sums : array, shape (N_BATCHES, K)
        Rao-Blackwell sums of the batches.
    """
    ladder, targets = plan.ladder, np.exp(plan.ladder.log_weights)
    own = plan.rungs._replace(offsets=ladder.offsets.copy())
    work = new_work(plan.kernel, ladder.n_rungs, plan.reference.path.dim)
    sums = np.zeros((N_BATCHES, ladder.n_rungs))
    for _, end in pieces:
        while state.n_trace < end:
            call_chain(
                adapt, plan, own, state, record, work, method, targets, schedule, histogram,
                sums, end - state.n_trace,
            )  # fmt: skip
    log_z = ladder.log_weights - own.offsets
    return log_z - log_z[0], sums


def _start_round(state: ChainState, plan: Plan, n_iterations: int) -> Record:
    """Make room for a round of one chain, and count its acceptance anew."""
    clear_record(state)
    state.chain.accept[:] = 0.0
    return new_record(n_iterations, plan.ladder.n_rungs, plan.reference.path.dim, n_iterations)


def _seen(state: ChainState, record: Record) -> tuple[np.ndarray, ...]:
    """Log_ratio (n,), visits (K,) and acceptance (B, K) of a round of one chain."""
    sums = record.per_rung[: state.n_draws].sum(axis=0) + state.chain.per_rung
    return record.trace_log_ratio[: state.n_trace], sums[VISITS], state.chain.accept


def _second_half(sums: np.ndarray) -> np.ndarray:
    """Return the second half of the batches (B, K) that there are."""
    n = int((sums.sum(axis=1) > 0.0).sum())
    return sums[n // 2 : n]


def _pool(results: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Log_ratio of all chains (C, n), and their summed visits and acceptance."""
    log_ratios, visits, accept = zip(*results, strict=True)
    n = min(len(log_ratio) for log_ratio in log_ratios)
    of_all = np.array([log_ratio[:n] for log_ratio in log_ratios])
    return of_all, np.array(visits).sum(axis=0), np.array(accept).sum(axis=0)


type Learner = InitialIterations | Adapting

WEIGHT_ADAPTATIONS: dict[str, Callable[[list[ChainState], int], Learner]] = {
    "rts": InitialIterations,
    "wang_landau": partial(Adapting, method=WANG_LANDAU),
    "sams": partial(Adapting, method=SAMS),
}
"""Ways to learn log Z-hat, by the name that users give."""
