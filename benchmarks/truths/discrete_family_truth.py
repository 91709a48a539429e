"""Evidence of a model by quadrature on a grid that closes in, its discrete unknowns summed by hand.

A problem says by itself, in NumPy and without PyMC's densities, what is left of its joint density
when the discrete unknowns are summed out. The grid covers the prior, is cut to where
the density is not negligible, and is refined once: both results must agree.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pymc as pm
from scipy.special import logsumexp
from scipy.stats import gamma

AGREEMENT = 1e-5
"""Largest difference of the last two grids, in nats."""
CHUNK = 3_000_000
"""Nodes that are held at a time."""
LOOK = {1: 400, 2: 100, 3: 40, 4: 22}
"""Nodes of an axis of the first grids, by the number of axes."""


@dataclass(frozen=True)
class Axis:
    """Range of a continuous unknown, in its logarithm if that is the kind, and how many nodes."""

    kind: Literal["line", "log", "unit"]
    low: float
    high: float
    nodes: int


@dataclass(frozen=True)
class Problem:
    """A model and what its exact evidence needs."""

    model: pm.Model
    form: str
    """What was drawn, for the reader: form and sizes."""
    axes: tuple[Axis, ...]
    log_sum: Callable[..., np.ndarray]
    """Log density of all, summed over the discrete unknowns, at arrays that broadcast: one
    for each axis, with its Jacobian where the axes are not the unknowns themselves."""


def of_normal(mean: float, sd: float, nodes: int) -> Axis:
    """Return the axis of an unknown with a normal prior."""
    return Axis("line", mean - 6 * sd, mean + 6 * sd, nodes)


def of_gamma(shape: float, rate: float, nodes: int) -> Axis:
    """Return the axis of an unknown with a gamma prior; a smaller value has mass 1e-8."""
    law = gamma(shape, scale=1 / rate)
    return Axis("log", float(np.log(law.ppf(1e-8))), float(np.log(law.isf(1e-11))), nodes)


def of_beta(nodes: int) -> Axis:
    """Return the axis of an unknown between 0 and 1; a power of the prior must be whole."""
    return Axis("unit", 0.0, 1.0, nodes)


def nodes_on(axis: Axis, low: float, high: float, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and log weights: Gauss and Legendre between 0 and 1, else midpoints of equal steps."""
    if axis.kind == "unit":
        x, w = np.polynomial.legendre.leggauss(number)
        return low + (high - low) * (x + 1) / 2, np.log(w * (high - low) / 2)
    step = (high - low) / number
    x = low + step * (np.arange(number) + 0.5)
    log_weights = np.full(number, np.log(step))
    return (np.exp(x), x + log_weights) if axis.kind == "log" else (x, log_weights)


def on_grid(
    problem: Problem, boxes: Sequence[tuple[float, float]], numbers: Sequence[int]
) -> Iterator[tuple[slice, np.ndarray]]:
    """Log density times weight, some nodes of the first axis at a time."""
    pairs = [
        nodes_on(axis, *box, n) for axis, box, n in zip(problem.axes, boxes, numbers, strict=True)
    ]
    dims = len(pairs)
    shaped = [
        [a.reshape([-1 if i == j else 1 for j in range(dims)]) for a in pair]
        for i, pair in enumerate(pairs)
    ]
    at_once = max(1, CHUNK // int(np.prod(numbers[1:], dtype=int)))
    for start in range(0, numbers[0], at_once):
        piece = slice(start, start + at_once)
        (first, first_weights), *rest = shaped
        with np.errstate(all="ignore"):
            log_p = problem.log_sum(first[piece], *(value for value, _ in rest))
        yield piece, log_p + first_weights[piece] + sum(w for _, w in rest)


def closed_in(
    problem: Problem, boxes: Sequence[tuple[float, float]], deep: float
) -> list[tuple[float, float]]:
    """Cut each range to where the density is at most `deep` nats below its largest value."""
    dims = len(boxes)
    numbers = [LOOK[dims]] * dims
    best = [np.full(n, -np.inf) for n in numbers]
    for piece, log_p in on_grid(problem, boxes, numbers):
        for i in range(dims):
            largest = np.nanmax(log_p, axis=tuple(j for j in range(dims) if j != i))
            part = piece if i == 0 else slice(None)
            best[i][part] = np.maximum(best[i][part], largest)
    cut = []
    for axis, (low, high), profile in zip(problem.axes, boxes, best, strict=True):
        x = nodes_on(axis, low, high, profile.size)[0]
        x = np.concatenate([[low], np.log(x) if axis.kind == "log" else x, [high]])
        kept = np.flatnonzero(profile > profile.max() - deep) + 1
        cut.append((float(x[kept[0] - 1]), float(x[kept[-1] + 1])))
    return cut


def by_grid(problem: Problem, finer: float = 1.0, deep: float = 28.0) -> float:
    """Log evidence by one grid."""
    boxes = [(axis.low, axis.high) for axis in problem.axes]
    for depth in (400.0, 100.0, deep):
        boxes = closed_in(problem, boxes, depth)
    numbers = [round(axis.nodes * finer) for axis in problem.axes]
    return float(logsumexp([logsumexp(p) for _, p in on_grid(problem, boxes, numbers)]))


def exact(problem: Problem) -> float:
    """Log evidence, by two grids that agree."""
    coarse = by_grid(problem, 0.8)
    for finer in (1.0, 1.4, 2.0, 2.8):
        fine = by_grid(problem, finer, 34.0)
        if abs(coarse - fine) < AGREEMENT:
            return fine
        coarse = fine
    raise ArithmeticError(f"{problem.form}: no two grids agree, the last says {fine}")


def whole(rng: np.random.Generator, low: int, high: int) -> int:
    """Draw a size."""
    return int(rng.integers(low, high))


def pick(rng: np.random.Generator, *forms: str) -> str:
    """Draw a form."""
    return forms[int(rng.integers(len(forms)))]
