"""Exact log evidences of the models of fields_models.py, each with an error.

A field under normal noise is integrated out by a Kalman filter or a Cholesky factor, a Markov field
under other noise by sums on a grid, for each node of the hyperparameters; these are summed on two
lattices, which must agree.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import pymc as pm
from numba import njit
from scipy.interpolate import BarycentricInterpolator
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaln, log_expit, logsumexp
from scipy.stats import norm

from benchmarks.models.fields_models import FIRST, Crossed, crossed_data
from benchmarks.truths.fields_filters import POISSON, VOLATILITY, by_grid, walk_kalman
from benchmarks.truths.fields_quadrature import on_lattices

type Truth = tuple[float, float]
"""Log evidence in nats and its error."""

FINE, COARSE = 0.75, 0.95
"""Spacings of the two grids of a field, in standard deviations of the sharpest density."""
ROUNDING = 1e-8


def data_of(model: pm.Model, name: str = "y") -> np.ndarray:
    """Values of an observed variable."""
    return np.asarray(model.rvs_to_values[model[name]].data)


def log_half_normal(log_x: float, sd: float) -> float:
    """Log density of the logarithm of a half-normal unknown."""
    return 0.5 * np.log(2 / np.pi) - np.log(sd) - 0.5 * np.exp(2 * log_x) / sd**2 + log_x


def log_uniform(logit: float) -> float:
    """Log density of the logit of a uniform unknown."""
    return float(log_expit(logit) + log_expit(-logit))


def span_of_counts(y: np.ndarray) -> tuple[float, float]:
    """Range of log rates to begin with."""
    return float(np.log(max(y.min(), 0.3)) - 2), float(np.log(y.max() + 1) + 1)


def sharpest_count(y: np.ndarray) -> float:
    """Largest curvature of the likelihood of counts where it matters."""
    return float(y.max() + 4 * np.sqrt(y.max()) + 2)


def random_walk_known(dim: int, seed: int) -> Truth:
    """One filter."""
    y = data_of(FIRST["random_walk_known"](dim, seed))
    return float(walk_kalman(y, 0.0, 1.0, 0.3, 0.5)), ROUNDING


def random_walk_normal(dim: int, seed: int) -> Truth:
    """Filters over two scales."""
    y = data_of(FIRST["random_walk_normal"](dim, seed))

    def log_f(at: np.ndarray) -> float:
        prior = log_half_normal(at[0], 1.0) + log_half_normal(at[1], 1.0)
        return prior + walk_kalman(y, 0.0, 1.0, np.exp(at[0]), np.exp(at[1]))

    return on_lattices(log_f, log_f, np.log([0.3, 0.5]))


def from_below(log_f: Callable[[float], float], floor: float) -> Callable[[float], float]:
    """Return a function of a scale, below the floor by a polynomial in its square."""

    @cache
    def through() -> BarycentricInterpolator:
        nodes = floor * np.array([0.0, 0.4, 0.55, 0.7, 0.85, 1.0])
        return BarycentricInterpolator(nodes**2, [log_f(x) for x in nodes])

    return lambda scale: float(through()(scale**2)) if scale < floor else log_f(scale)


def still_field(log_p: np.ndarray, x: np.ndarray) -> float:
    """Log evidence of a field without steps, from the log density of all data and of its start."""
    return float(logsumexp(log_p) + np.log(x[1] - x[0]))


FLOOR = 0.005
"""Step of a field below which a grid would need more points than the answer is worth."""
STILL = np.linspace(-14, 14, 28_001)


def random_walk_poisson(dim: int, seed: int) -> Truth:
    """Grids over one scale."""
    y = data_of(FIRST["random_walk_poisson"](dim, seed))
    span, sharp, constant = span_of_counts(y), sharpest_count(y), -gammaln(y + 1).sum()
    at_still = norm.logpdf(STILL, 0, 2) + y.sum() * STILL - y.size * np.exp(STILL)

    def at_spacing(spacing: float) -> Callable[[np.ndarray], float]:
        def given(step: float) -> float:
            if step == 0:
                return still_field(at_still, STILL)
            return by_grid(POISSON, y, (1.0, 0.0, step, 0.0, 2.0), span, sharp, spacing)

        whole = from_below(given, FLOOR)
        return lambda at: log_half_normal(at[0], 0.5) + constant + whole(float(np.exp(at[0])))

    return on_lattices(at_spacing(FINE), at_spacing(COARSE), np.log([0.1]), step=0.8)


def volatility(dim: int, seed: int) -> Truth:
    """Grids over one scale: the level is the field's, whose start has the variance 2 then."""
    y = data_of(FIRST["volatility"](dim, seed))
    constant, sd = -0.5 * y.size * np.log(2 * np.pi), float(np.sqrt(2))
    at_still = norm.logpdf(STILL, 0, sd) - 0.5 * (y.size * STILL + (y @ y) * np.exp(-STILL))

    def at_spacing(spacing: float) -> Callable[[np.ndarray], float]:
        def given(step: float) -> float:
            if step == 0:
                return still_field(at_still, STILL)
            return by_grid(VOLATILITY, y, (1.0, 0.0, step, 0.0, sd), (-7.0, 7.0), 3.0, spacing)

        whole = from_below(given, FLOOR)
        return lambda at: (
            np.log(10) - 10 * np.exp(at[0]) + at[0] + constant + whole(float(np.exp(at[0])))
        )

    return on_lattices(at_spacing(FINE), at_spacing(COARSE), np.log([0.1]), step=0.8)


