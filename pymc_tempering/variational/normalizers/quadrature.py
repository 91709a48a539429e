"""Tempered normalizers of univariate densities and their mixtures without a closed form: integrals.

After a map of the support onto the real line it is cut into panels that double in length away from
the mode of each component, with a Clenshaw-Curtis rule on each. The logarithm of a mixture bends
sharply where its largest component changes, far out in the tails, but a power 1 / T brings the
bends back into sight: there are panels around each of them, too.

Nodes follow the parameters and carry no gradient; the gradient is that of the sum. Every evaluation
is checked: at T = 1 the same nodes must give 1, half of them the same value, and the density must
not end where the tempered one still has mass. Else a NormalizerError is raised.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    Line,
    center_of,
    is_unbounded,
    known_shape,
    label_of,
    largest_temperature,
    line_onto,
    log_density,
    params_of,
    require,
    support_of,
)

NEAR = np.arange(1, 17) * 0.25
"""Ends of panels near a mode, in widths; beyond them each is twice as far as the last."""

FAR, FAR_OF_MAPS = 2.0 ** np.arange(3, 46), 2.0 ** np.arange(3, 20)
"""These on the real line, and where y is a logarithm of x."""

WIDEST = 2.0
"""Largest width there: a density of x may fall as exp(-exp(y)), however wide it is in y."""

BEND = np.array([0.5, 1, 2, 4, 8, 16, 32, 64])
"""Ends of panels around a bend, in lengths over which the difference of logs changes by 1."""

COLD, HOT = np.array([1.0, 2.5]), np.array([1.0, 2.5, 6.0, 16.0, 48.0])
"""Ends beside the mode of a normal, in widths of the density and of its power."""

CROSSING = np.array([1.0, 2.5, 6.0, 16.0, 40.0])
"""As `BEND`, where two normals cross."""

N_CURTIS = 16
"""Intervals of the Clenshaw-Curtis rule; its check uses every second node."""

LARGEST_LOG = 1e3
"""Above the limits of all lines but the real one."""

TOLERANCE = 1e-6
"""Largest difference, in nats, that the checks let pass: PyMC has constants in single precision,
and half of the nodes have about the square root of the error of all."""

NEGLIGIBLE = -25.0
"""Log of a share of the integral that does not matter."""

TINY = np.float64(1e-300)
"""Stands for zero where it would be divided by."""


@dataclass(frozen=True)
class OnLine:
    """A density on the real line, as a mixture of K components, or of one.

    Attributes
    ----------
    components : list of Variable
    along : bool
        Whether they lie along the last axis of one variable.
    log_weights : Variable, shape (..., K)
    line : Line
        Map from the real line onto the support.
    ndim : int
        Axes of the batch, the temperature's included.
    ends : list of Variable
        Finite ends of supports inside of the line, where the density may jump.
    """

    components: list[Variable]
    along: bool
    log_weights: Variable
    line: Line
    ndim: int
    ends: Sequence[Variable] = ()

    @property
    def is_mapped(self) -> bool:
        """Whether the support has an end."""
        return self.line.limit < LARGEST_LOG

    @property
    def is_mixture(self) -> bool:
        """Whether there are several components."""
        return self.along or len(self.components) > 1

    @property
    def of_normals(self) -> bool:
        """Whether these are several normals, in a number that is known."""
        known = not self.along or self.log_weights.type.shape[-1] is not None
        normal = all(isinstance(c.owner.op, rvs.NormalRV) for c in self.components)
        return self.is_mixture and known and normal

    def joined(self, values: Sequence[Variable]) -> Variable:
        """Values of the components along a last axis, shape (..., K)."""
        if self.along:
            return pt.as_tensor(values[0])
        return pt.stack(pt.broadcast_arrays(*map(pt.as_tensor, values)), axis=-1)

    def log_parts(self, y: Variable) -> Variable:
        """Log density of each component, weighted, shape (..., K)."""
        at = pt.shape_padright(y) if self.along else y
        parts = [log_density_on_line(c, self.line, at) for c in self.components]
        return self.log_weights + self.joined(parts)

    def log_density(self, y: Variable) -> Variable:
        """Log density of the whole."""
        if not self.is_mixture:
            return log_density_on_line(self.components[0], self.line, y)
        return pt.logsumexp(self.log_parts(y), axis=-1)

    def components_first(self, values: Variable) -> Variable:
        """Array of shape (..., K) as one of shape (K, batch) with all axes of the batch."""
        values = values * pt.ones_like(self.log_weights)
        values = pt.shape_padleft(values, self.ndim + 1 - values.type.ndim)
        return pt.moveaxis(values, -1, 0)


def one_on_line(
    rv: Variable, temperature: Variable, bounds: tuple[Any, Any] | None = None
) -> OnLine:
    """Put a variable's density on the line, or the part of it between bounds."""
    ends = support_of(rv.owner.op, rv) if bounds is None else bounds
    ndim = max(rv.type.ndim, temperature.type.ndim)
    return OnLine([rv], False, pt.zeros(1), line_onto(*ends), ndim)


