"""Log evidences of Markov fields at given hyperparameters: Kalman filters, and sums on a grid.

On the grid a step of the field is a product with a banded matrix, cut to the part of the grid that
has mass. Grids are equal steps, where sums of smooth densities converge faster than any power.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

POISSON, VOLATILITY, STUDENT = 0, 1, 2
"""Noises: counts of rate exp(x), normal of variance exp(x), Student-t around x."""
SHORTEST = 0.03
"""A step that is shorter than this, divided by the number of steps, is taken to be of that length.

Over all steps that moves the field by much less than its uncertainty; with some hundred data the
density there is negligible anyhow.
"""
REACH = 7.0
"""Standard deviations that a step of the field is followed."""
LEAST = 1e-20
"""Density, relative to the largest, below which a point of the grid is left out."""


@njit(cache=True)
def walk_kalman(y, start, start_sd, step, noise):
    """Log density of a random walk under normal noise."""
    mean, var, total = start, start_sd**2, 0.0
    for t in range(y.size):
        if t > 0:
            var += step**2
        whole = var + noise**2
        error = y[t] - mean
        total -= 0.5 * (np.log(2 * np.pi * whole) + error**2 / whole)
        gain = var / whole
        mean += gain * error
        var *= 1 - gain
    return total


@njit(cache=True)
def log_noise(kind, x, y, scale, freedom):
    """Log density of a value without the constants that do not depend on x."""
    if kind == 0:
        return y * x - np.exp(x)
    if kind == 1:
        return -0.5 * (x + y * y * np.exp(-x))
    return -0.5 * (freedom + 1) * np.log1p(((y - x) / scale) ** 2 / freedom)


@njit(cache=True)
def bands(grid, slope, constant, step, reach):
    """Rows of the matrix of a step: where each begins and ends, and its values."""
    m, h = grid.size, grid[1] - grid[0]
    ends = np.zeros((m, 2), np.int64)
    half = reach * step
    width = min(m, int(2 * half / max(abs(slope), 1e-9) / h) + 3)
    rows = np.zeros((m, width))
    for j in range(m):
        if abs(slope) < 1e-9:
            low, high = 0, m
        else:
            a = (grid[j] - constant - half) / slope
            b = (grid[j] - constant + half) / slope
            low = int(np.ceil((min(a, b) - grid[0]) / h))
            high = int(np.floor((max(a, b) - grid[0]) / h)) + 1
        low, high = min(max(low, 0), m), min(max(high, 0), m)
        high = min(high, low + width)
        ends[j, 0], ends[j, 1] = low, high
        for i in range(low, high):
            r = (grid[j] - constant - slope * grid[i]) / step
            rows[j, i - low] = np.exp(-0.5 * r * r) * h / (step * np.sqrt(2 * np.pi))
    return ends, rows


@njit(cache=True, fastmath={"reassoc", "contract"})
def on_grid(kind, y, seen, pars, field, grid, reach, least):
    """Log density of the data up to constants, and whether mass came to an end of the grid."""
    slope, constant, step, start, start_sd = field
    m, h = grid.size, grid[1] - grid[0]
    ends, rows = bands(grid, slope, constant, step, reach)
    now, then, ll = np.zeros(m), np.zeros(m), np.zeros(m)
    total, touched = 0.0, False
    low, high = m, 0
    for i in range(m):
        r = (grid[i] - start) / start_sd
        if abs(r) < 11.5:
            then[i] = np.exp(-0.5 * r * r) * h / (start_sd * np.sqrt(2 * np.pi))
            low, high = min(low, i), max(high, i + 1)
    for t in range(y.size):
        if t > 0:
            a, b = constant + slope * grid[low], constant + slope * grid[high - 1]
            to_low = int((min(a, b) - reach * step - grid[0]) / h) - 1
            to_high = int((max(a, b) + reach * step - grid[0]) / h) + 2
            to_low, to_high = min(max(to_low, 0), m), min(max(to_high, 0), m)
            for j in range(to_low, to_high):
                first, last = max(ends[j, 0], low), min(ends[j, 1], high)
                s, shift = 0.0, ends[j, 0]
                for i in range(first, last):
                    s += rows[j, i - shift] * now[i]
                then[j] = s
            low, high = to_low, to_high
        if low >= high:
            return -np.inf, True
        best = -np.inf
        if seen[t]:
            for j in range(low, high):
                ll[j] = log_noise(kind, grid[j], y[t], pars[0], pars[1])
                best = max(best, ll[j])
        else:
            best = 0.0
        s, top = 0.0, 0.0
        for j in range(low, high):
            now[j] = then[j] * np.exp(ll[j] - best) if seen[t] else then[j]
            s += now[j]
            top = max(top, now[j])
        if not s > 0:
            return -np.inf, True
        while now[low] < least * top:
            low += 1
        while now[high - 1] < least * top:
            high -= 1
        if max(now[0] if low == 0 else 0.0, now[m - 1] if high == m else 0.0) > 1e-12 * top:
            touched = True
        for j in range(low, high):
            now[j] /= s
        total += np.log(s) + best
    return total, touched


def by_grid(
    kind: int, y: np.ndarray, field: Sequence[float], span: tuple[float, float],
    sharpest: float, spacing: float, pars: tuple[float, float] = (1.0, 1.0),
    seen: np.ndarray | None = None,
) -> float:  # fmt: skip
    """Log density of the data, constants of the noise left out.

    The field is (slope, constant, step, start, sd of the start). The distance of the points
    is `spacing` times the sd of the sharpest density; the likelihood has the curvature `sharpest`.
    """
    shortest = SHORTEST / y.size
    field = (*field[:2], max(field[2], shortest), field[3], max(field[4], shortest))
    h = spacing / np.sqrt(2 / field[2] ** 2 + sharpest)
    low, high = span
    there = np.ones(y.size, bool) if seen is None else seen
    for _ in range(6):
        grid = np.arange(low, high + h, h)
        found, touched = on_grid(
            kind, y.astype(float), there, pars, tuple(map(float, field)), grid, REACH, LEAST
        )
        if not touched:
            return found
        low, high = low - 0.5 * (high - low), high + 0.5 * (high - low)
    return -np.inf
