"""The evidence of a random program by sums and refined integrals, from SciPy's densities alone."""

from collections.abc import Callable, Sequence
from itertools import product
from math import factorial

import numpy as np
from random_programs_cubature import Integral, integrate
from random_programs_families import FAMILIES, Family, Values
from random_programs_language import (
    Argument, Deterministic, Dist, Item, Link, Observed, Potential, Program, Unknown,
)  # fmt: skip
from random_programs_vectors import SPACES, VECTORS, compositions, sizes_of
from scipy import special, stats

type Array = np.ndarray
type Bounds = tuple[float, float]

TAIL, MOST_VALUES, MOST_STATES = 1e-8, 400, 4000
"""Probability that a sum over counts may leave out, and limits to these sums."""
WITH_CORE = ("probs", "cuts", "vector")
"""Domains of parameters of single values that have an axis of their own, the last one."""
MADE_OF_OTHERS = ("Truncated", "Censored", "Mixture", "NormalMixture")


class NoTruthError(Exception):
    """The evidence of a program cannot be had by brute force."""


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
            return a + table * x.reshape(x.shape[0], *(1,) * (table.ndim - x.ndim + 1), *x.shape[1:])
        case "pick":
            return table[x.astype(int)]
    raise ValueError(argument.form)


def _aligned(value: Array, ndim: int, core: int) -> Array:
    """Put the axes of a value, but the first and those of its core, at the end of `ndim` axes."""
    missing = ndim + core - value.ndim
    return value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:])


def _args(dist: Dist, env: Values, ndim: int) -> Values:
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
    return FAMILIES[dist.family].support(_args(dist, env, ndim))


def single_density(dist: Dist, x: Array, env: Values) -> Array:
    """Log density of each element."""
    if dist.family in MADE_OF_OTHERS:
        return _MADE[dist.family](dist, x, env)
    family, args = FAMILIES[dist.family], _args(dist, env, x.ndim)
    with np.errstate(all="ignore"):
        found = family.log_density(x, args)
        low, high = family.support(args)
        outside = (x < low) | (x > high)
    return np.where(outside, -np.inf, np.where(np.isnan(found), -np.inf, found))


def _tails(dist: Dist, x: float, env: Values, ndim: int) -> tuple[Array, Array]:
    """Probabilities of at most x, and of more."""
    family, args = FAMILIES[dist.family], _args(dist, env, ndim)
    assert family.cdf is not None and family.sf is not None
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
        found = single_density(base, x, env) - np.log(np.where(low > 0.5, above - beyond, high - low))
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


def _place(
    w: Array, low: Array | float, high: Array | float, chart: Sequence[Array | float] = (0.0, 1.0, 1.0)
) -> tuple[Array, Array]:
    """Values of coordinates between two limits, and the log of the derivative.

    The chart is a location, a scale, and the width of a log or a logit.
    """
    at, scale, width = chart
    low, high, at, scale, width, w = np.broadcast_arrays(low, high, at, scale, width, w)
    up, down, both = np.isfinite(low), np.isfinite(high), np.isfinite(low) & np.isfinite(high)
    log_width, log_scale = np.log(width), np.log(scale)
    with np.errstate(all="ignore"):
        logs = np.clip(width * w + log_scale, -700, 700)
        logit = at + width * w
        inside = low + (high - low) * special.expit(logit)
        half = np.where(up, low + np.exp(logs), high - np.exp(logs))
        x = np.where(both, inside, np.where(up | down, half, at + scale * np.sinh(w)))
        log_jac = np.where(
            both,
            np.log(high - low) + log_width + special.log_expit(logit) + special.log_expit(-logit),
            np.where(up | down, logs + log_width, log_scale + np.log(np.cosh(w))),
        )
    least, most = np.nextafter(low, np.inf), np.nextafter(high, -np.inf)
    return np.clip(x, np.where(up, least, -np.inf), np.where(down, most, np.inf)), log_jac


