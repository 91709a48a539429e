"""Chains on threads, in short chunks, so that progress and Ctrl-C get through."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Protocol

import numpy as np

from pymc_tempering.chain.loop import N_TRACE, Record
from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.state import (
    ChainState,
    Mark,
    cycle_bound,
    hanging_message,
    make_runner,
    mark_of,
    new_record,
    patience,
    start_chain,
    state_at,
    stuck_message,
)
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import POLL_SECONDS, Threads
from pymc_tempering.exceptions import StuckChainError, warn_user

FIRST_CHUNK, CHUNK_SECONDS, MAX_CHUNK = 1, 0.05, 1_000_000
"""Iterations of the first piece of work, seconds that a piece is to take, and iterations at most.
An iteration of a slow likelihood may take minutes."""

MIN_DRAWS = 4
"""Draws that each chain makes before a deadline stops it."""

MIN_COLD_WEIGHT = 0.01
"""States are kept if q(beta_K | x) is above this. The others are worth little to a fit, and with a
long ladder they would fill the memory."""

LEAST_KEPT = 0.05
"""Least probability with which a state of any rung is kept for expectations: a picture of the hot
rungs needs some of their states, which may all be worth nothing at beta = 1."""


class Stop(Protocol):
    """What tells a chain to stop."""

    def is_set(self) -> bool:
        """Whether it is to stop."""


@dataclass
class HotStates:
    """States of all rungs that are kept for expectations, few where they weigh little.

    A state is kept with probability min(1, q(beta_K | x) / MIN_COLD_WEIGHT), or LEAST_KEPT where
    that is less, and its weight is divided by the probability, so that no expectation changes.

    Attributes
    ----------
    rng : numpy.random.Generator
        Decides which states are kept. The chain has another one, so its draws stay the same.
    parts : list of (iteration, probability, x)
        Arrays of a chunk each.
    n_seen : int
        Iterations so far.
    """

    rng: np.random.Generator
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    n_seen: int = 0

    def add(self, cold_weight: np.ndarray, x: np.ndarray) -> None:
        """Keep some of the next states, given q(beta_K | x) (n,) and x (n, d)."""
        probability = np.clip(cold_weight / MIN_COLD_WEIGHT, LEAST_KEPT, 1.0)
        kept = np.flatnonzero(self.rng.random(len(x)) < probability)
        self.parts.append((self.n_seen + kept, probability[kept], x[kept].copy()))
        self.n_seen += len(x)


@dataclass(eq=False)
class ChainRun:
    """One chain at work: its state, its record, and the pieces of its flat trace.

    Attributes
    ----------
    trace : list of (log_ratio, rung, x)
        Arrays of a chunk each; empty when no trace is kept. `x` has no rows unless states are
        kept; then only iterations are kept whose state has weight at beta = 1.
    hot : HotStates, optional
        States of all rungs, beside a trace of all iterations.
    stuck : str
        Where the chain stands or stood, if it took too long to come back to beta = 1; else empty.
    hangs : str
        How long its density did not come back, if nobody waited for it any longer; else empty.
    mark : Mark, optional
        Where the chain stood when the piece of work began that is under way.
    longest : float
        Seconds of the longest piece so far.
    """

    state: ChainState
    record: Record
    keep_trace: bool
    keep_states: bool = False
    trace: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    hot: HotStates | None = None
    stuck: str = ""
    hangs: str = ""
    mark: Mark | None = None
    longest: float = 0.0

    @property
    def faults(self) -> tuple[str, ...]:
        """What went wrong with this chain."""
        return tuple(said for said in (self.stuck, self.hangs) if said)

    @property
    def silence(self) -> float:
        """Seconds since the piece of work began that is under way; 0 if none is."""
        mark = self.mark
        return 0.0 if mark is None else perf_counter() - mark.began

    def set_back(self, plan: Plan) -> None:
        """Leave the piece of work that is under way to its thread, and stand where it began."""
        mark = self.mark
        if mark is None:
            return
        self.mark, self.trace = None, list(self.trace)
        self.hangs = hanging_message(perf_counter() - mark.began, self.longest)
        self.state = state_at(mark, plan)
        if self.hot is not None:
            self.hot = replace(self.hot, rng=deepcopy(self.hot.rng), parts=list(self.hot.parts))


def start_runs(
    plan: Plan,
    n_draws: int,
    rngs: Sequence[np.random.Generator],
    keep_trace: bool,
    *,
    keep_states: bool = False,
    keep_hot: bool = False,
) -> list[ChainRun]:
    """Start a chain for each generator, with space for `n_draws` draws."""
    dim, n_rungs = plan.reference.path.dim, plan.ladder.n_rungs
    runs = [
        ChainRun(start_chain(plan, rng), new_record(n_draws, n_rungs, dim), keep_trace, keep_states)
        for rng in rngs
    ]
    if keep_hot:
        for run, rng in zip(runs, rngs, strict=True):
            run.hot = HotStates(rng.spawn(1)[0])
    return runs


def extend_runs(runs: Sequence[ChainRun], n_draws: int) -> None:
    """Give the chains space for `n_draws` draws in all; earlier draws are kept."""
    for run in runs:
        done, old = run.state.n_draws, run.record
        _, _, n_rungs = old.per_rung.shape
        new = new_record(n_draws, n_rungs, old.x.shape[1])
        for name in ("x", "per_rung", "scalars"):
            getattr(new, name)[:done] = getattr(old, name)[:done]
        run.record = new


def advance_chain(plan: Plan, run: ChainRun, n_draws: int, stop: Stop, *, drawn: int = 0) -> None:
    """Run one chain until its record has `n_draws` draws, or until it is told to stop.

    Parameters
    ----------
    plan : Plan
    run : ChainRun
    n_draws : int
    stop : Stop
    drawn : int, default 0
        Draws of the chain that are in another record.

    Raises
    ------
    StuckChainError
        The chain did not come back to beta = 1 before its first draw.
    """
    advance = make_runner(plan)
    bound = cycle_bound(plan)
    chunk = FIRST_CHUNK
    while run.state.n_draws < n_draws and not stop.is_set():
        run.mark = mark = mark_of(run.state)
        record = run.record
        if run.keep_trace:
            log_ratio, rung = np.empty(chunk), np.empty(chunk, dtype=np.int64)
            with_x = run.keep_states or run.hot is not None
            states = np.empty((chunk if with_x else 0, record.x.shape[1]))
            record = record._replace(trace_log_ratio=log_ratio, trace_rung=rung, trace_x=states)
            run.state.chain.counters[N_TRACE] = 0
        advance(run.state, record, n_draws, chunk)
        if run.mark is not mark:
            return  # nobody waited for it
        if run.keep_trace:
            n = run.state.n_trace
            kept: slice | np.ndarray = slice(n)
            if run.keep_states:
                cold = plan.ladder.probabilities(log_ratio[:n])[-1]
                kept = np.flatnonzero(cold > MIN_COLD_WEIGHT)
            elif run.hot is not None:
                run.hot.add(plan.ladder.probabilities(log_ratio[:n])[-1], states[:n])
                states = states[:0]
            run.trace.append(
                (log_ratio[kept].copy(), rung[kept].astype(np.int32), states[kept].copy())
            )
        if run.state.steps_in_cycle > bound:
            run.stuck = stuck_message(plan, run.state.rung)
            if drawn + run.state.n_draws == 0:
                raise StuckChainError(run.stuck)
        seconds = max(perf_counter() - mark.began, 1e-6)
        run.longest, run.mark = max(run.longest, seconds), None
        chunk = int(np.clip(chunk * min(4.0, CHUNK_SECONDS / seconds), 1, MAX_CHUNK))


def have_least_draws(runs: Sequence[ChainRun]) -> bool:
    """Whether each chain has the least draws that it makes before a deadline stops it."""
    return all(run.state.n_draws >= MIN_DRAWS for run in runs)


def run_chains(
    plan: Plan,
    runs: Sequence[ChainRun],
    n_draws: int,
    *,
    cores: int,
    watch: Callable[[], None] = lambda: None,
    deadline: Deadline = NEVER,
    pause: Callable[[], bool] = lambda: False,
) -> bool:
    """Run all chains to `n_draws` draws each.

    Parameters
    ----------
    plan : Plan
    runs : sequence of ChainRun
    n_draws : int
    cores : int
        Threads.
    watch : callable, optional
        Called from this thread a few times a second.
    deadline : Deadline, optional
        When the chains stop, once each has a few draws.
    pause : callable, optional
        Asked as often; the chains stop once it says so, wherever they are.

    Returns
    -------
    bool
        Whether Ctrl-C cut the run short, or chains hang and the time is over; the runs then hold
        what there was.

    Raises
    ------
    StuckChainError
        A chain did not come back to beta = 1 before its first draw.

    Warns
    -----
    TemperingWarning
        A chain hangs, and nothing limits the time.
    """
    stop, told = threading.Event(), False

    def look(done: int) -> None:
        nonlocal told
        watch()
        hanging = hanging_chains(runs)
        if pause() or (deadline.late and have_least_draws([r for r in runs if r not in hanging])):
            stop.set()
        if deadline.late and _none_works(runs):
            raise _OnlyHanging
        if hanging and deadline.at == np.inf and not told:
            told = True
            message = hanging_message(hanging[0].silence, hanging[0].longest)
            warn_user(f"{message} Ctrl-C, or max_time= another time, returns the draws so far.")

    threads = Threads([partial(advance_chain, plan, r, n_draws, stop) for r in runs], cores)
    futures, interrupted = threads.futures, True
    try:
        with suppress(_OnlyHanging):
            interrupted = threads.run(stop, look)
    finally:
        while not (all(future.done() for future in futures) or _none_works(runs)):
            wait(futures, POLL_SECONDS)
        for run, future in zip(runs, futures, strict=True):
            if not future.done():
                run.set_back(plan)
    return interrupted


class _OnlyHanging(Exception):
    """All chains that are at work hang."""


def hanging_chains(runs: Sequence[ChainRun]) -> list[ChainRun]:
    """Chains that have been silent for too long."""
    limit = patience(max(run.longest for run in runs))
    return [run for run in runs if run.silence > limit]


def _none_works(runs: Sequence[ChainRun]) -> bool:
    """Whether some chains hang, and no other is at work."""
    hanging = hanging_chains(runs)
    return bool(hanging) and all(run in hanging for run in runs if run.mark is not None)
