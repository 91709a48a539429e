"""The options of `svi`, checked before work starts."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.exceptions import TemperatureError
from pymc_tempering.variational.conjugate.protocol import Globals
from pymc_tempering.variational.conjugate.temperature_grid import (
    ScheduleOption,
    check_grid_from_one,
    default_temperatures,
)

METHODS = ("vi", "annealed", "variational_tempering", "local_variational_tempering")
TEMPERED = METHODS[2:]
SCHEDULES = ("linear", "exponential")
STARTS = ("hot", "uniform")


@dataclass(frozen=True)
class SviOptions:
    """What the user asked for; `check_svi_options` makes `temperatures` a grid."""

    method: str
    iterations: int
    untempered: int | None
    batch_size: int | None
    tau: float
    kappa: float
    temperatures: Any
    log_partition: Any
    start: str
    update_every: int
    damping: float
    schedule: ScheduleOption
    hottest: float
    anneal_passes: float | None
    jitter: float
    tol: float
    elbo_every: int | None
    cores: int | None
    callback: Callable[[int, Globals], None] | None

    @property
    def grid(self) -> np.ndarray:
        """Temperatures 1 = T_1 < ... < T_M, shape (M,)."""
        return np.asarray(self.temperatures)

    @property
    def n_untempered(self) -> int:
        """Largest number of iterations at T = 1 after tempered ones."""
        return self.iterations // 4 if self.untempered is None else self.untempered

    @property
    def n_cores(self) -> int:
        """Threads of the local step."""
        return self.cores or os.cpu_count() or 1

    @property
    def temperature_step(self) -> float:
        """Share of the new q(T) in an update of VT."""
        return round(1.0 - self.damping, 15)  # 1 - 0.95 is 0.05 up to its last bits

    def n_elbo_every(self, n_data: int) -> int:
        """Return the iterations between entries of the ELBO's history; 0 for none."""
        if self.batch_size is None:
            return 1
        return -(-n_data // self.batch_size) if self.elbo_every is None else self.elbo_every

    def first_weights(self) -> np.ndarray:
        """Return the first q(T) of VT, shape (M,)."""
        n_temps = self.grid.size
        return np.eye(n_temps)[-1] if self.start == "hot" else np.full(n_temps, 1.0 / n_temps)

    def passes(self, n_data: int) -> float:
        """Return the length of the annealing in passes over the data."""
        if self.anneal_passes is not None:
            return self.anneal_passes
        return self.iterations * (self.batch_size or n_data) / n_data / 2.0


def check_svi_options(options: SviOptions, n_data: int) -> SviOptions:
    """Return the options with their grid of temperatures.

    Raises
    ------
    TemperatureError
        If temperatures are below 1, do not start at 1, or do not increase.
    ValueError
        If another option is out of its range.
    """
    check_choice("method", options.method, METHODS)
    check_choice("start", options.start, STARTS)
    if not (options.callback is None or callable(options.callback)):
        raise ValueError(f"callback must be callable, not {options.callback!r}.")
    if not callable(options.schedule):
        check_choice("schedule", options.schedule, SCHEDULES)
    _check_counts(options, n_data)
    _check_rates(options)
    if options.method == "annealed":
        _check_annealing(options, n_data)
    return replace(options, temperatures=_grid_of(options))


LEAST = {
    "iterations": 1,
    "untempered": 0,
    "batch_size": 1,
    "update_every": 1,
    "cores": 1,
    "elbo_every": 0,
}
"""Smallest value of options that are whole numbers, or None."""


def _check_counts(options: SviOptions, n_data: int) -> None:
    for name, least in LEAST.items():
        value = getattr(options, name)
        if value is not None:
            check_whole(least, **{name: value})
    if options.batch_size is not None and options.batch_size > n_data:
        raise ValueError(
            f"batch_size is {options.batch_size} and there are {n_data} data points: leave it out "
            "to use all of them in every iteration."
        )


def _check_rates(options: SviOptions) -> None:
    if not 0.0 <= options.damping < 1.0:
        raise ValueError(
            "damping is the share of the old q(T) that an update keeps: it must be at least 0 (no "
            f"damping) and below 1, not {options.damping!r}."
        )
    if not 0.5 < options.kappa <= 1.0:
        raise ValueError(
            f"kappa must be above 0.5 and at most 1 for the steps to converge "
            f"(Robbins and Monro), not {options.kappa!r}."
        )
    if not options.tau >= 0.0:
        raise ValueError(f"tau must not be negative, got {options.tau!r}.")
    if not 0.0 <= options.jitter < 1.0:
        raise ValueError(f"jitter must be at least 0 and below 1, not {options.jitter!r}.")
    if not options.tol >= 0.0:
        raise ValueError(f"tol must not be negative, got {options.tol!r}.")


def _grid_of(options: SviOptions) -> np.ndarray:
    """Return the temperatures of a method: the given ones, its own, or 1 alone."""
    given = options.temperatures
    if options.method not in TEMPERED:
        if given is not None:
            check_grid_from_one(given)
            raise ValueError(
                f'temperatures are for the methods {TEMPERED}, not for "{options.method}"'
                + ("; give hottest or schedule." if options.method == "annealed" else ".")
            )
        return np.ones(1)
    grid = default_temperatures(options.method) if given is None else check_grid_from_one(given)
    if options.log_partition is not None and np.shape(options.log_partition) != grid.shape:
        raise ValueError(
            f"log_partition has shape {np.shape(options.log_partition)}; it needs one value for "
            f"each of the {grid.size} temperatures."
        )
    return grid


def _check_annealing(options: SviOptions, n_data: int) -> None:
    if not (np.isfinite(options.hottest) and options.hottest >= 1.0):
        raise TemperatureError(f"hottest must be at least 1, not {options.hottest!r}")
    passes = options.passes(n_data)
    whole = options.iterations * (options.batch_size or n_data) / n_data
    if not 0.0 < passes < whole:
        raise ValueError(
            f"anneal_passes is {passes:g}; it must be above 0 and below the {whole:g} passes that "
            f"{options.iterations} iterations make, so that the fit ends at T = 1."
        )
