"""Matrix products by thin calls of BLAS, through helpers that Numba has ready in its own library.

One compiled function serves all layouts: it is given addresses and steps, and no arrays, whose
every combination of layouts would be compiled anew.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import add_symbol
from numba import float64, intp, types, uintp
from numba.extending import intrinsic

from pymc_tempering.borrowed.numba_functions import BLAS, address_for_c, cgutils
from pymc_tempering.model.jit import compile_now, njit

ITEM = 8
"""Bytes of a number."""

LARGEST = 2**31 - 1
"""Rows or columns that BLAS can count."""

DONE, UNEQUAL, TOO_LARGE = 0, 1, 2
"""What a product says: that it is there, or that the sizes do not fit or are too large."""

MULTIPLY = intp(*[intp] * 4, *[uintp, intp, intp] * 3)

SYMBOL = "pymc_tempering_multiply"
"""Name of the compiled product for all compiled code of the process."""

_CHARACTER, _POINTER = ir.IntType(8), ir.IntType(8).as_pointer()


@intrinsic
def _read(typingctx, address):  # type: ignore[no-untyped-def]
    """Read the number at an address."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.load(builder.inttoptr(args[0], ir.DoubleType().as_pointer()))

    return float64(uintp), codegen


@intrinsic
def _write(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Write a number at an address."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        builder.store(args[1], builder.inttoptr(args[0], ir.DoubleType().as_pointer()))
        return context.get_dummy_value()

    return types.void(uintp, float64), codegen


def _number(builder: Any, value: float) -> Any:
    """Pointer to a number on the stack."""
    slot = cgutils.alloca_once_value(builder, ir.Constant(ir.DoubleType(), value))
    return builder.bitcast(slot, _POINTER)


def _flag(builder: Any, transposed: Any) -> Any:
    """Letter that says whether a matrix is transposed."""
    yes, no = (ir.Constant(_CHARACTER, ord(letter)) for letter in "TN")
    return builder.select(transposed, yes, no)


def _call(builder: Any, name: str, arguments: Sequence[Any]) -> None:
    """Call a helper of Numba's for numbers of double precision; it cannot fail for sizes in range.

    A first argument, the kind of the numbers, is added.
    """
    arguments = [ir.Constant(_CHARACTER, ord("d")), *arguments]
    kind = ir.FunctionType(ir.IntType(32), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


@intrinsic
def _dot(typingctx, n, x, y, out):  # type: ignore[no-untyped-def]
    """Inner product of two vectors of n numbers, side by side in memory."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        n, *addresses = args
        pointers = [builder.inttoptr(address, _POINTER) for address in addresses]
        _call(builder, BLAS["dot"], [ir.Constant(_CHARACTER, 0), n, *pointers])
        return context.get_dummy_value()

    return types.void(intp, uintp, uintp, uintp), codegen


@intrinsic
def _gemv(typingctx, transposed, m, n, a, lead, x, y):  # type: ignore[no-untyped-def]
    """Product of a column-major (m, n) matrix, or its transpose, and a vector."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        transposed, m, n, a, lead, x, y = args
        a, x, y = (builder.inttoptr(address, _POINTER) for address in (a, x, y))
        one, zero = _number(builder, 1.0), _number(builder, 0.0)
        flag = _flag(builder, transposed)
        _call(builder, BLAS["gemv"], [flag, m, n, one, a, lead, x, zero, y])
        return context.get_dummy_value()

    return types.void(types.boolean, intp, intp, uintp, intp, uintp, uintp), codegen


@intrinsic
def _gemm(typingctx, turn_a, turn_b, m, n, k, a, lead_a, b, lead_b, c, lead_c):  # type: ignore[no-untyped-def]
    """Product of two column-major matrices, or their transposes: (m, k) times (k, n)."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        turn_a, turn_b, m, n, k, a, lead_a, b, lead_b, c, lead_c = args
        a, b, c = (builder.inttoptr(address, _POINTER) for address in (a, b, c))
        one, zero = _number(builder, 1.0), _number(builder, 0.0)
        flags = [_flag(builder, turn_a), _flag(builder, turn_b)]
        _call(
            builder, BLAS["gemm"],
            [*flags, m, n, k, one, a, lead_a, b, lead_b, zero, c, lead_c],
        )  # fmt: skip
        return context.get_dummy_value()

    turns, sizes = (types.boolean, types.boolean), (intp, intp, intp)
    return types.void(*turns, *sizes, uintp, intp, uintp, intp, uintp, intp), codegen


@njit(types.intp(*[intp] * 4))
def _lead(near, far, step, width):  # type: ignore[no-untyped-def]
    """Numbers from one run of `near` neighbors to the next of `far` runs; 0 if they are none.

    `step` and `width` are the bytes from one neighbor, and from one run, to the next.
    """
    if near != 1 and step != ITEM:
        return 0
    if far == 1:
        return max(1, near)
    lead = width // ITEM
    return lead if width % ITEM == 0 and lead >= near else 0


@njit(types.void(intp, intp, uintp, intp, intp, uintp, intp, intp))
def _copy(rows, columns, source, down, across, target, down_target, across_target):  # type: ignore[no-untyped-def]
    """Copy a matrix between any two layouts."""
    for i in range(rows):
        for j in range(columns):
            place = np.uintp(np.intp(target) + i * down_target + j * across_target)
            _write(place, _read(np.uintp(np.intp(source) + i * down + j * across)))


@njit(types.void(intp, uintp))
def _clear(n, x):  # type: ignore[no-untyped-def]
    """Write zeros: some builds of BLAS read what they should only write."""
    for i in range(n):
        _write(np.uintp(x + np.uintp(i * ITEM)), 0.0)


@njit(types.void(intp, intp, types.boolean, uintp, intp, uintp, uintp))
def _times_vector(m, k, row_major, a, lead, x, y):  # type: ignore[no-untyped-def]
    """Product of an (m, k) matrix and a vector without gaps."""
    _clear(m, y)
    if row_major:
        _gemv(True, k, m, a, lead, x, y)
    else:
        _gemv(False, m, k, a, lead, x, y)


@njit(types.void(*[intp] * 3, *[uintp, intp, intp] * 3))
def _row_major(m, k, n, a, a_down, a_across, b, b_down, b_across, c, c_down, c_across):  # type: ignore[no-untyped-def]
    """Product where each matrix has runs of neighbors, and the product has them in its rows."""
    # To BLAS, a row-major matrix is its own transpose.
    lead_a, lead_b = _lead(m, k, a_down, a_across), _lead(k, n, b_down, b_across)
    rows_a, rows_b = lead_a == 0, lead_b == 0
    if rows_a:
        lead_a = _lead(k, m, a_across, a_down)
    if rows_b:
        lead_b = _lead(n, k, b_across, b_down)
    if m == 1 and n == 1:
        _dot(k, a, b, c)
    elif n == 1:
        _times_vector(m, k, rows_a, a, lead_a, b, c)
    elif m == 1:  # the transpose of the right matrix times the vector
        _times_vector(n, k, not rows_b, b, lead_b, a, c)
    else:
        _gemm(not rows_b, not rows_a, n, m, k, b, lead_b, a, lead_a, c, max(1, c_down // ITEM))


@njit(types.boolean(*[intp] * 4))
def _readable(rows, columns, down, across):  # type: ignore[no-untyped-def]
    """Say if BLAS can read a matrix where it is; a vector must have no gaps."""
    if rows == 1 or columns == 1:
        return (rows == 1 or down == ITEM) and (columns == 1 or across == ITEM)
    return _lead(rows, columns, down, across) != 0 or _lead(columns, rows, across, down) != 0


@njit(types.boolean(*[intp] * 4))
def _writable(rows, columns, down, across):  # type: ignore[no-untyped-def]
    """Say if BLAS can write a row-major matrix, or a vector without gaps, where it is."""
    if columns == 1:
        return rows == 1 or down == ITEM
    return _lead(columns, rows, across, down) != 0


@njit()
def _multiply_copies(m, k, n, a, a_down, a_across, b, b_down, b_across, c, c_down, c_across):  # type: ignore[no-untyped-def]
    """Product of matrices as BLAS cannot read or write them."""
    left, right, both = np.empty((m, k)), np.empty((k, n)), np.empty((m, n))
    _copy(m, k, a, a_down, a_across, left.ctypes.data, k * ITEM, ITEM)
    _copy(k, n, b, b_down, b_across, right.ctypes.data, n * ITEM, ITEM)
    _row_major(
        m, k, n, left.ctypes.data, k * ITEM, ITEM, right.ctypes.data, n * ITEM, ITEM,
        both.ctypes.data, n * ITEM, ITEM,
    )  # fmt: skip
    _copy(m, n, both.ctypes.data, n * ITEM, ITEM, c, c_down, c_across)
    return left, right, both  # so that they live until here


@njit(MULTIPLY, no_cpython_wrapper=True)
def product(m, k, k_too, n, a, a_down, a_across, b, b_down, b_across, c, c_down, c_across):  # type: ignore[no-untyped-def]
    """Write a product, and say whether the sizes were right; see `multiply`."""
    if k != k_too:
        return UNEQUAL
    if max(m, k, n) > LARGEST:
        return TOO_LARGE
    if m == 0 or n == 0:
        return DONE
    if k == 0:
        for i in range(m):
            for j in range(n):
                _write(np.uintp(np.intp(c) + i * c_down + j * c_across), 0.0)
        return DONE
    fits = _readable(m, k, a_down, a_across) and _readable(k, n, b_down, b_across)
    if fits and _writable(m, n, c_down, c_across):
        _row_major(m, k, n, a, a_down, a_across, b, b_down, b_across, c, c_down, c_across)
    else:
        _multiply_copies(
            m, k, n, a, a_down, a_across, b, b_down, b_across, c, c_down, c_across
        )  # fmt: skip
    return DONE


@cache
def make_ready() -> None:
    """Compile the product, or load it, and make its name known to all compiled code.

    To be called before code with a product is compiled or loaded. It is called by its name, because
    linked into its callers it would be optimized with each of them anew.
    """
    compile_now(product)
    add_symbol(SYMBOL, address_for_c(product, MULTIPLY.args))


@intrinsic
def multiply(  # type: ignore[no-untyped-def]
    typingctx,
    m,
    k,
    k_too,
    n,
    a,
    a_down,
    a_across,
    b,
    b_down,
    b_across,
    c,
    c_down,
    c_across,
):
    """Write the product of an (m, k) and a (k, n) matrix of float64; in compiled code.

    Parameters
    ----------
    m, k, k_too, n : int
        Sizes; the second and the third must be equal.
    a, b, c : int
        Addresses of the two matrices and of their product.
    *_down, *_across : int
        Bytes from one row, and from one column, to the next.

    Returns
    -------
    int
        `DONE`, or `UNEQUAL` or `TOO_LARGE` where the sizes do not fit, or are too large for BLAS.
    """

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds = [context.get_value_type(kind) for kind in MULTIPLY.args]
        function = ir.FunctionType(context.get_value_type(intp), kinds)
        return builder.call(cgutils.get_or_insert_function(builder.module, function, SYMBOL), args)

    return MULTIPLY, codegen
