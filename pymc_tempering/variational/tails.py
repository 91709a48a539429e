"""Whether the integral of prior times normalizers converges: how it falls far from the prior's bulk.

A Normal's normalizer grows as sigma^(N (1 - 1 / T)): under a prior whose tail falls slower there is
no finite C(T), and an average over draws does not show it. The integrand is followed along rays of
the unconstrained space, at distances that double; with f(r) ~ r^-k it can be integrated over m
directions only if k > m (an exponential of r has k without bound).
"""

from itertools import product

import numpy as np

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.groups import Group

DOUBLINGS = 12
"""Distances go up to 2^11 standard deviations of the prior."""

MAX_COMBINED, MAX_ELEMENTS, RANDOM_RAYS = 5, 100, 200
"""All combinations of signs for so many variables; single elements; else so many random rays."""


def rays(group: Group, rng: np.random.Generator) -> np.ndarray:
    """Directions with entries -1, 0, 1, shape (n, d): whole variables together, single elements."""
    n_variables = len(group.sizes)
    if n_variables <= MAX_COMBINED:
        signs = np.array(list(product((-1, 0, 1), repeat=n_variables)))
    else:
        signs = rng.integers(-1, 2, size=(RANDOM_RAYS, n_variables))
        signs = np.vstack([signs, np.eye(n_variables), -np.eye(n_variables)])
        signs = np.vstack([signs, np.ones(n_variables), -np.ones(n_variables)])
    signs = signs[np.abs(signs).sum(axis=1) > 0]
    directions = [np.repeat(signs, group.sizes, axis=1)]
    if n_variables < group.dim <= MAX_ELEMENTS:
        directions += [np.eye(group.dim), -np.eye(group.dim)]
    return np.vstack(directions).astype(float)


def grows(heights: np.ndarray, distances: np.ndarray, n_directions: int) -> bool:
    """Whether log heights at increasing distances fall too slowly for an integral to exist."""
    if np.isposinf(heights).any():
        return True
    known = np.isfinite(heights)
    n_known = len(heights) if known.all() else int(np.argmin(known))
    if n_known < 2:
        return False  # the support ends right there
    fall = heights[n_known - 2] - heights[n_known - 1]
    power = fall / np.log(distances[n_known - 1] / distances[n_known - 2])
    return bool(power <= n_directions * (1.0 + 1e-6))


def diverges(group: Group, draws: np.ndarray, temperature: float, seed: int) -> str:
    """Say along which variables the average diverges at a temperature; empty where it does not."""
    center, scale = np.median(draws, axis=0), draws.std(axis=0)
    distances = 2.0 ** np.arange(DOUBLINGS)
    directions = rays(group, np.random.default_rng(seed))
    x = center + distances[None, :, None] * (directions * scale)[:, None]
    log_prior, log_c, _, _ = group.evaluate(x.reshape(-1, group.dim), temperature)
    log_c = np.where(log_prior == -np.inf, 0.0, log_c)
    heights = (log_prior + log_c).reshape(len(directions), DOUBLINGS)
    # far out a normalizer that raises or overflows is not known, and neither is what follows
    for direction, height in zip(directions, heights, strict=True):
        if grows(height, distances, int(np.abs(direction).sum())):
            return _along(group, direction)
    return ""


def _along(group: Group, direction: np.ndarray) -> str:
    """Names of the variables that a direction moves, and which way."""
    starts = np.cumsum([0, *group.sizes[:-1]])
    parts = []
    for name, start, size in zip(group.variables, starts, group.sizes, strict=True):
        piece = direction[start : start + size]
        if piece.any():
            way = "large" if piece[np.argmax(np.abs(piece))] > 0 else "small"
            parts.append(f"{way} {name!r}")
    return " and ".join(parts)


def infinite_error(group: Group, temperature: float, reason: str, finite: np.ndarray) -> Exception:
    """Error for a temperature at which C(T) is infinite."""
    known = (
        f"Of the temperatures given, it is finite up to T = {finite.max():g}."
        if finite.size
        else "It is infinite at every temperature above 1 that was given."
    )
    return NormalizerError(
        f"C(T) is infinite at T = {temperature:g} (or beyond floating point): the prior average of "
        f"the normalizer of {group.describe()} does not converge{reason}. {known} Give these "
        "variables priors with lighter tails or bounded ones, use lower temperatures, or use "
        f'normalizer="local"; of the fits, {WITHOUT_NORMALIZER}.'
    )
