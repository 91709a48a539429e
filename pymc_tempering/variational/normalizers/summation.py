"""Tempered normalizers of discrete distributions as sums over a window that follows the parameters.

Far from both ends of the support p^(1 / T) is smooth on the scale of its standard deviation s, and
a sum over every h-th value times h has an error of order exp(-2 pi^2 s^2 / h^2): with h = s / 2
below rounding (Poisson's summation formula).

A window that begins at the end of the support can be long, too: that of a negative binomial of a
small alpha. There p^(1 / T) is smooth at k on the scale of sqrt(k), mixtures included, so that far
from its first value the sum is one over evenly spaced sqrt(k), which a smooth weight joins to the
sum over every value near the first.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteWeibullRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    is_unbounded,
    label_of,
    log_normalizer,
    require,
)
from pymc_tempering.variational.normalizers.support import base_of
from pymc_tempering.variational.normalizers.windows import Window, closed_window

MAX_POINTS = 200_000
"""Longest sum for one element."""


LARGEST_VALUE = 1e8
"""Log masses are differences of numbers of this size times 20: errors of 4e-7."""

LONG = 2048
"""Values from which on a window of a smooth tail is thinned out."""

HEAD, JOINT = 512, 20.0
"""Values at its beginning that are all used, and the width of the weight that joins the tail."""

ROOT_STEP = 1.0 / 16.0
"""Step of sqrt(k) in the tail."""

SMALLEST_RATE = 1e-12
"""Below this minus log mass of zero, counts above zero are all one."""

LARGEST_RATE = 1e7
"""Above it a Poisson's log normalizer changes as a normal's does, up to 1e-8."""


def is_long(w: Window, stride: Variable, excluded: Variable | None) -> Variable:
    """Whether a window is thinned out; not where an excluded value is beyond its beginning."""
    long = pt.gt(w.last - w.first, LONG * stride)
    if not w.smooth:
        return pt.zeros_like(long)
    return long if excluded is None else pt.and_(long, pt.lt(excluded, w.first + HEAD / 4))


def thinned(w: Window, steps: Variable) -> tuple[Variable, Variable]:
    """Values and log weights of a long window: each of the first 512, then even in sqrt(k)."""
    root = pt.sqrt(w.first + HEAD / 2) + ROOT_STEP * (steps - HEAD)
    head = pt.lt(steps, HEAD)
    values = pt.switch(head, w.first + steps, root**2)
    place = (values - w.first - 0.75 * HEAD) / JOINT
    share = pt.erfc(pt.switch(head, place, -place)) / 2
    return values, pt.log(pt.switch(head, share, share * 2 * root * ROOT_STEP))


def is_above_zero(rv: Variable) -> bool:
    """Whether a variable is counts without zero, as in a hurdle, and without an upper end."""
    if not isinstance(rv.owner.op, TruncatedRV):
        return False
    *_, lower, upper = rv.owner.inputs
    return is_all(lower, 1) and is_unbounded(upper)


def is_all(value: Variable, number: int) -> bool:
    """Whether a variable is known to be a number everywhere."""
    return isinstance(value, Constant) and bool(np.all(value.data == number))


def log_mass(rv: Variable, k: Variable) -> Variable:
    """PyMC's log mass; for counts without zero by the log mass of zero.

    PyMC subtracts log(1 - p), where p is the mass of zero, rounded: at a rate of 1e-14 this is off
    by 1e-3, below 1e-16 it is infinite.
    """
    if not is_above_zero(rv):
        return pm.logp(rv, k, warn_rvs=False)
    base = base_of(rv)
    at_zero = pm.logp(base, pt.zeros_like(k), warn_rvs=False)
    only_one = pt.invert(pt.lt(at_zero, -SMALLEST_RATE))  # also where it is not a number
    above = pt.log(-pt.expm1(pt.switch(only_one, -1.0, at_zero)))
    rest = pt.switch(only_one, -1.0, pm.logp(base, k, warn_rvs=False))
    one = pt.switch(pt.eq(k, 1), 0.0, -np.inf)
    return pt.switch(pt.ge(k, 1), pt.switch(only_one, one, rest - above), -np.inf)


def log_sum(
    rv: Variable, temperature: Variable, w: Window, excluded: Variable | None = None
) -> Variable:
    """Log of the sum of p^(1 / T) over a window, without one excluded value."""
    stride = pt.maximum(pt.floor(w.spread / 2), 1.0)
    if excluded is not None:
        inside = pt.and_(pt.ge(excluded, w.first), pt.le(excluded, w.last))
        stride = pt.switch(inside, 1.0, stride)
    long = is_long(w, stride, excluded)
    n_points = pt.floor((w.last - w.first) / stride) + 1
    if w.smooth:
        tail = (pt.sqrt(w.last) - pt.sqrt(w.first + HEAD / 2)) / ROOT_STEP
        n_points = pt.switch(long, HEAD + pt.ceil(tail), n_points)
    n_points = pt.max(n_points)
    n_points = require(
        n_points,
        pt.and_(pt.and_(n_points >= 1, n_points <= MAX_POINTS), pt.max(w.last) <= LARGEST_VALUE),
        f"The tempered normalizer of {label_of(rv)} would be a sum over more than {MAX_POINTS} "
        f"values, or over values above {LARGEST_VALUE:g}, where its mass is lost in rounding (or "
        "its parameters are not numbers). Use lower temperatures, or a prior without such "
        f"parameters; of the fits, {WITHOUT_NORMALIZER}.",
    )
    ndim = max(rv.type.ndim, temperature.type.ndim)
    steps = pt.shape_padright(pt.arange(n_points), ndim)
    values, log_weight = w.first + stride * steps, pt.log(stride)
    if w.smooth:
        apart, log_apart = thinned(w, steps)
        values = pt.switch(long, apart, values)
        log_weight = pt.switch(long, log_apart, log_weight)
    used = pt.le(values, w.last)
    values = pt.minimum(values, w.last)
    if excluded is not None:
        used = pt.and_(used, pt.neq(values, excluded))
    log_p = log_mass(rv, values if w.smooth else values.astype("int64"))
    terms = pt.switch(used, log_p / temperature + log_weight, -np.inf)
    return pt.logsumexp(terms, axis=0)


def log_normalizer_by_sum(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum over the window of a discrete variable."""
    return log_sum(rv, temperature, closed_window(rv, temperature))


@log_normalizer.register(rvs.PoissonRV)
def poisson(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum up to a large rate, beyond which a normal of variance mu is as good."""
    rng, size, mu = rv.owner.inputs
    mu = mu.astype("float64")
    summed = pt.minimum(mu, LARGEST_RATE)
    twin = op.make_node(rng, size, summed).outputs[1]
    beyond = 0.5 * (1 - 1 / temperature) * pt.log(pt.maximum(mu / LARGEST_RATE, 1.0))
    return log_normalizer_by_sum(op, twin, temperature) + beyond


for _op_type in (
    rvs.NegBinomialRV,
    rvs.BinomialRV,
    rvs.BetaBinomialRV,
    rvs.HyperGeometricRV,
    DiscreteWeibullRV,
):
    log_normalizer.register(_op_type, log_normalizer_by_sum)
