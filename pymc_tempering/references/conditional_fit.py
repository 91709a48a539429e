"""Likelihood parts of warped coordinates: v, kappa and B by maximum likelihood, many at a time."""

from typing import NamedTuple

import numpy as np

MAX_STEPS, TOLERANCE = 30, 0.02
"""Steps of Fisher scoring at most, and the gain of log likelihood that ends it (nats)."""

RIDGE = 0.01
"""Pull of log v and log kappa to their starting values."""

MAX_SHIFT = 25.0
"""Largest distance of log v and log kappa from their starting values."""

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


class _Value(NamedTuple):
    likelihood: np.ndarray
    gradient: np.ndarray
    information: np.ndarray


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
        near = np.clip(start, center - MAX_SHIFT, center + MAX_SHIFT)
        return _scoring(known, center, near)
    n, rows = len(STARTS), np.arange(len(center))
    every = Conditionals(*(np.concatenate([each] * n) for each in known))
    shifted = np.concatenate([center + shift for shift in STARTS])
    parameters, flat = _scoring(every, np.concatenate([center] * n), shifted)
    likelihoods = flat.reshape(n, -1)
    best = likelihoods.argmax(axis=0)
    return parameters.reshape(n, len(center), -1)[best, rows], likelihoods[best, rows]


def _scoring(
    known: Conditionals, center: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fisher scoring with damping; return parameters and log likelihoods."""
    width, size = known.design.shape[2], len(known.x)
    parameters = np.column_stack([start, np.zeros((size, width))])
    value = _evaluate(known, parameters, center)
    linear = np.zeros(2 + width)
    linear[:2] = 1e12  # log v and log kappa stay in the first step, in which the rest is linear
    parameters = parameters + _step(value, linear)
    value = _evaluate(known, parameters, center)
    damping = np.full(size, 1e-3)
    for _ in range(MAX_STEPS):
        trial = parameters + _step(value, damping[:, None])
        trial[:, :2] = np.clip(trial[:, :2], center - MAX_SHIFT, center + MAX_SHIFT)
        new = _evaluate(known, trial, center)
        better = new.likelihood > value.likelihood
        gain = np.where(better, new.likelihood, 0.0) - np.where(better, value.likelihood, 0.0)
        parameters = np.where(better[:, None], trial, parameters)
        value = _Value(
            *(
                np.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
                for a, b in zip(new, value, strict=True)
            )
        )
        damping = np.where(better, np.maximum(0.2 * damping, 1e-6), 8.0 * damping)
        if ((better & (gain < TOLERANCE)) | (damping > 1e4)).all():
            break
    return parameters, value.likelihood


def _step(value: _Value, damping: np.ndarray) -> np.ndarray:
    """Damped step of scoring; parameters that nothing depends on stay."""
    size = np.sqrt(np.maximum(np.diagonal(value.information, axis1=1, axis2=2), 1e-30))
    scaled = value.information / size[:, :, None] / size[:, None, :]
    scaled += np.eye(size.shape[1]) * (damping + 1e-9)[..., None]
    step = np.linalg.solve(scaled, (value.gradient / size)[:, :, None])[:, :, 0] / size
    step[:, :2] = np.clip(step[:, :2], -4.0, 4.0)
    return step


def _evaluate(known: Conditionals, parameters: np.ndarray, center: np.ndarray) -> _Value:
    """Log likelihood less the ridge, its gradient and the expected information."""
    v, kappa = np.exp(parameters[:, :1]), np.exp(parameters[:, 1:2])
    falls = known.falls[:, None]
    squared = np.exp(2.0 * known.s)
    variance = v + kappa * squared
    likelihood = squared**falls / variance
    precision = known.prior + likelihood
    root, w = np.sqrt(precision), likelihood / precision
    decay = np.exp(-falls * known.s)
    b = decay * np.einsum("wnp,wp->wn", known.design, parameters[:, 2:])
    r = (known.x - (1.0 - w) * known.a - w * b) * root
    off = parameters[:, :2] - center
    total = 0.5 * np.log(precision).sum(axis=1) - 0.5 * (r**2).sum(axis=1)
    total -= RIDGE * (off**2).sum(axis=1)

    share = v / variance  # of v in the variance
    shift, log_sd = -w * (1.0 - w) * (b - known.a) * root, 0.5 * w  # by log V
    shifts = np.empty((*r.shape, parameters.shape[1]))
    shifts[:, :, 0], shifts[:, :, 1] = shift * share, shift * (1.0 - share)
    shifts[:, :, 2:] = (w * decay * root)[:, :, None] * known.design
    log_sds = np.stack([log_sd * share, log_sd * (1.0 - share)], axis=2)
    gradient = (r[:, None, :] @ shifts)[:, 0]
    gradient[:, :2] += ((r**2 - 1.0)[:, None, :] @ log_sds)[:, 0] - 2.0 * RIDGE * off
    information = shifts.transpose(0, 2, 1) @ shifts
    information[:, :2, :2] += 2.0 * log_sds.transpose(0, 2, 1) @ log_sds
    information[:, [0, 1], [0, 1]] += 2.0 * RIDGE
    sound = np.isfinite(total) & np.isfinite(gradient).all(axis=1)
    sound &= np.isfinite(information).all(axis=(1, 2))
    if not sound.all():  # beyond the range of numbers
        total = np.where(sound, total, -np.inf)
        gradient = np.where(sound[:, None], gradient, 0.0)
        information = np.where(sound[:, None, None], information, 0.0)
    return _Value(total, gradient, information)
