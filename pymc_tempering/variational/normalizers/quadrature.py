"""Tempered normalizers of univariate densities without a closed form, and of mixtures of normals.

The support is mapped onto the real line and cut into panels that grow in length away from the
mode, with a Clenshaw-Curtis rule on each. The logarithm of a mixture bends sharply where another
component becomes the largest, far out in the tails, but a power 1 / T brings the bends back into
sight: there are panels around each of them, too.

Nodes follow the parameters and carry no gradient; the gradient is that of the sum. Every evaluation
is checked: at T = 1 the same nodes must give 1, half of them the same value, and the density must
not end where the tempered one still has mass. Else a NormalizerError is raised.
"""

from collections.abc import Callable, Sequence
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
    known_shape,
    label_of,
    largest_temperature,
    line_onto,
    log_density,
    no_normalizer,
    params_of,
    require,
    support_of,
)

OUTWARD = np.r_[np.arange(1, 17) * 0.25, 2.0 ** np.arange(2.5, 24.5, 0.5)]
"""Ends of panels beside a mode, in widths: even near it, then each 1.4 times as far as the last."""

COLD, HOT = np.array([1.0, 2.5]), np.array([1.0, 2.5, 6.0, 16.0, 48.0])
"""Ends beside the mode of a normal, in widths of the density and of its power."""

CROSSING = np.array([1.0, 2.5, 6.0, 16.0, 40.0])
"""Ends around a bend, in lengths over which the difference of the logarithms changes by 1."""

N_CURTIS = 16
"""Intervals of the Clenshaw-Curtis rule; its check uses every second node."""

TOLERANCE = 1e-6
"""Largest difference, in nats, that the checks let pass: PyMC has constants in single precision,
and half of the nodes have about the square root of the error of all."""

NEGLIGIBLE = -25.0
"""Log of a share of the integral that does not matter."""

TINY = np.float64(1e-300)
"""Stands for zero where it would be divided by."""


def _before(values: np.ndarray, ndim: int) -> Variable:
    """Numbers along new first axes, before `ndim` axes of a batch."""
    return pt.constant(values.reshape(*values.shape, *(1,) * ndim))


def stacked(values: Variable, n_axes: int) -> Variable:
    """Array whose first axes are made one."""
    lengths, batch = values.type.shape[:n_axes], values.type.shape[n_axes:]
    total = None if None in lengths else int(np.prod(lengths))
    sizes = (values.shape[n_axes + i] if n is None else n for i, n in enumerate(batch))
    return known_shape(values.reshape((total or -1, *sizes)), (total, *batch))


def log_density_on_line(rv: Variable, line: Line, y: Variable) -> Variable:
    """Log density of y, minus infinity where it is no number or x is an end of the support."""
    value = log_density(rv.owner.op, rv, line.to_x(y)) + line.log_jacobian(y)
    return pt.switch(pt.lt(pt.abs(value), np.inf), value, -np.inf)


def find_mode(
    rv: Variable, line: Line, center: Variable | None = None
) -> tuple[Variable, Variable]:
    """Mode on the line and the width that a density of this height has; without gradient."""
    start = line.to_y(center_of(rv.owner.op, rv) if center is None else center)
    height = log_density_on_line(rv, line, start[None])[0]
    for spacing in (0.25, 0.05):
        scale = pt.minimum(pt.exp(-pt.clip(height, -60.0, 60.0)), line.widest)
        offsets = np.sinh(np.arange(-80, 81) * spacing)
        grid = start + scale * _before(offsets, rv.type.ndim)
        values = log_density_on_line(rv, line, grid)
        best = pt.argmax(values, axis=0, keepdims=True)
        start = pt.take_along_axis(pt.broadcast_to(grid, values.shape), best, axis=0)[0]
        start = known_shape(start, values.type.shape[1:])
        height = pt.max(values, axis=0)
    scale = pt.minimum(pt.exp(-pt.clip(height, -60.0, 60.0)), line.widest)
    return disconnected_grad(start), disconnected_grad(scale)


def integrate_power(
    rv: Variable,
    temperature: Variable,
    ends: tuple[Any, Any] | None = None,
    center: Variable | None = None,
    log_atoms: Sequence[Variable] = (),
) -> Variable:
    """Log of the integral of p^(1 / T) between two ends, plus the powers of the masses of atoms.

    The ends are those of the support by default.
    """
    line = line_onto(*(support_of(rv.owner.op, rv) if ends is None else ends))
    mode, width = find_mode(rv, line, center)
    ndim = max(rv.type.ndim, temperature.type.ndim)
    cuts = mode + width * _before(np.r_[-OUTWARD[::-1], 0.0, OUTWARD], ndim)

    def log_parts(y: Variable) -> tuple[Variable, Variable]:
        log_jacobian = line.log_jacobian(y)
        return log_density_on_line(rv, line, y) - log_jacobian, log_jacobian

    return sum_over_panels(rv, log_parts, [cuts], mode, temperature, log_atoms)


