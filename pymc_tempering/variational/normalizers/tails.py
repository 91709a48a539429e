"""Whether the integral of prior times normalizers converges, from how it falls far out.

A Normal's normalizer grows as sigma^(N (1 - 1 / T)): under a prior whose tail falls slower there is
no finite C(T), and an average over draws does not show it. The integrand is followed along rays of
the unconstrained space, at distances that double; with f(r) ~ r^-k it can be integrated over m
directions only if k > m (an exponential of r has k without bound).
"""

from itertools import product

import numpy as np

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.groups import NormalizerGroup

DOUBLINGS = 12
"""Distances go up to 2^11 standard deviations of the prior."""

MIN_KNOWN = 6
"""Distances at which the integrand has to be known: up to 2^5 standard deviations."""

N_CLIMBERS, CLIMBS = 20, 30
"""Directions that climb on each sphere, and their turns."""

MAX_COMBINED, MAX_ELEMENTS, RANDOM_RAYS = 5, 100, 200
"""All combinations of signs for so many variables; single elements; else so many random rays."""


def rays(group: NormalizerGroup, rng: np.random.Generator) -> np.ndarray:
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
    if n_known < MIN_KNOWN:
        return False  # it ends, or a sum gets too long, before the tail is reached
    fall = heights[n_known - 2] - heights[n_known - 1]
    power = fall / np.log(distances[n_known - 1] / distances[n_known - 2])
    return bool(power <= n_directions * (1.0 + 1e-6))


def diverges(group: NormalizerGroup, draws: np.ndarray, temperature: float, seed: int) -> str:
    """Say along which variables the average diverges at a temperature; empty where it does not."""
    center, scale = np.median(draws, axis=0), draws.std(axis=0)
    rng = np.random.default_rng(seed)
    distances = 2.0 ** np.arange(DOUBLINGS)
    directions = rays(group, rng)
    for unit in (scale, np.full_like(scale, np.median(scale))):
        x = center + distances[None, :, None] * (directions * unit)[:, None]
        heights = _heights(group, x.reshape(-1, group.dim), temperature)[0]
        heights = heights.reshape(len(directions), DOUBLINGS)
        for direction, height in zip(directions, heights, strict=True):
            if grows(height, distances, int(np.abs(direction).sum())):
                return _along(group, direction)
    if group.dim == 1:
        return ""
    direction, ridge = follow_ridge(group, center, float(np.median(scale)), temperature, rng)
    return _along(group, direction) if grows(ridge, distances, 1) else ""


def _heights(
    group: NormalizerGroup, x: np.ndarray, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Log of prior times normalizers and its gradient; NaN where a normalizer is not known."""
    log_prior, log_c, grad_prior, grad_c = group.evaluate(x, temperature)
    with np.errstate(invalid="ignore"):
        heights = np.where(log_prior == -np.inf, -np.inf, log_prior + log_c)
    return heights, np.nan_to_num(grad_prior + grad_c, posinf=0.0, neginf=0.0)


def follow_ridge(
    group: NormalizerGroup,
    center: np.ndarray,
    unit: float,
    temperature: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Largest value on spheres of doubling radius, and the direction of the last one.

    The integrand may be largest where several scales rise together, each at its own rate, which no
    fixed ray follows. So some directions on each sphere are turned along the gradient, beginning
    with those of the last sphere.
    """
    u = rng.standard_normal((N_CLIMBERS, group.dim))
    u = np.vstack([u / np.linalg.norm(u, axis=1, keepdims=True), np.eye(group.dim)[:N_CLIMBERS]])
    ridge, best = np.full(DOUBLINGS, np.nan), u[0]
    for place, radius in enumerate(unit * 2.0 ** np.arange(DOUBLINGS)):
        angle = np.full(len(u), 0.3)
        height, grad = _heights(group, center + radius * u, temperature)
        for _ in range(CLIMBS):
            steepest = np.abs(grad).max(axis=1, keepdims=True)
            grad = grad / np.where(steepest > 0.0, steepest, 1.0)
            tangent = grad - (grad * u).sum(axis=1, keepdims=True) * u
            size = np.linalg.norm(tangent, axis=1, keepdims=True)
            tangent = tangent / np.where(size > 0.0, size, 1.0)
            turned = np.cos(angle)[:, None] * u + np.sin(angle)[:, None] * tangent
            turned /= np.linalg.norm(turned, axis=1, keepdims=True)
            new_height, new_grad = _heights(group, center + radius * turned, temperature)
            better = new_height > np.where(np.isnan(height), -np.inf, height)
            u, grad = (np.where(better[:, None], a, b) for a, b in ((turned, u), (new_grad, grad)))
            height = np.where(better, new_height, height)
            angle = np.where(better, 1.3 * angle, 0.5 * angle)
        known = np.isfinite(height)
        if not known.any():
            break
        top = int(np.argmax(np.where(known, height, -np.inf)))
        ridge[place], best = height[top], u[top]
    threshold = 0.1 * np.abs(best).max()
    return np.where(np.abs(best) > threshold, best, 0.0), ridge


def _along(group: NormalizerGroup, direction: np.ndarray) -> str:
    """Names of the variables that a direction moves, and which way."""
    starts = np.cumsum([0, *group.sizes[:-1]])
    parts = []
    for name, start, size in zip(group.variables, starts, group.sizes, strict=True):
        piece = direction[start : start + size]
        if piece.any():
            way = "large" if piece[np.argmax(np.abs(piece))] > 0 else "small"
            parts.append(f"{way} {name!r}")
    return " and ".join(parts)


def infinite_error(
    group: NormalizerGroup, temperature: float, reason: str, finite: np.ndarray
) -> Exception:
    """Error for a temperature at which C(T) is infinite."""
    known = (
        f"Of the temperatures given, it is finite up to T = {finite.max():g}."
        if finite.size
        else "It is infinite at every temperature above 1 that was given."
    )
    return NormalizerError(
        f"C(T) is infinite at T = {temperature:g} (or beyond floating point): the prior average of "
        f"the normalizer of {group.label()} does not converge{reason}. {known} Give these "
        "variables priors with lighter tails or bounded ones, use lower temperatures, or use "
        f'normalizer="local"; of the fits, {WITHOUT_NORMALIZER}.'
    )
