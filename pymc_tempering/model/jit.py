"""Numba's `njit` for this package: compiled at the first use, and kept on disk."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import RLock
from traceback import format_exception
from typing import Any

import llvmlite
import numba
import pytensor

from pymc_tempering.borrowed.private import NOT_COUNTED, keep_on_disk
from pymc_tempering.exceptions import warn_user
from pymc_tempering.model.exactly import no_search_for_garbage

READS_THE_CACHE = str(Path("numba", "core", "caching.py"))
"""File of Numba that an error comes from, or that led to it, where the cache cannot be read."""

FOLDER = Path(pytensor.config.base_compiledir) / "numba"
"""Where compiled code is kept: beside PyTensor's own."""

_ALONE = RLock()
"""Held where a loop is compiled: a second thread that needs it waits."""


def _edition() -> str:
    """Hash of all files of the package, and of the versions of what compiles them."""
    files = sorted(Path(__file__).resolve().parents[1].rglob("*.py"))
    versions = [module.__version__ for module in (pytensor, numba, llvmlite)]
    texts = b"".join(file.read_bytes() for file in files)
    return sha256(texts + repr(versions).encode()).hexdigest()[:16]


EDITION = _edition()
"""Compiled code is kept under it, so that an edit of any file makes all of it anew. It is taken
here, when the package is imported: a later edit must not change it."""


def njit(
    signature: Any = None, *, key: str | None = "", **options: Any
) -> Callable[[Callable], Any]:
    """Compile a function of this package at its first use, without the interpreter's lock.

    Parameters
    ----------
    signature : Numba signature, optional
        The only one that it has where Python calls it, see `compile_now`. Compiled code that calls
        it compiles it for the types of the call.
    key : str, optional
        What tells a function that was made of a template from others of it; None if it is not to
        be kept on disk.
    **options
        Of `numba.njit`, beside `cache` and `nogil`.

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(function: Callable) -> Any:
        made = numba.njit(nogil=True, cache=key is not None and kept(function, key), **options)(
            function
        )
        made.signature, made.is_settled = signature, signature is None
        return made

    return decorate


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
    return njit(**NOT_COUNTED, error_model="numpy")(function)


def kept(function: Callable, key: str = "") -> bool:
    """Have a function kept on disk, and say whether it is; a key tells what the package does not.

    A function that was made of a text, or of a template, needs a key.
    """
    return keep_on_disk(function, f"pymc_tempering_{function.__module__}_{EDITION}_{key}")


def compile_now(*functions: Any) -> None:
    """Compile functions of `njit` for their one signature, or find them on disk; no other after."""
    for function in functions:
        if function.is_settled:
            continue
        with _ALONE:
            if not function.is_settled:
                without_damage(partial(function.compile, function.signature))
                function.disable_compile()
                function.is_settled = True


def without_damage[T](work: Callable[[], T]) -> T:
    """Compile something. Where an entry of the cache on disk cannot be read, the cache is emptied.

    Raises
    ------
    OSError
        The cache cannot be emptied.
    """
    with no_search_for_garbage():
        try:
            return work()
        except Exception as error:
            if READS_THE_CACHE not in "".join(format_exception(error)):
                raise
            for file in FOLDER.glob("*.nb[ic]"):
                file.unlink(missing_ok=True)
            warn_user(
                f"The cache of compiled code cannot be read ({type(error).__name__}: {error}). "
                f"{FOLDER} was emptied, and all is compiled anew."
            )
            return work()
