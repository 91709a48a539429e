"""Numba's `njit` with a disk cache that no edit of a called function can make stale."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import typeinfer
from numba.core.caching import FunctionCache

from pymc_tempering.model.sources import hash_of_sources


class _SourcesCache(FunctionCache):
    """Numba's cache of a function, stamped by all sources that the function can call.

    Numba's own stamp is that of the one file that holds the function: after an edit of a callee
    in another file it would load the old machine code of the caller, callee inlined.
    """

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        own = self._cache_file._source_stamp
        reached = hash_of_sources(Path(function.__code__.co_filename))
        self._cache_file._source_stamp = (own, reached)


def njit(signature: Any = None, **options: Any) -> Callable[[Callable], Any]:
    """Compile a function of this package, without the interpreter's lock, and cache it on disk.

    Parameters
    ----------
    signature : Numba signature, optional
        Compiled for it at once; without one at the first call, for the types of that call.
    **options
        Of `numba.njit`, beside `cache` and `nogil`.

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(function: Callable) -> Any:
        dispatcher = numba.njit(nogil=True, **options)(function)
        if not hasattr(dispatcher, "compile"):  # NUMBA_DISABLE_JIT
            return dispatcher
        if Path(function.__code__.co_filename).is_file():  # not if it was executed from a text
            dispatcher._cache = _SourcesCache(function)
        if signature is not None:
            with typeinfer.register_dispatcher(dispatcher):
                dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return decorate


def borrowing(function: Callable) -> Any:
    """Compile a helper of a loop that borrows arrays: it makes none, keeps none, slices none.

    Numba counts references to the arrays that a function is given, at each call. In a loop of half
    a microsecond that costs a tenth of the time; with the counting switched off (Numba's option
    `_nrt`) the helper is as fast as if it stood in the loop. Numba raises an error while compiling
    if the helper allocates.

    Parameters
    ----------
    function : callable

    Returns
    -------
    callable
        Compiled at the first call, in NumPy's error model.
    """
    return njit(_nrt=False, error_model="numpy")(function)
