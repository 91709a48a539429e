"""Discrete Langevin proposal: one gradient moves many binary coordinates at once."""

from functools import partial

import numba
import numpy as np

from pymc_tempering.arguments import check_whole
from pymc_tempering.kernels.contract import (
    ACCEPTANCE,
    BINARY,
    DIVERGED,
    N_EVALUATIONS,
    Block,
    Kernel,
)
from pymc_tempering.kernels.leapfrog import keep_state, put_back
from pymc_tempering.model.compiled import (
    INDICES,
    KERNEL_SIGNATURE,
    LOG_RATIO,
    LOG_REFERENCE,
    POINT,
    RNG,
    VECTOR,
)
from pymc_tempering.model.jit import njit
from pymc_tempering.references.compiled_mixture import evaluate

STEP, N_STEPS = 0, 1
"""Layout of the tuning numbers."""

START, FLIPPED = 0, 3
"""Rows of the scratch space: the state to go back to, which takes three; which coordinates flip."""


@njit(
    numba.float64(POINT, numba.float64, INDICES, numba.float64, numba.int64, RNG, VECTOR),
    error_model="numpy",
)
def _propose(point, beta, block, step, draws, rng, flipped):  # type: ignore[no-untyped-def]
    """Log probability of the flips in `flipped`; with `draws` they are drawn first.

    A coordinate flips with log odds of half the change of the log density to first order,
    less 1 / (2 step): Zhang, Liu & Liu (2022), eq. (4), for binary variables.
    """
    total = 0.0
    for i in range(block.size):
        j = block[i]
        slope = point.grads[LOG_REFERENCE, j] + beta * point.grads[LOG_RATIO, j]
        odds = 0.5 * (1.0 - 2.0 * point.x[j]) * slope - 0.5 / step
        if odds != odds:  # the gradient is NaN: propose as if it were zero
            odds = -0.5 / step
        stay = 1.0 / (1.0 + np.exp(odds))
        if draws:
            flipped[i] = 1.0 if rng.random() >= stay else 0.0
        # log of 1 / (1 + exp(-odds)) or of 1 / (1 + exp(odds)), without overflow
        signed = odds if flipped[i] > 0.0 else -odds
        total -= np.log1p(np.exp(-abs(signed))) + max(-signed, 0.0)
    return total


@njit(KERNEL_SIGNATURE, error_model="numpy")
def langevin_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Flip random sets of coordinates, each by its own odds, accepted by Metropolis."""
    n_steps, flipped = int(params[N_STEPS]), scratch[FLIPPED]
    accepted = 0.0
    for _ in range(n_steps):
        log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
        keep_state(point, block, scratch, START)
        forth = _propose(point, beta, block, params[STEP], 1, rng, flipped)
        for i in range(block.size):
            if flipped[i] > 0.0:
                point.x[block[i]] = 1.0 - point.x[block[i]]
        evaluate(density, point)
        new = point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO]
        chance = 0.0
        if -np.inf < new < np.inf:
            back = _propose(point, beta, block, params[STEP], 0, rng, flipped)
            chance = min(1.0, np.exp(new - (log_reference + beta * log_ratio) + back - forth))
        accepted += chance
        if not rng.random() < chance:
            put_back(point, block, scratch, START, log_reference, log_ratio)
    info[ACCEPTANCE] = accepted / n_steps
    info[N_EVALUATIONS] = n_steps
    info[DIVERGED] = 0.0


def _pack(step_size: float, scale: np.ndarray, block: Block, n_steps: int) -> np.ndarray:
    return np.array([step_size, n_steps])


def DiscreteLangevin(target_accept: float = 0.57, n_steps: int = 5) -> Kernel:
    """Discrete Langevin proposals for binary variables, corrected by Metropolis.

    The gradient of the log density, with the variables taken for real numbers, says to first
    order what each flip would change; all coordinates are flipped or not at once, by these odds
    (Zhang, Liu & Liu 2022). One gradient moves many coordinates, where Gibbs sampling needs an
    evaluation for each of them. The density must make sense between 0 and 1: an energy does, an
    index into an array does not.

    Parameters
    ----------
    target_accept : float, default 0.57
        Acceptance probability that the step size of each rung is tuned for.
    n_steps : int, default 5
        Proposals of one transition, each of one gradient.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> from pymc_tempering import DiscreteLangevin
    >>> DiscreteLangevin().uses_gradient
    True
    """
    check_whole(1, n_steps=n_steps)
    return Kernel(
        name="langevin",
        transition=langevin_transition,
        n_scratch=4,
        pack=partial(_pack, n_steps=n_steps),
        rebuild=(DiscreteLangevin, (target_accept, n_steps)),
        reversal="self",
        kinds=frozenset({BINARY}),
        target_accept=target_accept,
        uses_gradient=True,
    )
