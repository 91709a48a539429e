"""The front door to the tempered normalizer of one random variable, and the ways to it.

A variable's normalizer is a closed form, a sum over counts or an integral over a line; where a
variable has parts it is put together of these. What is none of them is refused by name.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.distribution import DiracDeltaRV, PartialObservedRV
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.truncated import TruncatedRV
from pymc.logprob.basic import logccdf
from pymc.pytensorf import constant_fold
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape
from pytensor.tensor.type_other import NoneTypeT

from pymc_tempering.borrowed.private import AnyMixtureRV, HurdleRV, infer_shape
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers import closed
from pymc_tempering.variational.normalizers.dispatch import (
    LOCATIONS,
    WITHOUT_NORMALIZER,
    base_of,
    center_of,
    intersect,
    is_unbounded,
    label_of,
    largest_temperature,
    log_normalizer,
    moved_inside,
    no_normalizer,
    one_for_all_data,
    standardized,
    support_of,
    with_number,
)
from pymc_tempering.variational.normalizers.quadrature import (
    integrate_power,
    log_normalizer_by_quadrature,
    mixture_of_normals,
)
from pymc_tempering.variational.normalizers.sums import (
    log_normalizer_by_sum,
    log_sum,
    mixture_of_counts,
    window_of,
)

REGISTERED = (closed,)
"""Modules that register their formulas when they are imported."""


def is_of_counts(rv: Variable) -> bool:
    """Whether a variable has counts for values."""
    return np.dtype(rv.dtype).kind in "iub"


def branch_of(rv: Variable) -> Callable:
    """Return function of (op, rv, T): closed form, sum or quadrature, in this order."""
    op = rv.owner.op
    found = log_normalizer.dispatch(type(op))
    if found is not log_normalizer.dispatch(object) or op.ndim_supp != 0:
        return found
    return log_normalizer_by_sum if is_of_counts(rv) else log_normalizer_by_quadrature


def without_draws(graph: Variable) -> Variable:
    """Graph in which the shapes of random variables come from their parameters, not from a draw.

    PyMC makes components in the shape of a draw of a first version of them, which is no variable of
    the model.
    """
    replaced = {}
    for node in apply_ancestors([graph]):
        drawn = node.inputs[0].owner if isinstance(node.op, Shape) else None
        if drawn is not None and isinstance(drawn.op, RandomVariable):
            size, params = drawn.op.size_param(drawn), drawn.op.dist_params(drawn)
            shape = infer_shape(drawn.op, size, params)
            replaced[node.outputs[0]] = pt.stack([pt.as_tensor(n, dtype="int64") for n in shape])
    return clone_replace([graph], replaced, rebuild_strict=False)[0] if replaced else graph


def share_location(components: Sequence[Variable]) -> bool:
    """Whether components have one location in common.

    A regression with outliers has another line for each datum, but the same normalizer.
    """
    if not all(type(component.owner.op) in LOCATIONS for component in components):
        return False
    first, *others = (
        component.owner.op.dist_params(component.owner)[LOCATIONS[type(component.owner.op)]]
        for component in components
    )
    if not others:
        return first.type.ndim == 0 or first.type.shape[-1] == 1
    return all(equal_computations([first], [other]) for other in others)


def _nested_inputs(op: Op) -> slice:
    """Return which inputs of a variable are variables without a value: components, or a base."""
    if isinstance(op, AnyMixtureRV):
        return slice(2, None)
    return slice(0, 1 if isinstance(op, CensoredRV | PartialObservedRV) else 0)


def detached(rv: Variable, back: dict[Variable, Variable]) -> Variable:
    """Return the variable with placeholders for its parameters, and record these in `back`.

    PyMC copies the graph above a variable when it derives some densities, and the model does not
    know the copies of its random variables. Components and bases come in the shape of their
    parameters, not in that of the data: their normalizers are the same for each datum.
    """
    node = rv.owner
    nested = range(len(node.inputs))[_nested_inputs(node.op)]
    outer = list(node.inputs)
    if isinstance(node.op, MixtureRV) and share_location(outer[2:]):
        outer[2:] = [with_number(component, LOCATIONS, 0.0) for component in outer[2:]]
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
    standard, scale = standardized(rv)
    twin = one_for_all_data(detached(standard, back))
    result = branch_of(twin)(twin.owner.op, twin, temperature)
    result = graph_replace([result], back, strict=False)[0] if back else result
    return result if scale is None else result + (1 - 1 / temperature) * pt.log(scale)


@log_normalizer.register(MixtureRV)
def mixture(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum or integral of the power of the whole mixture."""
    components = rv.owner.inputs[2:]
    n_atoms = sum(isinstance(c.owner.op, DiracDeltaRV) for c in components)
    fault = ""
    if op.ndim_supp != 0:
        fault = "it is multivariate"
    elif n_atoms > 1 or n_atoms == len(components):
        fault = "it has more than one DiracDelta"
    elif n_atoms and not is_of_counts(rv):
        fault = (
            "it adds an atom (DiracDelta) to a density, which have no common integral; a hurdle "
            "distribution keeps them apart"
        )
    if fault:
        raise no_normalizer(rv, fault)
    if is_of_counts(rv):
        return mixture_of_counts(rv, temperature)
    return mixture_of_normals(rv, temperature)


