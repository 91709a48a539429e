"""Ranges of discrete variables that depend on no other variable."""

from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import (
    BernoulliRV,
    BetaBinomialRV,
    BinomialRV,
    CategoricalRV,
    HyperGeometricRV,
)
from pytensor.tensor.random.op import RandomVariable

from pymc_tempering.model.density_graphs import known_values


def known_range(rv: Variable) -> tuple[np.ndarray, np.ndarray] | None:
    """Least and largest value of a discrete variable with single elements; None if unknown."""
    op, ends = rv.owner.op, [pt.constant(0.0)]
    params: Sequence[Variable] = op.dist_params(rv.owner) if isinstance(op, RandomVariable) else ()
    if isinstance(op, BernoulliRV):
        ends += [pt.constant(1.0)]
    elif isinstance(op, CategoricalRV):
        ends += [params[0].shape[-1] - 1]
    elif isinstance(op, BinomialRV | BetaBinomialRV):
        ends += [params[0]]
    elif isinstance(op, HyperGeometricRV):
        ends += [params[-1]]
    elif getattr(op, "name", "") == "discrete_uniform":
        ends = list(params)
    else:
        return None
    low, high = (None if end is None else end.astype(float) for end in known_values(ends))
    return None if low is None or high is None else (low, high)
