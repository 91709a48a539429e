"""Particles of the annealed pass: where they are, what the density says there, how they spread."""

from typing import NamedTuple

import numpy as np

from pymc_tempering.kernels import Compound
from pymc_tempering.model.compiled import LOG_RATIO
from pymc_tempering.references.mixture import evaluate_rows
from pymc_tempering.references.prior import Reference


class Swarm(NamedTuple):
    """Particles with what the density says about them, written in place.

    Attributes
    ----------
    xs : array, shape (n, d)
        Unconstrained.
    values : array, shape (n, 2)
        `log_reference` and `log_ratio`, in nats.
    grads : array, shape (n, 2, d)
    """

    xs: np.ndarray
    values: np.ndarray
    grads: np.ndarray

    @property
    def log_ratio(self) -> np.ndarray:
        """Log ratio of each particle, shape (n,), a view."""
        return self.values[:, LOG_RATIO]

    def at(self, which: np.ndarray | slice) -> "Swarm":
        """Take some of the particles: copies for an array of indices, views for a slice."""
        return Swarm(self.xs[which], self.values[which], self.grads[which])


class Metric(NamedTuple):
    """Standard deviations (d,), and a covariance (d, d) if some kernel wants it."""

    scale: np.ndarray
    cov: np.ndarray | None


def draw_swarm(
    reference: Reference, n_particles: int, rng: np.random.Generator
) -> tuple[Swarm, np.ndarray]:
    """Draw particles from the reference; also a copy of its packed mixture, to work with."""
    dim = reference.path.dim
    xs = reference.draw(n_particles, reference.spawn(rng))
    swarm = Swarm(xs, np.empty((n_particles, 2)), np.empty((n_particles, 2, dim)))
    mixture = reference.mixture.copy()
    evaluate_rows(reference.path.density, *swarm, mixture)
    lost = ~np.isfinite(xs).all(axis=1) | np.isnan(swarm.log_ratio)
    swarm.values[lost, LOG_RATIO] = -np.inf
    return swarm, mixture


def mean_square_change(before: np.ndarray, after: np.ndarray) -> float:
    """Mean square of finite changes; a particle may come from where the density is zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (after - before) ** 2
    squares = squares[np.isfinite(squares)]
    return float(squares.mean()) if squares.size else 0.0


def metric_of(
    reference: Reference, kernel: Compound, xs: np.ndarray, fallback: np.ndarray
) -> Metric:
    """Metric of particles; `fallback` (d,) replaces standard deviations of what does not vary."""
    scale = _scale(reference.residuals(xs), fallback)
    return Metric(scale, _cov(xs, scale) if kernel.dense else None)


def _scale(xs: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Take standard deviations of particles, shape (d,); `fallback` where they do not vary."""
    with np.errstate(over="ignore", invalid="ignore"):
        scale = xs.std(axis=0)
    return np.where(np.isfinite(scale) & (scale > 0), scale, fallback)


def _cov(xs: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Take the covariance of particles, shape (d, d), shrunk a little toward its diagonal."""
    with np.errstate(over="ignore", invalid="ignore"):
        cov = np.cov(xs, rowvar=False).reshape(scale.size, scale.size)
    shrink = min(1.0, (scale.size + 1) / len(xs))
    cov = (1 - shrink) * cov + shrink * np.diag(scale**2)
    return cov if np.isfinite(cov).all() else np.diag(scale**2)
