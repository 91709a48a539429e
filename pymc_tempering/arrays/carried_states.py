"""Carry states over arrays along a schedule, up or down, with their log weights."""

import numpy as np

from pymc_tempering.arrays.array_density import (
    ArrayDensity,
    Move,
    States,
    checked_ratio,
    move_states,
)
from pymc_tempering.arrays.lockstep import evaluated_draws

N_SHARE = 10_000
"""Reference draws that tell the share on which the density is positive."""


def carry_up(
    density: ArrayDensity, betas: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Carry n reference draws to beta = 1; log weights (n,), and running sums at each beta (K, 3).

    Equation (23) of Carlson et al. (2016). The sums are [largest log w, sum w, sum w^2].
    """
    states, ratio = evaluated_draws(density, n, rng)
    log_w, sums = np.zeros(n), np.zeros((betas.size, 3))
    sums[0] = 0.0, n, n
    for k in range(1, betas.size):
        log_w += (betas[k] - betas[k - 1]) * ratio
        peak = log_w.max()
        if peak == -np.inf:
            sums[k:] = -np.inf, 0.0, 0.0
            break
        w = np.exp(log_w - peak)
        sums[k] = peak, w.sum(), np.sum(w**2)
        if k < betas.size - 1:
            states, ratio = _move_alive(density, density.move, states, ratio, betas[k], rng)
    return log_w, sums


def carry_down(
    density: ArrayDensity,
    reverse: Move,
    betas: np.ndarray,
    states: States,
    rng: np.random.Generator,
) -> np.ndarray:
    """Carry states of the density to the reference by reversed moves; log weights (n,).

    The path of :func:`carry_up` in the other direction: the mean of the weights is 1 / Z.
    """
    ratio = checked_ratio(density.log_ratio(states), len(states), "the states given")
    log_w = np.zeros(len(states))
    for k in range(betas.size - 1, 0, -1):
        log_w += (betas[k - 1] - betas[k]) * ratio
        if k > 1:
            beta = np.full(len(states), betas[k - 1])
            states, ratio = move_states(density, reverse, states, beta, rng)
    return log_w


def log_share(density: ArrayDensity, rng: np.random.Generator) -> tuple[float, float]:
    """Log of the share of the reference on which the density is positive, and its error (nats).

    What goes down to beta = 0 stays on this part.
    """
    share = float(np.mean(evaluated_draws(density, N_SHARE, rng)[1] > -np.inf))
    if share == 1.0:
        return 0.0, 0.0
    return float(np.log(share)), float(np.sqrt((1.0 - share) / (share * N_SHARE)))


def _move_alive(
    density: ArrayDensity,
    move: Move,
    states: States,
    ratio: np.ndarray,
    beta: float,
    rng: np.random.Generator,
) -> tuple[States, np.ndarray]:
    """Move the states of positive density; the others stay, with weight zero."""
    alive = ratio > -np.inf
    if alive.all():
        return move_states(density, move, states, np.full(len(states), beta), rng)
    states, ratio = states.copy(), ratio.copy()
    states[alive], ratio[alive] = move_states(
        density, move, states[alive], np.full(int(alive.sum()), beta), rng
    )
    return states, ratio
