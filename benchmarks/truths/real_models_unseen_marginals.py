"""Log evidence of the unseen series and regressions: the normal law, then few parameters."""

from itertools import pairwise

import numpy as np
from scipy.special import gammaln, log_expit, logsumexp
from scipy.stats import invgamma, norm, t

from benchmarks.truths.real_models_exact import NormalSum, half_normal, over_scales
from benchmarks.truths.real_models_integrals import by_importance
from benchmarks.truths.real_models_unseen_truths import (
    in_blocks,
    log_gamma_law,
    log_half_cauchy,
    log_half_normal,
)

POINTS = 100_000
"""Draws of importance sampling."""


def local_level(y: np.ndarray) -> tuple[float, float]:
    """Integrate `nile`: start and steps by the normal law, both scales by quadrature."""
    law = NormalSum.of(np.tril(np.ones((y.size, y.size))), y - 10.0)

    def log_joint(step: float, sigma: float) -> float:
        value = law.log_density(np.r_[3.0, np.full(y.size - 1, step)], sigma)
        return value + half_normal(step, 1.0) + half_normal(sigma, 2.0)

    return over_scales(log_joint, [(1e-8, 10.0), (0.1, 10.0)], 80)


def moving_average(y: np.ndarray) -> tuple[float, float]:
    """Integrate `arma` by importance sampling over all of its parameters."""

    def block(points: np.ndarray) -> np.ndarray:
        mu, phi, theta, log_sigma = points.T
        error = y[0] - mu - phi * mu
        square = error**2
        for before, now in pairwise(y):
            error = now - mu - phi * before - theta * error
            square = square + error**2
        log_p = -y.size * (log_sigma + 0.5 * np.log(2.0 * np.pi))
        log_p = log_p - 0.5 * square * np.exp(-2.0 * log_sigma)
        prior = norm.logpdf(mu, 0, 10) + norm.logpdf(phi, 0, 2) + norm.logpdf(theta, 0, 2)
        return np.nan_to_num(log_p + prior, nan=-np.inf) + log_half_cauchy(log_sigma, 2.5)

    return by_importance(in_blocks(block, 20_000), np.array([0.3, 0.5, 0.2, -0.5]), 200_000)


def moving_variance(y: np.ndarray) -> tuple[float, float]:
    """Integrate `garch` by importance sampling over all of its parameters."""

    def block(points: np.ndarray) -> np.ndarray:
        mu, log_base = points[:, 0], points[:, 1]
        shock, stay = np.exp(log_expit(points[:, 2:])).T
        prior = norm.logpdf(mu) + log_half_normal(log_base, 1.0)
        prior += (log_expit(points[:, 2:]) + log_expit(-points[:, 2:])).sum(axis=1)
        stay = stay * (1.0 - shock)
        base, variance, log_p = np.exp(log_base), np.ones(len(points)), np.zeros(len(points))
        for now in y:
            log_p = log_p + norm.logpdf(now, mu, np.sqrt(variance))
            variance = base + shock * (now - mu) ** 2 + stay * variance
        return log_p + prior

    return by_importance(in_blocks(block, 20_000), np.array([0.0, -1.0, -0.5, 0.5]), 200_000)


def heavy_tailed_lags(y: np.ndarray) -> tuple[float, float]:
    """Integrate `lynx` by importance sampling over all of its parameters."""

    def block(points: np.ndarray) -> np.ndarray:
        c, first, second, log_sigma, log_nu = points.T[..., None]
        nu = np.exp(np.minimum(log_nu, 20.0))
        u = (y[2:] - c - first * y[1:-1] - second * y[:-2]) * np.exp(-log_sigma)
        log_p = t.logpdf(u, nu) - log_sigma
        prior = norm.logpdf(points[:, 0], 0, 2) + norm.logpdf(points[:, 1:3]).sum(axis=1)
        prior += log_half_normal(points[:, 3], 1.0) + log_gamma_law(points[:, 4], 2.0, 0.1)
        return log_p.sum(axis=1) + prior

    return by_importance(in_blocks(block, 2000), np.array([1.0, 1.0, -0.5, -1.0, 2.0]), 40_000)


