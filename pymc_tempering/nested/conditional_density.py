"""Density of one coordinate given all others, by quadrature along a compiled log density."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_tempering.core.cycles import FloatArray

MAX_CLIMB = 60
"""Steps of the search for a maximum along the line of a state."""
DROP = 35.0
"""Nats below the maximum at which the line is cut: what lies beyond is a share of about 1e-15."""
MAX_T = 60.0
"""End of the line in the coordinate t of the quadrature, 1e26 scales from the center."""
FIRST_STEP = 0.5
"""Largest step of the first grid, in t."""
TOLERANCE = 2e-5
"""Relative change of an integral by a halved step below which it is taken. The error of the finer
grid is far below it: about its square where the density is smooth, a third of it at a kink."""
MAX_NODES = 16_384
MAX_NUMBERS = 2_000_000
"""Numbers in the states of one call of the density."""

type LogDensity = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Conditional:
    """Density of one coordinate given the others, for each of n states.

    Attributes
    ----------
    log_density : ndarray, shape (n,)
        Log of the normalized conditional density at a value (nats, unconstrained).
    rank : ndarray, shape (n,)
        Conditional probability of a value below the state's own. Uniform over states that are
        draws from the density.
    converged : ndarray of bool, shape (n,)
        Whether the integral settled.
    """

    log_density: FloatArray
    rank: FloatArray
    converged: np.ndarray


@dataclass(frozen=True)
class Lines:
    """The lines through n states along one coordinate.

    Attributes
    ----------
    density : callable
        From states, shape (m, d), to log densities, shape (m,), up to a constant (nats).
    x : ndarray, shape (n, d)
    index : int
        The coordinate.
    """

    density: LogDensity
    x: FloatArray
    index: int

    def at(self, rows: np.ndarray, u: FloatArray) -> FloatArray:
        """Log density at values u, shape (k, m), of the coordinate on the lines of k states.

        Not a number, as it is where a tail overflows, counts as zero density.
        """
        found = np.empty(u.shape)
        block = max(1, MAX_NUMBERS // max(1, u.shape[1] * self.x.shape[1]))
        for start in range(0, len(rows), block):
            part = slice(start, start + block)
            states = np.repeat(self.x[rows[part]], u.shape[1], axis=0)
            states[:, self.index] = u[part].ravel()
            found[part] = self.density(states).reshape(-1, u.shape[1])
        return np.where(np.isnan(found), -np.inf, found)


def conditional_density(
    density: LogDensity, x: FloatArray, index: int, value: float
) -> Conditional:
    """Normalize a log density along one coordinate of each state, by quadrature.

    The line is mapped by u = c + s sinh(t), with c a maximum of the line's density and s its
    scale there, and the trapezoidal rule in t is refined until it settles. It converges
    exponentially where the density is smooth, also with heavy tails.

    Parameters
    ----------
    density : callable
        From states, shape (m, d), to log densities, shape (m,), up to a constant (nats).
    x : ndarray, shape (n, d)
        States. The maximum is searched from their own values of the coordinate, or from another
        state's where the density is higher.
    index : int
        The coordinate.
    value : float
        Where the conditional density is wanted.

    Returns
    -------
    Conditional

    Notes
    -----
    A second maximum is seen where it lies near the other states' values of the coordinate: 32 of
    their quantiles are tried on each line.
    """
    lines, every = Lines(density, x, index), np.arange(len(x))
    own = x[:, index]
    probes = np.unique(np.quantile(own, np.linspace(0.0, 1.0, 32)))
    tried = lines.at(every, np.broadcast_to(probes, (len(x), probes.size)))
    some = np.isfinite(tried).any(axis=1) | np.isfinite(lines.at(every, own[:, None])[:, 0])
    if not some.all():  # lines without any density: a coordinate held before allows no other value
        return _among(
            conditional_density(density, x[some], index, value) if some.any() else None, some
        )
    center, scale, top = _climb(lines, own, probes, tried)
    far = _second_maximum(probes, tried, center, scale, top)
    low, high, ends = _window(lines, probes, center, scale, top)
    count = np.ceil(np.log2((high - low) / FIRST_STEP * np.cosh(np.minimum(far, 20.0))))
    nodes = 2 ** np.clip(count, 3, np.log2(MAX_NODES) - 1).astype(int)
    log_norm, rank, settled = np.empty(len(x)), np.empty(len(x)), np.zeros(len(x), dtype=bool)
    place = np.arcsinh((own - center) / scale)
    for n in np.unique(nodes):
        rows = every[nodes == n]
        log_norm[rows], rank[rows], settled[rows] = _integrate(
            lines, rows, (center, scale, top), (low, high), int(n), place
        )
    at = lines.at(every, np.full((len(x), 1), value))[:, 0]
    return Conditional(at - log_norm, rank, settled & ends)


def _among(found: Conditional | None, some: np.ndarray) -> Conditional:
    """Zero density for all states but some."""
    log_density = np.full(some.size, -np.inf)
    rank, converged = np.full(some.size, 0.5), np.ones(some.size, dtype=bool)
    if found is not None:
        log_density[some], rank[some] = found.log_density, found.rank
        converged[some] = found.converged
    return Conditional(log_density, rank, converged)


def _climb(
    lines: Lines, own: FloatArray, probes: FloatArray, tried: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Find a maximum on each line, its scale, and the log density there, each of shape (n,).

    `tried` are the log densities at the probes, shape (n, m).
    """
    low, high = np.quantile(own, [0.25, 0.75])
    rows = np.arange(own.size)
    top = lines.at(rows, own[:, None])[:, 0]
    best = tried.argmax(axis=1)
    center = np.where(tried[rows, best] > top, probes[best], own)
    top = np.maximum(top, tried[rows, best])
    step = np.full(own.size, (high - low) / 1.35 or 1.0)
    scale = step.copy()
    for _ in range(MAX_CLIMB):
        if not rows.size:
            break
        c, h = center[rows], step[rows]
        sides = lines.at(rows, c[:, None] + h[:, None] * np.array([-1.0, 1.0]))
        highest = sides.max(axis=1)
        drop = top[rows] - highest
        up = drop < 0.0
        center[rows] = np.where(up, c + np.where(sides[:, 0] > sides[:, 1], -h, h), c)
        with np.errstate(divide="ignore", invalid="ignore"):
            curved = h / np.sqrt(2.0 * top[rows] - sides.sum(axis=1))
        scale[rows] = np.where(up, h, np.clip(curved, h / 4.0, h * 4.0))
        top[rows] = np.where(up, highest, top[rows])
        narrower, wider = ~up & (drop > 2.0), ~up & (drop < 0.1)
        step[rows] = np.where(narrower, h / 2.0, np.where(wider, h * 2.0, h))
        rows = rows[up | narrower | wider]
    return center, np.where(np.isfinite(scale) & (scale > 0.0), scale, 1.0), top


