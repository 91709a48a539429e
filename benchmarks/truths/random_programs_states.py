"""Which unknowns a program has: continuous coordinates, and all states of the discrete ones."""

from itertools import product

import numpy as np

from benchmarks.models import random_programs_language as language  # fmt: skip
from benchmarks.models.random_programs_families import Values
from benchmarks.models.random_programs_vectors import VECTORS, compositions, sizes_of
from benchmarks.truths.random_programs_densities import is_discrete, single_density, support_of

type Array = np.ndarray
type Bounds = tuple[float, float]

TAIL, MOST_VALUES, MOST_STATES = 1e-8, 400, 4000
"""Probability that a sum over counts may leave out, and limits to these sums."""


class NoTruthError(Exception):
    """The evidence of a program cannot be had by brute force."""


def missing_of(item: language.Item) -> Array:
    """Which data of a term are missing."""
    assert isinstance(item, language.Observed)
    return np.isnan(np.asarray(item.data, float))


def dimension_of(item: language.Item) -> int:
    """Count the continuous coordinates of an item."""
    if isinstance(item, language.Deterministic | language.Potential) or is_discrete(item.dist):
        return 0
    if isinstance(item, language.Observed):
        return int(missing_of(item).sum())
    count = int(np.prod(item.shape))
    if item.dist.family in VECTORS:
        return count * sizes_of(VECTORS[item.dist.family].space, item.dist.core)
    return count - (item.transform == "zero_sum")


def _range_of(argument: language.Argument, ranges: dict[str, Bounds]) -> Bounds:
    if isinstance(argument, language.Link):
        match argument.form:
            case "between":
                return argument.a, argument.b
            case "pick":
                return min(argument.table), max(argument.table)
            case "same" if argument.source in ranges:
                return ranges[argument.source]
        raise NoTruthError("a sum over counts without a bound")
    return float(np.min(argument)), float(np.max(argument))


def counts_of(dist: language.Dist, ranges: dict[str, Bounds]) -> list[int]:
    """Values of a count that a sum goes over, whatever the arguments are within their ranges."""
    base = dist.parts[0] if dist.family == "Truncated" else dist
    if base.family in ("Categorical", "OrderedLogistic", "OrderedProbit"):
        return [0, 1, 2]
    names = [name for name, _ in base.args]
    corners = [_range_of(value, ranges) for _, value in base.args]
    found = set()
    for corner in product(*corners):
        env: Values = {}
        at = language.Dist(base.family, tuple(zip(names, corner, strict=True)))
        low, high = (float(np.max(v)) for v in support_of(at, env, 1))
        high = min(high, low + MOST_VALUES)
        values = np.arange(low, high + 1)
        mass = np.cumsum(np.exp(single_density(at, values, env)))
        if mass[-1] < 1 - TAIL:
            raise NoTruthError("a sum over counts with a heavy tail")
        found |= set(values[: 1 + np.searchsorted(mass, 1 - TAIL)].astype(int).tolist())
    return sorted(found)


def states_of(item: language.Item, ranges: dict[str, Bounds]) -> Array:
    """All values of the discrete unknowns of an item, (states, elements or cells)."""
    assert isinstance(item, language.Unknown | language.Observed)
    if item.dist.family in VECTORS:
        n = int(dict(item.dist.args)["n"])
        one = compositions(n, item.dist.core[0])
        count = int(np.prod(item.shape)) if isinstance(item, language.Unknown) else 0
        return np.array([sum(c, ()) for c in product(one, repeat=count)])
    values = counts_of(item.dist, ranges)
    ranges[item.name] = (float(values[0]), float(values[-1]))
    count = (
        int(np.prod(item.shape)) if isinstance(item, language.Unknown) else missing_of(item).sum()
    )
    if len(values) ** int(count) > MOST_STATES:
        raise NoTruthError("too many states")
    return np.array(list(product(values, repeat=int(count))))
