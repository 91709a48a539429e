"""A compiled function over ranges of rows, on threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

MIN_ROWS = 16
CHUNKS_PER_CORE = 4


def over_rows(function: Callable[[int, int], None], n_rows: int, cores: int) -> None:
    """Call ``function(first, last)`` on ranges that make up `n_rows`, on so many threads.

    The function releases the interpreter's lock and writes to its own rows alone, so that the
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
