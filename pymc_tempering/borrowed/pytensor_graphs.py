"""Private parts of PyTensor that turn graphs into compiled functions; see `borrowed`."""

from collections.abc import Callable

from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    cache_key_for_constant as key_of_constant,
)
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    numba_njit,
    numba_typify,
    register_funcify_and_cache_key,
)
from pytensor.link.numba.linker import NumbaLinker

__all__ = (
    "NumbaLinker",
    "compile_numba_function_src",
    "keep_with_pytensor",
    "key_of_constant",
    "numba_funcify_and_cache_key",
    "numba_njit",
    "numba_typify",
    "register_funcify_and_cache_key",
)


def keep_with_pytensor(function: Callable, key: str) -> None:
    """Have the cache of a function lie where PyTensor's is, under a key."""
    CACHED_SRC_FUNCTIONS[function] = key
