"""Whether a prior's density is normalized: it is compared with a law near it that is.

With draws of p and of a normalized law q the means of q / (p + q) and of p / (p + q) are equal, in
any number of dimensions. If the density is c times p, the second is c times the first. Both lie
between 0 and 1, so no tail can spoil them; where p and q hardly overlap both are near zero, and
the test has no power.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pymc_tempering.model.path import Path

PER_DIMENSION = 4
"""Draws for each real coordinate from which correlations are fitted."""


@dataclass(frozen=True)
class NearLaw:
    """A law of some coordinates: normal if real, whole numbers as often as seen, even angles.

    Attributes
    ----------
    real, whole, angles : array of int
        Raveled indices.
    center, factor : array
        Mean and Cholesky factor of the covariance of the real coordinates.
    tables : list of (values, frequencies)
        For each coordinate in `whole`.
    """

    real: np.ndarray
    whole: np.ndarray
    angles: np.ndarray
    center: np.ndarray
    factor: np.ndarray
    tables: list[tuple[np.ndarray, np.ndarray]]

    def redraw(self, xs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return states, shape (n, d), with these coordinates drawn anew."""
        n, out = len(xs), xs.copy()
        out[:, self.real] = self.center + rng.normal(size=(n, self.real.size)) @ self.factor.T
        out[:, self.angles] = rng.uniform(-np.pi, np.pi, (n, self.angles.size))
        for i, (values, shares) in zip(self.whole, self.tables, strict=True):
            out[:, i] = rng.choice(values, n, p=shares)
        return out

    def log_density(self, xs: np.ndarray) -> np.ndarray:
        """Log density at states, shape (n,)."""
        white = np.linalg.solve(self.factor, (xs[:, self.real] - self.center).T)
        log_q = -0.5 * (white**2).sum(axis=0) - np.log(np.diag(self.factor)).sum()
        log_q -= 0.5 * self.real.size * np.log(2 * np.pi) + self.angles.size * np.log(2 * np.pi)
        for i, (values, shares) in zip(self.whole, self.tables, strict=True):
            at = np.minimum(np.searchsorted(values, xs[:, i]), len(values) - 1)
            with np.errstate(divide="ignore"):
                log_q += np.log(np.where(values[at] == xs[:, i], shares[at], 0.0))
        return log_q


def near_law(path: Path, xs: np.ndarray, part: slice = slice(None)) -> NearLaw:
    """Fit such a law of a part of the coordinates to draws, shape (n, d), whatever their tails."""
    own = np.arange(path.dim)[part]
    angles = np.intersect1d(own, path.circular)
    whole = own[path.layout.whole_numbers[own]]
    real = np.setdiff1d(own, np.union1d(whole, angles))
    low, center, high = np.quantile(xs[:, real], (0.16, 0.5, 0.84), axis=0)
    spread = np.where(high > low, (high - low) / 2, 1.0)
    standard = np.clip((xs[:, real] - center) / spread, -3.0, 3.0)
    correlations = np.eye(real.size)
    if 1 < real.size * PER_DIMENSION <= len(xs):
        found = standard.T @ standard / len(xs) + 1e-9 * np.eye(real.size)
        scale = np.sqrt(np.diag(found))
        shrink = real.size / len(xs)
        correlations = (1 - shrink) * found / np.outer(scale, scale) + shrink * correlations
    factor = spread[:, None] * np.linalg.cholesky(correlations)
    tables = []
    for i in whole:
        values, counts = np.unique(xs[:, i], return_counts=True)
        tables.append((values, counts / len(xs)))
    return NearLaw(real, whole, angles, center, factor, tables)


def missed_constant(
    path: Path,
    draws: np.ndarray,
    log_p: np.ndarray,
    log_density: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
    part: slice = slice(None),
) -> tuple[float, float]:
    """Log of the factor by which a density misses its constant, and by how many errors.

    Parameters
    ----------
    path : Path
    draws : array, shape (n, d)
        Of the prior. Half of them fit q.
    log_p : array, shape (n,)
        What the density says there.
    log_density : callable
        What it says at other states, shape (n, d).
    rng : numpy.random.Generator
    part : slice, optional
        Coordinates that it is a density of, given the others.
    """
    half = len(draws) // 2
    law, theirs = near_law(path, draws[:half], part), draws[half:]
    own = law.redraw(theirs, rng)
    of_q = expit(np.nan_to_num(law.log_density(theirs) - log_p[half:]))
    of_p = expit(-np.nan_to_num(law.log_density(own) - log_density(own), nan=np.inf))
    a, b = float(of_q.mean()), float(of_p.mean())
    both = (a + b) / 2
    if both == 0:
        return 0.0, 0.0
    error = np.sqrt(2 * both * (1 - both) / len(own))  # no values in [0, 1] vary more
    with np.errstate(divide="ignore"):
        return float(np.log(b) - np.log(a)), float(abs(b - a) / error)
