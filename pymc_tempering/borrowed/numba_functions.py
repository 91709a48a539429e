"""Private parts of Numba that make compiled functions, and tell of it; see `borrowed`."""

from abc import abstractmethod
from typing import Any, Self

from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Event, Listener, install_listener
from numba.core.registry import CPUDispatcher, cpu_target

__all__ = (
    "BLAS",
    "NOT_COUNTED",
    "Event",
    "Listener",
    "OpenDispatcher",
    "address_for_c",
    "address_of",
    "cgutils",
    "cpu_target",
    "global_compiler_lock",
    "install_listener",
)

NOT_COUNTED = {"_nrt": False}
"""Options of `numba.njit`: references to arrays are not counted, so none may be made."""


BLAS = {"dot": "numba_xxdot", "gemv": "numba_xxgemv", "gemm": "numba_xxgemm"}
"""Symbols of the helpers in Numba's library that call BLAS."""


class OpenDispatcher(CPUDispatcher):
    """Numba's dispatcher, which asks `settle` for machine code before it compiles any itself.

    The methods below are those by which Numba asks for machine code: for a call from Python that
    nothing was compiled for, for a call from compiled code, and for a function as an argument.
    Calls that find their machine code pass by them.
    """

    signature: Any = None
    """The only signature that it will have; it travels to other processes."""

    @abstractmethod
    def settle(self) -> bool:
        """Compile the one signature if there is one, and say if there is."""

    @property
    def can_compile(self) -> bool:
        """Whether it takes further signatures."""
        return bool(self._can_compile)

    @property
    def cache(self) -> Any:
        """Where it keeps what it compiled."""
        return self._cache

    def keep_in(self, cache: Any) -> None:
        """Take another place to keep what it compiles."""
        self._cache = cache

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        # Numba calls what it is given. A settled dispatcher converts arguments or refuses them.
        return self if self.settle() else super()._compile_for_args(*args, **kws)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Say how compiled code calls it."""
        self.settle()
        return super().get_call_template(args, kws)

    def get_compile_result(self, sig: Any) -> Any:
        """Give the machine code for its use as an argument."""
        self.settle()
        return super().get_compile_result(sig)

    def get_function_type(self) -> Any:
        """Give the type that it has as an argument."""
        self.settle()
        return super().get_function_type()

    def _reduce_states(self) -> dict[str, Any]:
        return super()._reduce_states() | {"signature": self.signature}

    @classmethod
    def _rebuild(cls, signature: Any, **states: Any) -> Self:
        made: Self = super()._rebuild(**states)
        made.signature = signature
        return made


def address_of(compiled: Any, args: tuple[Any, ...]) -> int:
    """Return where the machine code of a compiled function lies, in Numba's own convention."""
    found = compiled.overloads[args]
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    return address


def address_for_c(compiled: Any, args: tuple[Any, ...]) -> int:
    """Return where its machine code lies for callers that know C's convention alone."""
    found = compiled.overloads[args]
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name)
    return address
