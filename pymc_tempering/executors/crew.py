"""Tasks on threads or on the workers of an executor, by one call and with the same results.

A task is a function that holds what it needs. What all tasks hold and no process can read from
another, a compiled model, is named in their place, and each worker has its own under that name.
"""

import io
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import cloudpickle

from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import LEAVE_SECONDS, Task, run_tasks
from pymc_tempering.exceptions import WorkerError
from pymc_tempering.executors.chunks import (
    Ended,
    GiveUp,
    Parcel,
    explain_unsendable,
    send_chunks,
)


@dataclass(frozen=True, eq=False)
class Crew:
    """An executor, and what its workers have of their own.

    Attributes
    ----------
    executor : concurrent.futures.Executor
    parcel : Parcel
        Opened by a worker it is a mapping with the names of `shared`.
    shared : mapping of str to object
        What these names stand for in this process.
    """

    executor: Executor
    parcel: Parcel
    shared: Mapping[str, Any]


type Workers = int | Crew | None
"""Threads, by default all cores, or the workers of an executor."""


def run_work[T](
    tasks: Sequence[Task[T]],
    workers: Workers,
    report: Callable[[int], None] = lambda done: None,
    deadline: Deadline = NEVER,
) -> tuple[list[T], bool]:
    """Run tasks on threads or on the workers of an executor; see :func:`run_tasks`.

    Returns
    -------
    results : list
        Of the finished tasks, in the order of the tasks.
    interrupted : bool
        Whether Ctrl-C ended the work early, or tasks hang and the time is over.

    Raises
    ------
    WorkerError
        The executor lost its workers, or a task cannot be sent.
    """
    if not isinstance(workers, Crew):
        return run_tasks(tasks, workers, report, deadline)
    found: dict[int, T] = {}

    def give_up(silence: float, longest: float) -> bool:
        return deadline.late and silence > LEAVE_SECONDS + longest

    ended = send_tasks(workers, tasks, found.__setitem__, report, give_up)
    if ended.broken:
        raise WorkerError(f"{ended.broken} {len(found)} of {len(tasks)} parts were finished.")
    return [found[i] for i in sorted(found)], ended.early


def send_tasks[T](
    crew: Crew,
    tasks: Sequence[Task[T]],
    take: Callable[[int, T], None],
    report: Callable[[int], None] = lambda done: None,
    give_up: GiveUp = lambda silence, longest: False,
) -> Ended:
    """Send tasks to the workers; `take` is called with the index and the result of each."""
    sent = [_dumps(task, crew.shared) for task in tasks]

    def unpacked(i: int, content: bytes) -> None:
        take(i, _loads(content, crew.shared))

    return send_chunks(
        crew.executor, _do_task, crew.parcel, sent, unpacked, what="A task", report=report,
        give_up=give_up,
    )  # fmt: skip


def _do_task(shared: Mapping[str, Any], content: bytes) -> bytes:
    """Do a task in a worker."""
    task = _loads(content, shared)
    return _dumps(task(threading.Event()), shared)


class _NamingPickler(cloudpickle.Pickler):
    """Writes the names of what each process has of its own."""

    def __init__(self, file: io.BytesIO, shared: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._names = {id(thing): name for name, thing in shared.items()}

    def persistent_id(self, obj: Any) -> str | None:
        return self._names.get(id(obj))


class _NamedUnpickler(pickle.Unpickler):
    """Puts what this process has in the place of names."""

    def __init__(self, file: io.BytesIO, shared: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: str) -> Any:
        return self._shared[pid]


def _dumps(thing: Any, shared: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    with explain_unsendable("A task"):
        _NamingPickler(file, shared).dump(thing)
    return file.getvalue()


def _loads(content: bytes, shared: Mapping[str, Any]) -> Any:
    return _NamedUnpickler(io.BytesIO(content), shared).load()
