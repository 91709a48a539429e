"""Hamiltonian steps with a momentum that persists from one transition to the next, as in HAIS.

A transition of `pi_beta(x) N(v; 0, I)` is a refresh R of the momentum, v -> -sqrt(1 - gamma) v +
sqrt(gamma) r with r standard normal, and then a Metropolis step A, whose proposal is one leapfrog
step with the momentum turned round (Sohl-Dickstein & Culpepper 2011, section 2.3, whose step 4 has
gamma in place of sqrt(gamma): the variance would then not be kept). There R comes last; it comes
first here so that every path begins with a fresh momentum. A path A_1 R A_2 R ... R A_n has the
same form in reverse, and A and R are reversible: the kernel is its own reversal along a path.
"""

from functools import partial

import numpy as np
from numba import float64, types

from pymc_tempering.kernels.contract import ACCEPTANCE, DIVERGED, N_EVALUATIONS, Block, Kernel
from pymc_tempering.kernels.leapfrog import (
    MAX_ENERGY_ERROR,
    keep_state,
    leapfrog_step,
    put_back,
    set_force,
)
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, LOG_RATIO, LOG_REFERENCE, RNG, VECTOR
from pymc_tempering.model.jit import njit

STEP, KEEP, SCALE = 0, 1, 2
"""Layout of the tuning numbers; the standard deviations start at `SCALE`."""

START = 1
"""Scratch row of the state to go back to, which takes three; before it stands the momentum."""


def refresh_share(step_size: float, renewal: float = 1.0) -> float:
    """Gamma that renews half of the momentum's power `renewal` times per unit of time.

    After 1 / step steps the share (1 - gamma)^(1 / step) of the power is left, which is 1/2 for
    gamma = 1 - 2^(-step) (HAIS, section 2.3).
    """
    return float(-np.expm1(-np.log(2.0) * renewal * step_size))


@njit(types.void(VECTOR, float64, RNG))
def refresh(momentum, keep, rng):  # type: ignore[no-untyped-def]
    """Renew the share gamma = 1 - keep^2 of the momentum's power, and turn the rest round."""
    fresh = np.sqrt(1.0 - keep * keep)
    for i in range(momentum.size):
        momentum[i] = -keep * momentum[i] + fresh * rng.standard_normal()


@njit(KERNEL_SIGNATURE, error_model="numpy")
def persistent_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Refresh the momentum in part, make one leapfrog step, and accept by Metropolis.

    The order momentum, position, momentum needs one evaluation, since the gradient at the present
    state is known; HAIS has it the other way round.
    """
    n = block.size
    scales = params[SCALE : SCALE + n]
    momentum = scratch[0, :n]
    start_v, force = scratch[4], scratch[5]
    refresh(momentum, params[KEEP], rng)
    log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    keep_state(point, block, scratch, START)
    kinetic = 0.0
    for i in range(n):
        start_v[i] = momentum[i]
        kinetic += momentum[i] * momentum[i]
    energy = 0.5 * kinetic - (log_reference + beta * log_ratio)
    set_force(point, beta, block, scales, force)
    error = (
        leapfrog_step(density, point, beta, block, scales, momentum, force, params[STEP]) - energy
    )
    sound = -np.inf < error < MAX_ENERGY_ERROR  # neither NaN
    info[N_EVALUATIONS] = 1.0
    info[DIVERGED] = 0.0 if sound else 1.0
    info[ACCEPTANCE] = min(1.0, np.exp(-error)) if sound else 0.0
    if rng.random() < info[ACCEPTANCE]:
        for i in range(n):
            momentum[i] = -momentum[i]  # the refresh turns it round again: it goes on
        return
    put_back(point, block, scratch, START, log_reference, log_ratio)
    for i in range(n):
        momentum[i] = start_v[i]  # the refresh turns it round: it goes back


def _pack(step_size: float, scale: np.ndarray, block: Block, renewal: float) -> np.ndarray:
    keep = np.sqrt(1.0 - refresh_share(step_size, renewal))
    return np.concatenate([[step_size, keep], scale])


def Persistent(target_accept: float = 0.95, renewal: float = 1.0) -> Kernel:
    """One leapfrog step on real variables, with a momentum that is renewed in part.

    Time is in standard deviations of the rung. Many rungs of one evaluation each then move a state
    far, and not by a random walk. It is for annealing along a path (:func:`pymc_tempering.hais`).

    Parameters
    ----------
    target_accept : float, default 0.95
        Acceptance probability that the step size of each rung is tuned for: a rejection turns the
        momentum round.
    renewal : float, default 1.0
        How often half of the momentum's power is renewed in a unit of time.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.
    """
    if not renewal > 0:
        raise ValueError(f"renewal must be positive, not {renewal!r}.")
    return Kernel(
        name="persistent",
        transition=persistent_transition,
        n_scratch=6,
        pack=partial(_pack, renewal=renewal),
        rebuild=(Persistent, (target_accept, renewal)),
        target_accept=target_accept,
        uses_gradient=True,
        reversal="self",
        carries=True,
    )
