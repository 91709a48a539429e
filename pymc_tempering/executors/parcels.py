"""What all chunks of a piece of work share: packed once, and opened once by each process."""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

import cloudpickle

from pymc_tempering.borrowed.sampler_runs import client_behind
from pymc_tempering.exceptions import WorkerError

MOST_OPEN = 8
"""Parcels that a process keeps open, the last used ones."""

ALONE = threading.RLock()
"""Held while a process compiles: PyTensor cannot do so in two threads at once."""


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


def pack_made[A, T](what: str, make: Callable[[A], T], thing: A) -> Parcel:
    """Pack something with the function that each process calls once to make it ready.

    Parameters
    ----------
    what : str
        What it is, for messages.
    make : callable
        Of a module that the workers can import.
    thing : object

    Raises
    ------
    WorkerError
        It cannot be sent.
    """
    content = dumped(what, (make, thing))
    return Parcel(sha256(content).hexdigest(), content)


def dumped(what: str, thing: Any) -> bytes:
    """Return the bytes of something, of which a process with the same packages makes it again.

    Raises
    ------
    WorkerError
        It cannot be sent.
    """
    with explain_unsendable(what):
        content: bytes = cloudpickle.dumps(thing)
    return content


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


MANY_BYTES = 100_000
"""Parcels below this go with each chunk, which costs less than the way by a task of its own."""


@contextmanager
def sent_once(executor: Executor, common: Parcel | None) -> Iterator[Any]:
    """Give what stands for the parcel among the arguments of a chunk.

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
    client = client_behind(executor)
    return client if isinstance(client, distributed.Client) else None
