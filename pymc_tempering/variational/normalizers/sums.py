"""Tempered normalizers of counts: sums over a window that follows the parameters.

The window of a family holds all values but a tail of p^(1 / T) that is below 1e-10 of the sum. With
the family's rate function I (minus log of p over its maximum, up to a power) its ends are where I
reaches T * LOG_TAIL.

A window can be long: that of a negative binomial of a small shape n reaches as far as mu / n. There
p^(1 / T) is smooth at k on the scale of sqrt(k + k^2 / n), the standard deviation of a negative
binomial of this mean, mixtures included with the largest shape. So far from its first value the sum
is one over values that are evenly spaced in these units, s = 2 sqrt(n) asinh(sqrt(k / n)): in
sqrt(k) at first, as of a Poisson throughout, in log k far out. A smooth weight joins it to the sum
over every value near the first. A sum with a step h of what is smooth on a scale of 1 has an error
of order exp(-2 pi^2 / h^2) (Poisson's summation formula).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce, singledispatch

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteWeibullRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    is_unbounded,
    label_of,
    log_normalizer,
    no_normalizer,
    params_of,
    require,
)
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


ZERO, INFINITE = pt.constant(0.0), pt.constant(np.inf)

POISSON_SHAPE = 1e30
"""Shape of a Poisson, as a negative binomial's."""

LOG_TAIL = 28.0
"""The rate function reaches this, and a little more, times T at the ends of the window."""


@dataclass(frozen=True)
class Window:
    """Where to sum, all of it symbolic and without gradient.

    Attributes
    ----------
    first, last : Variable
        Ends of the window, whole numbers.
    center : Variable
        Near the largest mass.
    lowest, highest : Variable
        Ends of the support, may be infinite.
    shape : Variable or None
        Away from its first value p^(1 / T) is smooth at k on the scale of sqrt(k + k^2 / shape);
        0 or None where it may not be.
    """

    first: Variable
    last: Variable
    center: Variable
    lowest: Variable
    highest: Variable
    shape: Variable | None = None


