"""A quick way from an address to LLVM's module, for processes that compile thousands of functions.

Whenever Numba compiles a function or loads it from its cache, llvmlite goes through all modules
that the process has, to find the one with a given address. At the end of the suite that took two
thirds of the time. Here the addresses are kept in a dictionary.
"""

from ctypes import c_void_p, cast
from typing import Any

from llvmlite.binding import ExecutionEngine


def find_modules_by_address() -> None:
    """Make llvmlite look modules up by their address, from now on."""
    look_through_all, add = ExecutionEngine._find_module_ptr, ExecutionEngine.add_module
    modules: dict[tuple[int, int], Any] = {}

    def add_module(self: ExecutionEngine, module: Any) -> None:
        add(self, module)
        modules[id(self), address_of(module._ptr)] = module

    def find(self: ExecutionEngine, pointer: Any) -> Any:
        module = modules.get((id(self), address_of(pointer)))
        return module if module in self._modules else look_through_all(self, pointer)

    ExecutionEngine.add_module, ExecutionEngine._find_module_ptr = add_module, find


def address_of(pointer: Any) -> int:
    """Return the number that a pointer of ctypes stands for."""
    return cast(pointer, c_void_p).value or 0
