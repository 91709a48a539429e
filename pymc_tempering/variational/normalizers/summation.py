"""Tempered normalizers of discrete distributions as sums over a window that follows the parameters.

Far from both ends of the support p^(1 / T) is smooth on the scale of its standard deviation s, and
a sum over every h-th value times h has an error of order exp(-2 pi^2 s^2 / h^2): with h = s / 2
below rounding (Poisson's summation formula).

A window that begins at the end of the support can be long, too: that of a negative binomial of a
small shape reaches as far as mu / n. There p^(1 / T) is smooth at k on the scale of
sqrt(k + k^2 / n), the standard deviation of a negative binomial of this mean, mixtures included
with the largest shape. So far from its first value the sum is one over values that are evenly
spaced in these units, s = 2 sqrt(n) asinh(sqrt(k / n)): in sqrt(k) at first, in log k far out. A
smooth weight joins it to the sum over every value near the first.
"""

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteWeibullRV
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    label_of,
    log_normalizer,
    require,
)
from pymc_tempering.variational.normalizers.log_masses import (
    has_far_masses,
    is_above_zero,
    log_mass,
)
from pymc_tempering.variational.normalizers.windows import Window, closed_window

MAX_POINTS = 200_000
"""Longest sum for one element."""


LARGEST_VALUE = 1e8
"""Log masses are differences of numbers of this size times 20: errors of 4e-7."""

LARGEST_FAR, LARGEST_SHAPE = np.float64(1e280), 1e6
"""The same for negative binomials, whose log masses keep their digits up to such a shape."""

LONG = 512
"""Values from which on a window of a smooth tail is thinned out."""

HEAD = 128
"""Values at its beginning that are all used."""

STEP, JOINT = 1.0 / 8.0, 0.3
"""Step of s in the tail, and width in s of the weight that joins it to the beginning."""

REACH = 6.0
"""Widths of this weight from its middle to where it is nothing, or all."""

LARGEST_RATE = 1e7
"""Above it a Poisson's log normalizer changes as a normal's does, up to 1e-8."""


def is_long(w: Window, stride: Variable, excluded: Variable | None) -> Variable:
    """Whether a window is thinned out; not where an excluded value is beyond its beginning."""
    long = pt.gt(w.last - w.first, LONG * stride)
    if w.shape is None:
        return pt.zeros_like(long)
    return long if excluded is None else pt.and_(long, pt.lt(excluded, w.first + HEAD / 4))


@dataclass(frozen=True)
class Thinned:
    """Values of a long window: each of the first 128, then even in s.

    Attributes
    ----------
    shape : Variable
        Largest shape n of a component, and at least 1: below it p^(1 / T) is no smoother.
    middle : Variable
        Value of s where the weights of both parts are 1 / 2.
    """

    shape: Variable
    middle: Variable

    @classmethod
    def of(cls, w: Window) -> "Thinned":
        """Thin a window out."""
        shape = pt.maximum(w.shape, 1.0)
        return cls(shape, _even(w.first + HEAD, shape) - REACH * JOINT)

    def count(self, last: Variable) -> Variable:
        """Count the values up to the end of the window."""
        tail = _even(last, self.shape) - self.middle + REACH * JOINT
        return HEAD + pt.ceil(tail / STEP) + 1

    def values(self, w: Window, steps: Variable) -> tuple[Variable, Variable]:
        """Values and their log weights."""
        head = pt.lt(steps, HEAD)
        root = pt.sqrt(self.shape)
        s = self.middle - REACH * JOINT + STEP * pt.maximum(steps - HEAD, 0.0)
        values = pt.switch(head, w.first + steps, self.shape * pt.sinh(0.5 * s / root) ** 2)
        place = pt.switch(head, _even(values, self.shape), s) - self.middle
        share = pt.erfc(pt.switch(head, place, -place) / JOINT) / 2
        unit = pt.sqrt(values) * pt.sqrt(1.0 + values / self.shape)
        return values, pt.log(pt.switch(head, share, share * unit * STEP))


def _even(k: Variable, shape: Variable) -> Variable:
    """Coordinate s of a value."""
    return 2.0 * pt.sqrt(shape) * pt.arcsinh(pt.sqrt(k / shape))


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
    largest = pt.constant(LARGEST_VALUE)
    if w.shape is not None:
        thin = Thinned.of(w)
        n_points = pt.switch(long, thin.count(w.last), n_points)
        if has_far_masses(rv) or is_above_zero(rv):
            far = pt.and_(long, pt.lt(w.shape, LARGEST_SHAPE))
            largest = pt.switch(far, pt.constant(LARGEST_FAR), LARGEST_VALUE)
    n_points = pt.max(n_points)
    n_points = require(
        n_points,
        pt.and_(pt.and_(n_points >= 1, n_points <= MAX_POINTS), pt.all(pt.le(w.last, largest))),
        f"The tempered normalizer of {label_of(rv)} would be a sum over more than {MAX_POINTS} "
        f"values, or over values above {LARGEST_VALUE:g}, where its mass is lost in rounding (or "
        "its parameters are not numbers). Use lower temperatures, or a prior without such "
        f"parameters; of the fits, {WITHOUT_NORMALIZER}.",
    )
    ndim = max(rv.type.ndim, temperature.type.ndim)
    steps = pt.shape_padright(pt.arange(n_points), ndim)
    values, log_weight = w.first + stride * steps, pt.log(stride)
    if w.shape is not None:
        apart, log_apart = thin.values(w, steps)
        values = pt.switch(long, apart, values)
        log_weight = pt.switch(long, log_apart, log_weight)
    used = pt.le(values, w.last)
    values = pt.minimum(values, w.last)
    if excluded is not None:
        used = pt.and_(used, pt.neq(values, excluded))
    log_p = log_mass(rv, values if w.shape is not None else values.astype("int64"))
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
