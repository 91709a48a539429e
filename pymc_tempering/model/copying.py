"""Copies between arrays in compiled code.

Numba compiles an assignment between arrays together with the text of an error for shapes that
differ, which takes seconds for each number of dimensions. These are loops, and compile at once.
The arrays must have equal sizes; nothing checks it.
"""

from pymc_tempering.model.jit import borrowing


@borrowing
def copy_numbers(target, source):  # type: ignore[no-untyped-def]
    """Write the numbers of one vector into another."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@borrowing
def copy_row(target, to, source, row):  # type: ignore[no-untyped-def]
    """Write a row of one matrix into a row of another."""
    for i in range(source.shape[1]):
        target[to, i] = source[row, i]