@njit(cache=True)
def without_persons(ends, item, x, y, items, inverse, noise):
    """Precision and linear term of (v, beta) when the effects of persons are integrated out.

    Also the log determinant of the persons' precision, and what they add to the exponent.
    """
    size, w = items + 2, 1 / noise**2
    a, b = np.zeros((size, size)), np.zeros(size)
    log_det, exponent = 0.0, 0.0
    for p in range(ends.size - 1):
        low, high = ends[p], ends[p + 1]
        k = high - low + 2
        where, c = np.empty(k, np.int64), np.zeros((k, 2))
        d00, d01, d11 = inverse[0, 0], inverse[0, 1], inverse[1, 1]
        g0, g1 = 0.0, 0.0
        for n in range(low, high):
            where[n - low] = item[n]
            c[n - low, 0], c[n - low, 1] = w, w * x[n]
            d00 += w
            d01 += w * x[n]
            d11 += w * x[n] ** 2
            g0 += w * y[n]
            g1 += w * x[n] * y[n]
            a[item[n], item[n]] += w
            a[item[n], items] += w
            a[item[n], items + 1] += w * x[n]
            a[items, item[n]] += w
            a[items + 1, item[n]] += w * x[n]
            b[item[n]] += w * y[n]
        where[k - 2], where[k - 1] = items, items + 1
        c[k - 2, 0], c[k - 2, 1] = d00 - inverse[0, 0], d01 - inverse[0, 1]
        c[k - 1, 0], c[k - 1, 1] = d01 - inverse[0, 1], d11 - inverse[1, 1]
        a[items, items] += d00 - inverse[0, 0]
        a[items, items + 1] += d01 - inverse[0, 1]
        a[items + 1, items] += d01 - inverse[0, 1]
        a[items + 1, items + 1] += d11 - inverse[1, 1]
        b[items] += g0
        b[items + 1] += g1
        det = d00 * d11 - d01**2
        log_det += np.log(det)
        exponent += (d11 * g0 * g0 - 2 * d01 * g0 * g1 + d00 * g1 * g1) / det / 2
        for i in range(k):
            e0 = (d11 * c[i, 0] - d01 * c[i, 1]) / det
            e1 = (d00 * c[i, 1] - d01 * c[i, 0]) / det
            b[where[i]] -= e0 * g0 + e1 * g1
            for j in range(k):
                a[where[i], where[j]] -= e0 * c[j, 0] + e1 * c[j, 1]
    return a, b, log_det, exponent


def log_crossed(data: Crossed, theta: np.ndarray) -> float:
    """Log density of the data, sorted by person, at (su, rho, sv, noise)."""
    su, rho, sv, noise = theta[:2], theta[2], theta[3], theta[4]
    off = rho * su[0] * su[1]
    inverse = np.linalg.inv(np.array([[su[0] ** 2, off], [off, su[1] ** 2]]))
    ends = np.searchsorted(data.person, np.arange(data.persons + 1))
    a, b, log_det, exponent = without_persons(
        ends, data.item, data.x, data.y, data.items, inverse, noise
    )
    prior = np.r_[np.full(data.items, 1 / sv**2), 0.25, 0.25]
    a[np.diag_indices_from(a)] += prior
    root = cholesky(a, lower=True, check_finite=False, overwrite_a=True)
    half = solve_triangular(root, b, lower=True, check_finite=False)
    prior_det = data.persons * np.linalg.slogdet(inverse)[1] + np.log(prior).sum()
    det = log_det + 2 * np.log(np.diag(root)).sum()
    exponent += 0.5 * half @ half - 0.5 * (data.y @ data.y) / noise**2
    constant = -0.5 * data.y.size * np.log(2 * np.pi * noise**2)
    return float(constant + 0.5 * (prior_det - det) + exponent)


def crossed_normal(dim: int, seed: int) -> Truth:
    """Cholesky factors over five hyperparameters."""
    data = crossed_data(dim, seed)
    order = np.argsort(data.person, kind="stable")
    data = Crossed(
        data.persons, data.items, *(a[order] for a in (data.person, data.item, data.x, data.y))
    )

    def log_f(at: np.ndarray) -> float:
        prior = log_uniform(at[2]) + sum(log_half_normal(at[i], 1.0) for i in (0, 1, 3, 4))
        rho = np.tanh(at[2] / 2)
        return prior + log_crossed(data, np.r_[np.exp(at[:2]), rho, np.exp(at[3:])])

    return on_lattices(log_f, log_f, [-0.2, -0.9, 0.8, -0.7, -0.4], step=1.3, depth=10.5)


FIRST_TRUTHS: dict[str, Callable[[int, int], Truth]] = {
    law.__name__: law
    for law in (
        random_walk_known, random_walk_normal, random_walk_poisson, volatility, crossed_normal
    )
}  # fmt: skip
"""Truths of the first half; the lattice has none."""
