"""Ranges of discrete variables that depend on no other variable."""

from collections.abc import Sequence

import numpy as np
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    HyperGeometricRV,
)
from pytensor.tensor.random.op import RandomVariable

from pymc_tempering.model.density_graphs import freeze_shared


def known_range(rv: Variable) -> tuple[np.ndarray, np.ndarray] | None:
    """Least and largest value of a discrete variable with single elements; None if unknown."""
    op, lower = rv.owner.op, np.zeros(())
    params: Sequence[Variable] = op.dist_params(rv.owner) if isinstance(op, RandomVariable) else ()
    upper: np.ndarray | None = None
    if isinstance(op, BernoulliRV):
        upper = np.ones(())
    elif isinstance(op, CategoricalRV):
        upper = _constant(params[0].shape[-1] - 1)
    elif isinstance(op, BinomialRV | BetaBinomialRV):
        upper = _constant(params[0])
    elif isinstance(op, HyperGeometricRV):
        upper = _constant(params[-1])
    elif getattr(op, "name", "") == "discrete_uniform":
        ends = _constant(params[0]), _constant(params[1])
        return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])
    return None if upper is None else (lower, upper)


def _constant(graph: Variable) -> np.ndarray | None:
    """Value of a graph that depends on no random variable; None if it does."""
    [folded] = constant_fold(freeze_shared([graph]), raise_not_constant=False)
    return np.asarray(folded, dtype=float) if isinstance(folded, np.ndarray | int) else None
