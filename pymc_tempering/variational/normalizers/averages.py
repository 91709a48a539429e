"""The prior average of normalizers: whether it is finite; by quadrature or annealed particles."""

from itertools import product

import numpy as np
from numpy.polynomial.legendre import leggauss

from pymc_tempering.chain.particles import Particles, place_under, sweep
from pymc_tempering.core.weighting import conditional_ess, log_mean, systematic_resampling
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.kernels import HMC
from pymc_tempering.kernels.contract import on_all
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.likelihood_terms import NormalizerGroup

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
        alone, all_of_them = np.eye(n_variables), np.ones(n_variables)
        signs = np.vstack([signs, alone, -alone, all_of_them, -all_of_them])
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
        heights = log_integrand(group, x.reshape(-1, group.dim), temperature)[0]
        heights = heights.reshape(len(directions), DOUBLINGS)
        for direction, height in zip(directions, heights, strict=True):
            if grows(height, distances, int(np.abs(direction).sum())):
                return _along(group, direction)
    if group.dim == 1:
        return ""
    direction, ridge = follow_ridge(group, center, float(np.median(scale)), temperature, rng)
    return _along(group, direction) if grows(ridge, distances, 1) else ""


def follow_ridge(
    group: NormalizerGroup,
    center: np.ndarray,
    unit: float,
    temperature: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Direction of the largest value on the last of spheres of doubling radius, and all values.

    The integrand may be largest where several scales rise together, each at its own rate, which no
    fixed ray follows. So some directions on each sphere are turned along the gradient, beginning
    with those of the last sphere.
    """
    u = np.vstack([rng.standard_normal((N_CLIMBERS, group.dim)), np.eye(group.dim)[:N_CLIMBERS]])
    u, best, ridge = _unit(u), u[0], np.full(DOUBLINGS, np.nan)
    leading = np.arange(len(u))
    for place, radius in enumerate(unit * 2.0 ** np.arange(DOUBLINGS)):
        height, angle = np.full((len(u), 1), -np.inf), np.full((len(u), 1), 0.3)
        slope = np.zeros_like(u)
        for _ in range(1 + CLIMBS):  # the first turn is none
            turned = _unit(u + angle * _unit(slope - (slope * u).sum(axis=1, keepdims=True) * u))
            found, gradient = log_integrand(group, center + radius * turned, temperature)
            better = (np.isfinite(found) & (found > height[:, 0]))[:, None]
            height = np.where(better, found[:, None], height)
            u, slope = np.where(better, turned, u), np.where(better, _unit(gradient), slope)
            angle = angle * np.where(better, 1.3, 0.5)
        if np.isneginf(height[leading]).all():
            break  # the ridge is lost beyond floating point; what else there is says nothing of it
        leading = np.argmax(height, axis=0)
        ridge[place], best = height.max(), u[leading[0]]
    return np.where(np.abs(best) > 0.1 * np.abs(best).max(), best, 0.0), ridge


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length one; a row of zeros stays."""
    largest = np.abs(rows).max(axis=1, keepdims=True)  # the squares of large ones overflow
    rows = rows / np.where(largest > 0.0, largest, 1.0)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def log_integrand(
    group: NormalizerGroup, x: np.ndarray, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Log of prior times normalizers at points (n, d) and its gradient; NaN where not known."""
    log_prior, log_c, gradient = group.evaluate(x, temperature)
    with np.errstate(invalid="ignore"):
        heights = np.where(log_prior == -np.inf, -np.inf, log_prior + log_c)
    return heights, np.nan_to_num(gradient, posinf=0.0, neginf=0.0)


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


TOLERANCE = 1e-10
"""Relative error at which the halving of panels stops."""

MAX_ROUNDS = 60
"""Rounds of halving."""

SPACING = np.sinh(np.linspace(-30.0, 30.0, 301)) * 1e-6
"""Distances around a point on all scales from 1e-7 to 5e6, in standard deviations."""


def line_average(group: NormalizerGroup, draws: np.ndarray, temperature: float) -> float:
    """Log of the average over the one unconstrained dimension of a group, in nats.

    `draws`, shape (n, 1), are prior draws: where to look.

    Raises
    ------
    NormalizerError
        The integral did not settle.
    """

    def log_f(y: np.ndarray) -> np.ndarray:
        heights = log_integrand(group, y.reshape(-1, 1), temperature)[0].reshape(y.shape)
        return np.where(np.isnan(heights), -np.inf, heights)

    center, scale = float(np.median(draws)), float(draws.std())
    peak = center
    for _ in range(8):  # on grids on all scales around the last best point
        grid = peak + scale * SPACING
        heights = log_f(grid)
        peak, top = float(grid[np.argmax(heights)]), float(heights.max())
    if not np.isfinite(top):
        raise NormalizerError(
            f"The prior average of the normalizer of {group.label()} at T = {temperature:g} "
            "has no finite integrand. Restrict the prior to where the likelihood is defined."
        )
    cuts = np.unique(np.concatenate([center + scale * SPACING, peak + scale * SPACING]))
    low, high, total = cuts[:-1], cuts[1:], 0.0

    def panels(n_nodes: int) -> np.ndarray:
        nodes, rule = leggauss(n_nodes)
        y = 0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * nodes
        return 0.5 * (high - low) * (np.exp(log_f(y) - top) @ rule)

    for _ in range(MAX_ROUNDS):
        values, others = panels(10), panels(7)
        allowed = TOLERANCE * (total + values.sum()) * max(1e-3, 1.0 / len(values))
        done = np.abs(values - others) <= allowed
        total += values[done].sum()
        if done.all():
            return float(top + np.log(total))
        middle = 0.5 * (low + high)[~done]
        low, high = np.r_[low[~done], middle], np.r_[middle, high[~done]]
    raise NormalizerError(
        f"The prior average of the normalizer of {group.label()} at T = {temperature:g} "
        "did not settle: its integrand is not smooth."
    )


N_POPULATIONS = 16
"""Independent populations of particles."""

MIN_CESS = 0.6
"""Conditional effective sample size of a step, as a share of the particles."""

MOVES, MAX_LEAPS, TARGET_ACCEPT, PATH_LENGTH = 4, 8, 0.8, 1.2
"""Hamiltonian moves after each step, their leapfrog steps at most, their acceptance and length."""

MIN_STEP = 1e-5
"""Smallest step in 1 - 1 / T, as a share of the way to the next temperature."""


def moved(particles: Particles, step: float) -> tuple[float, float]:
    """Move all particles; returns the next step size and the mean acceptance.

    The temperature is the last coordinate of a state, which no kernel moves.
    """
    kernel, accepted = particles.kernel, []
    scale = np.maximum(particles.xs.std(axis=0), 1e-12)
    for _ in range(MOVES):
        before = particles.accepted
        sweep(particles, 1.0, kernel.pack(np.array([step]), scale, None))
        accepted.append(float(np.mean(particles.accepted - before)) / particles.n)
        step *= np.exp(accepted[-1] - TARGET_ACCEPT)
    return step, float(np.mean(accepted))


def particle_average(
    group: NormalizerGroup, draws: np.ndarray, temperatures: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Anneal prior draws, shape (n, d), up the temperatures, shape (M,), all above 1.

    Returns
    -------
    by_population : array, shape (M, 16)
        Log of the average of each population (nats).
    accept : float
        Mean acceptance probability of the moves.
    """
    size = len(draws) // N_POPULATIONS
    xs = np.column_stack([draws[: size * N_POPULATIONS], np.ones(size * N_POPULATIONS)])
    kernel = on_all(HMC(TARGET_ACCEPT, PATH_LENGTH, MAX_LEAPS), group.dim)
    log_z, here, step = np.zeros(N_POPULATIONS), 0.0, 0.5
    log_c = np.zeros(len(xs))
    values, accepts = [], []
    for goal in 1.0 - 1.0 / temperatures:
        ahead = goal - here
        while here < goal:
            there, xs, log_weight = _next_temperature(group, xs, log_c, here, ahead, goal)
            by_population = log_weight.reshape(N_POPULATIONS, size)
            log_z = log_z + [log_mean(log_w) for log_w in by_population]
            chosen = [systematic_resampling(w, rng) + size * g for g, w in enumerate(by_population)]
            particles = place_under(group.density, kernel, xs[np.concatenate(chosen)], rng)
            step, accept = moved(particles, step)
            xs, log_c = particles.xs, particles.log_ratio.copy()
            accepts.append(accept)
            here, ahead = there, 2.0 * (there - here)
        values.append(log_z)
    return np.array(values), float(np.mean(accepts))


def _next_temperature(
    group: NormalizerGroup,
    xs: np.ndarray,
    log_c: np.ndarray,
    here: float,
    ahead: float,
    goal: float,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Go on in 1 - 1 / T as far as the weights allow; returns it, states there, log weights.

    Raises
    ------
    NormalizerError
        A normalizer is not a number.
    """
    ahead = min(ahead, goal - here)
    while True:
        there = goal if here + ahead >= goal * (1.0 - 1e-12) else here + ahead
        temperature = 1.0 / (1.0 - there)
        xs = np.column_stack([xs[:, :-1], np.full(len(xs), temperature)])
        new_log_c = group.evaluate(xs[:, :-1], temperature)[1]
        if np.isnan(new_log_c).any():
            raise NormalizerError(
                f"The tempered normalizer of {group.label()} cannot be evaluated at "
                f"T = {temperature:.3g} for {np.isnan(new_log_c).mean():.1%} of the particles: a "
                "sum gets too long or a quadrature fails its own check. Use lower temperatures; of "
                f"the fits, {WITHOUT_NORMALIZER}."
            )
        log_weight = new_log_c - log_c
        if conditional_ess(log_weight, 1.0) >= MIN_CESS or ahead <= MIN_STEP * goal:
            return there, xs, log_weight
        ahead *= 0.5
