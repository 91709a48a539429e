"""Tempered normalizers of mixtures of densities, by quadrature on panels of the line.

The logarithm of a mixture bends sharply where its largest component changes. These bends lie far
out in the tails, but a power 1 / T brings them back into sight. So the line is cut into panels
that double in length away from each component's mode and away from each bend, with a
Clenshaw-Curtis rule on each. Panels carry no gradient, and every evaluation is checked as in
`panels`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.tensor.random import basic as rvs

from pymc_tempering.variational.normalizers.branches import compact_normalizer
from pymc_tempering.variational.normalizers.dispatch import is_unbounded
from pymc_tempering.variational.normalizers.panels import (
    LARGEST_LOG,
    find_mode,
    known_shape,
    log_density_on_line,
    log_sum_exp,
    used_nodes,
    with_checks,
)
from pymc_tempering.variational.normalizers.support import Line, line_onto, support_of

NEAR = np.arange(1, 9) * 0.5
"""Ends of panels near a mode, in widths; beyond them each is twice as far as the last."""

BEND = np.array([0.5, 1, 2, 4, 8, 16, 32, 64])
"""Ends of panels around a bend, in lengths over which the difference of logs changes by 1."""

LIGHT_TAILED = (rvs.NormalRV, rvs.LaplaceRV, rvs.LogisticRV, rvs.GumbelRV)
"""Components on the real line whose tails fall at least exponentially on both sides."""

N_CURTIS = 16
"""Intervals of the Clenshaw-Curtis rule; its check uses every second node."""


def clenshaw_curtis(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]: exact for polynomials of degree n."""
    theta = np.arange(n + 1) * np.pi / n
    degree = np.arange(n + 1)
    integral = np.where(degree % 2 == 0, 2.0 / (1.0 - np.where(degree == 1, 0, degree) ** 2), 0.0)
    inside = 1.0 - 1e-10  # an end of a panel may be a jump, which belongs to its neighbor
    return -inside * np.cos(theta), np.linalg.solve(np.cos(np.outer(degree, theta)), integral)


def components_of(rv: Variable) -> tuple[Variable, list[Variable]]:
    """Weights and components; one component stands for a mixture along its last axis."""
    _, weights, *components = rv.owner.inputs
    return weights, components


def per_component(components: list[Variable], function: Callable) -> Variable:
    """Values of a function of a component, shape (..., K)."""
    if len(components) == 1:
        return pt.as_tensor(function(components[0]))
    values = pt.broadcast_arrays(*(pt.as_tensor(function(c)) for c in components))
    return pt.stack(values, axis=-1)


def inner_temperature(temperature: Variable, components: list[Variable]) -> Variable:
    """Temperature with an axis for the components where they lie along one."""
    alone = len(components) == 1 and temperature.type.ndim > 0
    return pt.shape_padright(temperature) if alone else temperature


def same_end(a: Any, b: Any) -> bool:
    """Whether two ends of supports are known to be the same."""
    if is_unbounded(b):
        return is_unbounded(a)
    return a is b or (isinstance(a, float) and isinstance(b, float) and a == b)


def common_line(components: list[Variable]) -> tuple[Line, list[Variable]]:
    """Map onto the support if all components share it, else the real line with its finite ends."""
    supports = [support_of(c.owner.op, c) for c in components]
    shared = all(
        same_end(a, b) for ends in supports for a, b in zip(ends, supports[0], strict=True)
    )
    plain = all(end is None or isinstance(end, float) for end in supports[0])
    if shared and plain:
        return line_onto(*supports[0]), []
    ends = [pt.as_tensor(end) for pair in supports for end in pair if not is_unbounded(end)]
    return line_onto(None, None), ends


def bends(log_parts: Callable, mode: Variable, width: Variable, limit: float) -> Variable:
    """Return ends of panels around the places where another component becomes the largest.

    `mode` and `width` have shape (K, ...); `log_parts(y)` has one more axis K in front of y's.
    From mode i to either side the difference to component j is searched for its first change of
    sign, on four grids, each on a cell of the last.
    """
    k = mode.type.shape[0] or mode.shape[0]
    ndim = mode.type.ndim - 1
    side = pt.shape_padright(pt.constant(np.array([-1.0, 1.0])), ndim + 2)  # (2, 1, 1, ...)
    start, scale = mode[None, :, None], width[None, :, None]  # (1, K, 1, ...)
    eye = pt.shape_padright(pt.eye(k), ndim)

    def difference(y: Variable) -> Variable:
        parts = pt.maximum(log_parts(y), -1e30)  # (K, G, 2, K, K, ...)
        own = pt.sum(parts * eye[:, None, None, :, None], axis=0)
        other = pt.sum(parts * eye[:, None, None, None, :], axis=0)
        return own - other

    low, high = np.log(1e-4), np.log(1e6)
    left = pt.zeros_like(start * side * eye) + low
    length = high - low
    for _ in range(4):
        grid = pt.shape_padright(pt.constant(np.linspace(0.0, 1.0, 49)), ndim + 3)
        u = left + grid * length
        y = pt.clip(start + side * scale * pt.exp(u), -limit, limit)
        lost = pt.lt(difference(y), 0.0)
        cell = pt.maximum(pt.argmax(lost, axis=0) - 1, 0)
        length = length / 48
        left = left + cell * length
    place = pt.clip(start + side * scale * pt.exp(left), -limit, limit)
    nudge = 1e-4 * scale * pt.exp(pt.minimum(left, 0.0))
    slope = pt.abs(difference((place + nudge)[None])[0] - difference((place - nudge)[None])[0])
    unit = pt.clip(2 * nudge / pt.maximum(slope, 1e-8), 0.0, scale)
    offsets = pt.shape_padright(pt.constant(np.r_[-BEND[::-1], 0.0, BEND]), ndim + 3)
    return stacked(place + offsets * unit, 4)


