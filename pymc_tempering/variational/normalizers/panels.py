"""Tempered normalizers of univariate densities without a closed form, by quadrature.

After the map of the support onto the real line and y = mode + width * sinh(t) the trapezoidal rule
converges exponentially for densities that are smooth inside of their support. Nodes follow the
parameters and carry no gradient; the gradient is that of the sum. Every evaluation is checked:
at T = 1 the same nodes must give 1, every second node the same as all, and the density must not
end where the tempered one still has mass. Else a NormalizerError is raised.
"""

from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op

from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER, label_of, require
from pymc_tempering.variational.normalizers.support import (
    Line,
    center_of,
    line_onto,
    log_density,
    support_of,
)

N_STEPS = 640
"""Nodes on each side of the mode."""

REACH, REACH_OF_MAPS = 32.0, 16.0
"""Largest |t| on the real line (the width times 4e13), and where y is a logarithm of x."""

LARGEST_LOG = 1e3
"""Above the limits of all lines but the real one."""

TOLERANCE = 1e-6
"""Largest difference, in nats, that the checks let pass: PyMC has constants in single precision,
and half of the nodes have about the square root of the error of all."""

NEGLIGIBLE = -25.0
"""Log of a share of the integral that does not matter."""


def along_first_axis(values: np.ndarray, ndim: int) -> Variable:
    """Numbers along a new first axis, before `ndim` axes of a batch."""
    return pt.constant(values.reshape(-1, *(1,) * ndim))


def log_density_on_line(op: Op, rv: Variable, line: Line, y: Variable) -> Variable:
    """Log density of y, minus infinity where it is not a number.

    Beyond the limit of a map, where x cannot be told from the end of its support any more, the
    density of x is continued as the power of the distance to the end that it is there.
    """
    at = pt.clip(y, -line.limit, line.limit)
    value = log_density(op, rv, line.to_x(at))
    if line.limit < LARGEST_LOG:
        near = along_first_axis(np.array([-1.0, -0.98, 0.98, 1.0]) * line.limit, y.type.ndim - 1)
        ends = log_density(op, rv, line.to_x(near))
        for first, last, beyond in (
            (0, 1, pt.minimum(y - at, 0.0)),
            (2, 3, pt.maximum(y - at, 0.0)),
        ):
            slope = (ends[last] - ends[first]) / (0.02 * line.limit)
            known = pt.and_(pt.lt(pt.abs(ends[last]), np.inf), pt.lt(pt.abs(ends[first]), np.inf))
            value = value + pt.switch(known, slope, 0.0) * beyond
    value = value + line.log_jacobian(y)
    inside = pt.lt(pt.abs(y), line.limit) if line.limit > LARGEST_LOG else pt.ones_like(y, bool)
    return pt.switch(pt.and_(inside, pt.invert(pt.isnan(value))), value, -np.inf)


def known_shape(value: Variable, shape: Sequence[int | None]) -> Variable:
    """Value of a shape that is known (None where it is not).

    PyTensor forgets it in some operations, and then carries the computation of a shape through all
    that follow: a mixture took minutes to compile.
    """
    return value if value.type.shape == tuple(shape) else pt.specify_shape(value, shape)


def find_mode(
    op: Op, rv: Variable, line: Line, ndim: int, center: Variable | None = None
) -> tuple[Variable, Variable]:
    """Mode on the line and the width that a density of this height has; without gradient."""
    start = line.to_y(center_of(op, rv) if center is None else center)
    height = log_density_on_line(op, rv, line, start[None])[0]
    # y is a logarithm of x on a map, with 1 as its natural scale, however far the start is
    scale = pt.exp(-pt.clip(height, -60.0 if line.limit > LARGEST_LOG else 0.0, 60.0))
    for spacing in (0.25, 0.05):
        offsets = np.sinh(np.arange(-80, 81) * spacing)
        grid = start + scale * along_first_axis(offsets, ndim)
        values = log_density_on_line(op, rv, line, grid)
        best = pt.argmax(values, axis=0, keepdims=True)
        start = pt.take_along_axis(pt.broadcast_to(grid, values.shape), best, axis=0)[0]
        start = known_shape(start, values.type.shape[1:])
        height = pt.max(values, axis=0)
        scale = pt.exp(-pt.clip(height, -60.0, 60.0))
    return disconnected_grad(start), disconnected_grad(scale)


def log_sum_exp(terms: Variable) -> Variable:
    """Log of a sum along the first axis."""
    return pt.logsumexp(terms, axis=0)


