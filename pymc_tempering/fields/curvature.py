"""The curvature of a density along many coordinates, from few gradients.

Two columns of a sparse matrix that share no row are had from one difference of gradients. A column
that touches nearly all rows is had alone, and its row with it, since the matrix is symmetric.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from pymc_tempering.fields.arrow import Arrow, Root, arrange, full_rows

FIRST_STEP = 1e-4
"""Step along a coordinate of a density of unknown scale."""

LEAST_CORRELATION = 1e-6
"""Elements of a curvature of a smaller size than this, relative to those of the diagonal, do not
count."""

MOST_ELEMENTS = 5_000_000
"""Nonzero elements of a curvature at most: all of them in some two thousand dimensions."""

FIRST_DAMPING, MORE_DAMPING, MAX_DAMPING = 1e-3, 10.0, 1e9
"""What is added to a precision that is not positive, in shares of its typical diagonal: at first,
how many times more at each further try, and at most."""

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


@dataclass(frozen=True, eq=False)
class Curvature:
    """How the curvature of a density is had from its gradients, and factored.

    Attributes
    ----------
    arrow : Arrow
    moves : array, shape (k, n)
        Steps of x at which gradients are taken.
    steps : array, shape (n,)
    band, cross, corner : tuple of array of int
        Of each nonzero element of B, C and D: its two places there; the row of `moves` that tells
        it, the coordinate whose gradient does, and the one that was moved.
    """

    arrow: Arrow
    moves: np.ndarray
    steps: np.ndarray
    band: np.ndarray
    cross: np.ndarray
    corner: np.ndarray

    @classmethod
    def of(cls, pattern: csr_array, parts: Sequence[np.ndarray], steps: np.ndarray) -> "Curvature":
        """Choose an order, and the moves that tell all elements."""
        arrow = arrange(pattern, parts)
        color = _fewest_colors(pattern, arrow)
        n, m = len(steps), arrow.n_band
        moves = np.zeros((color.max() + 1, n))
        moves[color, np.arange(n)] = steps
        alone = np.bincount(color)[color] == 1
        place = np.empty(n, dtype=int)
        place[arrow.order] = np.arange(n)
        rows, columns = pattern.nonzero()
        low = place[rows] >= place[columns]
        rows, columns = rows[low], columns[low]
        i, j = place[rows], place[columns]
        # A row that was left out of the coloring is told by its own column.
        told = ~alone[columns] & alone[rows]
        rows, columns = np.where(told, columns, rows), np.where(told, rows, columns)
        known = np.stack([color[columns], rows, columns])
        inner, outer = i < m, j >= m
        mixed = ~inner & ~outer
        return cls(
            arrow, moves, steps,
            np.stack([(i - j)[inner], j[inner], *known[:, inner]]),
            np.stack([i[mixed] - m, j[mixed], *known[:, mixed]]),
            np.stack([i[outer] - m, j[outer] - m, *known[:, outer]]),
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Elements that may not be zero."""
        return int(self.band.shape[1] + self.cross.shape[1] + self.corner.shape[1])

    def with_steps(self, steps: np.ndarray) -> "Curvature":
        """Curvature from other steps."""
        moves = np.where(self.moves != 0.0, steps, 0.0)
        return Curvature(self.arrow, moves, steps, self.band, self.cross, self.corner)

    def root_at(self, slopes: Slopes, x: np.ndarray, slope: np.ndarray) -> Root:
        """Factor of the precision at a state, or of a positive one near it.

        Raises
        ------
        numpy.linalg.LinAlgError
            There is none.
        """
        differences = slope - slopes(x + self.moves)
        m, n = self.arrow.n_band, len(x)
        shapes = (self.arrow.width + 1, m), (n - m, m), (n - m, n - m)
        parts = []
        for shape, (i, j, *known) in zip(shapes, (self.band, self.cross, self.corner), strict=True):
            part = np.zeros(shape, order="F")
            part[i, j] = differences[known[0], known[1]] / self.steps[known[2]]
            parts.append(part)
        band, cross, corner = parts
        damping = 0.0
        while True:
            try:
                return Root.of(self.arrow, band.copy(order="F"), cross, corner)
            except np.linalg.LinAlgError:
                scale = float(np.median(np.abs(np.append(band[0], np.diag(corner)))))
                if not (scale > 0.0 and damping < MAX_DAMPING):
                    raise
            more = (MORE_DAMPING - 1.0) * damping if damping else FIRST_DAMPING
            damping += more
            band[0] += more * scale
            corner[np.diag_indices_from(corner)] += more * scale


def _fewest_colors(pattern: csr_array, arrow: Arrow) -> np.ndarray:
    """Color the columns: with those of the border apart, where that takes fewer colors."""
    full = full_rows(pattern)
    border = np.isin(np.arange(full.size), arrow.order[arrow.n_band :])
    tried = [_colors(pattern, arrow.order, apart) for apart in (full, full | border)]
    return min(tried, key=np.max)


def _colors(pattern: csr_array, order: np.ndarray, apart: np.ndarray) -> np.ndarray:
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
