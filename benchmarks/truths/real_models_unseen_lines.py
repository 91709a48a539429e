"""Log evidence of the unseen models of lines and curves with normal noise: quadrature over few."""

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from benchmarks.truths.real_models_exact import NormalSum, half_normal, over_scales
from benchmarks.truths.real_models_integrals import by_importance
from benchmarks.truths.real_models_unseen_truths import in_blocks, log_half_normal

LOG_2PI = np.log(2.0 * np.pi)


def saturating_growth(age: np.ndarray, length: np.ndarray) -> tuple[float, float]:
    """Integrate `dugongs`: top and gain by the normal law, base and sigma by quadrature."""
    n, edge = 600, 0.5
    bases = edge + edge * (np.arange(n) + 0.5) / n

    def at_base(base: float) -> tuple[float, float]:
        X = np.column_stack([np.ones(age.size), -(base**age)])
        law = NormalSum.of(X, length - X @ [2.5, 1.0])
        return over_scales(
            lambda s: law.log_density(np.ones(2), s) + half_normal(s, 0.5), [(1e-3, 10.0)], 100
        )

    values = np.array([at_base(base)[0] for base in bases])
    return _mean_over(values)


def bend(x: np.ndarray, y: np.ndarray, n: int = 1200) -> tuple[float, float]:
    """Integrate `stagnant`: level and slopes by the normal law, place and sigma by quadrature."""
    low, high = -1.3, 1.1
    places = low + (high - low) * (np.arange(n) + 0.5) / n

    def at_place(place: float) -> float:
        X = np.column_stack([np.ones(x.size), np.minimum(x - place, 0), np.maximum(x - place, 0)])
        law = NormalSum.of(X, y)
        return over_scales(
            lambda s: law.log_density(np.full(3, 2.0), s) + half_normal(s, 0.5), [(1e-3, 10.0)], 60
        )[0]

    return _mean_over(np.array([at_place(place) for place in places]))


def _mean_over(values: np.ndarray) -> tuple[float, float]:
    """Mean over a uniform prior by the midpoints of equal cells; error against a third of them."""
    fine = float(logsumexp(values) - np.log(values.size))
    coarse = float(logsumexp(values[1::3]) - np.log(values[1::3].size))
    return fine, max(abs(fine - coarse), 1e-9)


def lines_of_equal_design(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Integrate `rat_weights`: lines and their mean by the normal law, the rest by importance.

    Left are the logs of both scales, the arc tangent of the correlation, and log sigma.
    """
    X = np.column_stack([np.ones(x.size), x])
    gram = X.T @ X
    found = np.linalg.solve(gram, X.T @ y.T).T
    square = ((y - found @ X.T) ** 2).sum()
    n, center = len(y), found.mean(axis=0)
    scatter = (found - center).T @ (found - center)
    within, noise = np.linalg.inv(gram), n * (x.size - 2)

    def block(points: np.ndarray) -> np.ndarray:
        s, rho, log_sigma = np.exp(points[:, :2]), np.tanh(points[:, 2]), points[:, 3]
        turned = np.zeros((len(points), 2, 2))
        turned[:, [0, 1], [0, 1]], turned[:, [0, 1], [1, 0]] = 1.0, rho[:, None]
        V = s[:, :, None] * s[:, None, :] * turned
        V += np.exp(2.0 * log_sigma)[:, None, None] * within
        M = V / n + np.diag([50.0**2, 3.0**2])
        off = center - [250.0, 6.0]
        log_p = -0.5 * (2 * n * LOG_2PI + (n - 1) * np.linalg.slogdet(V)[1]) - np.log(n)
        log_p -= 0.5 * np.einsum("nij,ji->n", np.linalg.inv(V), scatter)
        log_p -= 0.5 * (np.linalg.slogdet(M)[1] + np.einsum("i,nij,j", off, np.linalg.inv(M), off))
        log_p -= noise * (0.5 * LOG_2PI + log_sigma) + 0.5 * square * np.exp(-2.0 * log_sigma)
        log_p -= 0.5 * n * np.linalg.slogdet(gram)[1]
        prior = log_half_normal(points[:, 0], 30.0) + log_half_normal(points[:, 1], 2.0)
        prior += np.log(0.75) + 2.0 * np.log1p(-(rho**2)) + log_half_normal(log_sigma, 20.0)
        return log_p + prior

    return by_importance(in_blocks(block, 10_000), np.array([2.5, -0.5, 0.0, 2.0]), 100_000)


def law_of_stores(store: np.ndarray, x: np.ndarray, y: np.ndarray) -> Callable[..., float]:
    """Return the log density of rows around a line of each store, given three scales.

    The lines' means have a normal law of standard deviation 5.
    """
    n = store.max() + 1
    X = np.column_stack([np.ones(x.size), x])
    gram, cross = np.zeros((n, 2, 2)), np.zeros((n, 2))
    np.add.at(gram, store, X[:, :, None] * X[:, None, :])
    np.add.at(cross, store, X * y[:, None])

    def log_density(first: float, second: float, sigma: float) -> float:
        D = np.diag([first**2, second**2])
        A, c = gram / sigma**2, cross / sigma**2
        inner = np.eye(2) + A @ D
        shrunk = np.linalg.solve(inner, A)
        pulled = np.linalg.solve(inner, c[..., None])[..., 0]
        log_p = -0.5 * (y.size * (LOG_2PI + 2.0 * np.log(sigma)) + y @ y / sigma**2)
        log_p += 0.5 * (np.einsum("ni,ij,nj", c, D, pulled) - np.linalg.slogdet(inner)[1].sum())
        P, q = shrunk.sum(axis=0) + np.eye(2) / 25.0, pulled.sum(axis=0)
        log_p += 0.5 * (q @ np.linalg.solve(P, q) - np.linalg.slogdet(P)[1] - 2.0 * np.log(25.0))
        return float(log_p)

    return log_density


def lines_of_stores(store: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Integrate `stores`: all lines and their means by the normal law, three scales over."""
    law = law_of_stores(store, x, y)

    def log_joint(*scales: float) -> float:
        return law(*scales) + sum(half_normal(scale, 1.0) for scale in scales)

    return over_scales(log_joint, [(0.05, 5.0), (0.05, 5.0), (0.1, 2.0)], 24)