def _second_maximum(
    probes: FloatArray, tried: FloatArray, center: FloatArray, scale: FloatArray, top: FloatArray
) -> FloatArray:
    """Distance in t of the farthest probe that lies beyond a valley, shape (n,); 0 if none does."""
    far = np.zeros(center.size)
    t = np.arcsinh((probes - center[:, None]) / scale[:, None])
    for sign in (1, -1):
        away = sign * t[:, ::sign]
        beyond = away > 0.0
        outward = np.where(beyond, tried[:, ::sign], top[:, None])
        lowest = np.minimum.accumulate(outward, axis=1)
        with np.errstate(invalid="ignore"):
            rises = beyond & (outward > lowest + 0.1) & (outward > top[:, None] - 20.0)
        far = np.maximum(far, np.where(rises, away, 0.0).max(axis=1))
    return far


def _window(
    lines: Lines, probes: FloatArray, center: FloatArray, scale: FloatArray, top: FloatArray
) -> tuple[FloatArray, FloatArray, np.ndarray]:
    """Find the ends in t beyond which nothing is left; false where there are none within MAX_T."""
    ends, found = [], np.ones(center.size, dtype=bool)
    for sign, reach in ((-1.0, probes[0]), (1.0, probes[-1])):
        t = np.maximum(3.0, np.arcsinh(sign * (reach - center) / scale))
        rows = np.arange(center.size)
        while rows.size:
            u = center[rows] + sign * scale[rows] * np.sinh(t[rows])
            f = lines.at(rows, u[:, None])[:, 0] + np.log(np.cosh(t[rows]))
            rows = rows[f > top[rows] - DROP]
            found[rows[t[rows] >= MAX_T]] = False
            rows = rows[t[rows] < MAX_T]
            t[rows] += 1.0
        ends.append(sign * t)
    return ends[0], ends[1], found


def _integrate(
    lines: Lines,
    rows: np.ndarray,
    shape: tuple[FloatArray, FloatArray, FloatArray],
    window: tuple[FloatArray, FloatArray],
    n: int,
    place: FloatArray,
) -> tuple[FloatArray, FloatArray, np.ndarray]:
    """Integrate along the lines of some states: log integral, rank at `place`, and whether settled.

    `shape` are center, scale and top, `window` the ends in t, and `n` intervals come first.
    """
    center, scale, top = (part[rows] for part in shape)
    low, high = (end[rows] for end in window)
    total, rank = np.empty(rows.size), np.empty(rows.size)
    settled = np.zeros(rows.size, dtype=bool)

    def heights(at: np.ndarray, share: FloatArray) -> FloatArray:
        t = low[at, None] + (high - low)[at, None] * share
        u = center[at, None] + scale[at, None] * np.sinh(t)
        with np.errstate(over="ignore"):  # an infinite integral does not settle
            return np.exp(lines.at(rows[at], u) - top[at, None]) * np.cosh(t) * scale[at, None]

    left = np.arange(rows.size)
    f = heights(left, np.arange(n + 1) / n)
    coarse = f.sum(axis=1) * (high - low) / n
    while True:
        both = np.empty((left.size, 2 * n + 1))
        both[:, ::2], both[:, 1::2] = f, heights(left, (np.arange(n) + 0.5) / n)
        n *= 2
        fine = both.sum(axis=1) * (high - low)[left] / n
        done = np.isfinite(fine) & (np.abs(fine - coarse) <= TOLERANCE * fine)
        over = n >= MAX_NODES
        settled[left[done]] = True
        for i in np.flatnonzero(done | over):
            k = left[i]
            grid = np.linspace(low[k], high[k], n + 1)
            sums = np.cumsum(both[i]) - 0.5 * both[i]
            total[k] = fine[i]
            rank[k] = np.interp(place[rows[k]], grid, sums / both[i].sum())
        if over or done.all():
            with np.errstate(divide="ignore"):
                return np.log(total) + top, rank, settled
        left, f, coarse = left[~done], both[~done], fine[~done]
