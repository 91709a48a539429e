"""The fits of a call from several starts: one after the other, or on the workers of an executor."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pymc as pm

from pymc_tempering.core.status import status_line
from pymc_tempering.core.threads import Task
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.executors.chunks import pack_made
from pymc_tempering.executors.crew import Crew, run_work
from pymc_tempering.variational.fit_progress import show_progress
from pymc_tempering.variational.fit_start import Start
from pymc_tempering.variational.one_fit import (
    FitValues,
    Settings,
    begin_fit,
    put_values,
    run_fit,
    values_of,
)
from pymc_tempering.variational.session import Callbacks, Session, finish
from pymc_tempering.variational.tempered_fit import TemperedFit

type Judged = TemperedFit | LikelihoodError
"""The report of a fit, or why it has no parameters to keep."""


@dataclass(frozen=True, eq=False)
class FitEnd:
    """What a worker sends back of a fit.

    Attributes
    ----------
    place : int
        Among the starts.
    values : FitValues
    judged : TemperedFit or LikelihoodError
    """

    place: int
    values: FitValues
    judged: Judged


def fits_here(
    model: pm.Model,
    settings: Settings,
    starts: Sequence[Start],
    callbacks: Callbacks,
    progressbar: bool,
) -> Iterator[tuple[Session, Judged]]:
    """Fit from each start, and say how it ended; one that was interrupted is the last."""
    for start in starts:
        session = begin_fit(model, settings, start)
        with show_progress(settings.request.n, progressbar) as show:
            run_fit(session, settings.request, callbacks, show)
        yield session, _judge(session)
        if session.run.stopped == "interrupted":
            return


def fits_sent(
    model: pm.Model,
    settings: Settings,
    starts: Sequence[Start],
    executor: Executor,
    progressbar: bool,
) -> Iterator[tuple[Session, Judged]]:
    """As :func:`fits_here`, on the workers of an executor.

    A worker begins each fit, and sends what has changed. It begins here, too, so that it can be
    continued: the first before any is sent, so that what is wrong with the arguments is said at
    once, the others as they are put together.

    Raises
    ------
    WorkerError
        The executor lost its workers, or the model or an argument cannot be sent.
    KeyboardInterrupt
        Ctrl-C came before the first fit was finished.
    """
    session = begin_fit(model, settings, starts[0])
    plan = session.plan
    if plan.log_c is not None and plan.log_c_mcse is not None:
        known = replace(settings.request, log_c=(plan.log_c, plan.log_c_mcse))
        settings = replace(settings, request=known)
    crew = Crew(executor, pack_made("The model", _named, model), _named(model))
    tasks: list[Task[FitEnd]] = [
        partial(_fit_one, model, settings, start, place) for place, start in enumerate(starts)
    ]
    with status_line(progressbar) as report:
        ends, _ = run_work(tasks, crew, lambda done: report(f"Fits: {done} of {len(tasks)}"))
    if not ends:
        raise KeyboardInterrupt("Interrupted before the first fit was finished.")
    for end in ends:
        if end.place > 0:
            session = begin_fit(model, settings, starts[end.place])
        put_values(session, end.values)
        yield session, end.judged


def _named(model: pm.Model) -> Mapping[str, Any]:
    """Name what each process has of its own."""
    return {"model": model}


def _fit_one(
    model: pm.Model, settings: Settings, start: Start, place: int, stop: threading.Event
) -> FitEnd:
    """Do one fit in a worker."""
    session = begin_fit(model, settings, start)
    run_fit(session, settings.request)
    judged = _judge(session)
    return FitEnd(place, values_of(session), judged)


def _judge(session: Session) -> Judged:
    try:
        return finish(session)
    except LikelihoodError as error:
        return error
