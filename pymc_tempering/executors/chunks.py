"""Work for an executor: chunks, each with its result; and tasks, on threads or on its workers.

What all chunks share is packed once, and opened once by each process. Dask can forget work after a
worker was killed (dask/distributed#3196): nobody computes it, and nothing says so. A chunk is a
pure function of its arguments, so a second copy gives the same bits.

A task is a function that holds what it needs. What all tasks hold and no process can read from
another, a compiled model, is named in their place, and each worker has its own under that name.
"""

import io
import os
import pickle
import platform
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any
from uuid import uuid4

import cloudpickle

from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.installed import OWN, versions_of
from pymc_tempering.core.threads import (
    LEAVE_SECONDS,
    POLL_SECONDS,
    Task,
    load_array_libraries,
    run_tasks,
)
from pymc_tempering.core.turns import TURNS
from pymc_tempering.exceptions import ArgumentError, WorkerError

PACKAGES = (OWN, "pymc", "pytensor", "numba")
"""Packages of which another version can give other numbers, or cannot read what is sent."""

MOST_OPEN = 8
"""Parcels that a process keeps open, the last used ones."""

MANY_BYTES = 100_000
"""Parcels below this go with each chunk, which costs less than the way by a task of its own."""

ALONE = threading.RLock()
"""Held while a process compiles: PyTensor cannot do so in two threads at once."""

type GiveUp = Callable[[float, float], bool]


@dataclass(frozen=True)
class Parcel:
    """Something packed, known by its content.

    Attributes
    ----------
    key : str
        Hash of the content.
    content : bytes
    """

    key: str
    content: bytes = field(repr=False, compare=False)


def pack_made[A, T](make: Callable[[A], T], thing: A) -> Parcel:
    """Pack a model with the function that each process calls once to make it ready.

    Parameters
    ----------
    make : callable
        Of a module that the workers can import.
    thing : object
        The model, or what it is made of.

    Raises
    ------
    WorkerError
        It cannot be sent.
    """
    content = dumped("The model", (make, thing))
    return Parcel(sha256(content).hexdigest(), content)


def dumped(what: str, thing: Any) -> bytes:
    """Return the bytes of something, of which a process with the same packages makes it again.

    Raises
    ------
    WorkerError
        It cannot be sent.
    """
    with explain_unsendable(what):
        return cloudpickle.dumps(thing)


@contextmanager
def explain_unsendable(what: str) -> Iterator[None]:
    """Say what to do where packing fails.

    Raises
    ------
    WorkerError
    """
    try:
        yield
    except Exception as error:  # what is inside raises whatever it likes
        raise WorkerError(
            f"{what} cannot be sent to a worker ({type(error).__name__}: {error}): something in it "
            "(an open file, a lock, a connection) belongs to this process. Build it in the worker, "
            "from plain arrays, or leave executor= out."
        ) from error


def open_once(parcel: Parcel) -> Any:
    """Return what is in a parcel, made once by each process: the same object each time."""
    with ALONE:
        return _open(parcel)


@lru_cache(MOST_OPEN)
def _open(parcel: Parcel) -> Any:
    make, thing = cloudpickle.loads(parcel.content)
    return make(thing)


@contextmanager
def sent_once(executor: Executor, common: Parcel | None) -> Iterator[Any]:
    """Give what stands for a parcel among the arguments of a chunk.

    Under Dask it is the result of a task that returns the parcel: workers fetch it from each other
    and keep it, and where all that had it are gone the scheduler has it made again. (What is
    scattered is lost with its worker.) Inside of the block it is not sent again.
    """
    client = client_of(executor)
    if client is None or common is None or len(common.content) < MANY_BYTES:
        yield common
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        held = client.submit(as_it_is, common, key=f"parcel-{common.key}")
        yield held  # as long as something holds it, the workers keep it


def as_it_is[T](thing: T) -> T:
    """Return what was sent."""
    return thing


