"""The compiled transition of all methods here: leapfrog or random walk, Metropolis, momentum.

A transition of `pi_beta(x) N(v; 0, I)` is a refresh R of the momentum, v -> -sqrt(1 - gamma) v +
sqrt(gamma) r with r standard normal, and then a Metropolis step A, whose proposal is a leapfrog
trajectory with the momentum turned round (Sohl-Dickstein & Culpepper 2011, section 2.3, whose
step 4 has gamma in place of sqrt(gamma): the variance would then not be kept). There R comes last;
it comes first here so that all methods find a fresh momentum where they ask for one. A path that
begins with a fresh momentum is A_1 R A_2 R ... R A_n either way, and since A and R are reversible
its reversal has the same form: one code serves both directions.
"""

import numba
import numpy as np
from numba import int64, types

from pymc_tempering.model.compiled import DENSITY, MATRIX, POINT, RNG, VECTOR
from pymc_tempering.model.jit import njit
from pymc_tempering.references.mixture import evaluate

KIND, STEP, PATH_LENGTH, KEEP, SCALE = range(5)
"""Layout of a row of tuning numbers; the standard deviations start at `SCALE`."""

TRAJECTORY, ONE_LEAPFROG, WALK = range(3)
"""Kinds: a leapfrog trajectory of random length, one leapfrog step, a Gaussian random walk."""

TRANSITIONS = {
    "hmc": TRAJECTORY,
    "leapfrog": ONE_LEAPFROG,
    "persistent": ONE_LEAPFROG,
    "metropolis": WALK,
}
"""Transitions by name; "persistent" is "leapfrog" with a momentum that is renewed in part."""

TARGET_ACCEPT = {"hmc": 0.8, "leapfrog": 0.8, "persistent": 0.95, "metropolis": 0.4}
"""Acceptance that the pilot tunes for; a rejection turns a persistent momentum round."""

HMC_PATH = 1.2
"""Mean trajectory length in standard deviations of the rung."""

MAX_STEPS = 256
MAX_ENERGY_ERROR = 1000.0
N_SCRATCH = 4

ACCEPTANCE, N_EVALUATIONS, N_DIVERGED = range(3)
"""Positions in `totals`, which transitions add to."""
N_TOTALS = 3

_MOVE = types.void(DENSITY, POINT, VECTOR, numba.float64, VECTOR, MATRIX, RNG, VECTOR)


def refresh_share(step_size: float | np.ndarray) -> float | np.ndarray:
    """Gamma that renews half of the momentum's power per unit of time (HAIS, section 2.3).

    After 1 / step steps the share (1 - gamma)^(1 / step) of the power is left, which is 1/2 for
    gamma = 1 - 2^(-step).
    """
    return -np.expm1(-np.log(2.0) * np.asarray(step_size))


