"""The evidence of a random program by sums and refined integrals, from SciPy's densities alone."""

import numpy as np

from benchmarks.models.random_programs_families import FAMILIES, Values
from benchmarks.models.random_programs_language import (
    Deterministic,
    Item,
    Observed,
    Potential,
    Program,
    Unknown,
)
from benchmarks.models.random_programs_vectors import VECTORS
from benchmarks.truths.random_programs_cubature import Integral, integrate
from benchmarks.truths.random_programs_densities import (
    args_of,
    is_discrete,
    log_density,
    single_density,
    value_of,
)  # fmt: skip
from benchmarks.truths.random_programs_places import draw_at, place, placed
from benchmarks.truths.random_programs_states import (
    MOST_STATES,
    Bounds,
    NoTruthError,
    dimension_of,
    missing_of,
    states_of,
)  # fmt: skip

type Array = np.ndarray

MOST_BOXES = 40_000
"""Boxes at first, states times parts of each coordinate."""


def term_of(item: Item, env: Values) -> Array | float:
    """Log of the factor of an item without unknowns; a named value is put into `env`."""
    match item:
        case Observed():
            return log_density(item.dist, np.asarray(item.data, float)[None], env)
        case Potential():
            x = value_of(item.link, env)
            each = {
                "square": lambda: -item.b * (x - item.a) ** 2,
                "tilt": lambda: item.b * np.tanh(x - item.a),
            }[item.form]()
            return each.reshape(len(x), -1).sum(axis=1)
        case Deterministic():
            env[item.name] = value_of(item.link, env)
    return 0.0


class Integrand:
    """Log of the joint density of a program, at coordinates and in states."""

    def __init__(self, program: Program) -> None:
        self.program = program
        ranges: dict[str, Bounds] = {}
        self.dims = {item.name: dimension_of(item) for item in program.items}
        discrete = [
            item for item in program.items
            if (isinstance(item, Unknown) and is_discrete(item.dist))
            or (isinstance(item, Observed) and is_discrete(item.dist) and missing_of(item).any())
        ]  # fmt: skip
        values = [states_of(item, ranges) for item in discrete]
        sizes = [len(v) for v in values]
        self.n_states = int(np.prod(sizes))
        if self.n_states > MOST_STATES:
            raise NoTruthError("too many states")
        grid = np.unravel_index(np.arange(self.n_states), sizes) if sizes else ()
        self.states = {item.name: v[at] for item, v, at in zip(discrete, values, grid, strict=True)}

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
            case Unknown():
                if item.name not in self.states:
                    env[item.name], log_p = draw_at(item, w, env)
                    return log_p
                shape = (*item.shape, *item.dist.core)
                env[item.name] = self.states[item.name][state].reshape(-1, *shape)
                return log_density(item.dist, env[item.name], env)
            case Observed() if missing_of(item).any():
                env[item.name], log_p = self._completed(item, w, state, env)
                return log_p
        return term_of(item, env)

    def _completed(
        self, item: Observed, w: Array, state: Array, env: Values
    ) -> tuple[Array, Array | float]:
        """Data with values for those that are missing, and the log density of all."""
        data, missing = np.asarray(item.data, float), missing_of(item)
        full = np.tile(data, (len(state), *(1,) * data.ndim))
        if item.name in self.states:
            full[:, missing] = self.states[item.name][state]
            return full, log_density(item.dist, full, env)
        if item.dist.family in VECTORS:
            mu = value_of(dict(item.dist.args).get("mu", 0.0), env)
            mu = mu.reshape(len(mu), *(1,) * (full.ndim - mu.ndim), *mu.shape[1:])
            at = np.broadcast_to(mu, full.shape)[:, missing]
            z, log_jac = place(w, -np.inf, np.inf)
            full[:, missing] = at + z
            return full, log_jac.sum(axis=1) + log_density(item.dist, full, env)
        args = args_of(item.dist, env, full.ndim)
        there = {k: np.broadcast_to(v, full.shape)[:, missing] for k, v in args.items()}
        full[:, missing], log_p = placed(FAMILIES[item.dist.family], w, there)
        rest = single_density(item.dist, full, env)[:, ~missing]
        return full, log_p.sum(axis=1) + rest.sum(axis=1)


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
    if cells > MOST_BOXES:
        raise NoTruthError("too many states for so many coordinates")
    return integrate(integrand, integrand.dim, integrand.n_states, tolerance)