def client_of(executor: Executor) -> Any:
    """Return the client of an executor of Dask, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    held = vars(executor).values()  # there is no public name for it
    return next((one for one in held if isinstance(one, distributed.Client)), None)


def check_executor(executor: Any) -> None:
    """Refuse what is no executor.

    Raises
    ------
    ArgumentError
    """
    if executor is None or isinstance(executor, Executor):
        return
    advice = "a pool of processes, or client.get_executor() of Dask"
    if hasattr(executor, "get_executor"):
        advice = "of a client of Dask pass client.get_executor()"
    elif isinstance(executor, type):
        advice = f"make one: {executor.__name__}(...)"
    raise ArgumentError(
        f"executor must be a concurrent.futures.Executor, not {executor!r}: {advice}."
    )


@dataclass(frozen=True)
class Ended:
    """How a piece of work ended.

    Attributes
    ----------
    interrupted : bool
        Whether Ctrl-C ended it.
    broken : str
        Why the executor can do no more; empty if it can.
    silent : bool
        Whether nobody waits any longer for what is missing.
    """

    interrupted: bool = False
    broken: str = ""
    silent: bool = False

    @property
    def early(self) -> bool:
        """Whether chunks are missing."""
        return self.interrupted or bool(self.broken) or self.silent


@dataclass(frozen=True)
class Patience:
    """How long nothing may come back before all that is missing is sent once more.

    Attributes
    ----------
    least : float
        Seconds at least.
    times : float
        Times the longest chunk that has come back.
    """

    least: float = 60.0
    times: float = 10.0

    def over(self, silence: float, longest: float, again: int) -> bool:
        """Whether to send once more; each time waits twice as long as the one before.

        Parameters
        ----------
        silence : float
            Seconds since the last chunk came back, or since chunks were sent.
        longest : float
            Seconds of the longest chunk that has come back; 0 if none has.
        again : int
            How often chunks were sent once more.
        """
        return silence > max(self.least, self.times * longest) * 2.0**again


@dataclass
class Missing:
    """Copies of chunks that have not come back.

    Attributes
    ----------
    chunks : dict of Future to int
        The chunk of each copy.
    since : float
        When the last chunk came back, or chunks were sent.
    longest : float
        Seconds of the longest chunk that has come back.
    again : int
        How often chunks were sent once more.
    """

    chunks: dict[Future[Any], int] = field(default_factory=dict)
    since: float = field(default_factory=perf_counter)
    longest: float = 0.0
    again: int = 0

    @property
    def indices(self) -> list[int]:
        """Chunks of which no copy has come back, in their order."""
        return sorted(set(self.chunks.values()))

    def first_back(self, copy: Future[Any]) -> int | None:
        """Return the chunk of a copy that has come back, and give up its other copies.

        None where another copy was back before.
        """
        i = self.chunks.pop(copy, None)
        if i is not None:
            self.since = perf_counter()
            self.give_up([other for other, j in self.chunks.items() if j == i])
        return i

    def overdue(self, patience: Patience) -> bool:
        """Whether what is missing is to be sent once more."""
        return patience.over(perf_counter() - self.since, self.longest, self.again)

    def give_up(self, copies: list[Future[Any]]) -> None:
        """Wait for some copies no longer."""
        for copy in copies:
            del self.chunks[copy]
            copy.cancel()


def versions_here() -> dict[str, str]:
    """Return the versions in this process, by package; that of Python without its last number."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python} | versions_of(PACKAGES)


def do_chunk(
    sent: dict[str, str],
    function: Callable[[Any, Any], Any],
    common: Parcel | None,
    argument: bytes,
    copy: str,
) -> tuple[Any, float, str]:
    """Do one chunk in a worker, if its versions are those of the sender.

    `copy` has another value in each copy: Dask takes tasks with the same arguments for one.

    Returns
    -------
    result : object
    seconds : float
        What the chunk took.
    refused : str
        Why nothing was computed; empty if it was.
    """
    began, found = perf_counter(), versions_here()
    if found != sent:
        return None, 0.0, _refusal(sent, found)
    with ALONE:  # the workers may be threads
        load_array_libraries()
    shared = None if common is None else open_once(common)
    result = function(shared, cloudpickle.loads(argument))
    return result, perf_counter() - began, ""


