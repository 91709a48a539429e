"""What a compiled local step writes for each datum, and its call over ranges of data on threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import float64, types

MIN_ROWS = 16
CHUNKS_PER_CORE = 4


class LocalRows(NamedTuple):
    """Results of a local step, a row a datum: the arrays of `Local`, written in place.

    `state` (n, K) holds the local variational parameters, `log_joint` (n,) and `rest` (n,) the two
    parts of the local ELBO (nats).
    """

    state: np.ndarray
    log_joint: np.ndarray
    rest: np.ndarray


LOCAL_ROWS = types.NamedTuple((float64[:, ::1], float64[::1], float64[::1]), LocalRows)


def rows_from(state: np.ndarray) -> LocalRows:
    """Return space for the results of a local step that starts from `state`, which is copied."""
    return LocalRows(state.copy(), np.empty(len(state)), np.empty(len(state)))


def over_rows(function: Callable[[int, int], None], n_rows: int, cores: int) -> None:
    """Call ``function(first, last)`` on ranges that make up `n_rows`, on so many threads.

    The function must release the interpreter's lock and write to its own rows only, so that the
    result does not depend on `cores`.
    """
    n_chunks = min(CHUNKS_PER_CORE * cores, n_rows // MIN_ROWS)
    if cores == 1 or n_chunks <= 1:
        function(0, n_rows)
        return
    cuts = [i * n_rows // n_chunks for i in range(n_chunks + 1)]
    with ThreadPoolExecutor(cores) as pool:
        for done in [pool.submit(function, a, b) for a, b in pairwise(cuts)]:
            done.result()
