"""Chains on the workers of an executor, in pieces of a few seconds, which begin where one ended."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from pymc_tempering.chain.chains import ChainRun, HotStates, Stop, advance_chain, have_few_draws
from pymc_tempering.chain.hanging import hanging_message, patience
from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.record import N_DRAWS, Record
from pymc_tempering.chain.state import clear_record, new_record
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import Task
from pymc_tempering.exceptions import TemperingWarning, WorkerError
from pymc_tempering.executors.crew import Crew, send_tasks
from pymc_tempering.executors.once_a_worker import sent_once

PIECE_SECONDS, LEAST_SECONDS = 5.0, 0.2
"""How long a worker runs a chain before it tells what it has, and before a deadline at least."""


@dataclass(frozen=True)
class TimeLimit:
    """Is set when a time by the clock of this process is over."""

    at: float

    def is_set(self) -> bool:
        """Whether it is over."""
        return perf_counter() >= self.at


def send_chains(
    crew: Crew,
    plan: Plan,
    runs: Sequence[ChainRun],
    n_draws: int,
    *,
    watch: Callable[[], None] = lambda: None,
    deadline: Deadline = NEVER,
    pause: Callable[[], bool] = lambda: False,
) -> bool:
    """Run all chains to `n_draws` draws each, as :func:`run_chains`, on the workers of an executor.

    Where a piece of a chain ends does not change the chain. The runs hold what has come back,
    so that no more than a piece is lost with a worker that nobody replaces. `pause` is asked when
    all pieces are back, and the chains stop there once it says so.

    Returns
    -------
    bool
        Whether Ctrl-C or the loss of all workers cut the run short, or chains hang and the time is
        over; the runs then hold what there was.

    Raises
    ------
    StuckChainError
        A chain did not come back to beta = 1 before its first draw.
    WorkerError
        The executor lost its workers before the first draws came back, or one has other versions.

    Warns
    -----
    TemperingWarning
        The executor lost its workers.
    """
    with sent_once(crew.executor, crew.parcel):  # or each set of pieces would send it again
        while True:
            waiting = [run for run in runs if run.state.n_draws < n_draws]
            if not waiting or (deadline.late and have_few_draws(runs)):
                return False
            seconds = max(min(PIECE_SECONDS, deadline.left), LEAST_SECONDS)
            pieces = [_piece(plan, run, n_draws, seconds) for run in waiting]

            back: set[int] = set()

            def take(
                i: int,
                piece: ChainRun,
                waiting: list[ChainRun] = waiting,
                back: set[int] = back,
            ) -> None:
                _append(waiting[i], piece)
                back.add(i)

            def give_up(silence: float, longest: float, seconds: float = seconds) -> bool:
                return deadline.late and silence > seconds + patience(longest)

            sent = perf_counter()
            ended = send_tasks(crew, pieces, take, lambda done: watch(), give_up)
            if ended.silent:
                for i in set(range(len(waiting))) - back:
                    waiting[i].hangs = hanging_message(perf_counter() - sent, 0.0)
            if ended.broken:
                if not any(run.state.n_draws for run in runs):
                    raise WorkerError(
                        f"{ended.broken} No draws had come back; with checkpoint= pmt.resume "
                        "begins with the frozen plan."
                    )
                warnings.warn(
                    f"{ended.broken} The draws that had come back are kept; with checkpoint= "
                    "pmt.resume goes on from there.",
                    TemperingWarning,
                    stacklevel=2,
                )
            if ended.early:
                return True
            if pause():
                return False


def _piece(plan: Plan, run: ChainRun, n_draws: int, seconds: float) -> Task[ChainRun]:
    """Task that goes on with a chain for some seconds, on a record of its own."""
    drawn = run.state.n_draws
    hot = None if run.hot is None else HotStates(run.hot.rng, [], run.hot.n_seen)
    bare = replace(run, record=_first_rows(run.record, 0), trace=[], hot=hot)
    n_rungs, dim = plan.ladder.n_rungs, plan.reference.path.dim

    def advance(stop: Stop) -> ChainRun:
        clear_record(bare.state)
        bare.record = new_record(n_draws - drawn, n_rungs, dim)
        advance_chain(plan, bare, n_draws - drawn, TimeLimit(perf_counter() + seconds), drawn=drawn)
        bare.record = _first_rows(bare.record, bare.state.n_draws)
        return bare

    return advance


def _first_rows(record: Record, n: int) -> Record:
    """Copy the first draws of a record, without a trace."""
    parts = {name: getattr(record, name)[:n].copy() for name in ("x", "per_rung", "scalars")}
    none = {name: getattr(record, name)[:0] for name in record._fields if name not in parts}
    return record._replace(**parts, **none)


def _append(run: ChainRun, piece: ChainRun) -> None:
    """Add to a chain what a worker has drawn."""
    done, new = run.state.n_draws, piece.state.n_draws
    for name in ("x", "per_rung", "scalars"):
        getattr(run.record, name)[done : done + new] = getattr(piece.record, name)
    run.state = piece.state
    run.state.chain.counters[N_DRAWS] = done + new
    run.trace.extend(piece.trace)
    run.stuck = piece.stuck or run.stuck
    if run.hot is not None and piece.hot is not None:
        run.hot.parts.extend(piece.hot.parts)
        run.hot.rng, run.hot.n_seen = piece.hot.rng, piece.hot.n_seen