def _chart_of(dist: Dist, env: Values, ndim: int) -> Sequence[Array | float]:
    """Where a distribution is and how wide, so that its parents do not move it in coordinates."""
    base = dist.parts[0] if dist.family == "Truncated" else dist
    if base.family not in FAMILIES or (chart := FAMILIES[base.family].chart) is None:
        return 0.0, 1.0, 1.0
    low, high = support_of(dist, env, ndim)
    if np.all(np.isfinite(low)) != np.all(np.isfinite(FAMILIES[base.family].support(_args(base, env, ndim))[0])):
        return 0.0, 1.0, 1.0  # a limit has made a half line of the line
    if np.all(np.isfinite(high)) and base.family != "LogitNormal":
        return 0.0, 1.0, 1.0
    at, scale, width = chart(_args(base, env, ndim))
    return at, np.clip(scale, 1e-30, 1e30), np.clip(width, 1e-3, 10.0)


def _vector_chart(dist: Dist, w: Array, env: Values) -> tuple[Array, Array]:
    """Real vectors about their mean, and walks from row to row, in units of their scales."""
    z, log_jac = SPACES["real"](w, dist.core)
    args = {name: value_of(value, env) for name, value in dist.args}
    cov = next((args[k] for k in ("cov", "scale") if k in args), None)
    if cov is not None:
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    elif "tau" in args:
        sd = args["tau"].reshape(-1, 1) ** -0.5
    elif dist.family == "KroneckerNormal" or "sigma" not in args:
        sd = np.ones((1, 1))
    else:
        sd = args["sigma"].reshape(-1, 1)
    sd = np.clip(sd, 1e-30, 1e30)
    walk = dist.family.endswith("RandomWalk")
    if len(dist.core) == 2:
        sd = sd[:, None] if cov is not None else sd[:, :, None]
    first = np.ones_like(z)
    if walk:  # the first row has a scale of its own
        first[:, 0] = 0.0
        sd = sd * first + (1.0 - first)
    x = sd * z
    log_jac = log_jac + np.log(np.broadcast_to(sd, z.shape)).reshape(len(z), -1).sum(axis=1)
    mu = args.get("mu", np.zeros(1))
    mu = mu.reshape(len(mu), *(1,) * (z.ndim - mu.ndim), *mu.shape[1:])
    return (np.cumsum(x + mu * first, axis=1), log_jac) if walk else (x + mu, log_jac)


def _log_ordered(item: Unknown, env: Values) -> Array:
    """Log of the probability that independent draws are in order."""
    args = dict(item.dist.args)
    k = item.shape[0]
    mu = value_of(args["mu"], env) if "mu" in args else np.zeros((1, 1))
    if mu.ndim < 2 or mu.shape[1] == 1:
        return np.full(1, -np.log(factorial(k)))
    sigma = value_of(args["sigma"], env).reshape(-1, 1)
    return stats.norm.logcdf((mu[:, 1] - mu[:, 0]) / (np.sqrt(2) * sigma[:, 0]))


def missing_of(item: Item) -> Array:
    """Which data of a term are missing."""
    assert isinstance(item, Observed)
    return np.isnan(np.asarray(item.data, float))


def is_discrete(dist: Dist) -> bool:
    """Whether a distribution is of counts."""
    if dist.parts and dist.family in MADE_OF_OTHERS:
        return is_discrete(dist.parts[0])
    if dist.family in VECTORS:
        return VECTORS[dist.family].space == "counts"
    return dist.family in FAMILIES and FAMILIES[dist.family].discrete


def dimension_of(item: Item) -> int:
    """Count the continuous coordinates of an item."""
    if isinstance(item, Deterministic | Potential) or is_discrete(item.dist):
        return 0
    if isinstance(item, Observed):
        return int(missing_of(item).sum())
    count = int(np.prod(item.shape))
    if item.dist.family in VECTORS:
        return count * sizes_of(VECTORS[item.dist.family].space, item.dist.core)
    return count - (item.transform == "zero_sum")


def _range_of(argument: Argument, ranges: dict[str, Bounds]) -> Bounds:
    if isinstance(argument, Link):
        match argument.form:
            case "between":
                return argument.a, argument.b
            case "pick":
                return min(argument.table), max(argument.table)
            case "same" if argument.source in ranges:
                return ranges[argument.source]
        raise NoTruthError("a sum over counts without a bound")
    return float(np.min(argument)), float(np.max(argument))


