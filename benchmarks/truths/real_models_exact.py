"""Exact log evidence of real models: normal sums over effects, and quadrature over scales."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

DEPTH = 45.0
"""Nats below the largest value at which an integrand is cut."""


@dataclass(frozen=True)
class NormalSum:
    """Law of y = X b + e, with b ~ Normal(0, D) and e ~ Normal(0, s^2), summed over b.

    Attributes
    ----------
    gram, cross : array
        X'X and X'y.
    square : float
        y'y.
    n : int
        Rows.
    """

    gram: np.ndarray
    cross: np.ndarray
    square: float
    n: int

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> "NormalSum":
        return cls(X.T @ X, X.T @ y, float(y @ y), len(y))

    def log_density(self, sds: np.ndarray, sigma: float) -> float:
        """Log density of y where b has the standard deviations `sds` and e has `sigma`."""
        inner = np.eye(len(sds)) + sds[:, None] * self.gram * sds / sigma**2
        factor = np.linalg.cholesky(inner)
        scaled = np.linalg.solve(factor, sds * self.cross / sigma**2)
        log_det = 2.0 * (np.log(np.diag(factor)).sum() + self.n * np.log(sigma))
        square = self.square / sigma**2 - scaled @ scaled
        return float(-0.5 * (self.n * np.log(2.0 * np.pi) + log_det + square))


def half_cauchy(x: float, scale: float) -> float:
    """Log density of a half-Cauchy law."""
    return float(np.log(2.0 / (np.pi * scale)) - np.log1p((x / scale) ** 2))


def half_normal(x: float, scale: float) -> float:
    """Log density of a half-normal law."""
    return float(0.5 * np.log(2.0 / np.pi) - np.log(scale) - 0.5 * (x / scale) ** 2)


def exponential(x: float, rate: float) -> float:
    """Log density of an exponential law."""
    return float(np.log(rate) - rate * x)


def over_scales(
    log_joint: Callable[..., float], bounds: Sequence[tuple[float, float]], n: int = 96
) -> tuple[float, float]:
    """Integrate over positive scales by the trapezoidal rule in their logs.

    The box, given in the scales themselves, shrinks twice to where the integrand matters. The
    error is the difference to every other point, and what lies at the edges of the box.
    """
    edges = np.log(np.array(bounds, dtype=float))
    for _ in range(2):
        axes, values = _tabulate(log_joint, edges, 25)
        edges = _where_it_matters(axes, values)
    axes, values = _tabulate(log_joint, edges, n + 1)
    fine, coarse = _trapezoid(axes, values, 1), _trapezoid(axes, values, 2)
    return fine, max(abs(fine - coarse), 1e-9) + _at_the_edges(values)


def _tabulate(
    log_joint: Callable[..., float], edges: np.ndarray, n: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Log of the integrand, with the Jacobian of the logs, on a grid."""
    axes = [np.linspace(low, high, n) for low, high in edges]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    values = np.array([log_joint(*np.exp(point)) + point.sum() for point in grid])
    return axes, np.where(np.isnan(values), -np.inf, values).reshape([n] * len(axes))


def _where_it_matters(axes: list[np.ndarray], values: np.ndarray) -> np.ndarray:
    """Edges, one cell wider than the part within `DEPTH` of the largest value."""
    near = values > values.max() - DEPTH
    edges = []
    for i, axis in enumerate(axes):
        others = tuple(j for j in range(len(axes)) if j != i)
        used = np.flatnonzero(near.any(axis=others))
        edges.append((axis[max(used[0] - 1, 0)], axis[min(used[-1] + 1, len(axis) - 1)]))
    return np.array(edges)


def _at_the_edges(values: np.ndarray) -> float:
    """Share of the outermost points in the sum of all: what may lie outside."""
    inside = values[tuple(slice(1, -1) for _ in range(values.ndim))]
    return float(-np.expm1(logsumexp(inside) - logsumexp(values)))


def _trapezoid(axes: list[np.ndarray], values: np.ndarray, step: int) -> float:
    """Log of the integral of exp(values) by every `step`-th point."""
    total = values[tuple(slice(None, None, step) for _ in axes)]
    for axis in axes:
        log_weight = np.full(len(axis[::step]), np.log(step * (axis[1] - axis[0])))
        log_weight[[0, -1]] -= np.log(2.0)
        total = logsumexp(total + log_weight.reshape(-1, *[1] * (total.ndim - 1)), axis=0)
    return float(total)
