"""Integrals over the hyperparameters of a field: sums on two lattices, and importance sampling.

The lattices lie in coordinates where the density is about a standard normal; there the sum over
points one standard deviation apart is exact to 1e-8, and to less than that where it is skewed.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

type LogDensity = Callable[[np.ndarray], float]

MOST = 400_000
"""Points of a lattice."""


def curvature(log_f: LogDensity, mode: np.ndarray, root: np.ndarray, step: float) -> np.ndarray:
    """Negative second derivatives at `mode + root @ z`, z = 0, by differences of a step in z."""
    n = mode.size
    unit = step * np.eye(n)
    at = {}

    def value(z: np.ndarray) -> float:
        key = tuple(np.round(z / step).astype(int))
        if key not in at:
            at[key] = log_f(mode + root @ z)
        return at[key]

    zero, found = np.zeros(n), np.empty((n, n))
    for i in range(n):
        found[i, i] = value(unit[i]) + value(-unit[i]) - 2 * value(zero)
        for j in range(i):
            both = value(unit[i] + unit[j]) + value(-unit[i] - unit[j]) - 2 * value(zero)
            apart = value(unit[i] - unit[j]) + value(unit[j] - unit[i]) - 2 * value(zero)
            found[i, j] = found[j, i] = (both - apart) / 4
    return -found / step**2


def root_of_inverse(precision: np.ndarray) -> np.ndarray:
    """Return R with R R' = the inverse, where curvatures below .02 are taken as .02."""
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    return vectors / np.sqrt(np.maximum(values, 0.02))


def mode_of(log_f: LogDensity, start: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Mode, and a root of the covariance there."""
    spot = np.asarray(start, float)
    for _ in range(2):
        simplex = np.vstack([spot, spot + 0.3 * np.eye(spot.size)])
        options = {"initial_simplex": simplex, "xatol": 2e-3, "fatol": 1e-3, "adaptive": True}
        options["maxiter"] = 400 * spot.size
        spot = minimize(lambda x: -log_f(x), spot, method="Nelder-Mead", options=options).x
    root = 0.02 * np.eye(spot.size)
    for step in (1.0, 0.5, 0.5, 0.7):
        root = root @ root_of_inverse(curvature(log_f, spot, root, step))
    return spot, root


def flooded(
    log_f: LogDensity, mode: np.ndarray, root: np.ndarray, offset: float, step: float, depth: float
) -> np.ndarray:
    """Values at the points of a lattice that hang together and are at most `depth` below."""
    n = mode.size
    highest, first = log_f(mode), (0,) * n
    at, waiting = {first: log_f(mode + root @ np.full(n, offset * step))}, [first]
    while waiting:
        place = waiting.pop()
        for i in range(n):
            for way in (-1, 1):
                beside = (*place[:i], place[i] + way, *place[i + 1 :])
                if beside in at:
                    continue
                at[beside] = log_f(mode + root @ (step * (np.array(beside) + offset)))
                if at[beside] > highest - depth:
                    waiting.append(beside)
                    highest = max(highest, at[beside])
        if len(at) > MOST:
            raise ArithmeticError(f"the lattice has more than {MOST} points")
    return np.array(list(at.values()))


def on_lattices(
    log_f: LogDensity, other: LogDensity, start: Sequence[float], step: float = 1.0,
    depth: float = 13.0,
) -> tuple[float, float]:  # fmt: skip
    """Log integral and its error, by a lattice and a second one half a step beside it.

    The second one may take the density by a coarser approximation, so that the difference of both
    is the error of that as well.
    """
    mode, root = mode_of(other, start)
    volume = np.linalg.slogdet(root)[1] + mode.size * np.log(step)
    sums, lost = [], []
    for density, offset in ((log_f, 0.0), (other, 0.5)):
        values = flooded(density, mode, root, offset, step, depth)
        sums.append(logsumexp(values) + volume)
        # Beyond the rim lies less than a quarter of what lies in its outermost two nats.
        inner = logsumexp(values[values > values.max() - depth + 2]) + volume
        lost.append((sums[-1] - inner) / 4)
    average = float(np.logaddexp(*sums) - np.log(2))
    return average, float(abs(sums[0] - sums[1]) / 2 + max(lost))


def weighed(
    log_f: LogDensity, mean: np.ndarray, root: np.ndarray, draws: int, rng: np.random.Generator,
    freedom: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Draws of a Student-t law and their log weights."""
    n = mean.size
    z = rng.standard_normal((draws, n)) * np.sqrt(freedom / rng.chisquare(freedom, (draws, 1)))
    log_q = (
        gammaln((freedom + n) / 2) - gammaln(freedom / 2) - n / 2 * np.log(freedom * np.pi)
        - (freedom + n) / 2 * np.log1p((z**2).sum(axis=1) / freedom)
        - np.linalg.slogdet(root)[1]
    )  # fmt: skip
    x = mean + z @ root.T
    return x, np.array([log_f(row) for row in x]) - log_q


def refitted(x: np.ndarray, log_w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and a root of the covariance of weighted draws, no weight above ten times the mean."""
    ceiling = logsumexp(log_w) - np.log(log_w.size) + np.log(10)
    w = np.exp(np.minimum(log_w, ceiling) - ceiling)
    w /= w.sum()
    mean = w @ x
    return mean, np.linalg.cholesky((x - mean).T @ ((x - mean) * w[:, None]))


def by_importance(
    log_f: LogDensity, mean: np.ndarray, root: np.ndarray, rng: np.random.Generator,
    draws: int = 20_000, rounds: Sequence[int] = (), freedom: float = 8.0,
) -> tuple[float, float]:  # fmt: skip
    """Log integral and its standard error; each round draws so many and fits the law anew."""
    for number in rounds:
        x, log_w = weighed(log_f, mean, root, number, rng, freedom)
        mean, root = refitted(x, log_w)
    _, log_w = weighed(log_f, mean, root, draws, rng, freedom)
    log_z = logsumexp(log_w) - np.log(draws)
    spread = np.exp(log_w - log_z)
    return float(log_z), float(spread.std() / np.sqrt(draws))
