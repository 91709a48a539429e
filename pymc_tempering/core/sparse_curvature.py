"""Where the curvature of a density is not zero, and in how few gradients it can be seen.

Two columns of a sparse matrix that share no row are had from one difference of gradients. A column
that touches nearly all rows is had alone, and its row with it, since the matrix is symmetric.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_array, csr_array

LEAST_CORRELATION = 1e-6
"""Elements of a curvature of a smaller size than this, relative to those of the diagonal, do not
count."""

MOST_ELEMENTS = 5_000_000
"""Nonzero elements of a curvature at most: all of them in some two thousand dimensions."""

FULL = 0.25
"""Share of all coordinates that one touches from which on its row counts as full."""

type Slopes = Callable[[np.ndarray], np.ndarray]
"""Gradients, shape (k, n), at states of shape (k, n)."""


def find_pattern(slopes: Slopes, x: np.ndarray, steps: np.ndarray, chunk: int) -> csr_array:
    """Find where the curvature is not zero, shape (n, n), from the gradients near a state.

    What is no correlation to speak of is rounding, or as good as that.

    Raises
    ------
    ArithmeticError
        There are too many such elements.
    """
    n, here = x.size, slopes(x[None])[0]
    found = csr_array((n, n))
    for start in range(0, n, chunk):
        at = np.arange(start, min(start + chunk, n))
        moved = np.repeat(x[None], at.size, axis=0)
        moved[np.arange(at.size), at] += steps[at]
        change = slopes(moved) - here
        row, column = np.nonzero(change)
        bent = change[row, column] / steps[at[row]]
        found = found + csr_array(coo_array((bent, (at[row], column)), shape=(n, n)))
        if found.nnz > MOST_ELEMENTS:
            raise ArithmeticError(f"The curvature has more than {MOST_ELEMENTS} elements.")
    own = np.sqrt(np.abs(found.diagonal()))
    row, column = found.nonzero()
    counts = np.abs(found[row, column]) > LEAST_CORRELATION * own[row] * own[column]
    row, column = np.append(row[counts], np.arange(n)), np.append(column[counts], np.arange(n))
    ones = np.ones(row.size, dtype=np.int8)
    pattern = csr_array(coo_array((ones, (row, column)), shape=(n, n)))
    return csr_array((pattern + pattern.T).astype(bool).astype(np.int8))


def full_rows(pattern: csr_array) -> np.ndarray:
    """Whether coordinates touch so many others that their rows are full, shape (n,)."""
    return np.diff(pattern.indptr) > max(FULL * pattern.shape[0], 8)


def color_columns(pattern: csr_array, order: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Color the columns in an order: those of one color share no row but those of columns apart.

    Columns apart have a color each.
    """
    inner = csr_array(pattern[~apart].astype(np.int32))  # the other rows
    near = csr_array(inner.T @ inner)
    color = np.full(pattern.shape[0], -1)
    for column in order[~apart[order]]:
        taken = color[near.indices[near.indptr[column] : near.indptr[column + 1]]]
        free = np.setdiff1d(np.arange(taken.size + 1), taken)
        color[column] = free[0]
    color[apart] = color.max() + 1 + np.arange(apart.sum())
    return color


def told_by(
    color: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tell for elements the coordinate whose gradient shows them, and the one that is moved.

    A row that was left out of the coloring is told by its own column.
    """
    alone = np.bincount(color)[color] == 1
    turned = ~alone[columns] & alone[rows]
    return np.where(turned, columns, rows), np.where(turned, rows, columns)
