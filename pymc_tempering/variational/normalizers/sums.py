"""Tempered normalizers of counts: sums over a window that follows the parameters.

The window holds all values but a tail of p^(1 / T) that is below 1e-10 of the sum: its ends come
from bounds on tails. Every evaluation is checked: at T = 1 the same values must have the mass 1.
Else a NormalizerError is raised.

A window can be long: that of a negative binomial of a small shape n reaches as far as mu / n. There
p^(1 / T) is smooth at k on the scale of sqrt(k + k^2 / n), the standard deviation of a negative
binomial of this mean, mixtures included with the largest shape. So far from its first value the sum
is one over values that are evenly spaced in these units, s = 2 sqrt(n) asinh(sqrt(k / n)): in
sqrt(k) at first, as of a Poisson throughout, in log k far out. A smooth weight joins it to the sum
over every value near the first. A sum with a step h of what is smooth on a scale of 1 has an error
of order exp(-2 pi^2 / h^2) (Poisson's summation formula).
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

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
    base_of,
    center_of,
    is_unbounded,
    label_of,
    log_normalizer,
    params_of,
    require,
    support_of,
)

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
    above_zero = isinstance(lower, Constant) and bool(np.all(lower.data == 1))
    return above_zero and is_unbounded(upper)


def log_mass(rv: Variable, k: Variable) -> Variable:
    """PyMC's log mass; of counts without zero by that of zero, of negative binomials also far out.

    PyMC subtracts log(1 - p), where p is the mass of zero, rounded: at a rate of 1e-14 this is off
    by 1e-3, below 1e-16 it is infinite.
    """
    if is_above_zero(rv):
        return _without_zero(base_of(rv), k)
    if isinstance(rv.owner.op, MixtureRV):
        return _of_mixture(rv, k)
    if not isinstance(rv.owner.op, rvs.NegBinomialRV):
        return pm.logp(rv, k, warn_rvs=False)
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


POISSON_SHAPE = 1e30
"""Shape of a Poisson, as a negative binomial's."""

LOG_TAIL = 28.0
"""How far p^(1 / T) has fallen at the ends of the window, besides log(1 + T)."""


def bernstein(fall: Variable, variance: Variable, scale: Variable) -> Variable:
    """Distance from the mean at which log p is at most -fall, by Bernstein's inequality.

    It is d with d^2 = 2 fall (variance + scale d). Sums of independent counts have such tails.
    """
    unit = fall * scale
    return unit + pt.sqrt(unit) * pt.sqrt(unit + 2 * variance / scale)


TAILS: dict[type[Op], Callable[..., Variable]] = {
    rvs.PoissonRV: lambda fall, center, mu: bernstein(fall, mu, 1 / 3),
    rvs.BinomialRV: lambda fall, center, n, p: bernstein(fall, n * p * (1 - p), 1 / 3),
    rvs.NegBinomialRV: lambda fall, center, n, p: bernstein(fall, n * (1 - p) / p / p, 1 / p),
    rvs.GeometricRV: lambda fall, center, p: bernstein(fall, (1 - p) / p / p, 1 / p),
    DiscreteWeibullRV: lambda fall, center, q, beta: (
        (center**beta - fall / pt.log(q)) ** (1 / beta) - center
    ),
}
"""How far from the center log p has fallen by a number; of other counts all values are summed."""


class Window(NamedTuple):
    """Where to sum, all of it symbolic and without gradient.

    `first` and `last` are whole numbers. Away from its first value p^(1 / T) is smooth at k on the
    scale of sqrt(k + k^2 / shape); the shape is None where it may not be.
    """

    first: Variable
    last: Variable
    shape: Variable | None = None


def shape_of(rv: Variable) -> Variable | None:
    """Shape of a negative binomial, or of a Poisson as one; None of others."""
    if is_above_zero(rv):
        return shape_of(base_of(rv))
    if isinstance(rv.owner.op, rvs.PoissonRV):
        return pt.constant(POISSON_SHAPE)
    return params_of(rv)[0] if isinstance(rv.owner.op, rvs.NegBinomialRV) else None