def with_checks(
    rv: Variable, total: Variable, coarse: Variable, at_one: Variable, edge: Variable
) -> Variable:
    """Total, with an error raised at evaluation where one of the checks fails."""
    what = f"The tempered normalizer of {label_of(rv)} by quadrature is not reliable: "
    advice = f" Of the fits, {WITHOUT_NORMALIZER}."
    finite = pt.lt(total, np.inf)
    total = require(
        total,
        pt.lt(pt.abs(at_one), TOLERANCE),
        what + "its density, integrated with the same nodes, is not 1. Its density may not be "
        "normalized, its support may not be that of its default transform, or it is not smooth."
        + advice,
    )
    total = require(
        total,
        pt.or_(pt.invert(finite), pt.lt(pt.abs(coarse - total), TOLERANCE)),
        what + "half of the nodes give another value." + advice,
    )
    return require(
        total,
        pt.lt(edge, NEGLIGIBLE),
        what + "the density drops to zero where its power 1 / T still has mass (it underflows, or "
        "ends where its default transform does not say so)." + advice,
    )


def log_normalizer_by_quadrature(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Trapezoidal rule in t, see the top of this file."""
    ndim = max(rv.type.ndim, temperature.type.ndim)
    line = line_onto(*support_of(op, rv))
    return integrate_power(op, rv, line, temperature, ndim)


def used_nodes(
    log_p: Variable, jacobian: Variable, log_weight: Variable, temperature: Variable
) -> tuple[Variable, Variable]:
    """Log of what each node adds to the integral, without gradient, and whether it matters."""
    share = disconnected_grad((log_p - jacobian) / temperature + jacobian + log_weight)
    return share, pt.gt(share, pt.max(share, axis=0) - 80.0)


def integrate_power(
    op: Op,
    rv: Variable,
    line: Line,
    temperature: Variable,
    ndim: int,
    center: Variable | None = None,
    log_atoms: Sequence[Variable] = (),
) -> Variable:
    """Log of the integral of p^(1 / T) over a line, plus the powers of the masses of atoms."""
    mode, width = find_mode(op, rv, line, ndim, center)
    step = (REACH if line.limit > LARGEST_LOG else REACH_OF_MAPS) / N_STEPS
    t = along_first_axis(np.arange(-N_STEPS, N_STEPS + 1) * step, ndim)
    y = mode + width * pt.sinh(t)
    log_weight = pt.log(width) + pt.log(pt.cosh(t)) + np.log(step)
    # a first pass without gradient finds the nodes that matter: the others are moved to the mode
    log_p = disconnected_grad(log_density_on_line(op, rv, line, y))
    share, used = used_nodes(log_p, line.log_jacobian(y), log_weight, temperature)
    at_one = log_sum_exp(log_p + log_weight)
    y = pt.switch(used, y, mode)
    jacobian = line.log_jacobian(y)
    log_p = log_density_on_line(op, rv, line, y)
    terms = pt.switch(used, (log_p - jacobian) / temperature + jacobian + log_weight, -np.inf)
    total, coarse = log_sum_exp(terms), log_sum_exp(terms[::2]) + np.log(2.0)
    relative = share - disconnected_grad(total)
    total, coarse = _add_tails(total, relative), _add_tails(coarse, relative)
    for log_atom in log_atoms:
        total = pt.logaddexp(total, log_atom / temperature)
        coarse = pt.logaddexp(coarse, log_atom / temperature)
        at_one = pt.logaddexp(at_one, log_atom)
    if log_atoms:
        relative = share - disconnected_grad(total)
    return with_checks(rv, total, coarse, at_one, _edge(relative))


def _add_tails(total: Variable, relative: Variable) -> Variable:
    """Add what lies beyond the last nodes; infinite where the integrand does not fall there.

    Power laws of x fall as exponentials of t, so a geometric series continues them.
    """
    for end, before in ((relative[-1], relative[-2]), (relative[0], relative[1])):
        matters = pt.gt(end, NEGLIGIBLE - 10.0)
        fall = pt.switch(matters, before - end, 1.0)
        tail = end - pt.log(pt.expm1(pt.maximum(fall, 1e-7)))
        more = pt.switch(matters, pt.log1p(pt.exp(pt.minimum(tail, 300.0))), 0.0)
        total = total + pt.switch(pt.lt(fall, 1e-7), np.inf, more)
    return total


def _edge(relative: Variable) -> Variable:
    """Largest term, relative to the sum, that has a neighbor of exactly no mass."""
    nothing = pt.eq(relative, -np.inf)
    beside = pt.zeros_like(nothing)
    beside = pt.set_subtensor(beside[1:], nothing[:-1])
    beside = pt.set_subtensor(beside[:-1], pt.or_(beside[:-1], nothing[1:]))
    edge = pt.and_(beside, pt.invert(nothing))
    return pt.max(pt.switch(edge, relative, -np.inf), axis=0)
