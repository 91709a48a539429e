"""One leapfrog step of a block of coordinates, and states to go back to, for gradient kernels.

A metric is a vector: the standard deviations of the n coordinates, or the rows of the lower
Cholesky factor L of their covariance, one after the other. Positions are `L q`, so the force is
`L' g`.
"""

from pymc_tempering.borrowed.private import NOT_COUNTED
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.jit import njit
from pymc_tempering.references.compiled_mixture import evaluate

MAX_ENERGY_ERROR = 1000.0
"""A trajectory whose energy error exceeds this many nats diverged (as in Stan)."""


@njit(forceinline=True, **NOT_COUNTED)
def set_force(point, beta, block, metric, force):  # type: ignore[no-untyped-def]
    """Write the gradient of the log density, in units of the metric, to `force`."""
    n = block.size
    reference, ratio = point.grads[LOG_REFERENCE], point.grads[LOG_RATIO]
    if metric.size == n:
        for i in range(n):
            j = block[i]
            force[i] = metric[i] * (reference[j] + beta * ratio[j])
        return
    for i in range(n):
        force[i] = 0.0
    for i in range(n):
        j = block[i]
        slope = reference[j] + beta * ratio[j]
        row = metric[i * n : i * n + i + 1]
        for k in range(i + 1):
            force[k] += row[k] * slope


@njit(forceinline=True, **NOT_COUNTED)
def move_along(point, block, metric, momentum, step):  # type: ignore[no-untyped-def]
    """Move the position along the momentum, in units of the metric."""
    n = block.size
    if metric.size == n:
        for i in range(n):
            point.x[block[i]] += step * metric[i] * momentum[i]
        return
    for i in range(n):
        row = metric[i * n : i * n + i + 1]
        total = 0.0
        for k in range(i + 1):
            total += row[k] * momentum[k]
        point.x[block[i]] += step * total


@njit(error_model="numpy", forceinline=True, **NOT_COUNTED)
def leapfrog_step(density, point, beta, block, metric, momentum, force, step):  # type: ignore[no-untyped-def]
    """Half a step of the momentum, a step of the position, half a step of the momentum.

    Momenta are in units of the metric, and `force` is that of the present state, before and
    after. Returns the energy: kinetic energy less the log density, which can be NaN.
    """
    n = block.size
    half = 0.5 * step
    for i in range(n):
        momentum[i] += half * force[i]
    move_along(point, block, metric, momentum, step)
    evaluate(density, point)
    set_force(point, beta, block, metric, force)
    kinetic = 0.0
    for i in range(n):
        momentum[i] += half * force[i]
        kinetic += momentum[i] * momentum[i]
    return 0.5 * kinetic - (point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO])


@njit(**NOT_COUNTED)
def keep_state(point, block, scratch, row):  # type: ignore[no-untyped-def]
    """Copy position and gradients to three rows of the scratch space.

    All gradients are kept, those of other blocks too.
    """
    for i in range(block.size):
        scratch[row, i] = point.x[block[i]]
    copy_numbers(scratch[row + 1], point.grads[LOG_REFERENCE])
    copy_numbers(scratch[row + 2], point.grads[LOG_RATIO])


@njit(**NOT_COUNTED)
def put_back(point, block, scratch, row, log_reference, log_ratio):  # type: ignore[no-untyped-def]
    """Make a kept state the present one."""
    for i in range(block.size):
        point.x[block[i]] = scratch[row, i]
    copy_numbers(point.grads[LOG_REFERENCE], scratch[row + 1])
    copy_numbers(point.grads[LOG_RATIO], scratch[row + 2])
    point.values[LOG_REFERENCE] = log_reference
    point.values[LOG_RATIO] = log_ratio