def window_of(rv: Variable, temperature: Variable, bounds: tuple[Any, Any] | None = None) -> Window:
    """Window of a variable at a temperature, and at T = 1, inside of its support.

    `bounds` may be narrower than that. Where they leave out the center, the mass falls from them
    on at least as fast as from the center.
    """
    ends = support_of(rv.owner.op, rv) if bounds is None else bounds
    own = base_of(rv) if isinstance(rv.owner.op, TruncatedRV) else rv
    low, high = pt.ceil(ends[0]), np.inf if is_unbounded(ends[1]) else pt.floor(ends[1])
    center = pt.clip(pt.round(center_of(own.owner.op, own).astype("float64")), low, high)
    first, last, shape = low, high, shape_of(rv)
    hot = pt.maximum(temperature, 1.0)
    if type(own.owner.op) in TAILS:
        fall = hot * (LOG_TAIL + pt.log1p(hot))
        reach = pt.ceil(TAILS[type(own.owner.op)](fall, center, *params_of(own))) + 1.0
        first, last = pt.maximum(center - reach, low), pt.minimum(center + reach, high)
    first, last = (disconnected_grad(end + pt.zeros_like(center * hot)) for end in (first, last))
    return Window(first, last, None if shape is None else disconnected_grad(shape))


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

TOLERANCE = 0.05
"""Largest log of all masses, in nats, that the check lets pass: PyMC has constants in single
precision, by which the masses of a Poisson of rate 3000.0 add up to 1.0002."""

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
    rv: Variable,
    temperature: Variable,
    w: Window,
    log_atoms: Sequence[Variable] = (),
    excluded: Variable | None = None,
) -> Variable:
    """Log of the sum of p^(1 / T) over a window, plus the powers of the masses of atoms.

    One value, which is among the atoms, may be excluded from the window.
    """
    long = pt.gt(w.last - w.first, LONG)
    if excluded is not None:  # it has to be near the beginning of a window that is thinned out
        long = pt.and_(long, pt.lt(excluded, w.first + HEAD / 4))
    n_points = pt.max(_values_and_weights(w, long, pt.constant(0.0))[2])
    largest = pt.constant(LARGEST_VALUE)
    if w.shape is not None:
        far = pt.and_(long, pt.lt(w.shape, LARGEST_SHAPE))
        largest = pt.switch(far, pt.constant(LARGEST_FAR), LARGEST_VALUE)
    n_points = require(
        n_points,
        pt.and_(pt.le(n_points, MAX_POINTS), pt.all(pt.le(w.last, largest))),
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

    def total(inverse: Any) -> Variable:
        inside = pt.switch(used, log_p * inverse + log_weight, -np.inf)
        return reduce(pt.logaddexp, [a * inverse for a in log_atoms], pt.logsumexp(inside, axis=0))

    return require(
        total(1 / temperature),
        pt.lt(pt.abs(disconnected_grad(total(1.0))), TOLERANCE),
        f"The tempered normalizer of {label_of(rv)} by a sum is not reliable: its masses at the "
        f"same values do not add up to 1. Of the fits, {WITHOUT_NORMALIZER}.",
    )


def _largest(ends: Sequence[Variable], along: bool) -> Variable:
    """Largest value over the components, which may lie along the last axis of one."""
    if along:
        return pt.max(ends[0], axis=-1) if ends[0].type.ndim else ends[0]
    return reduce(pt.maximum, ends)


def mixture_of_counts(rv: Variable, temperature: Variable) -> Variable:
    """Sum over the union of the components' windows; an atom is added apart.

    With T >= 1 the power of a sum is at most the sum of the powers, so the tail beyond the union
    is at most the sum of the components' own.
    """
    every = rv.owner.inputs[2:]
    along = len(every) == 1
    components = [c for c in every if not isinstance(c.owner.op, DiracDeltaRV)]
    inner = pt.shape_padright(temperature) if along and temperature.type.ndim else temperature
    firsts, lasts, shapes = zip(*(window_of(c, inner) for c in components), strict=True)
    smooth = None not in shapes
    window = Window(
        -_largest([-first for first in firsts], along),
        _largest(lasts, along),
        _largest(shapes, along) if smooth else None,
    )
    atoms = [c for c in every if c not in components]
    if not atoms:
        return log_sum(rv, temperature, window)
    (place,) = atoms[0].owner.op.dist_params(atoms[0].owner)
    return log_sum(rv, temperature, window, [pm.logp(rv, place, warn_rvs=False)], place)


def log_normalizer_by_sum(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum over the window of a discrete variable."""
    return log_sum(rv, temperature, window_of(rv, temperature))


@log_normalizer.register(rvs.PoissonRV)
def poisson(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum up to a large rate, beyond which a normal of variance mu is as good."""
    rng, size, mu = rv.owner.inputs
    mu = mu.astype("float64")
    summed = pt.minimum(mu, LARGEST_RATE)
    twin = op.make_node(rng, size, summed).outputs[1]
    beyond = 0.5 * (1 - 1 / temperature) * pt.log(pt.maximum(mu / LARGEST_RATE, 1.0))
    return log_normalizer_by_sum(op, twin, temperature) + beyond
