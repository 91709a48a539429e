"""One leapfrog step of a block of coordinates, for all kernels that follow gradients."""

from numba import float64, types

from pymc_tempering.model.compiled import DENSITY, INDICES, LOG_RATIO, LOG_REFERENCE, POINT, VECTOR
from pymc_tempering.model.jit import njit
from pymc_tempering.references.compiled_mixture import evaluate

MAX_ENERGY_ERROR = 1000.0
"""A trajectory whose energy error exceeds this many nats diverged (as in Stan)."""


@njit(types.void(POINT, float64, INDICES, VECTOR, VECTOR))
def set_force(point, beta, block, scales, force):  # type: ignore[no-untyped-def]
    """Write the gradient of the log density, in units of the standard deviations, to `force`."""
    for i in range(block.size):
        j = block[i]
        force[i] = scales[i] * (point.grads[LOG_REFERENCE, j] + beta * point.grads[LOG_RATIO, j])


@njit(
    float64(DENSITY, POINT, float64, INDICES, VECTOR, VECTOR, VECTOR, float64),
    error_model="numpy",
)
def leapfrog_step(density, point, beta, block, scales, momentum, force, step):  # type: ignore[no-untyped-def]
    """Half a step of the momentum, a step of the position, half a step of the momentum.

    Positions are in units of `scales`, and `force` is that of the present state, before and
    after. Returns the energy: kinetic energy less the log density, which can be NaN.
    """
    n = block.size
    half = 0.5 * step
    for i in range(n):
        momentum[i] += half * force[i]
        point.x[block[i]] += step * scales[i] * momentum[i]
    evaluate(density, point)
    set_force(point, beta, block, scales, force)
    kinetic = 0.0
    for i in range(n):
        momentum[i] += half * force[i]
        kinetic += momentum[i] * momentum[i]
    return 0.5 * kinetic - (point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO])