def field_with_noise(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Integrate `rough` by importance sampling over length, height and noise."""
    gap, one = np.sqrt(5.0) * np.abs(x[:, None] - x), np.eye(x.size)

    def at(point: np.ndarray) -> float:
        length, height, sigma = np.exp(point)
        u = gap / length
        K = height**2 * (1.0 + u + u**2 / 3.0) * np.exp(-u)
        root = np.linalg.cholesky(K + (sigma**2 + 1e-6) * one)
        z = np.linalg.solve(root, y)
        log_p = -0.5 * z @ z - np.log(np.diag(root)).sum() - 0.5 * y.size * np.log(2.0 * np.pi)
        prior = invgamma.logpdf(length, 3, scale=3) + point.sum()
        return float(log_p + prior + half_normal(height, 2.0) + half_normal(sigma, 1.0))

    return by_importance(
        lambda points: np.array([at(point) for point in points]), np.array([0.0, 0.0, -1.2]), 20_000
    )


def softmax(X: np.ndarray, kind: np.ndarray) -> tuple[float, float]:
    """Integrate `iris` by importance sampling over all of its parameters."""
    width = X.shape[1]

    def block(points: np.ndarray) -> np.ndarray:
        eta = np.zeros((3, len(points), len(X)))
        eta[1], eta[2] = points[:, :width] @ X.T, points[:, width:] @ X.T
        chosen = np.take_along_axis(eta, np.broadcast_to(kind, eta[:1].shape), axis=0)[0]
        log_p = (chosen - logsumexp(eta, axis=0)).sum(axis=1)
        return log_p + norm.logpdf(points, 0, 2.5).sum(axis=1)

    return by_importance(in_blocks(block, 2000), np.zeros(2 * width), POINTS)


def ordered_answers(X: np.ndarray, answer: np.ndarray) -> tuple[float, float]:
    """Integrate `attitudes` by importance sampling: the first cut, logs of the steps, slopes.

    The prior of the cuts is the law of four sorted draws, 4! times PyMC's density.
    """
    cuts = 4

    def block(points: np.ndarray) -> np.ndarray:
        steps = np.exp(np.minimum(points[:, 1:cuts], 20.0))
        cut = np.cumsum(np.column_stack([points[:, :1], steps]), axis=1)
        prior = norm.logpdf(cut, 0, 3).sum(axis=1) + points[:, 1:cuts].sum(axis=1)
        prior += gammaln(cuts + 1.0)
        prior += norm.logpdf(points[:, cuts:]).sum(axis=1)
        ends = np.full((len(points), 1), np.inf)
        edges = np.column_stack([-ends, cut, ends])
        eta = points[:, cuts:] @ X.T
        low, high = edges[:, answer] - eta, edges[:, answer + 1] - eta
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log(-np.expm1(np.where(np.isfinite(high - low), low - high, -np.inf)))
        log_p = gap + log_expit(high) + log_expit(-low)  # F(b) - F(a) = (1 - e^(a-b)) F(b) (1-F(a))
        return log_p.sum(axis=1) + prior

    return by_importance(in_blocks(block, 2000), np.r_[-1.5, 0.0, 0.0, 0.0, np.zeros(3)], POINTS)


def robust_ridge(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Integrate `stacks` by importance sampling over all of its parameters."""

    def block(points: np.ndarray) -> np.ndarray:
        b, log_phi, log_sigma = points[:, :4], points[:, 4], points[:, 5]
        u = (y - b @ X.T) * np.exp(-log_sigma)[:, None]
        log_p = t.logpdf(u, 4).sum(axis=1) - y.size * log_sigma
        prior = norm.logpdf(b[:, 0], 0, 2)
        prior += norm.logpdf(b[:, 1:], 0, np.exp(log_phi)[:, None]).sum(axis=1)
        return log_p + prior + log_half_cauchy(log_phi, 1.0) + log_half_normal(log_sigma, 1.0)

    start = np.r_[0.0, 0.5, 0.3, 0.01, -0.5, -1.5]
    return by_importance(in_blocks(block, 5000), start, 400_000, held=(4,))


def clicks_evidence(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Integrate `clicks` by importance sampling over all of its parameters."""

    def block(points: np.ndarray) -> np.ndarray:
        eta = points @ X.T
        log_p = eta @ y - np.logaddexp(0.0, eta).sum(axis=1)
        return log_p + norm.logpdf(points, 0, 2).sum(axis=1)

    start = np.linalg.lstsq(X, 4.0 * (y - 0.3), rcond=None)[0]
    return by_importance(in_blocks(block, 50), start, 3000)


def lasso(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Integrate `diabetes` by importance sampling over all of its parameters."""
    gram, cross, square = X.T @ X, X.T @ y, y @ y

    def values(points: np.ndarray) -> np.ndarray:
        b, log_scale, log_sigma = points[:, :-2], points[:, -2], points[:, -1]
        rss = square - 2.0 * b @ cross + np.einsum("ni,ij,nj->n", b, gram, b)
        log_p = -y.size * (log_sigma + 0.5 * np.log(2 * np.pi)) - 0.5 * rss * np.exp(-2 * log_sigma)
        prior = -np.abs(b).sum(axis=1) * np.exp(-log_scale) - b.shape[1] * (log_scale + np.log(2.0))
        prior += log_half_normal(log_scale, 1.0) + log_half_normal(log_sigma, 1.0)
        return log_p + prior

    start = np.r_[np.linalg.lstsq(X, y, rcond=None)[0], -1.5, -0.3]
    return by_importance(values, start, 400_000, held=(X.shape[1],))


def two_regressions(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Integrate `two_lines` by importance sampling where the first slope is less, twice."""

    def block(points: np.ndarray) -> np.ndarray:
        eta, a, b, log_sigma = points[:, :1], points[:, 1:3], points[:, 3:5], points[:, 5]
        log_w = np.column_stack([log_expit(eta), log_expit(-eta)])
        mu = a[..., None] + b[..., None] * x
        u = (y - mu) * np.exp(-log_sigma)[:, None, None]
        log_p = log_w[..., None] - 0.5 * u**2 - 0.5 * np.log(2.0 * np.pi)
        log_p = logsumexp(log_p, axis=1).sum(axis=1) - y.size * log_sigma
        prior = 2.0 * log_w.sum(axis=1) + gammaln(4.0) + log_half_normal(log_sigma, 1.0)
        prior += norm.logpdf(a, 0, 5).sum(axis=1) + norm.logpdf(b, 0, 2).sum(axis=1)
        return log_p + prior

    def half(points: np.ndarray) -> np.ndarray:
        return np.where(points[:, 3] < points[:, 4], block(points) + np.log(2.0), -np.inf)

    start = np.array([0.4, 1.9, 2.0, 0.1, 0.9, -2.0])
    both = in_blocks(block, 2000), in_blocks(half, 2000)
    return by_importance(both[0], start, 40_000, noisy=both[1])


def one_common_cause(y: np.ndarray) -> tuple[float, float]:
    """Integrate `one_factor`: factors by the normal law; loadings where the first is positive."""
    n, items = y.shape
    scatter = y.T @ y

    def values(points: np.ndarray) -> np.ndarray:
        load, log_psi = points[:, :items], points[:, items:]
        V = load[:, :, None] * load[:, None, :] + np.exp(2.0 * log_psi)[..., None] * np.eye(items)
        log_p = -0.5 * n * (items * np.log(2.0 * np.pi) + np.linalg.slogdet(V)[1])
        log_p -= 0.5 * np.einsum("nii->n", np.linalg.solve(V, np.broadcast_to(scatter, V.shape)))
        prior = norm.logpdf(load).sum(axis=1) + log_half_normal(log_psi, 1.0).sum(axis=1)
        return np.where(load[:, 0] > 0.0, log_p + prior + np.log(2.0), -np.inf)

    start = np.r_[np.full(items, 0.7), np.full(items, -0.4)]
    return by_importance(in_blocks(values, 5000), start, 200_000)
