"""Cholesky factors of sparse precisions: a band of neighbors, and a border that touches all.

In the order of an `Arrow` a precision is `[[B, C'], [C, D]]`, where B has a narrow band and D is
small. A random walk is all band, a dense field all border, and of two crossed effects one is a
band and the other the border. The factor is `L = [[L1, 0], [W, L2]]`, with `L1 L1' = B`,
`W = C L1^-T` and `L2 L2' = D - W W'`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky
from scipy.linalg.blas import dtbmv, dtbsv, dtrsv
from scipy.linalg.lapack import dpbtrf, dtbtrs
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from pymc_tempering.core.sparse_curvature import full_rows


@dataclass(frozen=True, eq=False)
class Arrow:
    """An order of coordinates in which a precision is a band with a border.

    Attributes
    ----------
    order : array of int, shape (n,)
        Coordinates: those of the band first.
    n_band, width : int
        How many of them are in the band, and how many neighbors on one side each has.
    """

    order: np.ndarray
    n_band: int
    width: int

    @property
    def cost(self) -> float:
        """Operations that a factor takes, roughly."""
        n, b, m = float(self.n_band), self.width + 1.0, float(len(self.order) - self.n_band)
        return n * b**2 + 2.0 * n * b * m + n * m**2 + m**3 / 3.0

    @property
    def numbers(self) -> int:
        """Numbers of a factor, and of a vector."""
        m = len(self.order) - self.n_band
        return (self.width + 2) * self.n_band + m * (self.n_band + m + 1)


def arrange(pattern: csr_array, parts: Sequence[np.ndarray]) -> Arrow:
    """Find an order with a cheap factor.

    Parameters
    ----------
    pattern : csr_array, shape (n, n)
        Symmetric, not zero where a precision is not.
    parts : sequence of array of int
        Coordinates that enter the border together, one part after the other as long as it gains;
        those that touch most others are there from the beginning.
    """
    inside, every = ~full_rows(pattern), np.arange(pattern.shape[0])
    best = _order(pattern, inside)
    left = list(parts)
    while left:
        tried = [_order(pattern, inside & ~np.isin(every, part)) for part in left]
        least = min(range(len(left)), key=lambda i: tried[i].cost)
        if tried[least].cost >= best.cost:
            break
        best = tried[least]
        inside[left.pop(least)] = False
    return best


def _order(pattern: csr_array, inside: np.ndarray) -> Arrow:
    """Order with a band of the coordinates inside and a border of the others."""
    band, border = np.flatnonzero(inside), np.flatnonzero(~inside)
    inner = csr_array(pattern[band][:, band])
    band = band[reverse_cuthill_mckee(inner, symmetric_mode=True)] if band.size else band
    rows, columns = csr_array(pattern[band][:, band]).nonzero()
    return Arrow(np.append(band, border), band.size, int(np.abs(rows - columns).max(initial=0)))


@dataclass(frozen=True, eq=False)
class Root:
    """The lower factor L of a precision, in the order of an arrow.

    Attributes
    ----------
    arrow : Arrow
    band : array, shape (width + 1, n_band)
        L1, in LAPACK's form of lower bands.
    cross : array, shape (m, n_band)
        W.
    corner : array, shape (m, m)
        L2.
    """

    arrow: Arrow
    band: np.ndarray
    cross: np.ndarray
    corner: np.ndarray

    @classmethod
    def of(cls, arrow: Arrow, band: np.ndarray, cross: np.ndarray, corner: np.ndarray) -> "Root":
        """Factor of B, C and D.

        Raises
        ------
        numpy.linalg.LinAlgError
            The precision is not positive.
        """
        if arrow.n_band:
            band, failed = dpbtrf(band, lower=1)
            if len(corner) and not failed:
                solved, failed = dtbtrs(band, cross.T, uplo="L")
                cross = solved.T
                corner = corner - cross @ cross.T
            if failed:
                raise np.linalg.LinAlgError("The band is not positive.")
        if len(corner):
            corner = cholesky(corner, lower=True, check_finite=False)
        return cls(arrow, band, cross, corner)

    @property
    def log_det(self) -> float:
        """Log determinant of L, which is half that of the precision."""
        return float(np.log(self.band[0]).sum() + np.log(np.diag(self.corner)).sum())

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviation of each coordinate given all others, shape (n,)."""
        n = self.arrow.n_band
        first = np.zeros(n)
        for k in range(min(len(self.band), n)):
            first[k:] += self.band[k, : n - k] ** 2
        second = (self.cross**2).sum(axis=1) + (self.corner**2).sum(axis=1)
        return 1.0 / np.sqrt(self._placed(first, second))

    def whiten_slope(self, slope: np.ndarray) -> np.ndarray:
        """Return `L^-1 g`, shape (n,): the gradient along u of what has g along x."""
        first, second = self._parts(slope[self.arrow.order])
        if first.size:
            first = dtbsv(self.arrow.width, self.band, first, lower=1)
        if second.size:
            second = dtrsv(self.corner, second - self.cross @ first, lower=1)
        return np.concatenate([first, second])

    def color(self, u: np.ndarray) -> np.ndarray:
        """Return `x = L^-T u`, shape (n,), which has the precision L L' where u is white."""
        first, second = self._parts(u)
        if second.size:
            second = dtrsv(self.corner, second, lower=1, trans=1)
            first = first - second @ self.cross
        if first.size:
            first = dtbsv(self.arrow.width, self.band, first, lower=1, trans=1)
        return self._placed(first, second)

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Return `u = L' x`, shape (n,), the inverse of `color`."""
        first, second = self._parts(x[self.arrow.order])
        if first.size:
            first = dtbmv(self.arrow.width, self.band, first, lower=1, trans=1)
            first = first + second @ self.cross
        return np.concatenate([first, second @ self.corner])

    def solve(self, slope: np.ndarray) -> np.ndarray:
        """Return the product of the inverse precision and a vector, shape (n,)."""
        return self.color(self.whiten_slope(slope))

    def _parts(self, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return ordered[: self.arrow.n_band], ordered[self.arrow.n_band :]

    def _placed(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Put ordered coordinates where they were."""
        x = np.empty(len(self.arrow.order))
        x[self.arrow.order] = np.concatenate([first, second])
        return x
