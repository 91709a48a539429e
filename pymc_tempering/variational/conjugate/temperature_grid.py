"""Temperatures of a fit: their grid, annealing schedules, and the updates of q(T)."""

from collections.abc import Callable

import numpy as np
from scipy.special import entr, logsumexp

from pymc_tempering.exceptions import TemperatureError

FIRST_TEMPERATURE = 10.0
N_TEMPERATURES = 100

ScheduleOption = str | Callable[[float], float]


def check_grid_from_one(temperatures: np.ndarray) -> np.ndarray:
    """Return a grid 1 = T_1 < ... < T_M as a float array.

    Raises
    ------
    TemperatureError
        If it is not that, with the value at fault.
    """
    grid = np.array(temperatures, dtype=float)
    if grid.ndim != 1 or grid.size == 0 or not np.isfinite(grid).all():
        raise TemperatureError(
            f"temperatures must be finite numbers in one dimension, got shape {grid.shape}: "
            f"{temperatures!r}"
        )
    if grid.min() < 1.0:
        raise TemperatureError(
            f"temperatures holds {grid.min():g}, which is below 1: temperatures flatten a "
            "likelihood and start at 1, the model itself"
        )
    if (np.diff(grid) <= 0.0).any():
        at = int(np.argmax(np.diff(grid) <= 0.0))
        raise TemperatureError(
            f"temperatures must increase, but {grid[at + 1]:g} follows {grid[at]:g}; sort them "
            "and drop repeated ones"
        )
    if grid[0] != 1.0:
        raise TemperatureError(
            f"temperatures starts at {grid[0]:g}: put 1 in front, the model's own temperature"
        )
    return grid


def default_temperatures(method: str) -> np.ndarray:
    """Return the grids of Section 4: exponential from 1 to 10, or 100 even steps of 1/T."""
    if method == "local_variational_tempering":
        return 1.0 / np.linspace(1.0, 1.0 / N_TEMPERATURES, N_TEMPERATURES)
    return np.geomspace(1.0, FIRST_TEMPERATURE, N_TEMPERATURES)


def annealed_temperature(schedule: ScheduleOption, hottest: float, progress: float) -> float:
    """Return T after the share `progress` of the annealing; 1 from its end on.

    Raises
    ------
    TemperatureError
        If the user's own schedule returns a temperature below 1.
    """
    if progress >= 1.0:
        return 1.0
    if callable(schedule):
        value = float(schedule(progress))
        if not (np.isfinite(value) and value >= 1.0):
            raise TemperatureError(
                f"schedule({progress:g}) returned {value:g}; temperatures must be at least 1"
            )
        return value
    if schedule == "linear":
        return hottest + (1.0 - hottest) * progress
    return float(hottest ** (1.0 - progress))


def temperature_posterior(
    log_joint: np.ndarray, inv_temps: np.ndarray, log_norm: np.ndarray
) -> np.ndarray:
    """Return q(T) of equation (9), or of (10) for many data, under a uniform prior.

    Parameters
    ----------
    log_joint : ndarray, shape (...)
        E_q[log p(x, z | beta)] in nats.
    inv_temps : ndarray, shape (M,)
        1/T_m.
    log_norm : ndarray, shape (..., M) or (M,)
        log C(T_m), or log of the integral of p(x_i, z_i | beta)^(1/T_m).

    Returns
    -------
    ndarray, shape (..., M)
        Probabilities.
    """
    logits = np.asarray(log_joint)[..., None] * inv_temps - log_norm
    return np.asarray(np.exp(logits - logsumexp(logits, axis=-1, keepdims=True)))


def elbo_of_temperatures(weights: np.ndarray, log_norm: np.ndarray) -> np.ndarray:
    """Return E[log p(y)] - E[log q(y)] - E[log C(T_y)] of equation (5) in nats, shape (...)."""
    n_temps = weights.shape[-1]
    return np.asarray((entr(weights) - weights * log_norm).sum(axis=-1) - np.log(n_temps))
