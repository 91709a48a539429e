"""Under Dask, what all chunks share goes to each worker once; elsewhere with each chunk."""

import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from pymc_tempering.executors.parcels import Parcel

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
    held = vars(executor).values()  # there is no public name for it
    return next((one for one in held if isinstance(one, distributed.Client)), None)
