"""Private parts of Numba's code generation, under names of our own; see `borrowed`.

A library in Numba's sense holds the LLVM module of one compiled function. Numba optimizes it and
turns it into machine code in stages that have private names.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from llvmlite import binding
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler_lock import global_compiler_lock
from numba.core.extending import _Intrinsic
from numba.core.imputils import impl_ret_borrowed
from numba.core.registry import CPUDispatcher, cpu_target

__all__ = (
    "OpenLibrary",
    "is_dispatcher",
    "is_intrinsic",
    "libraries_of",
    "linkable",
    "returned_view",
    "struct_of",
)

DYNAMIC = "numba.dynamic.globals"
"""Beginning of the names of global variables that hold addresses of this process."""


class OpenLibrary(JITCodeLibrary):
    """Numba's library of a compiled function, with public names for its parts and stages."""

    @property
    def is_final(self) -> bool:
        """Whether it is optimized, and has machine code."""
        return bool(self._finalized)

    @property
    def module(self) -> Any:
        """LLVM module of its functions."""
        return self._final_module

    @module.setter
    def module(self, module: Any) -> None:
        self._final_module = module

    @property
    def callees(self) -> list[Any]:
        """Libraries of the functions that it calls."""
        callees: list[Any] = self._linking_libraries
        return callees

    def take_in(self, module: Any) -> bool:
        """Add a module of functions of its own, each of them optimized alone.

        Without that, addresses of this process could be left where nothing uses them, and they
        would keep the module from being kept on disk.

        Returns whether they call a function that is still being compiled, as those do that call
        each other: by an address that is filled in once there is machine code of it.
        """
        self._optimize_functions(module)
        is_met_from_within = _has_global(module, RuntimeLinker.PREFIX)
        self.module.link_in(module)
        return is_met_from_within

    def take_reloads(self, library: Any) -> None:
        """Take over what a library of a callee must do when it is loaded."""
        self._reload_init.update(library._reload_init)

    def finish(self) -> None:
        """Optimize the module as a whole, and make the machine code."""
        self._optimize_final_module()
        self.module.verify()
        self._finalize_final_module()

    def set_environment(self, name: str, environment: Any) -> bool:
        """Set the constants of a function by their symbol; return whether there is one yet."""
        if not self._codegen._engine.is_symbol_defined(name):
            return False
        self._codegen.set_env(name, environment)
        return True

    @property
    def has_dynamic_globals(self) -> bool:
        """Whether addresses of this process are in it, so that it cannot be kept on disk."""
        if self.is_final:
            return bool(super().has_dynamic_globals)
        here = _has_global(self.module, DYNAMIC)
        return here or any(library.has_dynamic_globals for library in self.callees)

    @classmethod
    @abstractmethod
    def opened(cls, codegen: Any, name: str, module: Any) -> Self:
        """Make one of a module that is not optimized."""

    @classmethod
    def _unserialize(cls, codegen: Any, state: tuple[str, str, Any]) -> Any:
        name, kind, data = state
        if kind == "bitcode":
            return cls.opened(codegen, name, binding.parse_bitcode(data))
        return super()._unserialize(codegen, state)


def _has_global(module: Any, prefix: str) -> bool:
    """Whether a global variable of a module has a name that begins so."""
    return any(variable.name.startswith(prefix) for variable in module.global_variables)


def linkable(library: Any) -> Any:
    """Return the module of a library with machine code, to be linked into others."""
    return library._get_module_for_linking()


@contextmanager
def libraries_of(kind: type) -> Iterator[None]:
    """Have Numba make libraries of that kind in this thread; others that compile wait."""
    codegen = cpu_target.target_context.codegen()
    with global_compiler_lock:
        before = codegen._library_class
        codegen._library_class = kind
        try:
            yield
        finally:
            codegen._library_class = before


def is_dispatcher(function: Any) -> bool:
    """Whether a function is one that Numba compiles, and no other that it knows a form of."""
    return isinstance(function, CPUDispatcher)


def is_intrinsic(function: Any) -> bool:
    """Whether a function is one whose instructions are written where it is called."""
    return isinstance(function, _Intrinsic)


def returned_view(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return an array that shares its numbers with an argument, which counts as one more use."""
    return impl_ret_borrowed(context, builder, kind, array._getvalue())


def struct_of(context: Any, builder: Any, kind: Any, parts: dict[str, Any]) -> Any:
    """Return a value of a kind that Numba keeps as named parts; parts that are left out are 0."""
    made = cgutils.create_struct_proxy(kind)(context, builder)
    for name, part in parts.items():
        setattr(made, name, part)
    return made._getvalue()