@log_normalizer.register(HurdleRV)
def hurdle(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Zero or something else: the two never coincide, so their integrals add up."""
    _, weights, _, other = rv.owner.inputs
    at_zero, elsewhere = (pt.log(weights[..., i]) / temperature for i in (0, 1))
    return pt.logaddexp(at_zero, elsewhere + compact_normalizer(other, temperature))


@log_normalizer.register(CensoredRV)
def censored(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Add the masses at the bounds, to the power 1 / T, to the sum or integral between them."""
    base, *bounds = rv.owner.inputs
    lower, upper = (b if is_unbounded(b) else b.astype("float64") for b in bounds)
    discrete = is_of_counts(base)
    log_atoms = []
    if not is_unbounded(lower):
        log_atoms.append(pm.logcdf(base, lower, warn_rvs=False))
        lower = pt.floor(lower) + 1 if discrete else lower
    if not is_unbounded(upper):
        log_atoms.append(logccdf(base, upper - 1 if discrete else upper, warn_rvs=False))
        upper = pt.ceil(upper) - 1 if discrete else upper
    ends = intersect(support_of(base.owner.op, base), lower, upper)
    if discrete:
        return log_sum(base, temperature, window_of(base, temperature, ends), log_atoms)
    center = moved_inside(center_of(base.owner.op, base), *ends)
    return integrate_power(base, temperature, ends, center, log_atoms)


@largest_temperature.register(CensoredRV)
@largest_temperature.register(TruncatedRV)
def limit_between(op: Op, rv: Variable) -> Variable:
    """Return the limit of the base, unless no tail is left between the bounds."""
    base = rv.owner.inputs[0] if isinstance(op, CensoredRV) else base_of(rv)
    if not is_of_counts(rv):
        low, high = intersect(support_of(base.owner.op, base), *rv.owner.inputs[-2:])
        if is_unbounded(low) or is_unbounded(high):
            return largest_temperature(base.owner.op, base)
    return pt.constant(np.inf)


@log_normalizer.register(PartialObservedRV)
def partly_observed(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Return the normalizers of the elements that are observed."""
    base, mask = rv.owner.inputs
    if base.owner.op.ndim_supp != 0 or temperature.type.ndim > 0:
        raise no_normalizer(rv, "some of its values are missing")
    shape = [s if s is not None else base.shape[axis] for axis, s in enumerate(base.type.shape)]
    full = pt.broadcast_to(compact_normalizer(base, temperature), tuple(shape))
    return full[pt.invert(mask)]


def check_random(rv: Variable) -> Variable:
    """Return the random variable without `total_size`; raise an error if it is not one."""
    if not isinstance(rv, Variable):
        raise TypeError(f"rv must be a random variable of PyMC, not {type(rv).__name__}.")
    while rv.owner is not None and isinstance(rv.owner.op, MinibatchRandomVariable):
        rv = rv.owner.inputs[0]
    if rv.owner is None or getattr(rv.owner.op, "ndim_supp", None) is None:
        raise NormalizerError(
            f"{rv.name or rv!r} is not a random variable with a density of its own, so it has no "
            f"tempered normalizer. Of the fits, {WITHOUT_NORMALIZER}."
        )
    return rv


def as_temperature(T: Any) -> Variable:
    """Temperature as a float tensor; constants have to be positive and finite."""
    if not isinstance(T, Variable):
        values = np.asarray(T, dtype=float)
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(f"The temperature T must be positive and finite, not {T!r}.")
        T = values
    return pt.as_tensor_variable(T).astype("float64")


def is_slow_to_compile(rv: Variable) -> bool:
    """Whether a variable's normalizer is an integral, with a large graph."""
    if isinstance(rv.owner.op, MixtureRV | CensoredRV) and not is_of_counts(rv):
        return True
    return branch_of(rv) is log_normalizer_by_quadrature


def batch_shape(rv: Variable) -> tuple[Variable, ...]:
    """Shape of the variable without the axes of one draw, from the graph alone."""
    ndim_batch = rv.type.ndim - rv.owner.op.ndim_supp
    static = rv.type.shape[:ndim_batch]
    if all(size is not None for size in static):
        return tuple(pt.constant(size, dtype="int64") for size in static)
    return tuple(rv.shape[axis] for axis in range(ndim_batch))


def log_tempered_normalizer(rv: Variable, T: Any) -> Variable:
    r"""Log of the integral of a density to the power 1 / T, as a PyTensor graph.

    .. math:: \log c(\theta, T) = \log \int p(x \mid \theta)^{1/T} \, dx

    A sum takes the place of the integral for discrete variables. It is what variational tempering
    needs of a likelihood: C(T) of equation (3) of Mandt et al. (2016) is the prior average of its
    product over the data (equation 13), and p(x)^(1 / T) / c(T) is a density again.

    Closed forms where they are known, sums over a window that follows the parameters for other
    discrete distributions, quadrature for other univariate densities, each checked when it is
    evaluated; see the page *Tempered normalizers*.

    Parameters
    ----------
    rv : TensorVariable
        A random variable of PyMC, observed or not, or one made with `.dist()`. The density is that
        of the constrained space, and `total_size` plays no part.
    T : float, array or TensorVariable
        Temperature, above 0; an array broadcasts against the batch shape of `rv`.

    Returns
    -------
    TensorVariable
        Shape: the batch shape of `rv` (its shape without the axes of one draw), in nats. It is 0 at
        T = 1, +inf where the tails are too heavy (StudentT from T = nu + 1 on, InverseGamma and
        Pareto from T = alpha + 1 on, Cauchy from T = 2 on), and differentiable in the parameters
        of `rv` and in `T`. Its evaluation raises a `NormalizerError` where a sum gets too long or a
        quadrature fails its own checks.

    Raises
    ------
    NormalizerError
        No normalizer is known for this distribution.
    ValueError
        A temperature that is not positive and finite.

    Examples
    --------
    >>> rv = pm.Normal.dist(0.0, 2.0)
    >>> log_c = pmt.variational.log_tempered_normalizer(rv, 4.0)
    >>> # (2 pi sigma^2)^((1 - 1 / T) / 2) sqrt(T)
    >>> float(log_c.eval().round(3))
    1.902
    """
    rv = check_random(rv)
    temperature = as_temperature(T)
    shape = batch_shape(rv)
    if temperature.type.ndim > len(shape):
        raise ValueError(
            f"T has {temperature.type.ndim} dimensions and {label_of(rv)} has {len(shape)} batch "
            "dimensions: T must broadcast against the elements of the variable."
        )
    result = compact_normalizer(rv, temperature)
    if len(shape) == 0:
        return result
    return pt.broadcast_to(result, shape)


def temperature_limit(rv: Variable) -> Variable:
    """Temperature from which on the normalizer of a variable is infinite, compact; often +inf.

    Parameters
    ----------
    rv : TensorVariable
    """
    rv = check_random(rv)
    return pt.as_tensor_variable(largest_temperature(rv.owner.op, rv))