def mixture_on_line(rv: Variable, temperature: Variable) -> OnLine:
    """Put a mixture on its support if all components share it, else on the real line."""
    _, weights, *components = rv.owner.inputs
    supports = [support_of(c.owner.op, c) for c in components]
    first = supports[0]
    same = all(_same_end(a, b) for ends in supports for a, b in zip(ends, first, strict=True))
    shared = same and all(end is None or isinstance(end, float) for end in first)
    line = line_onto(*first) if shared else line_onto(None, None)
    ends = [pt.as_tensor(e) for pair in supports for e in pair if not is_unbounded(e)]
    ndim = max(rv.type.ndim, temperature.type.ndim)
    along = len(components) == 1
    return OnLine(components, along, pt.log(weights), line, ndim, () if shared else ends)


def _same_end(a: Any, b: Any) -> bool:
    """Whether two ends of supports are known to be the same."""
    if is_unbounded(b):
        return is_unbounded(a)
    return a is b or (isinstance(a, float) and isinstance(b, float) and a == b)


def _before(values: np.ndarray, ndim: int) -> Variable:
    """Numbers along new first axes, before `ndim` axes of a batch."""
    return pt.constant(values.reshape(*values.shape, *(1,) * ndim))


def log_density_on_line(rv: Variable, line: Line, y: Variable) -> Variable:
    """Log density of y, minus infinity where it is not a number.

    Beyond the limit of a map, where x cannot be told from the end of its support any more, the
    density of x is continued as the power of the distance to the end that it is there.
    """
    op, at = rv.owner.op, pt.clip(y, -line.limit, line.limit)
    value = log_density(op, rv, line.to_x(at))
    inside = pt.lt(pt.abs(y), line.limit) if line.limit > LARGEST_LOG else pt.ones_like(y, bool)
    if line.limit < LARGEST_LOG:
        near = _before(np.array([-1.0, -0.98, 0.98, 1.0]) * line.limit, y.type.ndim - 1)
        ends = log_density(op, rv, line.to_x(near))
        for first, last, beyond in (
            (0, 1, pt.minimum(y - at, 0.0)),
            (2, 3, pt.maximum(y - at, 0.0)),
        ):
            slope = (ends[last] - ends[first]) / (0.02 * line.limit)
            known = pt.and_(pt.lt(pt.abs(ends[last]), np.inf), pt.lt(pt.abs(ends[first]), np.inf))
            value = value + pt.switch(known, slope, 0.0) * beyond
    value = value + line.log_jacobian(y)
    return pt.switch(pt.and_(inside, pt.invert(pt.isnan(value))), value, -np.inf)


def stacked(values: Variable, n_axes: int) -> Variable:
    """Array whose first axes are made one."""
    lengths, batch = values.type.shape[:n_axes], values.type.shape[n_axes:]
    total = None if None in lengths else int(np.prod(lengths))
    sizes = (values.shape[n_axes + i] if n is None else n for i, n in enumerate(batch))
    return known_shape(values.reshape((total or -1, *sizes)), (total, *batch))


def find_mode(
    rv: Variable, line: Line, center: Variable | None = None
) -> tuple[Variable, Variable]:
    """Mode on the line and the width that a density of this height has; without gradient."""
    start = line.to_y(center_of(rv.owner.op, rv) if center is None else center)
    height = log_density_on_line(rv, line, start[None])[0]
    # y is a logarithm of x on a map, with 1 as its natural scale, however far the start is
    scale = pt.exp(-pt.clip(height, -60.0 if line.limit > LARGEST_LOG else 0.0, 60.0))
    for spacing in (0.25, 0.05):
        offsets = np.sinh(np.arange(-80, 81) * spacing)
        grid = start + scale * _before(offsets, rv.type.ndim)
        values = log_density_on_line(rv, line, grid)
        best = pt.argmax(values, axis=0, keepdims=True)
        start = pt.take_along_axis(pt.broadcast_to(grid, values.shape), best, axis=0)[0]
        start = known_shape(start, values.type.shape[1:])
        scale = pt.exp(-pt.clip(pt.max(values, axis=0), -60.0, 60.0))
    return disconnected_grad(start), disconnected_grad(scale)


