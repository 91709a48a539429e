"""Which way to a tempered normalizer is taken: closed form, sum or quadrature, in this order."""

from collections.abc import Callable, Sequence

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.truncated import TruncatedRV
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape
from pytensor.tensor.type_other import NoneTypeT

from pymc_tempering.borrowed.pymc_models import AnyMixtureRV, infer_shape
from pymc_tempering.variational.normalizers.dispatch import log_normalizer
from pymc_tempering.variational.normalizers.panels import log_normalizer_by_quadrature
from pymc_tempering.variational.normalizers.sums import log_normalizer_by_sum
from pymc_tempering.variational.normalizers.support import one_for_all_data


def branch_of(rv: Variable) -> Callable:
    """Return function of (op, rv, T): closed form, sum or quadrature, in this order."""
    op = rv.owner.op
    found = log_normalizer.dispatch(type(op))
    if found is not log_normalizer.dispatch(object) or op.ndim_supp != 0:
        return found
    if np.dtype(rv.dtype).kind in "iub":
        return log_normalizer_by_sum
    return log_normalizer_by_quadrature


def nested_inputs(op: Op) -> slice:
    """Return which inputs of a variable are variables without a value: components, or a base."""
    if isinstance(op, AnyMixtureRV):
        return slice(2, None)
    return slice(0, 1 if isinstance(op, CensoredRV | PartialObservedRV) else 0)


def without_draws(graph: Variable) -> Variable:
    """Graph in which the shapes of random variables come from their parameters, not from a draw.

    PyMC makes components in the shape of a draw of a first version of them, which is no variable of
    the model.
    """
    nodes = {v.owner for v in ancestors([graph]) if v.owner is not None}
    replaced = {}
    for node in nodes:
        drawn = node.inputs[0].owner if isinstance(node.op, Shape) else None
        if drawn is not None and isinstance(drawn.op, RandomVariable):
            size, params = drawn.op.size_param(drawn), drawn.op.dist_params(drawn)
            shape = infer_shape(drawn.op, size, params)
            replaced[node.outputs[0]] = pt.stack([pt.as_tensor(n, dtype="int64") for n in shape])
    return clone_replace([graph], replaced, rebuild_strict=False)[0] if replaced else graph


LOCATIONS = {
    rvs.NormalRV: 0,
    rvs.LaplaceRV: 0,
    rvs.LogisticRV: 0,
    rvs.GumbelRV: 0,
    rvs.CauchyRV: 0,
    rvs.StudentTRV: 1,
}
"""Which parameter moves a density along the line."""


def at_zero(components: Sequence[Variable]) -> list[Variable]:
    """Return components moved to 0 where they share one location, which no integral depends on.

    A regression with outliers has another line for each datum, but the same normalizer.
    """
    if not all(type(component.owner.op) in LOCATIONS for component in components):
        return list(components)
    places = [LOCATIONS[type(component.owner.op)] for component in components]
    params = [list(c.owner.op.dist_params(c.owner)) for c in components]
    locations = [own[place] for own, place in zip(params, places, strict=True)]
    if len(components) == 1:
        [location] = locations
        shared = location.type.ndim == 0 or location.type.shape[-1] == 1
    else:
        shared = all(equal_computations([locations[0]], [other]) for other in locations[1:])
    if not shared:
        return list(components)
    moved = []
    for component, own, place in zip(components, params, places, strict=True):
        own[place] = pt.zeros((1,) * own[place].type.ndim, dtype=own[place].type.dtype)
        rng, size = component.owner.inputs[:2]
        moved.append(component.owner.op.make_node(rng, size, *own).default_output())
    return moved


def detached(rv: Variable, back: dict[Variable, Variable]) -> Variable:
    """Return the variable with placeholders for its parameters, and record these in `back`.

    PyMC copies the graph above a variable when it derives some densities, and the model does not
    know the copies of its random variables. Components and bases come in the shape of their
    parameters, not in that of the data: their normalizers are the same for each datum.
    """
    node = rv.owner
    nested = range(len(node.inputs))[nested_inputs(node.op)]
    outer = list(node.inputs)
    if isinstance(node.op, MixtureRV) and node.op.ndim_supp == 0:
        outer[2:] = at_zero(outer[2:])
    inputs = []
    for place, value in enumerate(outer):
        if place in nested:
            inputs.append(detached(value, back))
        elif isinstance(value, Constant) or isinstance(value.type, RandomType | NoneTypeT):
            inputs.append(value)
        elif all(isinstance(v, Constant) for v in ancestors([value]) if v.owner is None):
            # the density of pm.Interpolated reads the numbers of its points
            inputs.append(pt.constant(constant_fold([value])[0]))
        else:
            inputs.append(value.type())
            back[inputs[-1]] = without_draws(value)
    if isinstance(node.op, AnyMixtureRV) and node.op.ndim_supp == 0:
        _, weights, *components = inputs
        alone = len(components) == 1
        small = [one_for_all_data(component, alone) for component in components]
        twin = type(node.op).rv_op(weights, *small)
    elif isinstance(node.op, CensoredRV):
        base, *bounds = inputs
        twin = node.op.rv_op(one_for_all_data(base), *bounds)
    else:
        twin = node.clone_with_new_inputs(inputs).outputs[node.outputs.index(rv)]
    twin.name = rv.name
    return twin


def compact_normalizer(rv: Variable, temperature: Variable) -> Variable:
    """Log normalizer with as few elements as the parameters have; broadcasts to the batch shape."""
    back: dict[Variable, Variable] = {}
    twin = detached(rv, back)
    if isinstance(twin.owner.op, TruncatedRV):
        twin = one_for_all_data(twin)
    result = branch_of(twin)(twin.owner.op, twin, temperature)
    return graph_replace([result], back, strict=False)[0] if back else result
