"""Gradients of the target in all variables: whether there are any, and what they are."""

from collections.abc import Callable

import numpy as np

from pymc_tempering.model.compiled import NO_MIXTURE
from pymc_tempering.model.path import Path
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.sampling.setup import Job


def can_climb(job: Job) -> bool:
    """Whether the density has gradients in all variables."""
    path, pairs = job.prior.path, zip(job.kernel.kernels, job.kernel.blocks, strict=True)
    moved = sum(block.size for each, block in pairs if each.uses_gradient)
    return path.has_gradient and moved == path.dim


def target_scores(job: Job) -> Callable[[np.ndarray], np.ndarray] | None:
    """Gradients of the log target at states, both of shape (n, d); None where there are none.

    They are NaN where the target or its gradient is not finite.
    """
    if not can_climb(job):
        return None
    path = job.prior.path

    def scores(xs: np.ndarray) -> np.ndarray:
        values, slopes = slopes_at(path, xs, np.ones(path.dim))
        slopes[~np.isfinite(values).all(axis=1)] = np.nan
        return slopes

    return scores


def slopes_at(path: Path, xs: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate the target at states (n, d); where it is not finite, it is minus infinity.

    Returns
    -------
    values : array, shape (n, 2)
        Log prior and log likelihood.
    slopes : array, shape (n, d)
        Gradient of their sum, in units of `scale`; 0 where not finite.
    """
    xs = np.ascontiguousarray(xs)
    values, grads = np.empty((len(xs), 2)), np.empty((len(xs), 2, path.dim))
    evaluate_rows(path.density, xs, values, grads, NO_MIXTURE)
    slopes = grads.sum(axis=1) * scale
    bad = ~(np.isfinite(values).all(axis=1) & np.isfinite(slopes).all(axis=1))
    values[bad], slopes[bad] = -np.inf, 0.0
    return values, slopes
