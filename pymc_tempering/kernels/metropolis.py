"""Random-walk Metropolis with the covariance of the rung, for real variables and integers."""

from functools import partial

import numpy as np

from pymc_tempering.arguments import check_whole
from pymc_tempering.kernels.contract import (
    ACCEPTANCE,
    BINARY,
    BOUNDED,
    CONTINUOUS,
    DIVERGED,
    INTEGER,
    N_EVALUATIONS,
    Block,
    Kernel,
    log_density_at,
)
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.jit import njit

N_STEPS, WHOLE = 0, 1
"""Layout of the tuning numbers: proposals of a transition; which coordinates are whole, lower and
upper bounds, each of length b; the lower triangle of the proposals' Cholesky factor by rows."""


@njit(KERNEL_SIGNATURE, error_model="numpy")
def metropolis_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Propose a few normal steps, rounded for integers, each accepted by Metropolis."""
    n = block.size
    start, noise = scratch[0], scratch[1]
    n_steps = int(params[N_STEPS])
    whole = params[WHOLE : WHOLE + n]
    lower, upper = params[WHOLE + n : WHOLE + 2 * n], params[WHOLE + 2 * n : WHOLE + 3 * n]
    accepted, taken = 0.0, 0
    for _ in range(n_steps):
        log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
        at = WHOLE + 3 * n
        inside = True
        for i in range(n):
            start[i] = point.x[block[i]]
            noise[i] = rng.standard_normal()
        for i in range(n):
            push = 0.0
            for k in range(i + 1):
                push += params[at + k] * noise[k]
            at += i + 1
            new = start[i] + (np.rint(push) if whole[i] > 0.0 else push)
            inside = inside and lower[i] <= new <= upper[i]
            point.x[block[i]] = new
        chance = 0.0
        if inside:  # beyond the bounds the density may still be finite
            taken += 1
            level = log_density_at(density, point, beta)
            chance = min(1.0, np.exp(level - (log_reference + beta * log_ratio)))
        accepted += chance
        if not rng.random() < chance:
            point.values[LOG_REFERENCE] = log_reference
            point.values[LOG_RATIO] = log_ratio
            for i in range(n):
                point.x[block[i]] = start[i]
    info[ACCEPTANCE] = accepted / n_steps
    info[N_EVALUATIONS] = taken
    info[DIVERGED] = 0.0


def _pack(step_size: float, cholesky: np.ndarray, block: Block, n_steps: int | None) -> np.ndarray:
    steps = max(5, block.size) if n_steps is None else n_steps
    factor = 2.38 * step_size * cholesky[np.tril_indices(block.size)]
    return np.concatenate([[steps], block.whole, block.lower, block.upper, factor])


def RandomWalkMetropolis(target_accept: float = 0.3, n_steps: int | None = None) -> Kernel:
    """Random-walk Metropolis with the covariance of each rung; needs no gradients.

    Proposals are normal with the covariance of the rung's own distribution, as the warm-up saw
    it, times a factor that is tuned for the acceptance; integers are rounded.

    Parameters
    ----------
    target_accept : float, default 0.3
        Acceptance probability that the steps of each rung are tuned for.
    n_steps : int, optional
        Proposals of one transition; by default as many as there are coordinates, and 5 at least.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> from pymc_tempering import RandomWalkMetropolis
    >>> RandomWalkMetropolis(n_steps=20).target_accept
    0.3
    """
    if n_steps is not None:
        check_whole(1, n_steps=n_steps)
    return Kernel(
        name="metropolis",
        transition=metropolis_transition,
        n_scratch=2,
        pack=partial(_pack, n_steps=n_steps),
        rebuild=(RandomWalkMetropolis, (target_accept, n_steps)),
        reversal="self",
        kinds=frozenset({CONTINUOUS, BINARY, BOUNDED, INTEGER}),
        target_accept=target_accept,
        dense=True,
    )