def bends(mix: OnLine, mode: Variable, width: Variable) -> Variable:
    """Return ends of panels around the places where another component becomes the largest.

    `mode` and `width` have shape (K, ...). From mode i to either side the difference to component j
    is searched for its first change of sign, on four grids, each on a cell of the last.
    """
    k, ndim, limit = mode.type.shape[0] or mode.shape[0], mix.ndim, mix.line.limit
    side = _before(np.array([[[-1.0]], [[1.0]]]), ndim)  # (2, 1, 1, ...)
    start, scale = mode[None, :, None], width[None, :, None]  # (1, K, 1, ...)
    eye = pt.shape_padright(pt.eye(k), ndim)

    def difference(y: Variable) -> Variable:
        # (K, G, 2, K, K, ...)
        parts = pt.maximum(pt.moveaxis(mix.log_parts(y), -1, 0), -1e30)
        own = pt.sum(parts * eye[:, None, None, :, None], axis=0)
        other = pt.sum(parts * eye[:, None, None, None, :], axis=0)
        return own - other

    left, length = pt.zeros_like(start * side * eye) + np.log(1e-4), np.log(1e10)
    for _ in range(4):
        u = left + _before(np.linspace(0.0, 1.0, 49), ndim + 3) * length
        lost = pt.lt(difference(pt.clip(start + side * scale * pt.exp(u), -limit, limit)), 0.0)
        length = length / 48
        left = left + pt.maximum(pt.argmax(lost, axis=0) - 1, 0) * length
    place = pt.clip(start + side * scale * pt.exp(left), -limit, limit)
    nudge = 1e-4 * scale * pt.exp(pt.minimum(left, 0.0))
    slope = pt.abs(difference((place + nudge)[None])[0] - difference((place - nudge)[None])[0])
    unit = pt.clip(2 * nudge / pt.maximum(slope, 1e-8), 0.0, scale)
    return stacked(place + _before(np.r_[-BEND[::-1], 0.0, BEND], ndim + 3) * unit, 4)


def crossing_ends(mu: Variable, sigma: Variable, log_w: Variable) -> Variable:
    """Return ends of panels around points where two normals are equal; arguments (K, batch).

    Where one is above the other throughout, around the point where they come closest.
    """
    first, second = np.triu_indices(mu.type.shape[0], 1)
    p, q = sigma[first] ** -2, sigma[second] ** -2
    a, b = 0.5 * (q - p), mu[first] * p - mu[second] * q
    c = 0.5 * (mu[second] ** 2 * q - mu[first] ** 2 * p)
    c = c + log_w[first] - log_w[second] + pt.log(sigma[second] / sigma[first])
    square = pt.maximum(b**2 - 4 * a * c, 0.0)
    half = -0.5 * (b + pt.switch(pt.ge(b, 0.0), 1.0, -1.0) * pt.sqrt(square))
    one = half / pt.switch(pt.eq(a, 0.0), TINY, a)
    other = pt.switch(pt.gt(square, 0.0), c / pt.switch(pt.eq(half, 0.0), TINY, half), one)
    unit = 1.0 / pt.sqrt(square + pt.abs(a) + TINY)
    unit = pt.minimum(unit, pt.minimum(sigma[first], sigma[second]))
    place = pt.stack([one, other])  # (2, pairs, batch)
    place = pt.switch(pt.or_(pt.isnan(place), pt.isinf(place)), mu[first], place)
    return stacked(place + _before(np.r_[-CROSSING, 0.0, CROSSING], mu.type.ndim + 1) * unit, 3)


