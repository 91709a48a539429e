"""Numba's `njit`, compiling at the first use, with a cache that no edit of a callee makes stale."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from sys import modules
from typing import Any, Self

import numba
from pytensor import __version__ as pytensor_version
from pytensor import config

from pymc_tempering.borrowed.numba_caches import NullCache
from pymc_tempering.borrowed.numba_functions import (
    NOT_COUNTED,
    OpenDispatcher,
    global_compiler_lock,
)
from pymc_tempering.borrowed.pytensor_graphs import keep_with_pytensor
from pymc_tempering.model.ahead import place_ahead
from pymc_tempering.model.disk_cache import CheckedCache, KeyedCache, forgetting_damage
from pymc_tempering.model.garbage import no_search_for_garbage
from pymc_tempering.model.lean_library import lean_libraries, linked_modules
from pymc_tempering.model.sources import hash_of_sources


def njit(signature: Any = None, **options: Any) -> Callable[[Callable], Any]:
    """Compile a function of this package, without the interpreter's lock, and cache it on disk.

    It is compiled, or loaded from the cache, when it is first used: called from Python or from a
    function that is being compiled, or passed on as a function.

    Parameters
    ----------
    signature : Numba signature, optional
        The only one that it will have. Without one it is compiled for the types of each call.
    **options
        Of `numba.njit`, beside `cache` and `nogil`.

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(function: Callable) -> Any:
        if numba.config.DISABLE_JIT:
            return function
        return _LazyDispatcher.of(function, signature, {"nogil": True, **options})

    return decorate


def compile_keyed(function: Callable, signature: Any, key: str | None, **options: Any) -> Any:
    """Compile a function that was made of a text; PyTensor has its `key` in the cache on disk.

    Parameters
    ----------
    function : callable
    signature : Numba signature or None
        Without one it is compiled at each first call with arguments of other types.
    key : str or None
        What `pytensor.link.numba.cache` was given for it; it is not kept on disk without one.
    **options
        Of `numba.njit`. By default it cannot be passed on as a function.
    """
    options = {"nogil": True, "no_cfunc_wrapper": True, **options}
    dispatcher = _LazyDispatcher.of(function, signature, options)
    if key is not None:
        dispatcher.keep_by_key(key)
    forgetting_damage(dispatcher.settle)
    return dispatcher


def keyed_operation(function: Any, key: str) -> Callable:
    """Return a compiled operation of a graph that is kept on disk; compiled code alone calls it.

    Parameters
    ----------
    function : dispatcher
        What PyTensor made of the operation.
    key : str
        Tells all of it but the types that it is compiled for.
    """
    if not config.numba__cache:
        return function
    made = _LazyDispatcher.of(function.py_func, None, function.targetoptions)
    made._is_inner = True
    made.keep_by_key(f"{key}_{pytensor_version}")
    return made


def compile_now(*functions: Callable) -> None:
    """Compile functions that `njit` has made with a signature, where the first use is too late."""
    for function in functions:
        if isinstance(function, _LazyDispatcher):
            function.settle()


def compile_ahead(function: Callable) -> Path | None:
    """Compile a function of one signature for processes that find nothing of their own on disk.

    Where that was done before, nothing is compiled.

    Returns
    -------
    Path or None
        The file that it is kept in; None where it is one that is never kept on disk.
    """
    assert isinstance(function, _LazyDispatcher)
    function.find_cache()
    if not isinstance(function.cache, CheckedCache):
        return None
    kept = place_ahead(function.cache.owner(function.signature))
    if kept is not None:
        return kept
    fresh = _LazyDispatcher.of(function.py_func, function.signature, function.targetoptions)
    fresh._is_inner = True  # so that nothing is read from disk
    with linked_modules() as collected:
        fresh.settle()
    [compiled] = fresh.overloads.values()
    return function.cache.write_ahead(function.signature, compiled, collected)


