"""What all normalizers share: dispatch on the op of a variable, its support, center and density.

Dispatch is as in PyMC's logprob. A branch takes (op, rv, temperature) and returns log of the
integral of p(x | theta)^(1 / T) dx, in nats, with as few elements as the parameters have: nothing
here is broadcast to the size of the variable, so that a likelihood of N data with one scale costs
one number.

A density is integrated over y in R with x = x(y): the identity, an exponential or a sigmoid, so
that the ends of the support are at infinity and p(x) |dx / dy| is smooth where p is smooth inside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import (
    AsymmetricLaplaceRV,
    ExGaussianRV,
    MoyalRV,
    SkewNormalRV,
    SkewStudentTRV,
    WaldRV,
)
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.discrete import DiscreteUniformRV, DiscreteWeibullRV
from pymc.distributions.dist_math import check_parameters, normal_lcdf
from pymc.distributions.distribution import DiracDelta, DiracDeltaRV, support_point
from pymc.distributions.truncated import TruncatedRV
from pymc.logprob.transforms import (
    CircularTransform,
    IntervalTransform,
    LogOddsTransform,
    LogTransform,
)
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type_other import NoneConst

from pymc_tempering.borrowed.private import default_transform, print_name_of
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.model.prior_scales import SCALE_PLACES

WITHOUT_NORMALIZER = 'method="annealed" needs no normalizer'


def label_of(rv: Variable) -> str:
    """Name of a variable and of its distribution, for messages."""
    op = rv.owner.op if rv.owner is not None else None
    kind = print_name_of(op) or getattr(op, "name", None) or type(op).__name__
    return f"{rv.name!r} ({kind})" if rv.name else str(kind)


def no_normalizer(rv: Variable, why: str) -> NormalizerError:
    """Error for a variable without a normalizer, with the reason."""
    return NormalizerError(
        f"No tempered normalizer is known for {label_of(rv)}: {why}. Of the fits, "
        f"{WITHOUT_NORMALIZER}."
    )


@singledispatch
def log_normalizer(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Log of the integral (sum) of p(x)^(1 / T); `NormalizerError` where none is known."""
    raise no_normalizer(rv, "it is neither univariate nor has it a closed form here")


@singledispatch
def largest_temperature(op: Op, rv: Variable) -> Variable:
    """Temperature from which on the normalizer is infinite; infinity where it never is."""
    return pt.constant(np.inf)


def params_of(rv: Variable) -> tuple[Variable, ...]:
    """Distribution parameters of a random variable, as floats."""
    params = rv.owner.op.dist_params(rv.owner)
    return tuple(p.astype("float64") for p in params)


def known_shape(value: Variable, shape: Sequence[int | None]) -> Variable:
    """Value of a shape that is known (None where it is not).

    PyTensor forgets it in some operations, and then carries the computation of a shape through all
    that follow: a mixture took minutes to compile.
    """
    return value if value.type.shape == tuple(shape) else pt.specify_shape(value, shape)


def require(value: Variable, condition: Variable, message: str) -> Variable:
    """Value whose evaluation raises a `NormalizerError` where a condition is false."""
    return CheckAndRaise(NormalizerError, message)(value, pt.all(condition))


def is_unbounded(bound: Any) -> bool:
    """Whether a bound is None or an infinite constant."""
    data = getattr(bound, "data", bound)
    return bound is None or (isinstance(data, np.ndarray | float) and bool(np.isinf(data).all()))


@dataclass(frozen=True)
class Line:
    """The map from the real line onto an interval.

    Attributes
    ----------
    to_x, to_y : callable
        The map and its inverse.
    log_jacobian : callable
        log |dx / dy| as a function of y.
    widest : float
        Largest width of a mode on the line: where y is a logarithm of x, the density of x may fall
        as exp(-exp(y)), however wide it is in y.
    """

    to_x: Callable[[Variable], Variable]
    to_y: Callable[[Variable], Variable]
    log_jacobian: Callable[[Variable], Variable]
    widest: float = 2.0


def line_onto(lower: Any, upper: Any) -> Line:
    """Map onto (lower, upper); an end that is None or an infinite constant is open."""
    if is_unbounded(lower) and is_unbounded(upper):
        return Line(lambda y: y, lambda x: x, pt.zeros_like, np.inf)
    if is_unbounded(upper):
        return Line(lambda y: lower + pt.exp(y), lambda x: pt.log(x - lower), lambda y: y)
    if is_unbounded(lower):
        return Line(lambda y: upper - pt.exp(-y), lambda x: -pt.log(upper - x), lambda y: -y)
    return Line(
        lambda y: lower + (upper - lower) * pt.sigmoid(y),
        lambda x: pt.log(x - lower) - pt.log(upper - x),
        lambda y: pt.log(upper - lower) - pt.softplus(y) - pt.softplus(-y),
    )