def ends_of_normals(mix: OnLine, temperature: Variable) -> tuple[list[Variable], Variable]:
    """Return ends of panels from modes, widths and crossings in closed form; and the modes.

    Some thousand evaluations for a search, and most of the panels, are saved.
    """
    params = zip(*(params_of(c) for c in mix.components), strict=True)
    mu, sigma = (mix.components_first(mix.joined(values)) for values in params)
    k = mix.log_weights.type.shape[-1] or mu.type.shape[0]
    cold = pt.zeros_like(temperature)  # the batch may be that of the temperature alone
    mu, sigma = (known_shape(x, (k, *x.type.shape[1:])) + cold for x in (mu, sigma))
    width = sigma * np.sqrt(2 * np.pi)
    ends = [mu[None]]
    for steps, unit in ((COLD, width), (HOT, width * pt.sqrt(temperature))):
        ends.append(mu + _before(np.r_[-steps, steps], mu.type.ndim) * unit)
    ends = [stacked(each, 2) for each in ends]
    if k > 1:
        log_w = mix.components_first(mix.log_weights) + pt.zeros_like(mu)
        ends.append(crossing_ends(mu, sigma, log_w))
    return ends, disconnected_grad(mu)


def ends_of_any(mix: OnLine, center: Variable | None) -> tuple[list[Variable], Variable]:
    """Return ends of panels around modes, bends and ends of supports; and the modes (K, batch)."""
    found = zip(*(find_mode(c, mix.line, center) for c in mix.components), strict=True)
    mode, width = (mix.components_first(mix.joined(values)) for values in found)
    width, far = (pt.minimum(width, WIDEST), FAR_OF_MAPS) if mix.is_mapped else (width, FAR)
    steps = np.r_[-far[::-1], -NEAR[::-1], 0.0, NEAR, far]
    ends = [stacked(mode[None] + width[None] * _before(steps, mix.ndim + 1), 2)]
    if mix.is_mixture:
        ends.append(bends(mix, mode, width))
    for end in mix.ends:
        if mix.along and end.type.ndim:
            end = mix.components_first(end)
        else:
            end = pt.shape_padleft(end, mix.ndim + 1 - end.type.ndim)
        ends.append(pt.zeros_like(ends[0][:1]) + end)
    return ends, mode


