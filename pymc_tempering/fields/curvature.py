"""The curvature of a density along many coordinates, from few gradients, and its factor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from pymc_tempering.core.sparse_curvature import Slopes, color_columns, full_rows, told_by
from pymc_tempering.fields.arrow import Arrow, Root, arrange

FIRST_STEP = 1e-4
"""Step along a coordinate of a density of unknown scale."""

FIRST_DAMPING, MORE_DAMPING, MAX_DAMPING = 1e-3, 10.0, 1e9
"""What is added to a precision that is not positive, in shares of its typical diagonal: at first,
how many times more at each further try, and at most."""


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
        place = np.empty(n, dtype=int)
        place[arrow.order] = np.arange(n)
        rows, columns = pattern.nonzero()
        low = place[rows] >= place[columns]
        rows, columns = rows[low], columns[low]
        i, j = place[rows], place[columns]
        rows, columns = told_by(color, rows, columns)
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
    tried = [color_columns(pattern, arrow.order, apart) for apart in (full, full | border)]
    return min(tried, key=np.max)
