"""Metrics of kernels from particles: standard deviations, and covariances for dense kernels."""

import numpy as np

from pymc_tempering.chain.particles import Particles
from pymc_tempering.kernels import Compound
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.references.prior import Reference
from pymc_tempering.references.score_covariance import geometric_mean

MIN_STATES = 2.0
"""Distinct particles for each dimension that a covariance by gradients needs."""


def metric_of(
    reference: Reference, particles: Particles, beta: float, fallback: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Take standard deviations of particles, and their covariance if a kernel wants it.

    A kernel without gradients gets the covariance of the particles. One with gradients gets that
    of the reference's modes, where it is fitted and not warped. Else it is the geometric mean G of
    the covariance of the particles and the inverse covariance of the gradients: for a normal
    density it is exact, and in general it minimizes the Fisher divergence (Seyboldt, Carlson &
    Carpenter 2026).
    """
    kernel, xs = particles.kernel, particles.xs
    inside = np.isfinite(xs).all(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = reference.residuals(xs[inside])
        scale = residuals.std(axis=0)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, fallback)
    if not kernel.dense:
        return scale, None
    cov = np.diag(scale**2)
    for each, block, dense in zip(kernel.kernels, kernel.blocks, kernel.dense_blocks, strict=True):
        at = block.indices
        if not dense:
            continue
        if each.uses_gradient:
            known = reference.covariance
            part = (
                _by_gradients(residuals[:, at], particles.grads[inside][:, :, at], beta)
                if known is None
                else known[np.ix_(at, at)]
            )
        else:
            part = _of_particles(xs[inside][:, at], scale[at])
        if part is not None:
            cov[np.ix_(at, at)] = part
    return scale, cov


def _by_gradients(xs: np.ndarray, grads: np.ndarray, beta: float) -> np.ndarray | None:
    """Geometric mean by states (n, b) and gradients (n, 2, b); None where it is not known."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = grads[:, LOG_REFERENCE] + beta * grads[:, LOG_RATIO]
        sound = np.isfinite(scores).all(axis=1)
        if len(np.unique(xs[sound], axis=0)) < MIN_STATES * xs.shape[1] + 10:
            return None
        of_states, of_scores = (
            np.cov(each[sound], rowvar=False).reshape(2 * xs.shape[1:]) for each in (xs, scores)
        )
    try:
        covariance = geometric_mean(of_states, of_scores)
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    return covariance if np.isfinite(covariance).all() else None


def _of_particles(xs: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Take the covariance of particles, shape (b, b), shrunk a little toward its diagonal."""
    with np.errstate(over="ignore", invalid="ignore"):
        cov = np.cov(xs, rowvar=False).reshape(scale.size, scale.size)
    shrink = min(1.0, (scale.size + 1) / len(xs))
    cov = (1 - shrink) * cov + shrink * np.diag(scale**2)
    return cov if np.isfinite(cov).all() else np.diag(scale**2)


CORRELATED = 10.0
"""Ratio of the largest to the least eigenvalue of a correlation matrix for which a dense metric
pays, in many dimensions."""

MAX_DENSE = 200
"""Most coordinates that get a dense metric by default."""


def kernel_for(reference: Reference, kernel: Compound) -> Compound:
    """Return the kernel for a path: with a dense metric, where the reference shows correlation."""
    known = reference.covariance
    if known is None or len(known) > MAX_DENSE:
        return kernel
    spread = np.sqrt(np.diag(known))
    values = np.linalg.eigvalsh(known / np.outer(spread, spread))
    return kernel.densified() if values[-1] > CORRELATED * max(values[0], 0.0) else kernel
