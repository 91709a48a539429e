"""A compiled density with the address of its data, as a first-class function of the chain loop.

Numba's first-class functions take no more than their arguments. So a few instructions of machine
code stand before the density: they add the address, call, and take an error of the density for its
end. They are made in some milliseconds.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from pymc_tempering.borrowed import address_of, cpu_target, global_compiler_lock
from pymc_tempering.model.compiled import DENSITY_SIGNATURE
from pymc_tempering.model.packed_data import ADDRESS

OPEN_SIGNATURE = types.void(*DENSITY_SIGNATURE.args, ADDRESS)
"""(x, values, grads, address of the data)."""


class BoundDensity(types.WrapperAddressProtocol):
    """A density with its data, to be passed to compiled code where it takes a `DENSITY`.

    Attributes
    ----------
    compiled : callable
        Of `OPEN_SIGNATURE`.
    data : ndarray of uint8
        Packed data.
    """

    def __init__(self, compiled: Callable, data: np.ndarray) -> None:
        self.compiled, self.data = compiled, data
        self._library = _bind(compiled, data.ctypes.data)

    def __wrapper_address__(self) -> int:
        address: int = self._library.get_pointer_to_function(self._library.name)
        return address

    def signature(self) -> Any:
        """Signature of a density."""
        return DENSITY_SIGNATURE

    def __call__(self, x: np.ndarray, values: np.ndarray, grads: np.ndarray) -> None:
        """Write the density at `x` into `values` and `grads`."""
        with suppress(Exception):
            self.compiled(x, values, grads, np.uintp(self.data.ctypes.data))


def _bind(compiled: Any, address: int) -> Any:
    """Library with one function, of its own name: the compiled one, given an address.

    An error of the compiled one goes no further; values that it did not write are NaN.
    """
    context = cpu_target.target_context
    target = address_of(compiled, OPEN_SIGNATURE.args)
    name = f"bound_density_{target:x}_{address:x}"
    with global_compiler_lock:
        library = context.codegen().create_library(name)
        module = library.create_ir_module(name)
        kinds = [context.get_value_type(kind) for kind in DENSITY_SIGNATURE.args]
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
        builder = ir.IRBuilder(function.append_basic_block())
        word = context.get_value_type(ADDRESS)
        kind = context.call_conv.get_function_type(types.none, OPEN_SIGNATURE.args)
        callee = builder.inttoptr(ir.Constant(word, target), kind.as_pointer())
        status, _ = context.call_conv.call_function(
            builder,
            callee,
            types.none,
            OPEN_SIGNATURE.args,
            [*function.args, ir.Constant(word, address)],
        )
        with builder.if_then(status.is_python_exc, likely=False):  # from a likelihood in Python
            python = context.get_python_api(builder)
            lock = python.gil_ensure()
            python.err_clear()
            python.gil_release(lock)
        builder.ret_void()
        library.add_ir_module(module)
        library.finalize()
    return library
