"""Log masses of counts, for a sum of their powers: PyMC's, but where those lose their digits.

A negative binomial of a small shape n reaches as far as mu / n, where a difference of log gammas
has no digits left, and so do its mixtures.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import is_unbounded, params_of
from pymc_tempering.variational.normalizers.support import base_of

FAR = 1e6
"""Values from which on a negative binomial's log mass comes from Stirling's formula."""

BELOW_ONE = np.array(1.0 - 2.0**-53)
"""Largest number below 1."""

SMALLEST_RATE = 1e-12
"""Below this minus log mass of zero, counts above zero are all one."""


def is_above_zero(rv: Variable) -> bool:
    """Whether a variable is counts without zero, as in a hurdle, and without an upper end."""
    if not isinstance(rv.owner.op, TruncatedRV):
        return False
    *_, lower, upper = rv.owner.inputs
    return is_all(lower, 1) and is_unbounded(upper)


def is_all(value: Variable, number: int) -> bool:
    """Whether a variable is known to be a number everywhere."""
    return isinstance(value, Constant) and bool(np.all(value.data == number))


def has_far_masses(rv: Variable) -> bool:
    """Whether a variable is a negative binomial, or has one below it."""
    op = rv.owner.op
    if isinstance(op, MixtureRV):
        return any(has_far_masses(component) for component in rv.owner.inputs[2:])
    return isinstance(op, rvs.NegBinomialRV)


def log_mass(rv: Variable, k: Variable) -> Variable:
    """PyMC's log mass; of counts without zero by that of zero, of negative binomials also far out.

    PyMC subtracts log(1 - p), where p is the mass of zero, rounded: at a rate of 1e-14 this is off
    by 1e-3, below 1e-16 it is infinite.
    """
    if is_above_zero(rv):
        return _without_zero(base_of(rv), k)
    if not has_far_masses(rv):
        return pm.logp(rv, k, warn_rvs=False)
    if isinstance(rv.owner.op, MixtureRV):
        return _of_mixture(rv, k)
    near = pm.logp(rv, pt.minimum(k, FAR).astype(k.dtype), warn_rvs=False)
    return pt.switch(pt.gt(k, FAR), _far_out(rv, pt.maximum(k, FAR)), near)


def _without_zero(base: Variable, k: Variable) -> Variable:
    at_zero = pm.logp(base, pt.zeros_like(k), warn_rvs=False)
    only_one = pt.invert(pt.lt(at_zero, -SMALLEST_RATE))  # also where it is not a number
    above = pt.log(-pt.expm1(pt.switch(only_one, -1.0, at_zero)))
    rest = pt.switch(only_one, -1.0, log_mass(base, k))
    one = pt.switch(pt.eq(k, 1), 0.0, -np.inf)
    return pt.switch(pt.ge(k, 1), pt.switch(only_one, one, rest - above), -np.inf)


def _of_mixture(rv: Variable, k: Variable) -> Variable:
    """Log of the weighted sum of the components' masses."""
    _, weights, *components = rv.owner.inputs
    if len(components) == 1:
        parts = log_mass(components[0], pt.shape_padright(k))
    else:
        each = pt.broadcast_arrays(*(log_mass(component, k) for component in components))
        parts = pt.stack(each, axis=-1)
    return pt.logsumexp(pt.log(weights.astype("float64")) + parts, axis=-1)


def _far_out(rv: Variable, k: Variable) -> Variable:
    """Log mass of a negative binomial by the difference of two series of Stirling's.

    It is log G(k + n) - log G(k + 1) - log G(n) + n log p + k log q, with G the gamma function.
    """
    n, p = params_of(rv)
    p = pt.minimum(p, BELOW_ONE)  # at p = 1 nothing is far out, but a slope would be no number
    b = k + 1.0
    ratio = (n - 1.0) * pt.log(b) + (k + n - 0.5) * pt.log1p((n - 1.0) / b) - (n - 1.0)
    ratio = ratio - (n - 1.0) / (12.0 * b * (k + n))
    return ratio - pt.gammaln(n) + n * pt.log(p) + k * pt.log1p(-p)
