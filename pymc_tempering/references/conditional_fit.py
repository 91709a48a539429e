"""Likelihood parts of warped coordinates: v, kappa and B by maximum likelihood, many at a time."""

from typing import NamedTuple

import numpy as np

from pymc_tempering.references.conditional_scoring import MAX_SHIFT, score_all

STARTS = ((0.0, 0.0), (-2.0, 5.0))
"""Shifts of log v and log kappa that scoring starts from."""

CHUNK = 100
"""Coordinates at a time."""


class Conditionals(NamedTuple):
    """What is known of W coordinates at n draws; see `pymc_tempering.references.warp`.

    Attributes
    ----------
    x, s : array, shape (W, n)
    prior, a : array, shape (W, n)
        Precision and mean of the prior parts.
    design : array, shape (W, n, 1 + R)
        Ones and regressors of B.
    falls : array, shape (W,)
    """

    x: np.ndarray
    s: np.ndarray
    prior: np.ndarray
    a: np.ndarray
    design: np.ndarray
    falls: np.ndarray


def fit_conditionals(
    known: Conditionals, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit log v, log kappa and the coefficients of B of each coordinate.

    Parameters
    ----------
    start : array, shape (W, 2), optional
        log v and log kappa of an earlier fit; NaN where there is none.

    Returns
    -------
    parameters : array, shape (W, 3 + R)
    likelihood, plain : array, shape (W,)
        Log likelihoods of this fit, and of a linear regression on the regressors and s, which has
        one variance (nats).
    """
    found = []
    for first in range(0, len(known.x), CHUNK):
        part = slice(first, first + CHUNK)
        some = Conditionals(*(each[part] for each in known))
        parameters, likelihood = _best(some, None if start is None else start[part])
        found.append((parameters, likelihood, _plain_likelihood(some)))
    parameters, likelihood, plain = (np.concatenate(each) for each in zip(*found, strict=True))
    return parameters, likelihood, plain


def _residual_variance(design: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Variance of x, shape (W, n), around its regression on a design, shape (W, n, p)."""
    size = np.sqrt((design**2).sum(axis=1, keepdims=True))
    scaled = design / np.where(size > 0, size, 1.0)
    turned = scaled.transpose(0, 2, 1)
    gram = np.linalg.pinv(turned @ scaled, rcond=1e-12, hermitian=True)
    fitted = scaled @ (gram @ (turned @ x[:, :, None]))
    variance: np.ndarray = np.maximum(((x - fitted[:, :, 0]) ** 2).mean(axis=1), 1e-300)
    return variance


def _plain_likelihood(known: Conditionals) -> np.ndarray:
    design = np.concatenate([known.design, known.s[:, :, None]], axis=2)
    variance = _residual_variance(design, known.x)
    likelihood: np.ndarray = -0.5 * known.x.shape[1] * (1 + np.log(variance))
    return likelihood


def _best(known: Conditionals, start: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of the likeliest of the fits from all starts, and their log likelihoods."""
    middle = np.median(known.s, axis=1)
    log_v = np.log(_residual_variance(known.design, known.x)) + 2.0 * known.falls * middle
    center = np.column_stack([log_v, log_v - 6.0 - 2.0 * middle])
    if start is not None and np.isfinite(start).all():
        starts = np.clip(start, center - MAX_SHIFT, center + MAX_SHIFT)[:, None]
    else:
        starts = center[:, None] + np.array(STARTS)
    rows = np.stack([known.x, known.s, known.prior, known.a], axis=1)
    parameters = np.empty((len(center), 2 + known.design.shape[2]))
    likelihoods = np.empty((len(center), 1))
    score_all(rows, known.falls, known.design, center, starts, parameters, likelihoods)
    return parameters, likelihoods[:, 0]
