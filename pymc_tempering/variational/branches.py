"""The order in which ways to a tempered normalizer are tried: closed form, sum, quadrature."""

from collections.abc import Callable

import numpy as np
from pytensor.graph.basic import Variable

from pymc_tempering.variational.dispatch import log_normalizer
from pymc_tempering.variational.quadrature import log_normalizer_by_quadrature
from pymc_tempering.variational.summation import log_normalizer_by_sum


def branch_of(rv: Variable) -> Callable:
    """Function of (op, rv, T): closed form, sum or quadrature, in this order."""
    op = rv.owner.op
    found = log_normalizer.dispatch(type(op))
    if found is not log_normalizer.dispatch(object) or op.ndim_supp != 0:
        return found
    if np.dtype(rv.dtype).kind in "iub":
        return log_normalizer_by_sum
    return log_normalizer_by_quadrature


def compact_normalizer(rv: Variable, temperature: Variable) -> Variable:
    """Log normalizer with as few elements as the parameters have; broadcasts to the batch shape."""
    return branch_of(rv)(rv.owner.op, rv, temperature)