def _refusal(sent: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Sentence that names all versions in which this worker differs from who sends it work."""
    apart = [
        f"{name} {found.get(name, 'none')} there and {version} here"
        for name, version in sent.items()
        if found.get(name) != version
    ]
    return (
        f"A worker ({socket.gethostname()}, process {os.getpid()}) has other versions: "
        f"{', '.join(apart)}. Its numbers could be others too, so nothing was computed there: "
        "install the same versions on all workers."
    )


def send_chunks[A, T](
    executor: Executor,
    function: Callable[[Any, A], T],
    common: Parcel | None,
    arguments: Sequence[A],
    take: Callable[[int, T], None],
    *,
    what: str = "A chunk",
    report: Callable[[int], None] = lambda done: None,
    lose: Callable[[str], T] | None = None,
    patience: Patience | None = None,
    give_up: GiveUp = lambda silence, longest: False,
) -> Ended:
    """Have `function(shared, argument)` called for each argument, by the workers of an executor.

    What comes out depends on the arguments alone: who computes which chunk, and when, decides
    nothing. The seeds are in the arguments, therefore.

    Parameters
    ----------
    executor : concurrent.futures.Executor
    function : callable
        Of a module that the workers can import.
    common : Parcel, optional
        What all chunks share; a worker opens it once, and `shared` is what is in it.
    arguments : sequence
    take : callable
        Called with the index of a chunk and its result, as each ends.
    what : str, optional
        What a chunk is, for messages.
    report : callable, optional
        Called a few times a second with the number of chunks that have ended.
    lose : callable, optional
        Makes the result of a chunk that ended several workers, from a sentence that says so;
        without it such a chunk ends all.
    patience : Patience, optional
        When chunks that do not come back are sent once more; the first copy that comes back
        counts. By default Dask has patience, and other executors are believed.
    give_up : callable, optional
        Called with the seconds in which no chunk has come back, and those of the longest chunk so
        far; once it says so, nobody waits for what is missing. By default one waits forever.

    Returns
    -------
    Ended

    Raises
    ------
    WorkerError
        A worker has other versions or lacks a package, an argument cannot be sent, or the executor
        takes no work.
    Exception
        What a chunk raised. The others are given up.
    """
    sent = versions_here()
    packed = [dumped(what, argument) for argument in arguments]
    if patience is None and client_of(executor) is not None:
        patience = Patience()
    missing = Missing()
    ended: SimpleQueue[Future[Any]] = SimpleQueue()

    def send(i: int, shared: Any) -> None:
        copy = _submit(executor, do_chunk, sent, function, shared, packed[i], uuid4().hex)
        missing.chunks[copy] = i
        copy.add_done_callback(ended.put)

    try:
        with sent_once(executor, common) as shared:
            for i in range(len(packed)):
                send(i, shared)
            while missing.chunks:
                try:
                    copy = ended.get(timeout=POLL_SECONDS)
                except Empty:
                    if give_up(perf_counter() - missing.since, missing.longest):
                        TURNS.give_up()  # what hangs may be a thread of this process
                        return Ended(silent=True)
                    if patience is not None and missing.overdue(patience):
                        missing.again += 1
                        for i in missing.indices:
                            send(i, common)  # the task that holds it may be lost as well
                else:
                    back = missing.first_back(copy)
                    if back is not None:
                        result, seconds = _result(copy, sent, lose)
                        missing.longest = max(missing.longest, seconds)
                        take(back, result)
                report(len(packed) - len(missing.indices))
    except KeyboardInterrupt:
        return Ended(interrupted=True)
    except Exception as error:
        if not (isinstance(error, BrokenExecutor | CancelledError) or _is_lost(error)):
            raise
        return Ended(broken=_broken(executor, error))
    finally:
        missing.give_up([*missing.chunks])
    return Ended()


def _submit(executor: Executor, function: Callable, *arguments: Any) -> Future[Any]:
    try:
        return executor.submit(function, *arguments)
    except BrokenExecutor:
        raise
    except RuntimeError as error:
        raise WorkerError(
            f"The executor ({type(executor).__name__}) takes no work: {error}. Make a new one, and "
            "call inside of its `with` block."
        ) from error


def _result(
    copy: Future[Any], sent: dict[str, str], lose: Callable[[str], Any] | None
) -> tuple[Any, float]:
    """Return the result of a chunk that has ended, or what stands for it, and its seconds."""
    try:
        result, seconds, refused = copy.result()
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        version = f"{name} {sent[name]}" if name in sent else f"the module {name!r}"
        raise WorkerError(
            f"A worker has no {name or 'module that is needed'} ({error}), where this process has "
            f"{version}: install the same packages on all workers, and define models and functions "
            "in a file that they can import, or in the script itself."
        ) from error
    except Exception as error:
        if lose is None or not _is_lost(error):
            raise
        return lose(f"{type(error).__name__}: {error}"), 0.0
    if refused:
        raise WorkerError(refused)
    return result, seconds


def _is_lost(error: Exception) -> bool:
    """Whether a chunk is lost for good: several workers ended with it, as Dask says."""
    return type(error).__name__ == "KilledWorker"


def _broken(executor: Executor, error: BaseException) -> str:
    """Sentence about an executor that lost its workers."""
    if isinstance(executor, ThreadPoolExecutor):
        return f"The pool of threads broke ({error})."
    said = f": {error}" if str(error) else ""
    return (
        f"The executor {type(executor).__name__} lost its workers ({type(error).__name__}{said}). "
        "A worker that is killed has often run out of memory, or its machine went away; in a "
        'script without `if __name__ == "__main__":` new processes end at once. A pool of '
        "processes that broke is broken for good: make a new one, and call again."
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
    report: Callable[[int], None],
    give_up: GiveUp,
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
