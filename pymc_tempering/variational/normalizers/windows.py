"""Windows of discrete distributions: which values matter to a sum of p^(1 / T).

The window of a family holds all values but a tail of p^(1 / T) that is below 1e-10 of the sum.
With the family's rate function I (minus log of p over its maximum, up to a power) its ends are
where I reaches T * LOG_TAIL.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteWeibullRV
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rvs

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    is_unbounded,
    label_of,
    params_of,
)
from pymc_tempering.variational.normalizers.log_masses import is_above_zero

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
    spread : Variable
        Standard deviation of p^(1 / T), zero where it is not smooth.
    lowest, highest : Variable
        Ends of the support, may be infinite.
    shape : Variable or None
        Away from its first value p^(1 / T) is smooth at k on the scale of sqrt(k + k^2 / shape);
        None where it may not be.
    """

    first: Variable
    last: Variable
    center: Variable
    spread: Variable
    lowest: Variable
    highest: Variable
    shape: Variable | None = None


@singledispatch
def window_of(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Window of a discrete distribution at a temperature."""
    raise NormalizerError(
        f"No tempered normalizer is known for {label_of(rv)}: which of its values matter at a "
        f"temperature is not known, so they cannot be summed. Of the fits, {WITHOUT_NORMALIZER}."
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
    return Window(lowest, highest, center, pt.zeros_like(center), lowest, highest)


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
    spread = pt.sqrt(mu * temperature)
    shape = pt.constant(POISSON_SHAPE)
    return Window(first, last, mu, spread, pt.constant(0.0), pt.constant(np.inf), shape)


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
    spread = pt.sqrt(variance * temperature)
    return Window(first, last, mu, spread, pt.constant(0.0), pt.constant(np.inf), n)


@window_of.register(rvs.BinomialRV)
def binomial_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Bernstein's inequality bounds the rate on both sides."""
    n, p = params_of(rv)
    mean, variance = n * p, n * p * (1 - p)
    distance = _bernstein(variance, _level(temperature))
    spread = pt.sqrt(variance * temperature)
    return Window(mean - distance, mean + distance, mean, spread, pt.constant(0.0), n)


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
    return Window(zero, last, zero, zero, pt.constant(0.0), pt.constant(np.inf))


@window_of.register(rvs.GeometricRV)
def geometric_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """For geometric components of mixtures."""
    (p,) = params_of(rv)
    rate = -pt.log(1 - p)
    last = 1 + (_level(temperature) + pt.maximum(-temperature * pt.log(rate), 0.0)) / rate
    one = pt.ones_like(last)
    return Window(one, last, one, pt.zeros_like(last), pt.constant(1.0), pt.constant(np.inf))


@window_of.register(rvs.BernoulliRV)
def bernoulli_window(op: Op, rv: Variable, temperature: Variable) -> Window:
    """Both values."""
    return _bounded(pt.constant(0.0), pt.constant(1.0))


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
    """Cut a window at the ends of the support; its spread is zero if it touches one of them."""
    first = pt.maximum(pt.floor(w.first), w.lowest)
    last = pt.maximum(pt.minimum(pt.ceil(w.last), w.highest), first)
    inner = pt.and_(pt.gt(first, w.lowest), pt.lt(last, w.highest))
    return replace(w, first=first, last=last, spread=pt.switch(inner, w.spread, 0.0))


def closed_window(rv: Variable, temperature: Variable) -> Window:
    """Window of a variable with whole ends inside of the support, and no gradient."""
    w = window_of(rv.owner.op, rv, temperature)
    ends = {name: x for name, x in vars(w).items() if x is not None}
    fixed = {name: disconnected_grad(pt.as_tensor(x)) for name, x in ends.items()}
    return clipped(replace(w, **fixed))
