"""Which way to a tempered normalizer is taken: closed form, sum or quadrature, in this order."""

from collections.abc import Callable

import numpy as np
from pymc.distributions.censored import CensoredRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.mixture import _BaseMixtureRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type_other import NoneTypeT

from pymc_tempering.variational.normalizers.dispatch import log_normalizer
from pymc_tempering.variational.normalizers.panels import log_normalizer_by_quadrature
from pymc_tempering.variational.normalizers.summation import log_normalizer_by_sum


def branch_of(rv: Variable) -> Callable:
    """Return function of (op, rv, T): closed form, sum or quadrature, in this order."""
    op = rv.owner.op
    found = log_normalizer.dispatch(type(op))
    if found is not log_normalizer.dispatch(object) or op.ndim_supp != 0:
        return found
    if np.dtype(rv.dtype).kind in "iub":
        return log_normalizer_by_sum
    return log_normalizer_by_quadrature


def detached(rv: Variable, back: dict[Variable, Variable]) -> Variable:
    """Return the variable with placeholders for its parameters, and record these in `back`.

    PyMC copies the graph above a variable when it derives some densities, and the model does not
    know the copies of its random variables.
    """
    node = rv.owner
    nested = isinstance(node.op, _BaseMixtureRV | CensoredRV | PartialObservedRV)
    inputs = []
    for value in node.inputs:
        inner = value.owner is not None and getattr(value.owner.op, "ndim_supp", None) is not None
        if nested and inner:
            inputs.append(detached(value, back))
        elif isinstance(value, Constant) or isinstance(value.type, RandomType | NoneTypeT):
            inputs.append(value)
        else:
            inputs.append(value.type())
            back[inputs[-1]] = value
    twin = node.clone_with_new_inputs(inputs).outputs[node.outputs.index(rv)]
    twin.name = rv.name
    return twin


def compact_normalizer(rv: Variable, temperature: Variable) -> Variable:
    """Log normalizer with as few elements as the parameters have; broadcasts to the batch shape."""
    back: dict[Variable, Variable] = {}
    twin = detached(rv, back)
    result = branch_of(twin)(twin.owner.op, twin, temperature)
    return graph_replace([result], back, strict=False)[0] if back else result
