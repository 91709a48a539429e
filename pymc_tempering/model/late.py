"""Functions that are compiled when a run first calls them, and reached by their address.

A large function that few runs need would else be compiled with each loop that may call it, and be
linked into it and optimized with it.
"""

from typing import Any

from llvmlite import ir
from numba import types

from pymc_tempering.borrowed.numba_functions import cgutils

POINTER = ir.IntType(8).as_pointer()
WORD = 8
"""Bytes of an address."""


def call_late(
    context: Any, builder: Any, giver: tuple[str, str], args: tuple[Any, ...], values: Any
) -> Any:
    """Write a call of a function without a result, to be used in an intrinsic.

    The machine code has a cell for the address. Where it is empty, Python is asked for it; so the
    code can be kept on disk.

    Parameters
    ----------
    context, builder
        Of the intrinsic.
    giver : tuple of str
        Module and name of a Python function without arguments that returns the address of the
        compiled function, in Numba's convention.
    args : tuple of Numba types
    values
        The arguments.
    """
    cell = _cell(builder.module, "_".join(giver))
    with builder.if_then(_is_null(builder, _read(builder, cell)), likely=False):
        _fill(context, builder, cell, *giver)
    kind = context.call_conv.get_function_type(types.none, args)
    callee = builder.bitcast(_read(builder, cell), kind.as_pointer())
    status, _ = context.call_conv.call_function(builder, callee, types.none, args, values)
    with builder.if_then(status.is_error, likely=False):
        context.call_conv.return_status_propagate(builder, status)
    return context.get_dummy_value()


def _cell(module: Any, name: str) -> Any:
    """Place for an address in a module; it is empty in code that comes from disk."""
    cell = module.globals.get(name)
    if cell is None:
        cell = ir.GlobalVariable(module, POINTER, name)
        cell.initializer, cell.linkage, cell.align = POINTER(None), "internal", WORD
    return cell


def _read(builder: Any, cell: Any) -> Any:
    """Read the cell, which another thread may write."""
    return builder.load_atomic(cell, "acquire", WORD)


def _is_null(builder: Any, pointer: Any) -> Any:
    return builder.icmp_unsigned("==", pointer, POINTER(None))


def _fill(context: Any, builder: Any, cell: Any, module: str, name: str) -> None:
    """Ask Python for the address; an error there, as Ctrl-C, is one of the calling function."""
    python = context.get_python_api(builder)
    lock = python.gil_ensure()
    found = cgutils.alloca_once_value(builder, POINTER(None))
    owner = python.import_module(context.insert_const_string(builder.module, module))
    with builder.if_then(builder.not_(_is_null(builder, owner))):
        function = python.object_getattr_string(owner, name)
        python.decref(owner)
        with builder.if_then(builder.not_(_is_null(builder, function))):
            address = python.call_function_objargs(function, ())
            python.decref(function)
            with builder.if_then(builder.not_(_is_null(builder, address))):
                builder.store(python.long_as_voidptr(address), found)
                python.decref(address)
    address = builder.load(found)
    python.gil_release(lock)
    with builder.if_then(_is_null(builder, address), likely=False):
        context.call_conv.return_exc(builder)
    builder.store_atomic(address, cell, "release", WORD)