def stacked(values: Variable, n_axes: int) -> Variable:
    """Array whose first axes are made one."""
    lengths, batch = values.type.shape[:n_axes], values.type.shape[n_axes:]
    total = None if None in lengths else int(np.prod(lengths))
    sizes = (values.shape[n_axes + i] if n is None else n for i, n in enumerate(batch))
    return known_shape(values.reshape((total or -1, *sizes)), (total, *batch))


def power_tail(log_f: Variable, distance: Variable, last: int, before: Variable | int) -> Variable:
    """Log of the integral beyond the last node of what falls there as a power of the distance."""
    fall = (log_f[before] - log_f[last]) / pt.log(distance[last] / distance[before])
    known = pt.and_(pt.gt(log_f[last], -1e8), pt.gt(fall, 1.0))
    tail = log_f[last] + pt.log(distance[last]) - pt.log(pt.switch(known, fall - 1.0, 1.0))
    return disconnected_grad(pt.switch(known, tail, -np.inf))


@dataclass(frozen=True)
class MixtureOnLine:
    """A mixture of densities on the real line, with its K components along an axis.

    Attributes
    ----------
    components : list of Variable
        One variable stands for components along its last axis.
    log_weights : Variable, shape (..., K)
    line : Line
        Map from the real line onto the support.
    support_ends : list of Variable
        Finite ends of supports inside of the line, where the density may jump.
    ndim : int
        Axes of the batch, the temperature's included.
    """

    components: list[Variable]
    log_weights: Variable
    line: Line
    support_ends: list[Variable]
    ndim: int

    @property
    def light(self) -> bool:
        """Whether all tails fall at least exponentially, so that nothing is far out."""
        return all(isinstance(c.owner.op, LIGHT_TAILED) for c in self.components)

    @property
    def alone(self) -> bool:
        """Whether the components lie along the last axis of one variable."""
        return len(self.components) == 1

    def log_parts(self, y: Variable) -> Variable:
        """Log density of each component on the line, weighted, shape (..., K)."""
        at = pt.shape_padright(y) if self.alone else y
        return self.log_weights + per_component(
            self.components, lambda c: log_density_on_line(c.owner.op, c, self.line, at)
        )

    def log_density(self, y: Variable) -> Variable:
        """Log density of the mixture on the line."""
        return pt.logsumexp(self.log_parts(y), axis=-1)

    def components_first(self, values: Variable) -> Variable:
        """Array of shape (..., K) as one of shape (K, batch) with all axes of the batch."""
        values = pt.shape_padleft(values, self.ndim + 1 - values.type.ndim)
        return pt.moveaxis(values, -1, 0)


@dataclass(frozen=True)
class PanelNodes:
    """Nodes on the line, along the first axis, and the logs of their weights in two rules.

    Attributes
    ----------
    y : Variable
    log_weight, log_coarse : Variable
        Of the rule with all nodes, and of that with every second one (log of zero elsewhere).
    n_panels : Variable
    """

    y: Variable
    log_weight: Variable
    log_coarse: Variable
    n_panels: Variable


def on_line(rv: Variable, temperature: Variable) -> MixtureOnLine:
    """Put a mixture on the line."""
    weights, components = components_of(rv)
    line, support_ends = common_line(components)
    ndim = max(rv.type.ndim, temperature.type.ndim)
    return MixtureOnLine(components, pt.log(weights), line, support_ends, ndim)


def modes_and_widths(
    mix: MixtureOnLine, temperature: Variable, log_c: Variable
) -> tuple[Variable, Variable]:
    """Mode of each component on the line, and the width of its power 1 / T; shape (K, batch).

    `log_c` (..., K) holds the components' own tempered normalizers.
    """
    found = [find_mode(c.owner.op, c, mix.line, c.type.ndim) for c in mix.components]
    modes, widths = iter(found), iter(found)
    mode = per_component(mix.components, lambda c: next(modes)[0])
    width = per_component(mix.components, lambda c: next(widths)[1])
    # a density of height 1 / width at the mode: its power has the width c / height^(1 / T)
    jacobian = mix.line.log_jacobian(mode)
    padded = pt.shape_padright(temperature) if temperature.type.ndim else temperature
    hot = pt.exp(log_c + (pt.log(width) + jacobian) / padded - jacobian)
    width = disconnected_grad(pt.switch(pt.isinf(hot), width * padded, hot))
    ones = pt.ones_like(mix.log_weights)
    return mix.components_first(mode * ones), mix.components_first(width * ones)


