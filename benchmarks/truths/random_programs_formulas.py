"""Densities that SciPy does not have, by their definitions."""

from collections.abc import Callable

import numpy as np
from scipy import special, stats

type Array = np.ndarray

X_POINTS = (-1.0, -0.5, 0.0, 0.6, 1.4, 2.0, 3.0)
PDF_POINTS = (0.0, 0.5, 1.2, 0.4, 0.9, 0.3, 0.1)
"""Of `Interpolated`: straight lines between these, divided by their area."""


def half_student_t(x: Array, nu: Array, sigma: Array) -> Array:
    return np.log(2.0) + stats.t.logpdf(x, nu, 0.0, sigma)


def kumaraswamy(x: Array, a: Array, b: Array) -> Array:
    rest = np.log(-np.expm1(a * np.log(x)))
    return np.log(a) + np.log(b) + (a - 1) * np.log(x) + (b - 1) * rest


def logit_normal(x: Array, mu: Array, sigma: Array) -> Array:
    return stats.norm.logpdf(special.logit(x), mu, sigma) - np.log(x) - np.log1p(-x)


def laplace(x: Array, mu: Array, b: Array) -> Array:
    return -np.abs(x - mu) / b - np.log(2 * b)


def log_normal(x: Array, mu: Array, sigma: Array) -> Array:
    return stats.norm.logpdf(np.log(x), mu, sigma) - np.log(x)


def interpolated(x: Array) -> Array:
    area = np.trapezoid(PDF_POINTS, X_POINTS)
    with np.errstate(divide="ignore"):
        return np.log(np.interp(x, X_POINTS, PDF_POINTS, 0.0, 0.0) / area)


def discrete_weibull(x: Array, q: Array, beta: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(q ** (np.maximum(x, 0.0) ** beta) - q ** ((x + 1.0) ** beta))
    return np.where(x < 0, -np.inf, found)


def categorical(x: Array, p: Array) -> Array:
    """Log p[x]; the last axis of p is that of the categories."""
    x = np.asarray(x, int)
    inside = (x >= 0) & (x < p.shape[-1])
    shape = np.broadcast_shapes(x.shape, p.shape[:-1])
    each = np.broadcast_to(p, (*shape, p.shape[-1]))
    at = np.broadcast_to(np.clip(x, 0, p.shape[-1] - 1), shape)
    with np.errstate(divide="ignore"):
        found = np.log(np.take_along_axis(each, at[..., None], -1)[..., 0])
    return np.where(inside, found, -np.inf)


def of_cuts(below: Callable[[Array], Array], eta: Array, cutpoints: Array) -> Array:
    """Probabilities of the categories, on the last axis."""
    cdf = below(cutpoints - np.asarray(eta)[..., None])
    ends = np.zeros((*cdf.shape[:-1], 1))
    return np.diff(np.concatenate([ends, cdf, ends + 1], axis=-1), axis=-1)


def ordered_logistic(x: Array, eta: Array, cutpoints: Array) -> Array:
    return categorical(x, of_cuts(special.expit, eta, cutpoints))


def ordered_probit(x: Array, eta: Array, cutpoints: Array) -> Array:
    return categorical(x, of_cuts(special.ndtr, eta, cutpoints))


def point(x: Array, c: Array) -> Array:
    return np.where(x == c, 0.0, -np.inf)


def zero_inflated(make: Callable) -> Callable[..., Array]:
    """Zero with 1 - psi, else a draw of what `make` gives of the other arguments."""

    def log_density(x: Array, psi: Array, **args: Array) -> Array:
        inner = np.log(psi) + make(**args).logpmf(x)
        return np.where(x == 0, np.logaddexp(np.log1p(-psi), inner), inner)

    return log_density


def hurdle(make: Callable) -> Callable[..., Array]:
    """Zero with 1 - psi, else a draw that is not zero."""

    def log_density(x: Array, psi: Array, **args: Array) -> Array:
        frozen = make(**args)
        inner = np.log(psi) + frozen.logpmf(x) - np.log(-np.expm1(frozen.logpmf(0)))
        return np.where(x == 0, np.log1p(-psi) + 0 * inner, inner)

    return log_density


def hurdle_of_positive(make: Callable) -> Callable[..., Array]:
    """Zero with 1 - psi, else a positive draw."""

    def log_density(x: Array, psi: Array, **args: Array) -> Array:
        inner = np.log(psi) + make(**args).logpdf(np.where(x == 0, 1.0, x))
        return np.where(x == 0, np.log1p(-psi) + 0 * inner, inner)

    return log_density


def interpolated_draws(size: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draws of one of the pieces, by rejection below its greatest density."""
    x, top = np.empty(0), max(PDF_POINTS)
    while len(x) < np.prod(size):
        new = rng.uniform(X_POINTS[0], X_POINTS[-1], np.prod(size))
        x = np.r_[x, new[rng.random(len(new)) * top < np.interp(new, X_POINTS, PDF_POINTS)]]
    return x[: np.prod(size)].reshape(size)


DRAWS = {
    "HalfStudentT": lambda a, size, rng: a["sigma"] * np.abs(rng.standard_t(a["nu"], size)),
    "Kumaraswamy": lambda a, size, rng: (
        -np.expm1(np.log(rng.random(size)) / a["b"])) ** (1 / a["a"]),
    "LogitNormal": lambda a, size, rng: special.expit(rng.normal(a["mu"], a["sigma"], size)),
    "Interpolated": lambda a, size, rng: interpolated_draws(size, rng),
    "CustomDist": lambda a, size, rng: rng.laplace(a["mu"], a["b"], size),
    "DensityDist": lambda a, size, rng: rng.laplace(a["mu"], a["b"], size),
    "CustomDist by dist": lambda a, size, rng: rng.lognormal(a["mu"], a["sigma"], size),
}  # fmt: skip
"""By the names of the distributions, of arguments, a size, and a generator."""