LOCATIONS: dict[type[Op], int] = {
    rvs.NormalRV: 0,
    rvs.HalfNormalRV: 0,
    rvs.LaplaceRV: 0,
    rvs.LogisticRV: 0,
    rvs.GumbelRV: 0,
    rvs.CauchyRV: 0,
    MoyalRV: 0,
    SkewNormalRV: 0,
    ExGaussianRV: 0,
    rvs.VonMisesRV: 0,
    rvs.StudentTRV: 1,
    SkewStudentTRV: 2,
    AsymmetricLaplaceRV: 2,
}
"""Which parameter moves a density along the line, or around the circle."""

SCALES: dict[type[Op], int] = SCALE_PLACES | {rvs.ParetoRV: 1}
"""Which parameter stretches a density."""


def remade(rv: Variable, params: Sequence[Variable]) -> Variable:
    """Return the variable with other parameters."""
    op = rv.owner.op
    if isinstance(op, RandomVariable):
        return op.make_node(*rv.owner.inputs[:2], *params).default_output()
    return op.rv_op(*params)


def with_number(rv: Variable, places: dict[type[Op], int], number: float) -> Variable:
    """Variable with a number for one of its parameters, as its type says."""
    params, place = list(rv.owner.op.dist_params(rv.owner)), places[type(rv.owner.op)]
    params[place] = pt.constant(np.full((1,) * params[place].type.ndim, number))
    return remade(rv, params)


def standardized(rv: Variable) -> tuple[Variable, Variable | None]:
    """Return the variable with a location of 0 and a scale of 1 if it has these, and the scale.

    No integral depends on a location: a regression has another one for each datum, but the same
    normalizer.
    """
    kind, standard, scale = type(rv.owner.op), rv, None
    if kind in LOCATIONS:
        standard = with_number(standard, LOCATIONS, 0.0)
    if kind in SCALES:
        scale = params_of(rv)[SCALES[kind]]
        standard = with_number(standard, SCALES, 1.0)
    standard.name = rv.name
    return standard, scale


COUNTS: dict[type[Op], Callable[..., tuple[Any, Any]]] = {
    rvs.PoissonRV: lambda mu: (0.0, None),
    rvs.NegBinomialRV: lambda n, p: (0.0, None),
    rvs.GeometricRV: lambda p: (1.0, None),
    rvs.BernoulliRV: lambda p: (0.0, 1.0),
    rvs.BinomialRV: lambda n, p: (0.0, n),
    rvs.BetaBinomialRV: lambda n, alpha, beta: (0.0, n),
    rvs.HyperGeometricRV: lambda good, bad, n: (pt.maximum(n - bad, 0.0), pt.minimum(good, n)),
    DiscreteUniformRV: lambda lower, upper: (lower, upper),
    DiscreteWeibullRV: lambda q, beta: (0.0, None),
}
"""Ends of the supports of counts, by their parameters."""


@singledispatch
def support_of(op: Op, rv: Variable) -> tuple[Any, Any]:
    """Return ends of the support, None for infinite ones: what PyMC's default transform says."""
    if np.dtype(rv.dtype).kind in "iub":
        if type(op) not in COUNTS:
            raise no_normalizer(rv, "its values are not known, so they cannot be summed")
        return COUNTS[type(op)](*params_of(rv))
    transform = default_transform(op, rv)
    if transform is None:
        return None, None
    if isinstance(transform, LogTransform):
        return 0.0, None
    if isinstance(transform, LogOddsTransform):
        return 0.0, 1.0
    if isinstance(transform, CircularTransform):
        return -np.pi, np.pi
    if isinstance(transform, IntervalTransform):
        return transform.args_fn(*rv.owner.inputs)
    raise no_normalizer(
        rv,
        f"its support is not known (its default transform is {transform}), so its density cannot "
        "be integrated",
    )


@support_of.register(CustomSymbolicDistRV)
def custom_support(op: Op, rv: Variable) -> tuple[Any, Any]:
    """PyMC's LogitNormal is such a one, without a transform."""
    if type(op).__name__ == "LogitNormal":
        return 0.0, 1.0
    return support_of.dispatch(object)(op, rv)


