"""Arguments of the distributions of a program at many points, and log densities there."""

from collections.abc import Callable

import numpy as np
from scipy import special, stats

from benchmarks.models.random_programs_families import FAMILIES, Family, Values
from benchmarks.models.random_programs_language import Argument, Dist, Link
from benchmarks.models.random_programs_vectors import VECTORS

type Array = np.ndarray

WITH_CORE = ("probs", "cuts", "vector")
"""Domains of parameters of single values that have an axis of their own, the last one."""
MADE_OF_OTHERS = ("Truncated", "Censored", "Mixture", "NormalMixture")


def value_of(argument: Argument, env: Values) -> Array:
    """Value of an argument, its first axis that of the points."""
    if not isinstance(argument, Link):
        return np.asarray(argument)[None]
    x = env[argument.source]
    if argument.index is not None:
        x = x[:, argument.index]
    a, b, table = argument.a, argument.b, np.asarray(argument.table)
    match argument.form:
        case "same":
            return x
        case "linear":
            return a + b * x
        case "exp":
            return np.exp(np.clip(a + b * x, -700, 700))
        case "between":
            return a + (b - a) * special.expit(x)
        case "slope":
            return a + table * x.reshape(
                x.shape[0], *(1,) * (table.ndim - x.ndim + 1), *x.shape[1:]
            )
        case "pick":
            return table[x.astype(int)]
    raise ValueError(argument.form)


def _aligned(value: Array, ndim: int, core: int) -> Array:
    """Put the axes of a value, but the first and those of its core, at the end of `ndim` axes."""
    missing = ndim + core - value.ndim
    return value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:])


def args_of(dist: Dist, env: Values, ndim: int) -> Values:
    domains = {p.name: p.domain for p in FAMILIES[dist.family].parameters}
    return {
        name: _aligned(value_of(value, env), ndim, int(domains[name] in WITH_CORE))
        for name, value in dist.args
    }


def support_of(dist: Dist, env: Values, ndim: int) -> tuple[Array | float, Array | float]:
    """Least and greatest value of each element."""
    if dist.family == "Truncated":
        low, high = support_of(dist.parts[0], env, ndim)
        limits = dict(dist.args)
        return np.maximum(low, limits["lower"]), np.minimum(high, limits["upper"])
    if dist.family in ("Mixture", "NormalMixture"):
        parts = [support_of(part, env, ndim) for part in dist.parts] or [(-np.inf, np.inf)]
        return parts[0]
    return FAMILIES[dist.family].support(args_of(dist, env, ndim))


def single_density(dist: Dist, x: Array, env: Values) -> Array:
    """Log density of each element."""
    if dist.family in MADE_OF_OTHERS:
        return _MADE[dist.family](dist, x, env)
    return density_of(FAMILIES[dist.family], x, args_of(dist, env, x.ndim))


def density_of(family: Family, x: Array, args: Values) -> Array:
    """Log density of each element, of arguments that broadcast."""
    with np.errstate(all="ignore"):
        found = family.log_density(x, args)
        low, high = family.support(args)
        outside = (x < low) | (x > high)
    return np.where(outside, -np.inf, np.where(np.isnan(found), -np.inf, found))


def _tails(dist: Dist, x: float, env: Values, ndim: int) -> tuple[Array, Array]:
    """Probabilities of at most x, and of more."""
    family, args = FAMILIES[dist.family], args_of(dist, env, ndim)
    assert family.cdf is not None
    assert family.sf is not None
    with np.errstate(all="ignore"):
        return family.cdf(np.asarray(x), args), family.sf(np.asarray(x), args)


def _before(dist: Dist, x: float) -> float:
    """Return the last value below x."""
    return x - 1 if FAMILIES[dist.family].discrete else x


def _truncated(dist: Dist, x: Array, env: Values) -> Array:
    limits, base = dict(dist.args), dist.parts[0]
    inside = (x >= limits["lower"]) & (x <= limits["upper"])
    low, above = _tails(base, _before(base, limits["lower"]), env, x.ndim)
    high, beyond = _tails(base, limits["upper"], env, x.ndim)
    with np.errstate(all="ignore"):
        # The difference of the small ones of these is exact.
        found = single_density(base, x, env) - np.log(
            np.where(low > 0.5, above - beyond, high - low)
        )
    return np.where(inside & np.isfinite(found), found, -np.inf)


def _censored(dist: Dist, x: Array, env: Values) -> Array:
    limits, base = dict(dist.args), dist.parts[0]
    with np.errstate(all="ignore"):
        at_low = np.log(_tails(base, limits["lower"], env, x.ndim)[0])
        at_high = np.log(_tails(base, _before(base, limits["upper"]), env, x.ndim)[1])
    found = single_density(base, x, env)
    found = np.where(x == limits["lower"], at_low, found)
    return np.where(x == limits["upper"], at_high, found)


def _mixture(dist: Dist, x: Array, env: Values) -> Array:
    w = _aligned(value_of(dict(dist.args)["w"], env), x.ndim, 1)
    parts = [single_density(part, x, env) for part in dist.parts]
    logs = np.stack(np.broadcast_arrays(*parts), axis=-1)
    with np.errstate(divide="ignore"):
        return special.logsumexp(logs + np.log(w), axis=-1)


def _normal_mixture(dist: Dist, x: Array, env: Values) -> Array:
    args = {k: _aligned(value_of(v, env), x.ndim, k != "sigma") for k, v in dist.args}
    with np.errstate(all="ignore"):
        parts = stats.norm.logpdf(x[..., None], args["mu"], args["sigma"][..., None])
        return special.logsumexp(parts + np.log(args["w"]), axis=-1)


_MADE = {
    "Truncated": _truncated, "Censored": _censored, "Mixture": _mixture,
    "NormalMixture": _normal_mixture,
}  # fmt: skip


def log_density(dist: Dist, x: Array, env: Values) -> Array:
    """Log density of draws (n, ...) of a distribution, summed over all but the first axis."""
    if dist.family not in VECTORS:
        each = single_density(dist, x, env)
        return each.reshape(len(each), -1).sum(axis=1)
    family = VECTORS[dist.family]
    args = {name: value_of(value, env) for name, value in dist.args}
    n = max([len(x), *(len(a) for a in args.values())])
    args = {k: np.broadcast_to(v, (n, *v.shape[1:])) for k, v in args.items()}
    parts = [_part(part, env) for part in dist.parts]
    rows = x.reshape(len(x), -1, *dist.core)
    total = np.zeros(n)
    with np.errstate(all="ignore"):
        for i in range(rows.shape[1]):
            row = np.broadcast_to(rows[:, i], (n, *dist.core))
            total = total + family.log_density(row, args, parts)
    return np.where(np.isnan(total), -np.inf, total)


def _part(part: Dist, env: Values) -> Callable[[Array], Array]:
    if part.family in VECTORS:
        return lambda x: log_density(part, x, env)
    return lambda x: single_density(part, x, env)


def is_discrete(dist: Dist) -> bool:
    """Whether a distribution is of counts."""
    if dist.parts and dist.family in MADE_OF_OTHERS:
        return is_discrete(dist.parts[0])
    if dist.family in VECTORS:
        return VECTORS[dist.family].space == "counts"
    return dist.family in FAMILIES and FAMILIES[dist.family].discrete