def borrowing(function: Callable) -> Any:
    """Compile a helper of a loop that borrows arrays: it makes none, and keeps none.

    Numba counts references to the arrays that a function is given, at each call. In a loop of half
    a microsecond that costs a tenth of the time; with the counting switched off (`NOT_COUNTED`) the
    helper is as fast as if it stood in the loop. Numba raises an error while compiling if the
    helper allocates.

    Parameters
    ----------
    function : callable

    Returns
    -------
    callable
        Compiled at the first call, in NumPy's error model.
    """
    return njit(**NOT_COUNTED, error_model="numpy", no_cfunc_wrapper=True)(function)


class _LazyDispatcher(OpenDispatcher):
    """A function with one signature, compiled or found in its cache at the first use.

    Other compiled functions that call it get another version of it (`inner`), which is linked
    into them: without what Python needs for a call, without machine code, and not kept on disk.
    """

    _inner: Self | None = None
    _is_inner = False

    @classmethod
    def of(cls, function: Callable, signature: Any, options: dict[str, Any]) -> Self:
        """Make it; without a signature it compiles for the types of each call, as Numba's does."""
        made = cls(function, targetoptions={"nopython": True, "boundscheck": None, **options})
        made.signature = signature
        return made

    @property
    def inner(self) -> Self:
        """What compiled functions call."""
        if self._is_inner:
            return self
        if self._inner is None:
            bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            self._inner = self.of(self.py_func, self.signature, self.targetoptions | bare)
            self._inner._is_inner = True
        return self._inner

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Say how compiled code calls it."""
        if self._is_inner:
            return super().get_call_template(args, kws)
        return self.inner.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Give what compiled code calls."""
        return super().get_overload(sig) if self._is_inner else self.inner.get_overload(sig)

    @property
    def is_compiling(self) -> bool:
        """Whether it is being compiled, so that a call of it is one of itself."""
        versions = (self,) if self._inner is None else (self, self._inner)
        return any(super(_LazyDispatcher, version).is_compiling for version in versions)

    def compile(self, sig: Any) -> Any:
        """Compile or load for the types of a signature."""
        self.find_cache()
        with no_search_for_garbage(), lean_libraries():
            return super().compile(sig)

    def find_cache(self) -> None:
        """Find out where on disk it is kept, if that is not known and there is such a place."""
        if isinstance(self.cache, NullCache) and not self._is_inner:
            file = Path(self.py_func.__code__.co_filename)
            reached = hash_of_sources(file) if file.is_file() else None  # not if it is from a text
            if reached is not None:
                self.keep_under(reached)

    def keep_under(self, stamp: str) -> None:
        """Keep what is compiled on disk, with a stamp; not where no folder can be written to."""
        with suppress(RuntimeError):
            self.keep_in(CheckedCache(self.py_func, stamp))

    def keep_by_key(self, key: str) -> None:
        """Keep on disk, beside what PyTensor keeps, under a key that tells all but the types."""
        _name_lastingly(self.py_func)
        keep_with_pytensor(self.py_func, key)
        with suppress(RuntimeError):
            self.keep_in(KeyedCache(self.py_func, key, runs=not self._is_inner))

    def settle(self) -> bool:
        """Compile the signature if there is one, and no other from then on; say if there is.

        One thread does it, and the others wait.
        """
        if self.signature is None:
            return False
        with global_compiler_lock:
            if self.can_compile:
                self.compile(self.signature)
                self.disable_compile()
        return True


def _name_lastingly(function: Any) -> None:
    """Name the module and the file of a function that was made of a text.

    An entry on disk can be read if the module can be imported, and is found by the name of the
    file, which for some texts is that of a temporary one.
    """
    if function.__module__ is None:
        function.__module__ = __name__
    code = function.__code__
    if code.co_filename != getattr(modules.get(function.__module__), "__file__", None):
        function.__code__ = code.replace(co_filename="<string>")