@support_of.register(WaldRV)
def wald_support(op: Op, rv: Variable) -> tuple[Any, Any]:
    """Return the shift alpha as the lower end."""
    return params_of(rv)[2], None


def intersect(ends: tuple[Any, Any], lower: Any, upper: Any) -> tuple[Any, Any]:
    """Part of an interval that lies between two bounds."""
    low, high = ends
    if not is_unbounded(lower):
        low = lower if is_unbounded(low) else pt.maximum(low, lower)
    if not is_unbounded(upper):
        high = upper if is_unbounded(high) else pt.minimum(high, upper)
    return low, high


def base_of(rv: Variable) -> Variable:
    """Untruncated variable below a truncated one."""
    *rv_inputs, _, _ = rv.owner.inputs
    return rv.owner.op.base_rv_op.make_node(*rv_inputs).default_output()


@support_of.register(TruncatedRV)
def truncated_support(op: Op, rv: Variable) -> tuple[Any, Any]:
    """Support of the base between the bounds."""
    base = base_of(rv)
    *_, lower, upper = rv.owner.inputs
    return intersect(support_of(base.owner.op, base), lower, upper)


def one_for_all_data(rv: Variable, alone: bool = False) -> Variable:
    """Return a variable in the shape of its parameters, with as many axes as it had.

    With `alone` its last axis is that of the components, which has to stay as long as it is.
    """
    op = rv.owner.op
    if isinstance(op, TruncatedRV):
        *_, lower, upper = rv.owner.inputs
        base = base_of(rv)
        small = one_for_all_data(base)
        if small is base:
            return rv
        return op.rv_op(small, lower, upper, op.max_n_steps)
    if isinstance(op, DiracDeltaRV):
        (value,) = op.dist_params(rv.owner)
        constant = all(n == 1 for n in value.type.shape)
        return DiracDelta.dist(value, shape=(1,) * rv.type.ndim) if constant else rv
    if not isinstance(op, RandomVariable) or op.ndim_supp != 0:
        return rv
    params = op.dist_params(rv.owner)
    if any(op.ndims_params) or not params:
        return rv
    if alone and all(p.type.ndim == 0 or p.type.shape[-1] == 1 for p in params):
        return rv
    first = pt.shape_padleft(params[0], rv.type.ndim - params[0].type.ndim)
    return op.make_node(rv.owner.inputs[0], NoneConst, first, *params[1:]).default_output()


@singledispatch
def center_of(op: Op, rv: Variable) -> Variable:
    """Return a point of the support not far from the bulk: PyMC's support point."""
    return support_point(rv)


@center_of.register(TruncatedRV)
def truncated_center(op: Op, rv: Variable) -> Variable:
    """Center of the base if it lies inside, else a point inside."""
    base = base_of(rv)
    return moved_inside(center_of(base.owner.op, base), *support_of(op, rv))


def moved_inside(center: Variable, low: Any, high: Any) -> Variable:
    """Return a center if it lies between two ends, else a point that does."""
    if is_unbounded(low) and is_unbounded(high):
        return center
    if is_unbounded(high):
        return pt.switch(center > low, center, low + 1e-3 * (1 + pt.abs(low)))
    if is_unbounded(low):
        return pt.switch(center < high, center, high - 1e-3 * (1 + pt.abs(high)))
    inside = pt.and_(center > low, center < high)
    return pt.switch(inside, center, 0.5 * (low + high))


@singledispatch
def log_density(op: Op, rv: Variable, x: Variable) -> Variable:
    """PyMC's log density at x, which has one more axis in front than the variable."""
    try:
        return pm.logp(rv, x, warn_rvs=False)
    except (NotImplementedError, ValueError, TypeError):
        value = rv.type()
        return vectorize_graph(pm.logp(rv, value, warn_rvs=False), {value: x})


@log_density.register(SkewNormalRV)
def skew_normal_log_density(op: Op, rv: Variable, x: Variable) -> Variable:
    """PyMC's takes log(1 + erf), which cancels in the short tail."""
    mu, sigma, alpha = params_of(rv)
    z = (x - mu) / sigma
    res = np.log(2.0) - 0.5 * z**2 - 0.5 * np.log(2 * np.pi) - pt.log(sigma)
    return check_parameters(res + normal_lcdf(0.0, 1.0, alpha * z), sigma > 0, msg="sigma > 0")