def log_normalizer_by_quadrature(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Integral of the power of a density."""
    return integrate_power(rv, temperature)


def mixture_of_normals(rv: Variable, temperature: Variable) -> Variable:
    """Integral of the power of a mixture, with panels at modes, widths and crossings."""
    _, weights, *components = rv.owner.inputs
    k = weights.type.shape[-1] if len(components) == 1 else len(components)
    if k is None or not all(isinstance(c.owner.op, rvs.NormalRV) for c in components):
        raise no_normalizer(rv, "its components are not a known number of normals, or of counts")
    ndim = max(rv.type.ndim, temperature.type.ndim)
    log_w = pt.log(weights.astype("float64"))

    def components_first(values: Sequence[Variable]) -> Variable:
        along = values[0] if len(values) == 1 else pt.stack(pt.broadcast_arrays(*values), axis=-1)
        along = along + pt.zeros_like(log_w)
        first = pt.moveaxis(pt.shape_padleft(along, ndim + 1 - along.type.ndim), -1, 0)
        return known_shape(first, (k, *first.type.shape[1:])) + pt.zeros_like(temperature)

    mu, sigma = map(components_first, zip(*map(params_of, components), strict=True))
    log_w = components_first([log_w]) + pt.zeros_like(mu)

    def log_parts(y: Variable) -> tuple[Variable, Variable]:
        z = (y[:, :, None] - mu) / sigma
        parts = log_w - pt.log(sigma) - 0.5 * np.log(2 * np.pi) - 0.5 * z**2
        return pt.logsumexp(parts, axis=2), pt.zeros_like(y)

    width = sigma * np.sqrt(2 * np.pi)
    ends = [mu]
    for steps, unit in ((COLD, width), (HOT, width * pt.sqrt(temperature))):
        ends.append(stacked(mu + _before(np.r_[-steps, steps], mu.type.ndim) * unit, 2))
    if k > 1:
        ends.append(crossing_ends(mu, sigma, log_w))
    return sum_over_panels(rv, log_parts, ends, None, temperature)


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


def clenshaw_curtis(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]: exact for polynomials of degree n."""
    theta = np.arange(n + 1) * np.pi / n
    degree = np.arange(n + 1)
    integral = np.where(degree % 2 == 0, 2.0 / (1.0 - np.where(degree == 1, 0, degree) ** 2), 0.0)
    inside = 1.0 - 1e-10  # an end of a panel may be a jump, which belongs to its neighbor
    return -inside * np.cos(theta), np.linalg.solve(np.cos(np.outer(degree, theta)), integral)


def nodes_of(ends: list[Variable]) -> tuple[Variable, Variable, Variable]:
    """Nodes of all panels, shape (17, panels, batch), and their log weights in two rules.

    The second rule has every second node (log of zero elsewhere).
    """
    cuts = pt.concatenate(ends, axis=0)
    cuts = pt.clip(cuts, -1e29, 1e29)  # normals of one width cross at infinity
    cuts = disconnected_grad(known_shape(pt.sort(cuts, axis=0), cuts.type.shape))
    ndim = cuts.type.ndim
    nodes, rule = clenshaw_curtis(N_CURTIS)
    coarse_rule = np.zeros_like(rule)
    coarse_rule[::2] = clenshaw_curtis(N_CURTIS // 2)[1]
    half = 0.5 * (cuts[1:] - cuts[:-1])
    y = 0.5 * (cuts[1:] + cuts[:-1]) + half * _before(nodes, ndim)
    with np.errstate(divide="ignore"):
        fine, coarse = (pt.log(half) + _before(np.log(w), ndim) for w in (rule, coarse_rule))
    return y, fine, coarse


def sum_over_panels(
    rv: Variable,
    log_parts: Callable[[Variable], tuple[Variable, Variable]],
    ends: list[Variable],
    mode: Variable | None,
    temperature: Variable,
    log_atoms: Sequence[Variable] = (),
) -> Variable:
    """Log of the integral of p^(1 / T) over the panels between `ends`, checked.

    `log_parts` is a function of y on the line to log p and the log Jacobian there. Nodes that do
    not matter are moved to the mode, if one is given: the gradient is a number there. From the
    variable's largest temperature on the integral is infinite.
    """
    y, fine, coarse = nodes_of(ends)
    log_p, log_jacobian = log_parts(y)
    at_one = _log_sum(disconnected_grad(log_p + log_jacobian) + fine)
    share = disconnected_grad(log_p / temperature + log_jacobian + fine)
    edge = _edge(log_p, share)
    used = pt.gt(share, pt.max(share, axis=(0, 1)) - 80.0)
    if mode is not None:
        log_p, log_jacobian = log_parts(pt.switch(used, y, mode))
    power = pt.switch(used, log_p / temperature + log_jacobian, -np.inf)
    total, half = (_log_sum(power + weight) for weight in (fine, coarse))
    edge = edge - disconnected_grad(total)
    for log_atom in log_atoms:
        total, half = (pt.logaddexp(x, log_atom / temperature) for x in (total, half))
        at_one = pt.logaddexp(at_one, log_atom)
    infinite = pt.ge(temperature, largest_temperature(rv.owner.op, rv))
    total, half = (pt.switch(infinite, np.inf, x) for x in (total, half))
    return with_checks(rv, total, half, at_one, pt.switch(infinite, -np.inf, edge))


def _log_sum(terms: Variable) -> Variable:
    """Log of a sum over nodes and panels."""
    return pt.logsumexp(terms, axis=(0, 1))


def _edge(log_p: Variable, share: Variable) -> Variable:
    """Largest term in the outermost panels, or beside which in its panel is exactly no mass."""
    nothing = pt.eq(log_p, -np.inf)
    beside = pt.zeros_like(nothing)
    beside = pt.set_subtensor(beside[1:], nothing[:-1])
    beside = pt.set_subtensor(beside[:-1], pt.or_(beside[:-1], nothing[1:]))
    outermost = pt.maximum(share[:, 0], share[:, -1])
    return pt.maximum(
        pt.max(pt.switch(beside, share, -np.inf), axis=(0, 1)), pt.max(outermost, axis=0)
    )


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
