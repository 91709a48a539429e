"""Chains: the state of one, and many on threads, in short chunks for progress and Ctrl-C.

A chain is stuck if it does not come back to beta = 1, and hangs if its density does not come back.
A thread cannot be ended from outside. So a chain that hangs is set back to where it stood before
the call, and its thread may go on with what is nobody's any more.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from pymc_tempering.chain.loop import (
    N_DRAWS,
    N_ITERATIONS,
    N_TRACE,
    NEEDS_REFERENCE,
    REF_USED,
    RUNG,
    STEPS,
    Chain,
    Record,
    Rungs,
    new_chain,
    new_record,
    new_work,
    run as run_loop,
)
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import POLL_SECONDS, Threads
from pymc_tempering.core.turns import TURNS
from pymc_tempering.exceptions import StuckChainError, warn_user
from pymc_tempering.model.compiled import Point, call_loop, new_point

REFERENCE_BATCH = 256
"""Reference draws that are made at once; each is used for one visit."""


@dataclass
class ChainState:
    """All that a chain needs to go on; copies and pickles as it is."""

    chain: Chain
    references: np.ndarray
    rng: np.random.Generator
    reference_rngs: list[np.random.Generator] = field(default_factory=list)
    n_draws_ever: int = 0

    @property
    def rung(self) -> int:
        """Rung that the next iteration explores."""
        return int(self.chain.counters[RUNG])

    @property
    def n_iterations(self) -> int:
        """Iterations since the chain was started."""
        return int(self.chain.counters[N_ITERATIONS])

    @property
    def steps_in_cycle(self) -> int:
        """Iterations since the last visit to beta = 1."""
        return int(self.chain.scalars[STEPS])

    @property
    def n_draws(self) -> int:
        """Draws in the record so far."""
        return int(self.chain.counters[N_DRAWS])

    @property
    def n_trace(self) -> int:
        """Iterations in the flat trace so far."""
        return int(self.chain.counters[N_TRACE])


def start_chain(plan: Plan, rng: np.random.Generator) -> ChainState:
    """Start a chain where a tour starts: at a fresh reference draw.

    The direction is down, as it is whenever the nonreversible move arrives at beta = 0, so
    that the first tour has the law of all others.
    """
    dim = plan.reference.path.dim
    point = new_point(dim, plan.reference.mixture)
    chain = new_chain(point, plan.kernel.n_blocks, plan.ladder.n_rungs)
    return ChainState(chain, np.empty((0, dim)), rng, plan.reference.spawn(rng))


def clear_record(state: ChainState) -> None:
    """Make the chain write to the beginning of its record again."""
    state.chain.counters[N_DRAWS] = 0
    state.chain.counters[N_TRACE] = 0


def call_chain(
    loop: Any, plan: Plan, rungs: Rungs, state: ChainState, record: Record, *more: Any
) -> int:
    """Call a loop of one chain, and give it new reference draws where it has used them up."""
    path, kernel = plan.reference.path, plan.kernel
    status = call_loop(
        loop, path.density, kernel.explore, kernel.parts, rungs, state.chain, record,
        state.references, state.rng, *more,
    )  # fmt: skip
    if status == NEEDS_REFERENCE:
        state.references = plan.reference.draw(REFERENCE_BATCH, state.reference_rngs)
        state.chain.counters[REF_USED] = 0
    return status


def make_runner(plan: Plan) -> Callable[[ChainState, Record, int, int], int]:
    """Bind a plan to the compiled loop.

    Returns
    -------
    callable
        `advance(state, record, n_draws, n_iterations)`: runs until the record holds `n_draws`
        draws or `n_iterations` iterations are over, and returns how many iterations it was.
        Safe to call for several chains at once, from several threads.
    """
    rungs, dim = plan.rungs, plan.reference.path.dim

    def advance(state: ChainState, record: Record, n_draws: int, n_iterations: int) -> int:
        work = new_work(plan.kernel, rungs.betas.size, dim)
        start, left, status = state.n_iterations, n_iterations, NEEDS_REFERENCE
        while left > 0 and status == NEEDS_REFERENCE:
            status = call_chain(run_loop, plan, rungs, state, record, work, n_draws, left)
            left = n_iterations - (state.n_iterations - start)
        return n_iterations - left

    return advance


CYCLE_BOUND = 2000
"""A chain that has not come back to beta = 1 within this many iterations per rung is stuck."""


def cycle_bound(plan: Plan) -> int:
    """Bound the iterations without a visit to beta = 1, after which a chain counts as stuck."""
    return CYCLE_BOUND * plan.ladder.n_rungs


def stuck_message(plan: Plan, rung: int) -> str:
    """Say where a chain hangs, and what to do."""
    beta = plan.ladder.betas[rung]
    return (
        f"A chain has not come back to beta = 1 in {cycle_bound(plan)} iterations; it hangs at "
        f"rung {rung} of {plan.ladder.n_rungs} (beta = {beta:.3g}). Likely the likelihood changes "
        "abruptly there (a phase transition), or the kernel does not move: try a larger "
        "target_accept, more rungs (rungs_per_barrier), or a tighter prior."
    )


SILENCE, SILENCE_TIMES = 30.0, 20.0
"""Seconds in one piece of its work after which a chain hangs; and at least so many times the
longest piece that any chain has come back from."""


@dataclass(frozen=True, eq=False)
class Mark:
    """Where a chain stands when a piece of its work begins.

    Attributes
    ----------
    began : float
        By `perf_counter`.
    state : ChainState
        What the piece changes.
    copies : tuple of ndarray
        x, values, gradients, counters, sums, scalars and acceptance at that time.
    references : ndarray
    generators : list of dict
        States of the chain's generator and of those of its reference draws.
    """

    began: float
    state: ChainState
    copies: tuple[np.ndarray, ...]
    references: np.ndarray
    generators: list[Any]


def mark_of(state: ChainState) -> Mark:
    """Note where a chain stands."""
    chain = state.chain
    arrays = (*chain.point[:3], *chain[1:])
    generators = [rng.bit_generator.state for rng in (state.rng, *state.reference_rngs)]
    copies = tuple(np.copy(array) for array in arrays)
    return Mark(perf_counter(), state, copies, state.references, generators)


def state_at(mark: Mark, plan: Plan) -> ChainState:
    """Make a state that stands where a chain stood, and shares nothing with it that can change."""
    x, values, grads, *cycle = mark.copies
    point = Point(x, values, grads, plan.reference.mixture.copy())
    rngs = [deepcopy(rng) for rng in (mark.state.rng, *mark.state.reference_rngs)]
    for rng, stood in zip(rngs, mark.generators, strict=True):
        rng.bit_generator.state = stood
    chain = Chain(point, *cycle)
    return ChainState(chain, mark.references, rngs[0], rngs[1:], mark.state.n_draws_ever)


def patience(longest: float) -> float:
    """Seconds after which a chain hangs, given those of the longest piece so far."""
    return max(SILENCE, SILENCE_TIMES * longest)


def hanging_message(seconds: float, longest: float) -> str:
    """Say that a chain hangs, and what to do."""
    usual = f", where the longest so far took {longest:.2g} s" if longest else ""
    return (
        f"A chain has been in one piece of its work for {seconds:.0f} s{usual}: its likelihood "
        "seems to hang at some values of the variables. Give the solver in it a limit of its own, "
        "after which it returns NaN."
    )


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
    deadline : Deadline, optional
        When the chains stop, once each has a few draws.
    pause : callable, optional
        Asked from this thread a few times a second; the chains stop once it says so, wherever they
        are.

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
                TURNS.give_up()
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
