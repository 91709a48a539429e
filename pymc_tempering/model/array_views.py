"""Views of arrays, their addresses, and their only numbers: a few instructions in compiled code.

Numba has functions in Python for them, each of which takes as long to compile as a loop.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from pymc_tempering.borrowed.numba_code import returned_view
from pymc_tempering.borrowed.numba_functions import cgutils

NEW = -1
"""Stands for an axis of length one that the array does not have."""

FIELDS = "data", "strides", "itemsize", "meminfo", "parent"
"""Parts of an array that a view of it needs."""


def _part(context: Any, builder: Any, kind: Any, array: Any, name: str) -> Any:
    """Read a part of an array that stays where it is: a copy in memory for each is dear to LLVM."""
    return context.data_model_manager[kind].get(builder, array, name)


@intrinsic
def number(typingctx, value):  # type: ignore[no-untyped-def]
    """Give the only number of an array; compiled code has some of them as numbers already."""
    if not isinstance(value, types.Array):
        return value(value), lambda context, builder, signature, args: args[0]

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = _part(context, builder, value, args[0], "data")
        return context.unpack_value(builder, value.dtype, data)

    return value.dtype(value), codegen


@intrinsic
def address(typingctx, array):  # type: ignore[no-untyped-def]
    """Give the address of the first number of an array."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = _part(context, builder, array, args[0], "data")
        return builder.ptrtoint(data, context.get_value_type(types.uintp))

    return types.uintp(array), codegen


@intrinsic
def put(typingctx, array, place, value):  # type: ignore[no-untyped-def]
    """Write a number to a place of an array in C order, counted through; nothing checks it."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = _part(context, builder, array, args[0], "data")
        context.pack_value(builder, array.dtype, args[2], builder.gep(data, [args[1]]))

    return types.void(array, types.intp, array.dtype), codegen


@intrinsic
def piece(typingctx, vector, start, length):  # type: ignore[no-untyped-def]
    """Give a view of some numbers of a vector, which has them; nothing checks it."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        old, first, n = args
        part = {name: _part(context, builder, vector, old, name) for name in FIELDS}
        new = make_array(vector)(context, builder)
        populate_array(
            new, data=builder.gep(part["data"], [first]), shape=[n],
            strides=cgutils.unpack_tuple(builder, part["strides"]), itemsize=part["itemsize"],
            meminfo=part["meminfo"], parent=part["parent"],
        )  # fmt: skip
        return returned_view(context, builder, signature.return_type, new)

    return vector(vector, types.intp, types.intp), codegen


@cache
def shuffled(order: tuple[int, ...]) -> Any:
    """Return what makes a view with the axes of an array in another order, in compiled code.

    Parameters
    ----------
    order : tuple of int
        Axes of the array, or `NEW`. Axes that are left out must have length one.
    """

    @intrinsic
    def view(typingctx, array):  # type: ignore[no-untyped-def]
        if not isinstance(array, types.Array):  # a number
            made = types.Array(array, len(order), "C")
            return made(array), lambda *given: _of_number(*given)
        kept = [axis for axis in order if axis != NEW]
        layout = "C" if array.layout == "C" and kept == sorted(kept) else "A"
        made = array.copy(ndim=len(order), layout=layout)
        return made(array), lambda *given: _of_array(order, *given)

    return view


def _of_array(order: Sequence[int], context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Write the view of an array."""
    old = make_array(signature.args[0])(context, builder, args[0])
    lengths, steps = (cgutils.unpack_tuple(builder, tuple_) for tuple_ in (old.shape, old.strides))
    one, step = context.get_constant(types.intp, 1), old.itemsize
    shape: list[Any] = []
    strides: list[Any] = []
    for axis in reversed(order):
        shape.insert(0, one if axis == NEW else lengths[axis])
        strides.insert(0, step if axis == NEW else steps[axis])
        step = builder.mul(strides[0], shape[0])
    new = make_array(signature.return_type)(context, builder)
    populate_array(
        new, data=old.data, shape=shape, strides=strides, itemsize=old.itemsize,
        meminfo=old.meminfo, parent=old.parent,
    )  # fmt: skip
    return returned_view(context, builder, signature.return_type, new)


def _of_number(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Write an array with one number."""
    ones = (1,) * signature.return_type.ndim

    def made(value):  # type: ignore[no-untyped-def]
        array = np.empty(ones, type(value))
        array.flat[0] = value
        return array

    return context.compile_internal(builder, made, signature, args)
