"""Exact log Bayes factors of the designs of R's package BayesFactor, by quadrature.

One-dimensional integrals are sums over even grids: those of smooth functions that vanish at both
ends converge faster than any power of the step (Trefethen & Weideman 2014).
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats
from scipy.special import gammaln, logit

R_EFFECT = np.sqrt(0.5)
"""Scale of the Cauchy prior of a standardized effect in t-tests."""
R_SLOPE = np.sqrt(2.0) / 4.0
"""Scale in regressions."""
R_FIXED, R_RANDOM = 0.5, 1.0
"""Scales of fixed and of random effects in analyses of variance."""
R_LOGIT = 0.5
"""Scale of the logistic prior of a log odds."""


def log_sum(terms: np.ndarray, step: float) -> float:
    """Log of a sum of exponentials times a step."""
    return float(np.logaddexp.reduce(terms, axis=None) + np.log(step))


def _log_scale(g: np.ndarray, r: float) -> np.ndarray:
    """Log density of log g; the law of g makes a normal with variance g a Cauchy of scale r."""
    return np.asarray(stats.invgamma.logpdf(g, 0.5, scale=r**2 / 2.0) + np.log(g))


def of_t(t: float, n: float, df: float) -> float:
    """Log BF10 of a t statistic with the effective number n (Rouder et al. 2009, equation 1)."""
    log_g, step = np.linspace(-30.0, 30.0, 20001, retstep=True)
    g = np.exp(log_g)
    half = (df + 1.0) / 2.0
    effect = -0.5 * np.log1p(n * g) - half * np.log1p(t**2 / ((1.0 + n * g) * df))
    return log_sum(effect + _log_scale(g, R_EFFECT), step) + half * np.log1p(t**2 / df)


def one_sample(y: np.ndarray) -> float:
    """Log BF10 of a mean of zero."""
    return of_t(float(stats.ttest_1samp(y, 0.0).statistic), y.size, y.size - 1)


def one_sided(y: np.ndarray) -> float:
    """Log BF10 of a positive effect: twice its posterior share is the factor over two sides."""
    delta, step = np.linspace(-40.0, 40.0, 4001, retstep=True)
    log_sigma, other = np.linspace(-6.0, 10.0, 801, retstep=True)
    z = y[:, None] * np.exp(-log_sigma)
    squares, sums = (z**2).sum(axis=0), z.sum(axis=0)
    fit = -0.5 * (squares - 2.0 * np.outer(delta, sums) + y.size * delta[:, None] ** 2)
    by_delta = np.logaddexp.reduce(fit - y.size * log_sigma, axis=1) + np.log(other)
    terms = by_delta + stats.cauchy.logpdf(delta, 0.0, R_EFFECT)
    positive = np.where(delta == 0.0, np.log(0.5), np.where(delta > 0.0, 0.0, -np.inf))
    share = log_sum(terms + positive, step) - log_sum(terms, step)
    return one_sample(y) + np.log(2.0) + share


def two_sample(a: np.ndarray, b: np.ndarray) -> float:
    """Log BF10 of two equal means."""
    n = a.size * b.size / (a.size + b.size)
    return of_t(float(stats.ttest_ind(a, b).statistic), n, a.size + b.size - 2)


def regression(y: np.ndarray, X: np.ndarray) -> float:
    """Log BF10 of all slopes zero (Liang et al. 2008, equation 6; g ~ InvGamma(1/2, r^2 / 2))."""
    y, X = y - y.mean(), X - X.mean(axis=0)
    n, p = X.shape
    left = y - X @ np.linalg.lstsq(X, y)[0]
    share = float(left @ left / (y @ y))
    log_g, step = np.linspace(-40.0, 40.0, 40001, retstep=True)
    g = np.exp(log_g)
    fit = (n - p - 1) / 2.0 * np.log1p(n * g) - (n - 1) / 2.0 * np.log1p(n * g * share)
    return log_sum(fit + _log_scale(g, R_SLOPE), step)


def anova(y: np.ndarray, terms: Sequence[tuple[np.ndarray, float]], points: int = 49) -> float:
    """Log BF10 of a balanced design over the mean alone (Rouder et al. 2012, equation 9).

    Each term is its columns, (n, k), and its scale. The columns of different terms have to be
    orthogonal once centered, so that the integral over all g is one over sums.
    """
    y = y - y.mean()
    log_g, step = np.linspace(-12.0, 12.0, points, retstep=True)
    g = np.exp(log_g)
    density, squares = np.zeros(()), np.asarray(y @ y)
    for columns, r in terms:
        X = columns - columns.mean(axis=0)
        values, vectors = np.linalg.eigh(X.T @ X)
        kept = values > 1e-9
        values, parts = values[kept], (vectors[:, kept].T @ X.T @ y) ** 2
        own = _log_scale(g, r) + np.log(step) - 0.5 * np.log1p(np.outer(g, values)).sum(axis=1)
        density = density[..., None] + own
        squares = squares[..., None] - (parts / (values + 1.0 / g[:, None])).sum(axis=1)
    half = (y.size - 1) / 2.0
    return log_sum(density - half * np.log(squares), 1.0) + half * float(np.log(y @ y))


def hierarchical(y: np.ndarray, mean: bool) -> float:
    """Log Z of theta_i ~ N(mu, tau2), y_i ~ N(theta_i, 1), with mu ~ N(0, 1) or 0; nats."""
    log_tau2, step = np.linspace(-15.0, 25.0, 20001, retstep=True)
    tau2 = np.exp(log_tau2)
    prior = stats.invgamma.logpdf(tau2, 1.0) + log_tau2
    n, variance = y.size, 1.0 + tau2
    off = ((y - y.mean()) ** 2).sum() / variance
    free = 1.0 if mean else 0.0
    total = variance + n * free
    fit = -0.5 * (off + n * y.mean() ** 2 / total + np.log(total / variance))
    return log_sum(prior + fit - n / 2.0 * np.log(2.0 * np.pi * variance), step)


def log_dirichlet(counts: np.ndarray) -> float:
    """Log evidence of the order of counts under probabilities that are uniform on the simplex."""
    n = np.asarray(counts).ravel() + 1.0
    return float(gammaln(n).sum() - gammaln(n.sum()) + gammaln(n.size))


def rows_differ(table: np.ndarray) -> float:
    """Log BF10 of rows with a law each over one law for all."""
    return sum(log_dirichlet(row) for row in table) - log_dirichlet(table.sum(axis=0))


def dependent(table: np.ndarray) -> float:
    """Log BF10 of a law of all cells over independent rows and columns."""
    margins = (table.sum(axis=0), table.sum(axis=1))
    return log_dirichlet(table) - sum(log_dirichlet(margin) for margin in margins)


def coin(heads: int, n: int) -> float:
    """Log BF10 of an unknown share of heads over a half."""
    theta, step = np.linspace(-80.0, 80.0, 40001, retstep=True)
    fit = -heads * np.logaddexp(0.0, -theta) - (n - heads) * np.logaddexp(0.0, theta)
    prior = stats.logistic.logpdf(theta, logit(0.5), R_LOGIT)
    return log_sum(fit + prior, step) + n * np.log(2.0)