def clenshaw_curtis(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]: exact for polynomials of degree n."""
    theta = np.arange(n + 1) * np.pi / n
    degree = np.arange(n + 1)
    integral = np.where(degree % 2 == 0, 2.0 / (1.0 - np.where(degree == 1, 0, degree) ** 2), 0.0)
    inside = 1.0 - 1e-10  # an end of a panel may be a jump, which belongs to its neighbor
    return -inside * np.cos(theta), np.linalg.solve(np.cos(np.outer(degree, theta)), integral)


def nodes_of(ends: list[Variable], ndim: int) -> tuple[Variable, Variable, Variable]:
    """Nodes of all panels, shape (17, panels, batch), and their log weights in two rules.

    The second rule has every second node (log of zero elsewhere).
    """
    cuts = pt.concatenate(ends, axis=0)
    cuts = known_shape(pt.sort(cuts, axis=0), cuts.type.shape)
    cuts = disconnected_grad(pt.clip(cuts, -1e29, 1e29))
    nodes, rule = clenshaw_curtis(N_CURTIS)
    coarse_rule = np.zeros_like(rule)
    coarse_rule[::2] = clenshaw_curtis(N_CURTIS // 2)[1]
    half = 0.5 * (cuts[1:] - cuts[:-1])
    y = 0.5 * (cuts[1:] + cuts[:-1]) + half * _before(nodes, ndim + 1)
    with np.errstate(divide="ignore"):
        fine, coarse = (pt.log(half) + _before(np.log(w), ndim + 1) for w in (rule, coarse_rule))
    return y, fine, coarse


def integrate_power(
    rv: Variable,
    mix: OnLine,
    temperature: Variable,
    center: Variable | None = None,
    log_atoms: Sequence[Variable] = (),
) -> Variable:
    """Log of the integral of p^(1 / T) over a line, plus the powers of the masses of atoms.

    It is infinite from the variable's largest temperature on.
    """
    smooth = mix.of_normals  # its gradient is a number everywhere
    ends, mode = ends_of_normals(mix, temperature) if smooth else ends_of_any(mix, center)
    y, log_weight, log_coarse = nodes_of(ends, mix.ndim)
    log_p, jacobian = mix.log_density(y), mix.line.log_jacobian(y)
    fixed = disconnected_grad(log_p)
    share = disconnected_grad((fixed - jacobian) / temperature + jacobian + log_weight)
    used = pt.gt(share, pt.max(share, axis=(0, 1)) - 80.0)
    if not smooth:  # nodes that do not matter are moved to a mode
        near = pt.switch(used, y, mode[0])
        log_p, jacobian = mix.log_density(near), mix.line.log_jacobian(near)
    power = pt.switch(used, (log_p - jacobian) / temperature + jacobian, -np.inf)
    total, coarse = (_log_sum(power + weight) for weight in (log_weight, log_coarse))
    known = disconnected_grad(total)
    whole = bool(mix.ends) or smooth  # it may be zero somewhere, or is so nowhere
    edge = pt.full_like(known, -np.inf) if whole else _edge(fixed, share - known)
    if mix.is_mapped or smooth:
        ends_of_line = pt.maximum(pt.max(share[:, 0], axis=0), pt.max(share[:, -1], axis=0))
        edge = pt.maximum(edge, ends_of_line - known)
    else:
        for tail in _power_tails(fixed / temperature, pt.abs(y - mode[0]), mode, known):
            total, coarse = pt.logaddexp(total, tail), pt.logaddexp(coarse, tail)
    at_one = _log_sum(fixed + log_weight)
    for log_atom in log_atoms:
        total, coarse = (pt.logaddexp(x, log_atom / temperature) for x in (total, coarse))
        at_one = pt.logaddexp(at_one, log_atom)
    infinite = pt.ge(temperature, largest_temperature(rv.owner.op, rv))
    total, coarse = (pt.switch(infinite, np.inf, x) for x in (total, coarse))
    return with_checks(rv, total, coarse, at_one, pt.switch(infinite, -np.inf, edge))


def _log_sum(terms: Variable) -> Variable:
    """Log of a sum over nodes and panels."""
    return pt.logsumexp(terms, axis=(0, 1))


def _power_tails(
    log_f: Variable, distance: Variable, mode: Variable, known: Variable
) -> list[Variable]:
    """Return logs of the integrals beyond the outermost nodes of what falls as a power there.

    Infinite where it falls too slowly. Of the K + 1 outermost ends of panels the innermost is at
    most half as far out as the last, since each component has one at half of the distance.
    """
    k = mode.type.shape[0] or mode.shape[0]
    tails = []
    for last, before in (((0, 0), (N_CURTIS, k - 1)), ((N_CURTIS, -1), (0, -k))):
        fall = (log_f[before] - log_f[last]) / pt.log(distance[last] / distance[before])
        reach = log_f[last] + pt.log(distance[last])
        matters, finite = pt.gt(reach, known + NEGLIGIBLE - 10.0), pt.gt(fall, 1.0)
        tail = pt.switch(finite, reach - pt.log(pt.switch(finite, fall - 1.0, 1.0)), np.inf)
        tails.append(disconnected_grad(pt.switch(matters, tail, -np.inf)))
    return tails


def _edge(log_p: Variable, relative: Variable) -> Variable:
    """Largest term, relative to the sum, beside which in its panel there is exactly no mass."""
    nothing = pt.eq(log_p, -np.inf)
    beside = pt.zeros_like(nothing)
    beside = pt.set_subtensor(beside[1:], nothing[:-1])
    beside = pt.set_subtensor(beside[:-1], pt.or_(beside[:-1], nothing[1:]))
    edge = pt.and_(beside, pt.invert(nothing))
    return pt.max(pt.switch(edge, relative, -np.inf), axis=(0, 1))


def with_checks(
    rv: Variable, total: Variable, coarse: Variable, at_one: Variable, edge: Variable
) -> Variable:
    """Total, with an error raised at evaluation where one of the checks fails."""
    what = f"The tempered normalizer of {label_of(rv)} by quadrature is not reliable: "
    advice = f" Of the fits, {WITHOUT_NORMALIZER}."
    agrees = pt.or_(pt.eq(total, np.inf), pt.lt(pt.abs(coarse - total), TOLERANCE))
    for holds, fault in (
        (
            pt.lt(pt.abs(at_one), TOLERANCE),
            "its density, integrated with the same nodes, is not 1. Its density may not be "
            "normalized, its support may not be that of its default transform, or it is not "
            "smooth.",
        ),
        (agrees, "half of the nodes give another value."),
        (
            pt.lt(edge, NEGLIGIBLE),
            "the density drops to zero where its power 1 / T still has mass (it underflows, or "
            "ends where its default transform does not say so).",
        ),
    ):
        total = require(total, holds, what + fault + advice)
    return total


def log_normalizer_by_quadrature(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Integral of the power of a density."""
    return integrate_power(rv, one_on_line(rv, temperature), temperature)
