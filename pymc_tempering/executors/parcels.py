"""What all chunks of a piece of work share: packed once, and opened once by each process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any

import cloudpickle

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