def counts_of(dist: Dist, ranges: dict[str, Bounds]) -> list[int]:
    """Values of a count that a sum goes over, whatever the arguments are within their ranges."""
    base = dist.parts[0] if dist.family == "Truncated" else dist
    if base.family in ("Categorical", "OrderedLogistic", "OrderedProbit"):
        return [0, 1, 2]
    names = [name for name, _ in base.args]
    corners = [_range_of(value, ranges) for _, value in base.args]
    found = set()
    for corner in product(*corners):
        env: Values = {}
        at = Dist(base.family, tuple(zip(names, corner, strict=True)))
        low, high = (float(np.max(v)) for v in support_of(at, env, 1))
        high = min(high, low + MOST_VALUES)
        values = np.arange(low, high + 1)
        mass = np.cumsum(np.exp(single_density(at, values, env)))
        if mass[-1] < 1 - TAIL:
            raise NoTruthError("a sum over counts with a heavy tail")
        found |= set(values[: 1 + np.searchsorted(mass, 1 - TAIL)].astype(int).tolist())
    return sorted(found)


def states_of(item: Item, ranges: dict[str, Bounds]) -> Array:
    """All values of the discrete unknowns of an item, (states, elements or cells)."""
    assert isinstance(item, Unknown | Observed)
    if item.dist.family in VECTORS:
        n = int(dict(item.dist.args)["n"])
        one = compositions(n, item.dist.core[0])
        count = int(np.prod(item.shape)) if isinstance(item, Unknown) else 0
        return np.array([sum(c, ()) for c in product(one, repeat=count)])
    values = counts_of(item.dist, ranges)
    ranges[item.name] = (float(values[0]), float(values[-1]))
    count = int(np.prod(item.shape)) if isinstance(item, Unknown) else missing_of(item).sum()
    if len(values) ** int(count) > MOST_STATES:
        raise NoTruthError("too many states")
    return np.array(list(product(values, repeat=int(count))))


def _draw(item: Unknown, w: Array, env: Values) -> tuple[Array, Array]:
    """Value of a continuous unknown at coordinates, and the log of its volume element."""
    if item.dist.family in VECTORS:
        if VECTORS[item.dist.family].space == "real" and not item.shape:
            return _vector_chart(item.dist, w, env)
        space, size = SPACES[VECTORS[item.dist.family].space], w.shape[1]
        rows = max(1, int(np.prod(item.shape)))
        each = size // rows
        pieces = [space(w[:, i * each : (i + 1) * each], item.dist.core) for i in range(rows)]
        value = np.stack([p[0] for p in pieces], axis=1)
        return value.reshape(len(w), *item.shape, *item.dist.core), sum(p[1] for p in pieces)
    if item.transform == "ordered":
        first, log_jac = _place(w[:, 0], *support_of(item.dist, env, 2))
        steps = np.column_stack([first, np.exp(w[:, 1:])])
        log_jac = log_jac + w[:, 1:].sum(axis=1)
        return np.cumsum(steps, axis=1), log_jac - _log_ordered(item, env)
    if item.transform == "zero_sum":
        # A normal law on the plane, normalized there, has one axis less than its product form.
        value, log_jac = SPACES["zero_sum"](w, item.shape)
        sigma = value_of(dict(item.dist.args)["sigma"], env)
        mu = value_of(dict(item.dist.args)["mu"], env)
        k = item.shape[0]
        one = stats.norm.logpdf(0.0, np.sqrt(k) * mu, sigma)
        return value, log_jac - one.reshape(-1)
    shaped = w.reshape(len(w), *item.shape)
    low, high = support_of(item.dist, env, shaped.ndim)
    value, log_jac = _place(shaped, low, high, _chart_of(item.dist, env, shaped.ndim))
    return value, log_jac.reshape(len(w), -1).sum(axis=1)


