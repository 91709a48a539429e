"""Libraries of compiled functions that become machine code only where that is run.

Numba optimizes each compiled function together with all that it calls, and makes machine code of
it. Of a function that others call alone, that code never runs: its callers have it linked in, and
are optimized again. Here such a function stays as it was lowered. What is optimized and becomes
machine code is what Python calls, or what is called by its address. The bits are the same, since
without fast math no optimization changes them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Self

from llvmlite import binding

from pymc_tempering.borrowed.numba_code import OpenLibrary, libraries_of, linkable


def lean_libraries() -> AbstractContextManager[None]:
    """Make lean libraries of all that this thread compiles meanwhile."""
    return libraries_of(LeanLibrary)


_LINKED: ContextVar[dict[str, bytes] | None] = ContextVar("_LINKED", default=None)


@contextmanager
def linked_modules() -> Iterator[dict[str, bytes]]:
    """Collect the modules of libraries before they are optimized, by the name of the library."""
    collected: dict[str, bytes] = {}
    token = _LINKED.set(collected)
    try:
        yield collected
    finally:
        _LINKED.reset(token)


class LeanLibrary(OpenLibrary):
    """A library that links its callees before anything is optimized across functions.

    It is open until somebody asks for the address of one of its functions.
    """

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._environments: dict[str, Any] = {}
        self._weak: Any = None
        self._in_a_circle = False

    @classmethod
    def opened(cls, codegen: Any, name: str, module: Any) -> Self:
        """Make one of a module that was kept while it was open."""
        made = cls(codegen, name)
        made.module = module
        made.enable_object_caching()  # whoever makes it final may keep the machine code
        return made

    # What Numba calls.

    @property
    def codegen(self) -> "_Environments":
        """What sets the constants of its functions."""
        return _Environments(self)

    def add_llvm_module(self, ll_module: Any) -> None:
        """Add functions of its own."""
        self._in_a_circle |= self.take_in(ll_module)

    def add_linking_library(self, library: Any) -> None:
        """Add the library of a callee; one that is met in a circle is called by its address."""
        if isinstance(library, LeanLibrary) and library._in_a_circle:
            self._in_a_circle = True
            library.make_final()
        elif not isinstance(library, LeanLibrary):
            linkable(library)
        self.callees.append(library)

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of a function; 0 if it has no such function, and it stays open."""
        if not self.is_final and not _has(self.module, name):
            return 0
        address: int = super().get_pointer_to_function(name)
        return address

    def finalize(self) -> None:
        """Link what it calls, optimize the whole, and make machine code of it."""
        reached = self._reached()
        self._link(reached)
        if (collected := _LINKED.get()) is not None:
            collected[self.name] = self.module.as_bitcode()
        self.finish()
        for library in (self, *reached):
            if isinstance(library, LeanLibrary):
                library.set_environments()

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        """Return what is kept on disk: of an open library its module, with all that it calls."""
        if self._in_a_circle:
            self.make_final()
        if self.is_final:
            kept: tuple[str, str, Any] = super().serialize_using_object_code()
            return kept
        reached = self._reached()
        self._link(reached)
        for library in reached:
            if isinstance(library, LeanLibrary):  # its functions are in this module now
                self._environments |= library._environments
        self.callees.clear()
        self._weak = None
        return self.name, "bitcode", self.module.as_bitcode()

    # What is its own.

    def make_final(self) -> None:
        """Optimize it and make machine code, if that was not done."""
        if not self.is_final:
            self.finalize()

    def set_environment_once_final(self, name: str, environment: Any) -> None:
        """Set constants of a function, at once or when there is machine code that reads them."""
        if not self.set_environment(name, environment):
            self._environments[name] = environment

    def set_environments(self) -> None:
        """Set the constants that wait for machine code, where there is some."""
        waiting, self._environments = self._environments, {}
        for name, environment in waiting.items():
            self.set_environment_once_final(name, environment)

    def weak(self) -> Any:
        """Return its module for linking: its functions may be there more than once, or go."""
        if self._weak is None:
            self._weak = self.module.clone()
            for function in list(self._weak.functions):
                if not function.is_declaration and function.linkage == binding.Linkage.external:
                    function.linkage = "linkonce_odr"
        return self._weak

    def _link(self, reached: list[Any]) -> None:
        """Link the modules of callees into its own."""
        for library in reached:
            self.take_reloads(library)
            is_open = isinstance(library, LeanLibrary) and not library.is_final
            self.module.link_in(library.weak() if is_open else linkable(library), preserve=True)

    def _reached(self) -> list[Any]:
        """All that it calls, also through others that are open; each after those that call it.

        LLVM leaves out what nothing calls that was linked before.
        """
        seen: set[Any] = {self}
        found: list[Any] = []

        def visit(library: Any) -> None:
            for callee in library.callees:
                if callee not in seen:
                    seen.add(callee)
                    if isinstance(callee, LeanLibrary) and not callee.is_final:
                        visit(callee)
                    found.append(callee)

        visit(self)
        return found[::-1]


class _Environments:
    """What Numba knows as the maker of a library, where it sets constants of a function."""

    def __init__(self, library: LeanLibrary) -> None:
        self._library = library

    def set_env(self, env_name: str, env: Any) -> None:
        """Set the constants of a function by their symbol."""
        self._library.set_environment_once_final(env_name, env)


def _has(module: Any, name: str) -> bool:
    """Whether a function of a module has a body there."""
    try:
        return not module.get_function(name).is_declaration
    except NameError:
        return False
