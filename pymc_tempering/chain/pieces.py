"""Pieces of chains: what a chain has written since some draw, and where it stands after that.

A piece goes to a worker of an executor, which goes on with the chain for some seconds and sends the
next piece back; pieces also go into files. Where a piece ends does not change the chain. The model
is sent to each worker once, and compiled there.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.chain.chains import (
    ChainRun,
    HotStates,
    Stop,
    advance_chain,
    hanging_message,
    have_least_draws,
    patience,
)
from pymc_tempering.chain.loop import N_DRAWS, N_TRACE, new_record
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import Task
from pymc_tempering.exceptions import WorkerError, warn_user
from pymc_tempering.executors.chunks import Crew, check_executor, pack_made, send_tasks, sent_once
from pymc_tempering.kernels import Compound
from pymc_tempering.model.terms import Terms
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import Prior


def crew_of(executor: Executor | None, prior: Prior, kernel: Compound) -> Crew | None:
    """Return the workers of an executor, if there is one, which compile the model for themselves.

    Parameters
    ----------
    executor : concurrent.futures.Executor, optional
    prior : Prior
        The compiled model.
    kernel : Compound
        The kernels that it was compiled for.

    Raises
    ------
    ArgumentError
        It is no executor.
    WorkerError
        The model cannot be sent.
    """
    check_executor(executor)
    if executor is None:
        return None
    sent = (prior.path.model, kernel, prior.path.terms)
    return Crew(executor, pack_made(_compiled_here, sent), _parts(prior))


def _compiled_here(sent: tuple[pm.Model, Compound, Terms]) -> Mapping[str, Any]:
    """Compile a model in a worker; it was checked by the process that sent it."""
    model, kernel, terms = sent
    return _parts(compile_model(model, check=False, terms=terms, **kernel.needs))


def _parts(prior: Prior) -> dict[str, Any]:
    """Return what each process has of its own, by the name that stands for it."""
    path = prior.path
    return {
        "prior": prior,
        "path": path,
        "model": path.model,
        "density": path.density,
        "draw_into": prior.draw_into,
    }


PIECE_SECONDS, LEAST_SECONDS = 5.0, 0.2
"""How long a worker runs a chain before it tells what it has, and before a deadline at least."""

ROWS = ("x", "per_rung", "scalars")
"""Arrays of a record that have a row for each draw."""

type Parts = list[tuple[np.ndarray, np.ndarray, np.ndarray]]
type Written = tuple[int, int, int]
"""Draws of a chain, parts of its trace, and parts of the states that it keeps beside."""


def written_by(run: ChainRun) -> Written:
    """Return how much a chain has written."""
    return run.state.n_draws, len(run.trace), len(run.hot.parts) if run.hot else 0


def piece_since(run: ChainRun, since: Written = (0, 0, 0)) -> ChainRun:
    """Take what a chain has written since then, by itself all, as a chain with these draws alone.

    It shares the arrays and generators of the chain.
    """
    draws, traces, hots = since
    counters = run.state.chain.counters.copy()
    counters[N_DRAWS] -= draws
    counters[N_TRACE] = 0  # a place in the buffer of a chunk, where none is open now
    state = replace(run.state, chain=run.state.chain._replace(counters=counters))
    rows = {name: getattr(run.record, name)[draws : run.state.n_draws] for name in ROWS}
    none = {name: getattr(run.record, name)[:0] for name in run.record._fields if name not in ROWS}
    hot = run.hot and HotStates(run.hot.rng, _as_one(run.hot.parts[hots:]), run.hot.n_seen)
    return replace(
        run, state=state, record=run.record._replace(**rows, **none), hot=hot,
        trace=_as_one(run.trace[traces:]), hangs="", mark=None, longest=0.0,
    )  # fmt: skip


def _as_one(parts: Parts) -> Parts:
    if not parts:
        return []
    first, second, third = map(np.concatenate, zip(*parts, strict=True))
    return [(first, second, third)]


def append_piece(run: ChainRun, piece: ChainRun) -> None:
    """Put a piece behind a chain, which has space for it.

    Raises
    ------
    ValueError
        The piece has other rows than it counts.
    """
    done, new = run.state.n_draws, piece.state.n_draws
    if len(piece.record.x) != new:
        raise ValueError(f"a piece of {new} draws has {len(piece.record.x)} rows.")
    for name in ROWS:
        getattr(run.record, name)[done : done + new] = getattr(piece.record, name)
    run.state = piece.state
    run.state.chain.counters[N_DRAWS] = done + new
    run.trace.extend(piece.trace)
    run.stuck = piece.stuck or run.stuck
    if run.hot is not None and piece.hot is not None:
        run.hot.parts.extend(piece.hot.parts)
        run.hot.rng, run.hot.n_seen = piece.hot.rng, piece.hot.n_seen


def joined(pieces: Sequence[ChainRun]) -> ChainRun:
    """Put the pieces of a chain together."""
    run = piece_since(pieces[0], written_by(pieces[0]))
    _, _, n_rungs = run.record.per_rung.shape
    n_draws = sum(piece.state.n_draws for piece in pieces)
    run.record = new_record(n_draws, n_rungs, run.record.x.shape[1])
    for piece in pieces:
        append_piece(run, piece)
    return run


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
    deadline: Deadline = NEVER,
    pause: Callable[[], bool] = lambda: False,
) -> bool:
    """Run all chains to `n_draws` draws each, as :func:`run_chains`, on the workers of an executor.

    The runs hold what has come back, so that no more than a piece is lost with a worker that nobody
    replaces. `pause` is asked when all pieces are back, and the chains stop there once it says so.

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
            if not waiting or (deadline.late and have_least_draws(runs)):
                return False
            broken, early = _send_pieces(crew, plan, waiting, n_draws, deadline)
            if broken and not any(run.state.n_draws for run in runs):
                raise WorkerError(
                    f"{broken} No draws had come back; with checkpoint= pmt.resume "
                    "begins with the frozen plan."
                )
            if broken:
                warn_user(
                    f"{broken} The draws that had come back are kept; with checkpoint= "
                    "pmt.resume goes on from there."
                )
            if early:
                return True
            if pause():
                return False


