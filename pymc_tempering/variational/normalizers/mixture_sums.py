"""Tempered normalizers of univariate mixtures: a sum over the union of windows, or panels.

The logarithm of a mixture bends sharply where its largest component changes, and a power 1 / T
brings these bends, which lie far out in the tails, back into sight. So the line is cut into panels
that double in length away from each component's mode and away from each bend, with a
Clenshaw-Curtis rule on each. Panels carry no gradient, and every evaluation is checked as in
`quadrature`.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import MixtureRV
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.branches import compact_normalizer
from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    describe,
    is_unbounded,
    largest_temperature,
    log_normalizer,
)
from pymc_tempering.variational.normalizers.panels import (
    LARGEST_LOG,
    checked,
    find_mode,
    log_density_on_line,
    log_sum_exp,
    used_nodes,
)
from pymc_tempering.variational.normalizers.summation import Window, closed_window, log_sum
from pymc_tempering.variational.normalizers.support import Line, line_onto, support_of

NEAR = np.arange(1, 9) * 0.5
"""Ends of panels near a mode, in widths; beyond them each is twice as far as the last."""

BEND = np.array([0.5, 1, 2, 4, 8, 16, 32, 64])
"""Ends of panels around a bend, in lengths over which the difference of logs changes by 1."""

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


@log_normalizer.register(MixtureRV)
def mixture(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Sum or integral of the power of the whole mixture."""
    components = components_of(rv)[1]
    discrete = np.dtype(rv.dtype).kind in "iub"
    atoms = [c for c in components if isinstance(c.owner.op, DiracDeltaRV)]
    if op.ndim_supp != 0 or len(atoms) > 1 or len(atoms) == len(components):
        what = "is multivariate" if op.ndim_supp else "has more than one DiracDelta"
        raise NormalizerError(
            f"No tempered normalizer is known for the mixture {describe(rv)}: it {what}. "
            f"Of the fits, {WITHOUT_NORMALIZER}."
        )
    if discrete:
        return discrete_mixture(rv, temperature, atoms)
    if atoms:
        raise NormalizerError(
            f"The mixture {describe(rv)} adds an atom (DiracDelta) to a density, which have no "
            "common integral. A hurdle distribution keeps them apart. Of the fits, "
            f"{WITHOUT_NORMALIZER}."
        )
    return continuous_mixture(rv, temperature)


@largest_temperature.register(MixtureRV)
def mixture_limit(op: Op, rv: Variable) -> Variable:
    """Return the smallest limit of a component."""
    components = components_of(rv)[1]
    limits = [pt.as_tensor(largest_temperature(c.owner.op, c)) for c in components]
    if len(components) == 1:
        return pt.min(limits[0], axis=-1) if limits[0].type.ndim else limits[0]
    smallest = limits[0]
    for limit in limits[1:]:
        smallest = pt.minimum(smallest, limit)
    return smallest


def discrete_mixture(rv: Variable, temperature: Variable, atoms: list[Variable]) -> Variable:
    """Sum over the union of the components' windows, an atom apart.

    With T >= 1 the power of a sum is at most the sum of the powers, so the tail beyond the union
    is at most the sum of the components' own.
    """
    components = [c for c in components_of(rv)[1] if c not in atoms]
    alone = len(components_of(rv)[1]) == 1
    inner = inner_temperature(temperature, components_of(rv)[1])
    windows = [closed_window(c, inner) for c in components]
    window = windows[0]
    if alone or len(windows) > 1:

        def extreme(name: str, pick: Callable, along: Callable) -> Variable:
            ends = [getattr(w, name) for w in windows]
            if alone:
                return along(ends[0], axis=-1) if ends[0].type.ndim else ends[0]
            best = ends[0]
            for end in ends[1:]:
                best = pick(best, end)
            return best

        first, last = (extreme("first", pt.minimum, pt.min), extreme("last", pt.maximum, pt.max))
        window = Window(first, last, first, pt.zeros_like(first), first, last)
    if not atoms:
        return log_sum(rv, temperature, window)
    (place,) = atoms[0].owner.op.dist_params(atoms[0].owner)
    at_atom = pm.logp(rv, place, warn_rvs=False) / temperature
    return pt.logaddexp(at_atom, log_sum(rv, temperature, window, excluded=place))


def common_line(components: list[Variable]) -> tuple[Line, list[Variable]]:
    """Map onto the support if all components share it, else the real line with its finite ends."""
    supports = [support_of(c.owner.op, c) for c in components]
    shared = all(
        all(is_unbounded(a) if is_unbounded(b) else a is b or (
            isinstance(a, float) and isinstance(b, float) and a == b
        ) for a, b in zip(ends, supports[0], strict=True))
        for ends in supports
    )  # fmt: skip
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
    k = mode.shape[0]
    side = pt.constant(np.array([-1.0, 1.0]))
    ndim = mode.type.ndim - 1
    side = pt.shape_padright(side, ndim + 2)  # (2, 1, 1, ...)
    start, scale = mode[None, :, None], width[None, :, None]  # (1, K, 1, ...)
    eye = pt.shape_padright(pt.eye(k), ndim)

    def difference(y: Variable) -> Variable:
        parts = pt.maximum(log_parts(y), -1e30)  # (K, G, 2, K, K, ...)
        moved = pt.sum(parts * pt.shape_padright(pt.eye(k), ndim)[:, None, None, :, None], axis=0)
        other = pt.sum(parts * pt.shape_padright(pt.eye(k), ndim)[:, None, None, None, :], axis=0)
        return moved - other

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
    ends = place + offsets * unit
    return ends.reshape((-1, *(ends.shape[axis] for axis in range(4, 4 + ndim))))


