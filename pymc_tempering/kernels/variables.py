"""What kinds of free variables a model has, and the bounds of the discrete ones."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable as GraphVariable
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    HyperGeometricRV,
    MultinomialRV,
)
from pytensor.tensor.random.op import RandomVariable

from pymc_tempering.kernels import (
    BINARY,
    BOUNDED,
    CONTINUOUS,
    FIXED_SUM,
    INTEGER,
    JOINT,
    Block,
)
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.layout import Layout, is_discrete

MAX_VALUES = 256
"""Integers with more values than this count as unbounded: to enumerate them takes too long."""


@dataclass(frozen=True, eq=False)
class Variable:
    """A free variable of a model.

    Attributes
    ----------
    name, value_name : str
        Of the random variable, and of its value variable.
    kind : str
        "continuous", "binary", "bounded", "integer", "fixed sum" or "joint".
    indices : array of int, shape (n,)
        Its positions in the raveled vector.
    lower, upper : array, shape (n,)
        Bounds of each element, inclusive.
    """

    name: str
    value_name: str
    kind: str
    indices: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def free_variables(model: pm.Model, layout: Layout) -> list[Variable]:
    """Free variables of a model in the order of its raveled vector."""
    variables = []
    for rv, name, part, shape in zip(
        model.free_RVs, layout.names, layout.slices, layout.shapes, strict=True
    ):
        kind, lower, upper = _kind_and_bounds(rv)
        bounds = [np.broadcast_to(np.asarray(b, float), shape).ravel() for b in (lower, upper)]
        indices = np.arange(part.start, part.stop)
        variables.append(Variable(rv.name, name, kind, indices, *bounds))
    return variables


def block_of(variables: list[Variable]) -> Block:
    """Block of all elements of some variables."""
    return Block(
        np.concatenate([variable.indices for variable in variables]),
        np.concatenate([variable.lower for variable in variables]),
        np.concatenate([variable.upper for variable in variables]),
        np.concatenate([np.full(v.indices.size, v.kind != CONTINUOUS) for v in variables]),
        tuple(variable.value_name for variable in variables),
    )


def _kind_and_bounds(
    rv: GraphVariable,
) -> tuple[str, np.ndarray | float, np.ndarray | float]:
    """Kind of a random variable, and the bounds that its elements cannot leave."""
    if not is_discrete(rv):
        return CONTINUOUS, -np.inf, np.inf
    op = rv.owner.op
    if isinstance(op, MultinomialRV | DirichletMultinomialRV):
        return FIXED_SUM, 0.0, np.inf
    if not isinstance(op, RandomVariable):
        if getattr(op, "ndim_supp", 0) > 0:
            return JOINT, -np.inf, np.inf
        return INTEGER, -np.inf, np.inf
    if op.ndim_supp > 0:
        return JOINT, -np.inf, np.inf
    if isinstance(op, BernoulliRV):
        return BINARY, 0.0, 1.0
    params = op.dist_params(rv.owner)
    lower: np.ndarray | float | None
    upper: np.ndarray | float | None
    if isinstance(op, CategoricalRV):
        lower, upper = 0.0, _constant(params[0].shape[-1] - 1)
    elif isinstance(op, BinomialRV | BetaBinomialRV):
        lower, upper = 0.0, _constant(params[0])
    elif isinstance(op, HyperGeometricRV):
        lower, upper = 0.0, _constant(params[-1])
    elif op.name == "discrete_uniform":
        lower, upper = _constant(params[0]), _constant(params[1])
    else:
        lower = upper = None
    if lower is None or upper is None or np.max(upper - lower) >= MAX_VALUES:
        return INTEGER, -np.inf, np.inf
    return BOUNDED, lower, upper


def _constant(graph: GraphVariable) -> np.ndarray | None:
    """Value of a graph that depends on no random variable; None if it does."""
    [folded] = constant_fold(freeze_shared([graph]), raise_not_constant=False)
    return np.asarray(folded, dtype=float) if isinstance(folded, np.ndarray | int) else None