@singledispatch
def window_of(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Window of a discrete distribution at a temperature."""
    raise no_normalizer(
        rv,
        "which of its values matter at a temperature is not known, so they cannot be summed",
    )


def _level(temperature: Variable) -> Variable:
    """Return the value that the rate function has to reach; below T = 1 that of T = 1."""
    hot = pt.maximum(temperature, 1.0)
    return hot * (LOG_TAIL + pt.log1p(hot))


def _bernstein(variance: Variable, level: Variable) -> Variable:
    """Distance at which a^2 / (2 (variance + a / 3)) = level: a bound of the rate function."""
    return level / 3 + pt.sqrt((level / 3) ** 2 + 2 * variance * level)


def _bounded(lowest: Variable, highest: Variable) -> Window:
    """Window of all values between two bounds."""
    center = pt.floor((lowest + highest) / 2)
    return Window(lowest, highest, center, lowest, highest)


def _right_root(
    rate: Callable, slope: Callable, start: Variable, level: Variable, steps: int = 6
) -> Variable:
    """Newton's method for a convex rate: from any start it stays beyond the root."""
    k = start
    for _ in range(steps):
        k = k + (level - rate(k)) / slope(k)
    return k


@window_of.register(rvs.PoissonRV)
def poisson_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """I(k) = k log(k / mu) - k + mu; to the left it is above (k - mu)^2 / (2 mu)."""
    (mu,) = params_of(rv)
    mu = pt.maximum(mu, 1e-30)
    level = _level(temperature)
    last = _right_root(
        lambda k: k * pt.log(k / mu) - k + mu,
        lambda k: pt.log(k / mu),
        mu + _bernstein(mu, level),
        level,
    )
    first = mu - pt.sqrt(2 * mu * level)
    return Window(first, last, mu, ZERO, INFINITE, pt.constant(POISSON_SHAPE))


@window_of.register(rvs.NegBinomialRV)
def negative_binomial_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """I(k) = k log(k / mu) - (k + n) log((k + n) / (mu + n)); decay at least q^k if n < 1.

    Its slope is the difference of log(1 + n / mu) and log(1 + n / k), which may be tiny.
    """
    n, p = params_of(rv)
    log_q = pt.log1p(-p)
    mu = pt.maximum(n * (1 - p) / p, 1e-30)
    variance = mu + mu**2 / n
    level = _level(temperature)

    def slope(k: Variable) -> Variable:
        return pt.log1p(n / mu) - pt.log1p(n / k)

    last = _right_root(
        lambda k: k * slope(k) - n * pt.log((k + n) / (mu + n)),
        slope,
        mu + pt.sqrt(2 * variance * level),
        level,
    )
    last = pt.maximum(last, mu - level / log_q)
    first = mu - pt.sqrt(2 * variance * level)
    return Window(first, last, mu, ZERO, INFINITE, n)


@window_of.register(rvs.BinomialRV)
def binomial_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Bernstein's inequality bounds the rate on both sides."""
    n, p = params_of(rv)
    mean, variance = n * p, n * p * (1 - p)
    distance = _bernstein(variance, _level(temperature))
    return Window(mean - distance, mean + distance, mean, ZERO, n)


@window_of.register(rvs.BetaBinomialRV)
def beta_binomial_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """All n + 1 values."""
    n = params_of(rv)[0]
    return _bounded(pt.zeros_like(n), n)


@window_of.register(rvs.HyperGeometricRV)
def hypergeometric_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """All values that are possible."""
    good, bad, n = params_of(rv)
    return _bounded(pt.maximum(n - bad, 0.0), pt.minimum(good, n))


@window_of.register(DiscreteWeibullRV)
def discrete_weibull_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Cut where the mass beyond k, q^(k^beta), is small."""
    q, beta = params_of(rv)
    level = 1.3 * _level(temperature)  # a tail heavier than a geometric one holds more terms
    last = (level / -pt.log(q)) ** (1 / beta)
    zero = pt.zeros_like(last)
    return Window(zero, last, zero, ZERO, INFINITE)


@window_of.register(rvs.GeometricRV)
def geometric_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """For geometric components of mixtures."""
    (p,) = params_of(rv)
    rate = -pt.log(1 - p)
    last = 1 + (_level(temperature) + pt.maximum(-temperature * pt.log(rate), 0.0)) / rate
    one = pt.ones_like(last)
    return Window(one, last, one, pt.constant(1.0), INFINITE)


@window_of.register(rvs.BernoulliRV)
def bernoulli_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Both values."""
    return _bounded(ZERO, pt.constant(1.0))


@window_of.register(DiracDeltaRV)
def dirac_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Return the one value."""
    (c,) = params_of(rv)
    return _bounded(c, c)


@window_of.register(TruncatedRV)
def truncated_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Return the window of the base, moved to where the bounds let its center be.

    Beyond its mode a log-concave mass falls at least as fast from a later start, and a geometric
    one equally fast, so the lengths to the left and right of the center stay long enough.
    """
    *rv_inputs, lower, upper = rv.owner.inputs
    base = op.base_rv_op.make_node(*rv_inputs).default_output()
    w = closed_window(base, temperature)
    moved = between(
        w,
        None if is_unbounded(lower) else pt.ceil(lower),
        None if is_unbounded(upper) else pt.floor(upper),
    )
    return replace(moved, shape=w.shape) if is_above_zero(rv) else moved


def between(w: Window, lowest: Variable | None, highest: Variable | None) -> Window:
    """Move a window to where bounds of its support let its center be."""
    low = w.lowest if lowest is None else pt.maximum(w.lowest, disconnected_grad(lowest))
    high = w.highest if highest is None else pt.minimum(w.highest, disconnected_grad(highest))
    center = pt.clip(w.center, low, high)
    moved = replace(
        w,
        first=center - (w.center - w.first),
        last=center + (w.last - w.center),
        center=center,
        lowest=low,
        highest=high,
        shape=None,
    )
    return clipped(moved)


def clipped(w: Window) -> Window:
    """Cut a window at the ends of the support."""
    first = pt.maximum(pt.floor(w.first), w.lowest)
    return replace(w, first=first, last=pt.maximum(pt.minimum(pt.ceil(w.last), w.highest), first))


def closed_window(rv: Variable, temperature: Variable) -> Window:
    """Window of a variable with whole ends inside of the support, and no gradient."""
    w = window_of(rv.owner.op, rv, temperature)
    ends = {name: x for name, x in vars(w).items() if x is not None}
    fixed = {name: disconnected_grad(pt.as_tensor(x)) for name, x in ends.items()}
    return clipped(replace(w, **fixed))


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


def _even(k: Variable, shape: Variable) -> Variable:
    """Coordinate s of a value."""
    return 2.0 * pt.sqrt(shape) * pt.arcsinh(pt.sqrt(k / shape))


def _values_and_weights(
    w: Window, long: Variable, steps: Variable
) -> tuple[Variable, Variable, Variable]:
    """Values of a window and their log weights, at whole numbers; and how many there are.

    Where the window is long, each of the first 128 values, then even in s.
    """
    if w.shape is None:
        return w.first + steps, pt.zeros_like(steps), w.last - w.first + 1
    shape = pt.maximum(w.shape, 1.0)  # below 1 p^(1 / T) is no smoother
    middle = _even(w.first + HEAD, shape) - REACH * JOINT  # where both weights are 1 / 2
    start = middle - REACH * JOINT
    head = pt.lt(steps, HEAD)
    s = start + STEP * pt.maximum(steps - HEAD, 0.0)
    apart = pt.switch(head, w.first + steps, shape * pt.sinh(0.5 * s / pt.sqrt(shape)) ** 2)
    place = pt.switch(head, _even(apart, shape), s) - middle
    share = pt.erfc(pt.switch(head, place, -place) / JOINT) / 2
    unit = pt.sqrt(apart) * pt.sqrt(1.0 + apart / shape)
    log_weight = pt.log(pt.switch(head, share, share * unit * STEP))
    count = HEAD + pt.ceil((_even(w.last, shape) - start) / STEP) + 1
    return (
        pt.switch(long, apart, w.first + steps),
        pt.switch(long, log_weight, 0.0),
        pt.switch(long, count, w.last - w.first + 1),
    )


def log_sum(
    rv: Variable, temperature: Variable, w: Window, excluded: Variable | None = None
) -> Variable:
    """Log of the sum of p^(1 / T) over a window, without one excluded value."""
    long = pt.gt(w.last - w.first, LONG)
    if w.shape is not None:
        long = pt.and_(long, pt.gt(w.shape, 0.0))
    if excluded is not None:  # it has to be near the beginning of a window that is thinned out
        long = pt.and_(long, pt.lt(excluded, w.first + HEAD / 4))
    n_points = pt.max(_values_and_weights(w, long, ZERO)[2])
    largest = pt.constant(LARGEST_VALUE)
    if w.shape is not None and (has_far_masses(rv) or is_above_zero(rv)):
        far = pt.and_(long, pt.lt(w.shape, LARGEST_SHAPE))
        largest = pt.switch(far, pt.constant(LARGEST_FAR), LARGEST_VALUE)
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
    values, log_weight, _ = _values_and_weights(w, long, steps)
    used = pt.le(values, w.last)
    values = pt.minimum(values, w.last)
    if excluded is not None:
        used = pt.and_(used, pt.neq(values, excluded))
    log_p = log_mass(rv, values if w.shape is not None else values.astype("int64"))
    terms = pt.switch(used, log_p / temperature + log_weight, -np.inf)
    return pt.logsumexp(terms, axis=0)


def union_of_windows(components: list[Variable], temperature: Variable, along: bool) -> Window:
    """Window from the first to the last value that matters for any component of counts."""
    inner = pt.shape_padright(temperature) if along and temperature.type.ndim else temperature
    windows = [closed_window(c, inner) for c in components]

    def extreme(ends: list[Variable], pick: Callable, over: Callable) -> Variable:
        if along:
            return over(ends[0], axis=-1) if ends[0].type.ndim else ends[0]
        return reduce(pick, ends)

    first = extreme([w.first for w in windows], pt.minimum, pt.min)
    last = extreme([w.last for w in windows], pt.maximum, pt.max)
    shapes = [w.shape for w in windows if w.shape is not None]
    smooth = len(shapes) == len(windows)
    shape = extreme(shapes, pt.maximum, pt.max) if smooth else None
    return Window(first, last, first, first, last, shape)


def mixture_of_counts(rv: Variable, temperature: Variable) -> Variable:
    """Sum over the union of the components' windows; an atom is added apart.

    With T >= 1 the power of a sum is at most the sum of the powers, so the tail beyond the union
    is at most the sum of the components' own.
    """
    every = rv.owner.inputs[2:]
    components = [c for c in every if not isinstance(c.owner.op, DiracDeltaRV)]
    window = union_of_windows(components, temperature, len(every) == 1)
    atoms = [c for c in every if c not in components]
    if not atoms:
        return log_sum(rv, temperature, window)
    (place,) = atoms[0].owner.op.dist_params(atoms[0].owner)
    at_atom = pm.logp(rv, place, warn_rvs=False) / temperature
    return pt.logaddexp(at_atom, log_sum(rv, temperature, window, excluded=place))


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


@log_normalizer.register(rvs.BinomialRV)
def binomial(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum over successes, or over failures where those are fewer; smooth but near n."""
    rng, size, n, p = rv.owner.inputs
    twin = op.make_node(rng, size, n, pt.minimum(p, 1 - p)).outputs[1]
    w = closed_window(twin, temperature)
    shape = pt.switch(pt.lt(w.last, 0.75 * n), POISSON_SHAPE, 0.0)
    return log_sum(twin, temperature, replace(w, shape=shape))


for _op_type in (
    rvs.NegBinomialRV,
    rvs.BetaBinomialRV,
    rvs.HyperGeometricRV,
    DiscreteWeibullRV,
):
    log_normalizer.register(_op_type, log_normalizer_by_sum)
