"""Coordinates in which a field has neighbors: running sums of what a walk is made of.

A walk is often written by its steps, `x = cumsum(sigma * z)`. All values after a step depend on it,
so that the curvature along z is dense. Along v = cumsum(z) it is that of a walk: each value depends
on its neighbors. The map has a determinant of one, whatever else the model is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sum:
    """A part of a field of which running sums are taken.

    Attributes
    ----------
    part : slice
        Where it lies in the field.
    shape : tuple of int
    axis : int
        Along which it is summed.
    """

    part: slice
    shape: tuple[int, ...]
    axis: int

    def grid(self, xs: np.ndarray) -> np.ndarray:
        """View of the part in arrays (..., n), with the axis last."""
        shape = *xs.shape[:-1], *self.shape
        return xs[..., self.part].reshape(shape).swapaxes(self.axis - len(self.shape), -1)


def summed(sums: Sequence[Sum], xs: np.ndarray) -> np.ndarray:
    """Coordinates, shape (..., n), of values of a field, shape (..., n)."""
    vs = xs.copy()
    for each in sums:
        grid = each.grid(vs)
        np.cumsum(grid, axis=-1, out=grid)
    return vs


def differenced(sums: Sequence[Sum], vs: np.ndarray) -> np.ndarray:
    """Values of a field, shape (..., n), of its coordinates, shape (..., n)."""
    xs = vs.copy()
    for each in reversed(sums):
        grid = each.grid(xs)
        grid[..., 1:] -= grid[..., :-1]
    return xs


def along_sums(sums: Sequence[Sum], slopes: np.ndarray) -> np.ndarray:
    """Gradients along coordinates, shape (..., n), of those along values, shape (..., n)."""
    found = slopes.copy()
    for each in sums:
        grid = each.grid(found)
        grid[..., :-1] -= grid[..., 1:]
    return found
