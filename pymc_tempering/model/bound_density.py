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

from pymc_tempering.borrowed.numba_functions import address_of, cpu_target, global_compiler_lock
from pymc_tempering.model.compiled import DENSITY_SIGNATURE
from pymc_tempering.model.packed_data import ADDRESS

BIT, INT, POINTER = ir.IntType(1), ir.IntType(32), ir.IntType(8).as_pointer()

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

    An error of the compiled one goes no further; values that it did not write are NaN. Ctrl-C in a
    likelihood that runs in Python is no such error: the signal stays pending until the interpreter
    is back, and there are no numbers up to then.
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
        runs_python = ir.GlobalVariable(module, BIT, f"{name}_runs_python")
        runs_python.initializer, runs_python.linkage = BIT(0), "internal"
        _give_way_to_ctrl_c(context, builder, runs_python, function.args[1])
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
            ctrl_c = builder.inttoptr(ir.Constant(word, id(KeyboardInterrupt)), POINTER)
            is_ctrl_c = _call(builder, INT, "PyErr_ExceptionMatches", ctrl_c)
            with builder.if_then(_holds(builder, is_ctrl_c), likely=False):
                builder.store(BIT(1), runs_python)
                _call(builder, ir.VoidType(), "PyErr_SetInterrupt")
            python.err_clear()
            python.gil_release(lock)
        builder.ret_void()
        library.add_ir_module(module)
        library.finalize()
    return library


def _give_way_to_ctrl_c(context: Any, builder: Any, runs_python: Any, values: Any) -> None:
    """Return NaN at once while a Ctrl-C waits for the main thread, if the density runs Python.

    Numba turns arrays into objects of Python without looking for errors. A signal that is handled
    in the middle of that would end the process.
    """
    with builder.if_then(builder.load(runs_python), likely=False):
        python = context.get_python_api(builder)
        lock = python.gil_ensure()
        waits = _holds(builder, _call(builder, INT, "PyOS_InterruptOccurred"))
        with builder.if_then(waits, likely=False):
            _call(builder, ir.VoidType(), "PyErr_SetInterrupt")  # the question has reset it
        python.gil_release(lock)
        with builder.if_then(waits, likely=False):
            numbers = context.make_array(DENSITY_SIGNATURE.args[1])(context, builder, values)
            for i in range(2):
                place = builder.gep(numbers.data, [INT(i)])
                builder.store(ir.Constant(ir.DoubleType(), np.nan), place)
            builder.ret_void()


def _call(builder: Any, kind: Any, name: str, *arguments: Any) -> Any:
    """Call a function of Python's C interface."""
    of_type = ir.FunctionType(kind, [argument.type for argument in arguments])
    known = builder.module.globals.get(name)
    return builder.call(known or ir.Function(builder.module, of_type, name), arguments)


def _holds(builder: Any, number: Any) -> Any:
    """Whether an integer of C is not 0."""
    return builder.icmp_unsigned("!=", number, INT(0))