def power_tail(log_f: Variable, distance: Variable, last: int, before: Variable | int) -> Variable:
    """Log of the integral beyond the last node of what falls there as a power of the distance."""
    fall = (log_f[before] - log_f[last]) / pt.log(distance[last] / distance[before])
    known = pt.and_(pt.gt(log_f[last], -1e8), pt.gt(fall, 1.0))
    tail = log_f[last] + pt.log(distance[last]) - pt.log(pt.switch(known, fall - 1.0, 1.0))
    return disconnected_grad(pt.switch(known, tail, -np.inf))


def continuous_mixture(rv: Variable, temperature: Variable) -> Variable:
    """Clenshaw-Curtis on panels, see the top of this file."""
    weights, components = components_of(rv)
    alone = len(components) == 1
    ndim = max(rv.type.ndim, temperature.type.ndim)
    line, support_ends = common_line(components)
    inner = inner_temperature(temperature, components)
    log_weights = pt.log(weights)

    def log_parts(y: Variable) -> Variable:
        """Log density of each component on the line, weighted, shape (..., K)."""
        at = pt.shape_padright(y) if alone else y
        parts = per_component(components, lambda c: log_density_on_line(c.owner.op, c, line, at))
        return log_weights + parts

    def columns(values: Variable) -> Variable:
        """Array of shape (..., K) as one of shape (K, batch) with all axes of the batch."""
        values = pt.shape_padleft(values, ndim + 1 - values.type.ndim)
        return pt.moveaxis(values, -1, 0)

    found = [find_mode(c.owner.op, c, line, c.type.ndim) for c in components]
    modes = iter(found)
    mode = per_component(components, lambda c: next(modes)[0])
    modes = iter(found)
    width = per_component(components, lambda c: next(modes)[1])
    log_c = per_component(components, lambda c: compact_normalizer(c, inner))
    infinite = pt.any(pt.isinf(log_c), axis=-1)
    # a density of height 1 / width at the mode: its power has the width c / height^(1 / T)
    jacobian = line.log_jacobian(mode)
    padded = pt.shape_padright(temperature) if temperature.type.ndim else temperature
    hot = pt.exp(log_c + (pt.log(width) + jacobian) / padded - jacobian)
    width = disconnected_grad(pt.switch(pt.isinf(hot), width * padded, hot))
    ones = pt.ones_like(log_weights)
    mode, width = columns(mode * ones), columns(width * ones)

    far = 2.0 ** np.arange(3, 20 if line.limit < LARGEST_LOG else 46)
    offsets = np.concatenate([-far[::-1], -NEAR[::-1], [0.0], NEAR, far])
    around = mode[None] + width[None] * pt.shape_padright(pt.constant(offsets), ndim + 1)
    ends = [around.reshape((-1, *(around.shape[axis] for axis in range(2, 2 + ndim))))]
    ends.append(bends(lambda y: pt.moveaxis(log_parts(y), -1, 0), mode, width, line.limit))
    for end in support_ends:
        if alone and end.type.ndim:
            end = pt.moveaxis(pt.shape_padleft(end, ndim + 1 - end.type.ndim), -1, 0)
        else:
            end = pt.shape_padleft(end, ndim + 1 - end.type.ndim)
        ends.append(pt.zeros_like(ends[0][:1]) + end)
    cuts = pt.sort(pt.concatenate(ends, axis=0), axis=0)
    cuts = disconnected_grad(pt.clip(cuts, -0.999 * line.limit, 0.999 * line.limit))
    nodes, rule = clenshaw_curtis(N_CURTIS)
    coarse_rule = np.zeros_like(rule)
    coarse_rule[::2] = clenshaw_curtis(N_CURTIS // 2)[1]
    half = 0.5 * (cuts[1:] - cuts[:-1])
    y = (0.5 * (cuts[1:] + cuts[:-1]) + half * pt.shape_padright(pt.constant(nodes), ndim + 1)
    )  # fmt: skip
    shape = (-1, *(y.shape[axis] for axis in range(2, 2 + ndim)))
    log_half = pt.log(half)

    def log_rule(r: np.ndarray) -> Variable:
        with np.errstate(divide="ignore"):
            log_r = pt.shape_padright(pt.constant(np.log(r)), ndim + 1)
        return pt.broadcast_to(log_half + log_r, y.shape).reshape(shape)

    log_weight, log_coarse = log_rule(rule), log_rule(coarse_rule)
    y = y.reshape(shape)
    jacobian = line.log_jacobian(y)
    log_p = disconnected_grad(pt.logsumexp(log_parts(y), axis=-1))
    share, used = used_nodes(log_p, jacobian, log_weight, temperature)
    safe = pt.switch(used, y, mode[0])
    jacobian = line.log_jacobian(safe)
    power = (pt.logsumexp(log_parts(safe), axis=-1) - jacobian) / temperature + jacobian
    total = log_sum_exp(pt.switch(used, power + log_weight, -np.inf))
    coarse = log_sum_exp(pt.switch(used, power + log_coarse, -np.inf))
    at_one = log_sum_exp(log_p + log_weight)
    outer = pt.maximum(share[0], share[-1]) - disconnected_grad(total)
    if line.limit > LARGEST_LOG:
        n_panels = cuts.shape[0] - 1
        outermost = ((0, N_CURTIS * n_panels), (-1, n_panels - 1))
        tails = [power_tail(log_p / temperature, pt.abs(y - mode[0]), *end) for end in outermost]
        total, coarse = (pt.logaddexp(pt.logaddexp(x, tails[0]), tails[1]) for x in (total, coarse))
        outer = pt.full_like(outer, -np.inf)
    total, coarse = (pt.switch(infinite, np.inf, x) for x in (total, coarse))
    return checked(rv, total, coarse, at_one, pt.switch(infinite, -np.inf, outer))