def panel_ends(mix: MixtureOnLine, mode: Variable, width: Variable) -> Variable:
    """Sorted ends of panels along the first axis: around modes and bends, and ends of supports."""
    ndim, limit = mix.ndim, mix.line.limit
    far = 2.0 ** np.arange(3, 20 if limit < LARGEST_LOG else 11 if mix.light else 46)
    offsets = np.concatenate([-far[::-1], -NEAR[::-1], [0.0], NEAR, far])
    around = mode[None] + width[None] * pt.shape_padright(pt.constant(offsets), ndim + 1)
    ends = [stacked(around, 2)]
    ends.append(bends(lambda y: pt.moveaxis(mix.log_parts(y), -1, 0), mode, width, limit))
    for end in mix.support_ends:
        if mix.alone and end.type.ndim:
            end = mix.components_first(end)
        else:
            end = pt.shape_padleft(end, ndim + 1 - end.type.ndim)
        ends.append(pt.zeros_like(ends[0][:1]) + end)
    cuts = pt.concatenate(ends, axis=0)
    cuts = known_shape(pt.sort(cuts, axis=0), cuts.type.shape)
    return disconnected_grad(pt.clip(cuts, -0.999 * limit, 0.999 * limit))


def nodes_of(cuts: Variable, ndim: int) -> PanelNodes:
    """Clenshaw-Curtis nodes and weights of all panels, for a batch of `ndim` axes."""
    nodes, rule = clenshaw_curtis(N_CURTIS)
    coarse_rule = np.zeros_like(rule)
    coarse_rule[::2] = clenshaw_curtis(N_CURTIS // 2)[1]
    half = 0.5 * (cuts[1:] - cuts[:-1])
    y = 0.5 * (cuts[1:] + cuts[:-1]) + half * pt.shape_padright(pt.constant(nodes), ndim + 1)
    log_half = pt.log(half)

    def log_weights(weights: np.ndarray) -> Variable:
        with np.errstate(divide="ignore"):
            log_w = pt.shape_padright(pt.constant(np.log(weights)), ndim + 1)
        return stacked(log_half + log_w, 2)

    fine, coarse = log_weights(rule), log_weights(coarse_rule)
    n_panels = (cuts.type.shape[0] or cuts.shape[0]) - 1
    return PanelNodes(stacked(y, 2), fine, coarse, n_panels)


def power_tails(log_p: Variable, nodes: PanelNodes, mode: Variable) -> list[Variable]:
    """Return logs of the integrals beyond the first and the last node, as of powers."""
    # where the outermost nodes stand, and their neighbors in the same place of the next panel
    outermost = ((0, N_CURTIS * nodes.n_panels), (-1, nodes.n_panels - 1))
    return [power_tail(log_p, pt.abs(nodes.y - mode), *end) for end in outermost]


def continuous_mixture(rv: Variable, temperature: Variable) -> Variable:
    """Clenshaw-Curtis on panels, see the top of this file."""
    mix = on_line(rv, temperature)
    inner = inner_temperature(temperature, mix.components)
    log_c = per_component(mix.components, lambda c: compact_normalizer(c, inner))
    infinite = pt.any(pt.isinf(log_c), axis=-1)
    mode, width = modes_and_widths(mix, temperature, log_c)
    nodes = nodes_of(panel_ends(mix, mode, width), mix.ndim)
    log_p = disconnected_grad(mix.log_density(nodes.y))
    jacobian = mix.line.log_jacobian(nodes.y)
    share, used = used_nodes(log_p, jacobian, nodes.log_weight, temperature)
    safe = pt.switch(used, nodes.y, mode[0])
    jacobian = mix.line.log_jacobian(safe)
    power = (mix.log_density(safe) - jacobian) / temperature + jacobian
    total = log_sum_exp(pt.switch(used, power + nodes.log_weight, -np.inf))
    coarse = log_sum_exp(pt.switch(used, power + nodes.log_coarse, -np.inf))
    at_one = log_sum_exp(log_p + nodes.log_weight)
    outer = pt.maximum(share[0], share[-1]) - disconnected_grad(total)
    if mix.line.limit > LARGEST_LOG and not mix.light:
        tails = power_tails(log_p / temperature, nodes, mode[0])
        total, coarse = (pt.logaddexp(pt.logaddexp(x, tails[0]), tails[1]) for x in (total, coarse))
        outer = pt.full_like(outer, -np.inf)
    total, coarse = (pt.switch(infinite, np.inf, x) for x in (total, coarse))
    return with_checks(rv, total, coarse, at_one, pt.switch(infinite, -np.inf, outer))