def _send_pieces(
    crew: Crew,
    plan: Plan,
    runs: Sequence[ChainRun],
    n_draws: int,
    deadline: Deadline,
) -> tuple[str, bool]:
    """Have each chain gone on with for some seconds.

    Returns
    -------
    broken : str
        Why the executor can do no more; empty if it can.
    early : bool
        Whether pieces are missing.
    """
    seconds = max(min(PIECE_SECONDS, deadline.left), LEAST_SECONDS)
    sent, missing = perf_counter(), set(range(len(runs)))

    def take(i: int, piece: ChainRun) -> None:
        append_piece(runs[i], piece)
        missing.discard(i)

    def give_up(silence: float, longest: float) -> bool:
        return deadline.late and silence > seconds + patience(longest)

    tasks = [_next_piece(plan, run, n_draws, seconds) for run in runs]
    ended = send_tasks(crew, tasks, take, lambda done: None, give_up)
    if ended.silent:
        for i in missing:
            runs[i].hangs = hanging_message(perf_counter() - sent, 0.0)
    return ended.broken, ended.early


def _next_piece(plan: Plan, run: ChainRun, n_draws: int, seconds: float) -> Task[ChainRun]:
    """Task that goes on with a chain for some seconds, on a record of its own."""
    drawn, own = run.state.n_draws, piece_since(run, written_by(run))
    n_rungs, dim = plan.ladder.n_rungs, plan.reference.path.dim

    def advance(stop: Stop) -> ChainRun:
        own.record = new_record(n_draws - drawn, n_rungs, dim)
        advance_chain(plan, own, n_draws - drawn, TimeLimit(perf_counter() + seconds), drawn=drawn)
        return piece_since(own)

    return advance