class Integrand:
    """Log of the joint density of a program, at coordinates and in states."""

    def __init__(self, program: Program) -> None:
        self.program = program
        ranges: dict[str, Bounds] = {}
        self.dims = {item.name: dimension_of(item) for item in program.items}
        discrete = [
            item for item in program.items
            if isinstance(item, Unknown) and is_discrete(item.dist)
            or isinstance(item, Observed) and is_discrete(item.dist) and missing_of(item).any()
        ]  # fmt: skip
        values = [states_of(item, ranges) for item in discrete]
        sizes = [len(v) for v in values]
        self.n_states = int(np.prod(sizes))
        if self.n_states > MOST_STATES:
            raise NoTruthError("too many states")
        grid = np.unravel_index(np.arange(self.n_states), sizes) if sizes else ()
        self.states = {
            item.name: v[at] for item, v, at in zip(discrete, values, grid, strict=True)
        }

    @property
    def dim(self) -> int:
        return sum(self.dims.values())

    def values(self, w: Array, state: Array) -> tuple[Values, Array]:
        """Values of all variables, and the log of the joint density."""
        env: Values = {}
        total, at = np.zeros(len(w)), 0
        for item in self.program.items:
            part = w[:, at : at + self.dims[item.name]]
            at += self.dims[item.name]
            total = total + self._add(item, part, state, env)
        # Infinite where a probability that divides has been rounded to 0, far out in a prior.
        return env, np.where(np.isfinite(total), total, -np.inf)

    def __call__(self, w: Array, state: Array) -> Array:
        return self.values(w, state)[1]

    def _add(self, item: Item, w: Array, state: Array, env: Values) -> Array | float:
        """Put the value of an item into `env`, and return the log of its factor."""
        match item:
            case Deterministic():
                env[item.name] = value_of(item.link, env)
                return 0.0
            case Potential():
                x = value_of(item.link, env)
                each = {
                    "square": lambda: -item.b * (x - item.a) ** 2,
                    "tilt": lambda: item.b * np.tanh(x - item.a),
                }[item.form]()
                return each.reshape(len(x), -1).sum(axis=1)
            case Unknown():
                log_jac: Array | float = 0.0
                if item.name in self.states:
                    shape = (*item.shape, *item.dist.core)
                    env[item.name] = self.states[item.name][state].reshape(-1, *shape)
                else:
                    env[item.name], log_jac = _draw(item, w, env)
                return log_jac + log_density(item.dist, env[item.name], env)
        env[item.name], log_jac = self._completed(item, w, state, env)
        return log_jac + log_density(item.dist, env[item.name], env)

    def _completed(
        self, item: Observed, w: Array, state: Array, env: Values
    ) -> tuple[Array, Array | float]:
        """Data with values for those that are missing."""
        data, missing = np.asarray(item.data, float), missing_of(item)
        if not missing.any():
            return data[None], 0.0
        full = np.tile(data, (len(state), *(1,) * data.ndim))
        if item.name in self.states:
            full[:, missing] = self.states[item.name][state]
            return full, 0.0
        if item.dist.family in VECTORS:
            mu = value_of(dict(item.dist.args).get("mu", 0.0), env)
            mu = mu.reshape(len(mu), *(1,) * (full.ndim - mu.ndim), *mu.shape[1:])
            limits: list[Array | float] = [-np.inf, np.inf, mu, 1.0, 1.0]
        else:
            chart = _chart_of(item.dist, env, full.ndim)
            limits = [*support_of(item.dist, env, full.ndim), *chart]
        low, high, *chart = (np.broadcast_to(v, full.shape)[:, missing] for v in limits)
        full[:, missing], log_jac = _place(w, low, high, chart)
        return full, log_jac.sum(axis=1)


def truth_of(program: Program, tolerance: float = 1e-3) -> Integral:
    """Log evidence of a program, and its error.

    Raises
    ------
    NoTruthError
        It cannot be had.
    """
    integrand = Integrand(program)
    if integrand.dim > 4:
        raise NoTruthError("too many coordinates")
    cells = integrand.n_states * 8**integrand.dim
    if cells > 40_000:
        raise NoTruthError("too many states for so many coordinates")
    return integrate(integrand, integrand.dim, integrand.n_states, tolerance)


__all__ = ["Family", "Integrand", "NoTruthError", "truth_of"]
