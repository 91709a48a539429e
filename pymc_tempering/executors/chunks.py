"""Send chunks of work to an executor, and take their results, each for its chunk."""

import os
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
)
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any
from uuid import uuid4

import cloudpickle

from pymc_tempering.core.installed import OWN, versions_of
from pymc_tempering.core.threads import POLL_SECONDS
from pymc_tempering.exceptions import ArgumentError, WorkerError
from pymc_tempering.executors.parcels import Parcel, client_of, dumped, open_once, sent_once

LOST = ("KilledWorker",)
"""Names of errors for a chunk that is lost for good, beside `BrokenExecutor`."""


type GiveUp = Callable[[float, float], bool]


def never(silence: float, longest: float) -> bool:
    """Wait for chunks as long as they take."""
    return False


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


@dataclass(frozen=True)
class Answer:
    """What a worker sends back: a result, or the versions for which nothing was computed.

    Attributes
    ----------
    result : object
    versions : dict, optional
        Of the worker, where they are others than those of the sender.
    where : str
        Host and process of such a worker.
    seconds : float
        What the chunk took.
    """

    result: Any
    versions: dict[str, str] | None = None
    where: str = ""
    seconds: float = 0.0


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


def do_chunk(
    sent: dict[str, str],
    function: Callable[[Any, Any], Any],
    common: Parcel | None,
    argument: bytes,
    copy: str,
) -> Answer:
    """Do one chunk in a worker, if its versions are those of the sender.

    `copy` has another value in each copy: Dask takes tasks with the same arguments for one.
    """
    began, found = perf_counter(), versions_here()
    if found != sent:
        return Answer(None, found, f"{socket.gethostname()}, process {os.getpid()}")
    shared = None if common is None else open_once(common)
    result = function(shared, cloudpickle.loads(argument))
    return Answer(result, seconds=perf_counter() - began)


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
    give_up: GiveUp = never,
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
        far; once it says so, nobody waits for what is missing.

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
                        return Ended(silent=True)
                    if patience is not None and missing.overdue(patience):
                        missing.again += 1
                        for i in missing.indices:
                            send(i, common)  # the task that holds it may be lost as well
                else:
                    back = missing.first_back(copy)
                    if back is not None:
                        answer = _answer(copy, sent, lose)
                        missing.longest = max(missing.longest, answer.seconds)
                        take(back, answer.result)
                report(len(packed) - len(missing.indices))
    except KeyboardInterrupt:
        return Ended(interrupted=True)
    except (BrokenExecutor, CancelledError) as error:
        return Ended(broken=_broken(executor, error))
    except Exception as error:
        if type(error).__name__ in LOST:
            return Ended(broken=_broken(executor, error))
        raise
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


def _answer(copy: Future[Any], sent: dict[str, str], lose: Callable[[str], Any] | None) -> Answer:
    """Return the answer for a chunk that has ended, or what stands for a chunk that is lost."""
    try:
        answer: Answer = copy.result()
    except ImportError as error:
        raise no_package(sent, error) from error
    except Exception as error:
        if lose is None or type(error).__name__ not in LOST:
            raise
        return Answer(lose(f"{type(error).__name__}: {error}"))
    if answer.versions is not None:
        raise refusal(sent, answer.versions, answer.where)
    return answer


def _broken(executor: Executor, error: BaseException) -> str:
    """Sentence about an executor that lost its workers."""
    name = type(executor).__name__
    if isinstance(executor, ThreadPoolExecutor):
        return f"The pool of threads broke ({error})."
    said = f": {error}" if str(error) else ""
    return (
        f"The executor {name} lost its workers ({type(error).__name__}{said}). A worker that is "
        "killed has often run out of memory, or its machine went away; in a script without "
        '`if __name__ == "__main__":` new processes end at once. A pool of processes that broke '
        "is broken for good: make a new one, and call again."
    )


PACKAGES = (OWN, "pymc", "pytensor", "numba")
"""Packages of which another version can give other numbers, or cannot read what is sent."""


def versions_here() -> dict[str, str]:
    """Return the versions in this process, by package; that of Python without its last number."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python} | versions_of(PACKAGES)


def refusal(sent: Mapping[str, str], found: Mapping[str, str], where: str) -> WorkerError:
    """Return the error that names all versions in which a worker differs.

    Parameters
    ----------
    sent, found : mapping of str to str
        Versions of the process that sent work, and of the worker.
    where : str
        Which worker it is.
    """
    apart = [
        f"{name} {found.get(name, 'none')} there and {version} here"
        for name, version in sent.items()
        if found.get(name) != version
    ]
    return WorkerError(
        f"A worker ({where}) has other versions: {', '.join(apart)}. Its numbers could be others "
        "too, so nothing was computed there: install the same versions on all workers."
    )


def no_package(sent: Mapping[str, str], error: ImportError) -> WorkerError:
    """Return the error for a worker that lacks this package, or a module that is sent to it."""
    name = (error.name or "").split(".")[0]
    version = f"{name} {sent[name]}" if name in sent else f"the module {name!r}"
    return WorkerError(
        f"A worker has no {name or 'module that is needed'} ({error}), where this process has "
        f"{version}: install the same packages on all workers, and define models and functions "
        "in a file that they can import, or in the script itself."
    )
