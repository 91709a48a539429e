"""Log evidence of the unseen models of counts and times: effects summed, few parameters left."""

import numpy as np
from scipy.special import betaln, expit, gammaln, log_expit, logsumexp
from scipy.stats import gamma, norm

from benchmarks.truths.real_models_exact import exponential, over_scales
from benchmarks.truths.real_models_integrals import Values, by_importance, counts_of_field

POINTS = 40_000
"""Draws of importance sampling."""


def in_blocks(block: Values, size: int) -> Values:
    """Let a function of points (n, d) take so many of them at a time."""

    def values(points: np.ndarray) -> np.ndarray:
        parts = np.array_split(points, len(points) // size + 1)
        return np.concatenate([block(part) for part in parts])

    return values


def log_half_normal(log_x: np.ndarray, sd: float) -> np.ndarray:
    """Log density of a half-normal law, as a density of the log."""
    square = (np.exp(np.minimum(log_x, 300.0)) / sd) ** 2
    return 0.5 * (np.log(2.0 / np.pi) - square) - np.log(sd) + log_x


def log_half_cauchy(log_x: np.ndarray, scale: float) -> np.ndarray:
    """Log density of a half-Cauchy law, as a density of the log."""
    u = log_x - np.log(scale)
    return np.log(2.0 / np.pi) - np.logaddexp(0.0, 2.0 * u) + u


def log_gamma_law(log_x: np.ndarray, shape: float, rate: float) -> np.ndarray:
    """Log density of a gamma law, as a density of the log."""
    x = np.exp(np.minimum(log_x, 300.0))
    return shape * (np.log(rate) + log_x) - rate * x - gammaln(shape)


def log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Log of the binomial coefficients."""
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def tumor_rates(tumors: np.ndarray, rats: np.ndarray) -> tuple[float, float]:
    """Integrate `tumors`: each rate by conjugacy, the mean's odds and the size by quadrature."""

    def log_joint(odds: float, excess: float) -> float:
        size = 1.0 + excess
        a, b = size * odds / (1.0 + odds), size / (1.0 + odds)
        counts = betaln(a + tumors, b + rats - tumors) - betaln(a, b)
        prior = np.log(1.5) - 2.5 * np.log(size) - 2.0 * np.log1p(odds)
        return float(counts.sum() + log_choose(rats, tumors).sum() + prior)

    return over_scales(log_joint, [(1e-4, 1e3), (1e-6, 1e8)], 200)


def seeds_by_plate(X: np.ndarray, sprouted: np.ndarray, sown: np.ndarray) -> tuple[float, float]:
    """Integrate `seeds`: each plate's effect over a grid, the rest by importance sampling."""
    nodes = np.linspace(-8.0, 8.0, 129)
    log_node = norm.logpdf(nodes) + np.log(nodes[1] - nodes[0])

    def block(points: np.ndarray) -> np.ndarray:
        b, log_s = points[:, :-1], points[:, -1]
        eta = (b @ X.T)[..., None] + np.exp(np.minimum(log_s, 5.0))[:, None, None] * nodes
        log_p = sprouted[:, None] * eta - sown[:, None] * np.logaddexp(0.0, eta)
        log_p = logsumexp(log_p + log_node, axis=2).sum(axis=1) + log_choose(sown, sprouted).sum()
        return log_p + norm.logpdf(b, 0, 2.5).sum(axis=1) + log_half_normal(log_s, 1.0)

    return by_importance(in_blocks(block, 200), np.r_[np.zeros(4), -1.0], POINTS)


def pump_failures(failures: np.ndarray, hours: np.ndarray) -> tuple[float, float]:
    """Integrate `pumps`: each rate by conjugacy, shape and rate of their law by quadrature."""

    def log_joint(a: float, b: float) -> float:
        counts = gammaln(failures + a) - gammaln(a) - gammaln(failures + 1.0) + a * np.log(b)
        counts += failures * np.log(hours) - (failures + a) * np.log(hours + b)
        return float(counts.sum() + exponential(a, 1.0) + gamma.logpdf(b, 0.1))

    return over_scales(log_joint, [(1e-8, 1e3), (1e-12, 1e3)], 200)


def fishing_trips(X: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Integrate `fishing` by importance sampling over all of its parameters."""
    none = counts == 0

    def block(points: np.ndarray) -> np.ndarray:
        b, eta = points[:, :3] @ X.T, points[:, 3:] @ X.T
        rate = np.exp(np.minimum(b, 100.0))
        log_p = log_expit(eta) + counts * b - rate - gammaln(counts + 1.0)
        log_p = np.where(none, np.logaddexp(log_p, log_expit(-eta)), log_p)
        return log_p.sum(axis=1) + norm.logpdf(points, 0, 2).sum(axis=1)

    return by_importance(in_blocks(block, 2000), np.zeros(6), POINTS)


def two_rates(days: np.ndarray) -> tuple[float, float]:
    """Integrate `deaths` by importance sampling where the first rate is less, twice."""
    k = np.arange(days.size)

    def block(points: np.ndarray) -> np.ndarray:
        eta, log_rate = points[:, :1], points[:, 1:]
        parts = [
            log_w + k * log_rate[:, [i]] - np.exp(np.minimum(log_rate[:, [i]], 20.0))
            for i, log_w in enumerate((log_expit(eta), log_expit(-eta)))
        ]
        log_p = (np.logaddexp(*parts) - gammaln(k + 1.0)) @ days
        prior = log_gamma_law(log_rate, 2.0, 0.5).sum(axis=1)
        prior += (log_expit(eta) + log_expit(-eta))[:, 0]
        return log_p + prior

    def half(points: np.ndarray) -> np.ndarray:
        ordered = points[:, 1] < points[:, 2]
        return np.where(ordered, block(points) + np.log(2.0), -np.inf)

    start = np.array([-0.5, 0.2, 1.0])
    return by_importance(in_blocks(block, 20_000), start, 400_000, noisy=in_blocks(half, 20_000))


def counts_by_district(
    W: np.ndarray, counts: np.ndarray, expected: np.ndarray, x: np.ndarray
) -> tuple[float, float]:
    """Integrate `lip_cancer`: slopes and field by draws of Laplace's normal, alpha and s over."""
    rng = np.random.default_rng(1)
    X, D = np.column_stack([np.ones(x.size), x]), np.diag(W.sum(axis=0))

    def at(point: np.ndarray, n: int) -> float:
        field = np.linalg.inv(D - expit(point[0]) * W) * np.exp(2.0 * point[1])
        prior = log_expit(point[0]) + log_expit(-point[0]) + log_half_normal(point[1], 1.0)
        return float(prior + counts_of_field(field + X @ X.T, counts, n, rng, expected))

    return by_importance(
        lambda points: np.array([at(point, 0) for point in points]),
        np.array([1.0, -0.5]),
        4000,
        noisy=lambda points: np.array([at(point, 40) for point in points]),
    )


def survival_of_birds(again: np.ndarray, released: np.ndarray) -> tuple[float, float]:
    """Integrate `dippers` by importance sampling; the last two rates by the law of their product.

    The density of the product of two uniform values is minus its log.
    """
    years = released.size
    lost = released - again.sum(axis=1)
    ways = gammaln(released + 1.0) - gammaln(again + 1.0).sum(axis=1) - gammaln(lost + 1.0)

    def block(points: np.ndarray) -> np.ndarray:
        log_rate = log_expit(points)
        log_p = (log_rate + log_expit(-points)).sum(axis=1) + ways.sum()
        log_p = log_p + np.log(-log_rate[:, -1])
        live, seen = log_rate[:, : years - 1], log_rate[:, years - 1 : -1]
        missed = log_expit(-points[:, years - 1 : -1])
        for i in range(years):
            there, cells = np.zeros(len(points)), []
            for j in range(i, years):
                last = j == years - 1
                cells.append(there + (log_rate[:, -1] if last else live[:, j] + seen[:, j]))
                there = there if last else there + live[:, j] + missed[:, j]
            cells = np.array(cells)
            rest = np.log1p(-np.minimum(np.exp(cells).sum(axis=0), 1.0 - 1e-15))
            log_p = log_p + again[i, i:] @ cells + lost[i] * rest
        return log_p

    return by_importance(in_blocks(block, 5000), np.zeros(2 * years - 1), 100_000)


def remission_times(
    weeks: np.ndarray, ended: np.ndarray, treated: np.ndarray
) -> tuple[float, float]:
    """Integrate `remissions` by importance sampling over all of its parameters."""

    def block(points: np.ndarray) -> np.ndarray:
        shape = np.exp(np.minimum(points[:, 2:], 20.0))
        u = shape * (np.log(weeks) - points[:, :1] - points[:, 1:2] * treated)
        log_p = ended * (np.log(shape) + u - np.log(weeks)) - np.exp(np.minimum(u, 500.0))
        prior = norm.logpdf(points[:, :2], [2, 0], 2).sum(axis=1)
        return log_p.sum(axis=1) + prior + log_gamma_law(points[:, 2], 2.0, 1.0)

    return by_importance(in_blocks(block, 5000), np.array([2.0, 0.0, 0.0]), 200_000)
