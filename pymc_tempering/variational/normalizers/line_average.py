"""Prior average of normalizers that depend on one scalar, by adaptive quadrature."""

import numpy as np

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.groups import NormalizerGroup

TOLERANCE = 1e-10
"""Relative error at which the halving of panels stops."""

MAX_ROUNDS = 60
"""Rounds of halving."""

SPACING = np.sinh(np.linspace(-30.0, 30.0, 301)) * 1e-6
"""Distances around a point on all scales from 1e-7 to 5e6, in standard deviations."""


def gauss(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]."""
    return np.polynomial.legendre.leggauss(n)


def log_integrand(group: NormalizerGroup, y: np.ndarray, temperature: float) -> np.ndarray:
    """Log of prior times normalizers, minus infinity outside of the support."""
    log_prior, log_c, _, _ = group.evaluate(y.reshape(-1, 1), temperature)
    heights = np.where(log_prior == -np.inf, -np.inf, log_prior + log_c)
    return np.where(np.isnan(heights), -np.inf, heights).reshape(y.shape)


def find_peak(
    group: NormalizerGroup, start: float, scale: float, temperature: float
) -> tuple[float, float]:
    """Place and height of the largest value, on grids on all scales around the last best point."""
    for _ in range(8):
        grid = start + scale * SPACING
        heights = log_integrand(group, grid, temperature)
        best = int(np.argmax(heights))
        moved, start = abs(grid[best] - start), float(grid[best])
        if moved <= 1e-12 * (1.0 + abs(start)):
            break
    return start, float(heights[best])


def line_average(
    group: NormalizerGroup, draws: np.ndarray, temperature: float
) -> tuple[float, float]:
    """Log of the average and its numerical error, in nats.

    Parameters
    ----------
    group : NormalizerGroup
        Of one unconstrained dimension.
    draws : array, shape (n, 1)
        Prior draws: where to look.
    temperature : float

    Raises
    ------
    NormalizerError
        The integral did not settle.
    """
    center, scale = float(np.median(draws)), float(draws.std())
    peak, top = find_peak(group, center, scale, temperature)
    if not np.isfinite(top):
        raise NormalizerError(
            f"The prior average of the normalizer of {group.label()} at T = {temperature:g} "
            "has no finite integrand. Restrict the prior to where the likelihood is defined."
        )
    around = np.concatenate([center + scale * SPACING, peak + scale * SPACING])
    cuts = np.unique(around)
    low, high = cuts[:-1], cuts[1:]
    (fine, fine_rule), (coarse, coarse_rule) = gauss(10), gauss(7)
    total, total_error = 0.0, 0.0

    def panels(nodes: np.ndarray, rule: np.ndarray) -> np.ndarray:
        y = 0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * nodes
        return 0.5 * (high - low) * (np.exp(log_integrand(group, y, temperature) - top) @ rule)

    for _ in range(MAX_ROUNDS):
        values = panels(fine, fine_rule)
        errors = np.abs(values - panels(coarse, coarse_rule))
        whole = total + values.sum()
        done = errors <= TOLERANCE * whole * np.maximum(1e-3, 1.0 / len(errors))
        total += values[done].sum()
        total_error += errors[done].sum()
        if done.all():
            break
        middle = 0.5 * (low + high)[~done]
        low, high = np.r_[low[~done], middle], np.r_[middle, high[~done]]
    else:
        raise NormalizerError(
            f"The prior average of the normalizer of {group.label()} at T = {temperature:g} "
            "did not settle: its integrand is not smooth."
        )
    return float(top + np.log(total)), float(total_error / total)