def pack(transition: str, step_size: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Lay out the tuning numbers of K rungs.

    Parameters
    ----------
    transition : str
        Name in `TRANSITIONS`.
    step_size : array, shape (K,)
        In units of `scales`.
    scales : array, shape (K, d)
        Standard deviations of each rung, unconstrained.

    Returns
    -------
    array, shape (K, SCALE + d)
    """
    rows = np.empty((len(scales), SCALE + scales.shape[1]))
    rows[:, KIND] = TRANSITIONS[transition]
    rows[:, STEP] = step_size
    rows[:, PATH_LENGTH] = HMC_PATH
    kept = 1.0 - refresh_share(step_size) if transition == "persistent" else 0.0
    rows[:, KEEP] = np.sqrt(kept)
    rows[:, SCALE:] = scales
    return rows


@njit(types.void(VECTOR, numba.float64, RNG))
def refresh(momentum, keep, rng):  # type: ignore[no-untyped-def]
    """Renew the share gamma = 1 - keep^2 of the momentum's power, and turn the rest round."""
    fresh = np.sqrt(1.0 - keep * keep)
    for i in range(momentum.size):
        momentum[i] = -keep * momentum[i] + fresh * rng.standard_normal()


@njit(_MOVE, error_model="numpy")
def leapfrog(density, point, momentum, beta, params, scratch, rng, totals):  # type: ignore[no-untyped-def]
    """Move along a leapfrog trajectory and accept by Metropolis; the momentum comes out reversed.

    The halves are in the order momentum, position, momentum: the gradient at the present state is
    known, so that a step costs one evaluation. In HAIS they are the other way round.
    """
    dim = point.x.size
    start_x, start_g0, start_g1, start_v = scratch[0], scratch[1], scratch[2], scratch[3]
    log_reference, log_ratio = point.values[0], point.values[1]
    grad0, grad1 = point.grads[0], point.grads[1]
    step, n_steps = params[STEP], 1
    if params[KIND] == TRAJECTORY:
        step *= 0.9 + 0.2 * rng.random()
        n_steps = min(int(params[PATH_LENGTH] * (0.5 + rng.random()) / step) + 1, MAX_STEPS)
    kinetic = 0.0
    for i in range(dim):
        start_x[i] = point.x[i]
        start_g0[i] = grad0[i]
        start_g1[i] = grad1[i]
        start_v[i] = momentum[i]
        kinetic += momentum[i] * momentum[i]
        momentum[i] += 0.5 * step * params[SCALE + i] * (grad0[i] + beta * grad1[i])
    energy = 0.5 * kinetic - (log_reference + beta * log_ratio)
    error = np.inf
    for s in range(n_steps):
        for i in range(dim):
            point.x[i] += step * params[SCALE + i] * momentum[i]
        evaluate(density, point)
        totals[N_EVALUATIONS] += 1.0
        half = 0.5 if s == n_steps - 1 else 1.0
        kinetic = 0.0
        for i in range(dim):
            push = step * params[SCALE + i] * (grad0[i] + beta * grad1[i])
            middle = momentum[i] + 0.5 * push
            kinetic += middle * middle
            momentum[i] += half * push
        error = 0.5 * kinetic - (point.values[0] + beta * point.values[1]) - energy
        if not -np.inf < error < MAX_ENERGY_ERROR:  # NaN too
            break
    sound = -np.inf < error < MAX_ENERGY_ERROR
    accept = min(1.0, np.exp(-error)) if sound else 0.0
    totals[ACCEPTANCE] += accept
    if not sound:
        totals[N_DIVERGED] += 1.0
    if rng.random() < accept:
        for i in range(dim):
            momentum[i] = -momentum[i]
        return
    point.values[0] = log_reference
    point.values[1] = log_ratio
    for i in range(dim):
        point.x[i] = start_x[i]
        grad0[i] = start_g0[i]
        grad1[i] = start_g1[i]
        momentum[i] = start_v[i]


@njit(_MOVE, error_model="numpy")
def walk(density, point, momentum, beta, params, scratch, rng, totals):  # type: ignore[no-untyped-def]
    """Propose from a Gaussian around the present state and accept by Metropolis."""
    dim = point.x.size
    log_reference, log_ratio = point.values[0], point.values[1]
    for i in range(dim):
        scratch[0, i] = point.x[i]
        scratch[1, i] = point.grads[0, i]
        scratch[2, i] = point.grads[1, i]
        point.x[i] += params[STEP] * params[SCALE + i] * rng.standard_normal()
    evaluate(density, point)
    totals[N_EVALUATIONS] += 1.0
    gain = point.values[0] + beta * point.values[1] - (log_reference + beta * log_ratio)
    accept = min(1.0, np.exp(gain)) if gain < np.inf else 0.0  # NaN too
    totals[ACCEPTANCE] += accept
    if rng.random() < accept:
        return
    point.values[0] = log_reference
    point.values[1] = log_ratio
    for i in range(dim):
        point.x[i] = scratch[0, i]
        point.grads[0, i] = scratch[1, i]
        point.grads[1, i] = scratch[2, i]


@njit(
    types.void(DENSITY, POINT, VECTOR, numba.float64, VECTOR, int64[::1], MATRIX, RNG, VECTOR),
)
def move(density, point, momentum, beta, params, circular, scratch, rng, totals):  # type: ignore[no-untyped-def]
    """Make a transition at `beta`; circular variables are wrapped."""
    if params[KIND] == WALK:
        walk(density, point, momentum, beta, params, scratch, rng, totals)
    else:
        refresh(momentum, params[KEEP], rng)
        leapfrog(density, point, momentum, beta, params, scratch, rng, totals)
    for j in circular:
        point.x[j] = (point.x[j] + np.pi) % (2.0 * np.pi) - np.pi
