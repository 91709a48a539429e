"""Grids of temperatures, annealing schedules, q(T), and what sets the temperature of a stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import entr, roots_jacobi, softmax

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import TemperatureError

N_TEMPERATURES = 100
"""Temperatures of VT, as in Section 4 of Mandt et al. (2016)."""

N_LOCAL = 10
"""Temperatures of a datum; the tempered likelihood is evaluated at each for each datum."""

LARGEST = 10.0
"""Largest temperature, as in Section 4 of Mandt et al. (2016)."""

N_BETA = 12
"""Nodes of the quadrature over a Beta-distributed 1/T."""

N_SETTLED = 20
"""Updates over which q(T) must have been at rest."""

SETTLED = 0.01
"""Range of E[1/T] over these updates that counts as rest."""


def exponential_grid() -> FloatArray:
    """Temperatures of VT from 1 to 10, evenly spaced in log T, shape (100,)."""
    return np.geomspace(1.0, LARGEST, N_TEMPERATURES)


def inverse_grid(n: int = N_LOCAL, largest: float = LARGEST) -> FloatArray:
    """Temperatures from 1 to ``largest``, evenly spaced in 1/T, shape (n,)."""
    return 1.0 / np.linspace(1.0, 1.0 / largest, n)


def check_temperatures(temperatures: Sequence[float] | FloatArray) -> FloatArray:
    """Temperatures as an increasing array, shape (M,), none below 1.

    Parameters
    ----------
    temperatures : sequence of float

    Raises
    ------
    TemperatureError
        If they are none, not one-dimensional, not finite, below 1, or not increasing.
    """
    values = np.asarray(temperatures, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise TemperatureError(
            f"temperatures must be a list of one or more numbers, not {temperatures!r} of shape "
            f"{values.shape}."
        )
    bad = values[~(np.isfinite(values) & (values >= 1.0))]
    if bad.size:
        raise TemperatureError(f"temperatures must be finite and at least 1; {bad[0]:g} is not.")
    falls = np.diff(values) <= 0
    if falls.any():
        at = int(np.argmax(falls))
        raise TemperatureError(
            f"temperatures must increase: {values[at]:g} is followed by {values[at + 1]:g}."
        )
    return values


def check_grid(temperatures: Sequence[float] | FloatArray) -> FloatArray:
    """Return the temperatures as an array that starts at 1 and increases, shape (M,).

    Raises
    ------
    TemperatureError
        Where they do not.
    """
    grid = check_temperatures(temperatures)
    if grid[0] != 1.0:
        raise TemperatureError(
            f"temperatures must contain 1, the model itself; the smallest is {grid[0]:g}: put 1 in "
            "front."
        )
    return grid


def check_damping(damping: float, of: str) -> None:
    """Raise a ValueError unless the share of the old q(T) that an update keeps is in [0, 1)."""
    if not 0.0 <= damping < 1.0:
        raise ValueError(
            f"damping is the share of the old {of} that an update keeps: it must be at least 0 (no "
            f"damping) and below 1, not {damping!r}."
        )


def beta_grid(a: float, b: float) -> tuple[FloatArray, FloatArray]:
    """Temperatures and prior weights that stand for 1/T ~ Beta(a, b), each of shape (13,).

    Nodes and weights of Gauss-Jacobi quadrature in 1/T, so that q(T), which is not a Beta
    distribution, is free at the nodes, and averages over it are exact for polynomials of 1/T up to
    degree 23. T = 1 stands first with weight zero, for the stage at T = 1.

    Raises
    ------
    ValueError
        If ``a`` or ``b`` is not positive.
    """
    if not (np.isfinite([a, b]).all() and min(a, b) > 0.0):
        raise ValueError(f"the Beta prior of 1/T needs two positive numbers, got ({a}, {b})")
    nodes, weights = roots_jacobi(N_BETA, b - 1.0, a - 1.0)
    inverse = (1.0 + nodes[::-1]) / 2.0
    return (
        np.concatenate([[1.0], 1.0 / inverse]),
        np.concatenate([[0.0], weights[::-1] / weights.sum()]),
    )


SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "linear": lambda share, start: start + (1.0 - start) * share,
    "exponential": lambda share, start: start ** (1.0 - share),
}
"""Temperature at a share of the annealing, from ``start`` at 0 to 1 at 1."""


@dataclass(frozen=True)
class AnnealingSchedule:
    """The temperature of annealed variational inference over the iterations.

    Attributes
    ----------
    function : callable
        Temperature at a share in [0, 1) of the annealing.
    n_annealing : float
        Iterations after which T = 1.
    """

    function: Callable[[float], float]
    n_annealing: float

    def inverse_temperature(self, iteration: int) -> float:
        """1/T at an iteration, counted from 0; 1 from ``n_annealing`` on."""
        if iteration >= self.n_annealing:
            return 1.0
        return 1.0 / float(self.function(iteration / self.n_annealing))


def annealing_schedule(
    schedule: str | Callable[[float], float], start: float, n_annealing: float
) -> AnnealingSchedule:
    """Build a schedule from its name or from a function, and check it.

    Raises
    ------
    ValueError
        If the name is not known.
    TemperatureError
        If the function does not give temperatures of 1 or higher.
    """
    if not callable(schedule):
        check_choice(
            "schedule", schedule, SCHEDULES, " or a function of the share of the annealing"
        )
        named = SCHEDULES[schedule]
        return AnnealingSchedule(lambda share: named(share, start), n_annealing)
    for share in np.linspace(0.0, 1.0, 100, endpoint=False):
        temperature = float(schedule(float(share)))
        if not (np.isfinite(temperature) and temperature >= 1.0 - 1e-12):
            raise TemperatureError(
                f"schedule({share:.2f}) returned {temperature:g}; it takes the share of the "
                "annealing, from 0 to 1, and must give finite temperatures of 1 or higher"
            )
    return AnnealingSchedule(schedule, n_annealing)


def elbo_of_temperatures(q: FloatArray, log_norm: FloatArray, log_prior: Any) -> FloatArray:
    """E[log p(y)] - E[log q(y)] - E[log C(T_y)] of equation (5) in nats, shape (...).

    ``q`` has shape (..., M), ``log_norm`` that or (M,); ``log_prior`` is log p(y).
    """
    return (entr(q) + q * (log_prior - log_norm)).sum(axis=-1)


@dataclass(frozen=True)
class Setting:
    """What a stage sets before a block of iterations.

    Attributes
    ----------
    weights : float or ndarray
        What the likelihood takes: an inverse temperature, or weights of temperatures.
    inverse_temperature : float or None
        E[1/T], for the record. None where the energies of the step are q(T), shape (M,).
    offset : float
        Terms of the tempered ELBO that do not depend on the approximation (nats).
    """

    weights: Any
    inverse_temperature: float | None
    offset: float = 0.0


@dataclass(frozen=True)
class GivenTemperature:
    """A schedule sets the temperature (AVI), or it is 1 throughout.

    Attributes
    ----------
    schedule : AnnealingSchedule, optional
    weights : float or ndarray
        What the likelihood takes for T = 1.
    q : ndarray, shape (M,), or None
    """

    schedule: AnnealingSchedule | None = None
    weights: Any = 1.0
    q: FloatArray | None = None
    at_rest_from: int | None = None

    def setting(self, iteration: int) -> Setting:
        """1/T of the schedule."""
        if self.schedule is None:
            return Setting(self.weights, 1.0)
        inverse = self.schedule.inverse_temperature(iteration)
        return Setting(inverse, inverse)

    def after(self, energies: FloatArray) -> "GivenTemperature":
        """Nothing to learn."""
        return self


@dataclass(frozen=True)
class LearnedTemperature:
    """VT: q(y) by equation (9) of Mandt et al. (2016), damped.

    Attributes
    ----------
    temperatures : ndarray, shape (M,)
        The prior is uniform over them.
    logits : ndarray, shape (M,)
        log q(y_m) up to a constant.
    log_c : ndarray, shape (M,)
        log C(T_m) (nats); zero where the energies are normalized already.
    damping : float
        Share of the old log q(y) that an update keeps.
    by_temperature : bool
        If true, an energy is a vector over the temperatures, and the likelihood takes q(y). Else
        an energy is the log-likelihood, and the likelihood takes E[1/T].
    scale : float
        What PyMC divides the loss by (total size over minibatch size).
    floor : AnnealingSchedule, optional
        Smallest temperature that q(y) may take at an iteration: equation (9) alone settles within
        some ten iterations at the temperature whose noise would explain the misfit of the start,
        far below that at which the modes merge.
    recent : tuple of float
        E[1/T] after the last updates.
    done : int
        Iterations so far.
    """

    temperatures: FloatArray
    logits: FloatArray
    log_c: FloatArray
    damping: float
    by_temperature: bool = False
    scale: float = 1.0
    floor: AnnealingSchedule | None = None
    recent: tuple[float, ...] = ()
    done: int = 0

    @property
    def lowest(self) -> float:
        """Smallest temperature that q(y) may take now."""
        return 1.0 if self.floor is None else 1.0 / self.floor.inverse_temperature(self.done)

    @property
    def inverse_temperature(self) -> float:
        """E[1/T] in force; that of the floor where it lies above the grid, which needs no C(T)."""
        inverse = float(self.q @ (1.0 / self.temperatures))
        return inverse if self.by_temperature else min(inverse, 1.0 / self.lowest)

    @property
    def q(self) -> FloatArray:
        """q(T) in force, shape (M,): given that T is not below the floor, or is the largest."""
        least = min(self.lowest, self.temperatures[-1]) * (1.0 - 1e-12)
        return softmax(np.where(self.temperatures >= least, self.logits, -np.inf))

    @property
    def at_rest_from(self) -> int | None:
        """End of the floor, if E[1/T] moved by less than 0.01 over the last 20 updates."""
        if self.lowest != 1.0 or not _at_rest(self.recent):
            return None
        return 0 if self.floor is None else int(self.floor.n_annealing)

    def setting(self, iteration: int) -> Setting:
        """E[1/T], or q(y), with the terms of equation (5) that depend on q(y) alone."""
        q, inverse = self.q, self.inverse_temperature
        offset = float(elbo_of_temperatures(q, self.log_c, -np.log(q.size))) / self.scale
        return Setting(q if self.by_temperature else inverse, inverse, offset)

    def after(self, energies: FloatArray) -> "LearnedTemperature":
        """Take one damped step of equation (9), with the mean over a block of iterations.

        Its target is E_q[log-likelihood] / T_m - log C(T_m). Logarithms are mixed, which is a step
        of 1 - damping along the natural gradient.
        """
        mean = energies.mean(axis=0)
        if not self.by_temperature:
            mean = mean[0] / self.temperatures - self.log_c
        logits = self.damping * self.logits + (1.0 - self.damping) * mean
        after = replace(self, logits=logits, done=self.done + len(energies))
        recent = (*self.recent, after.inverse_temperature)[-N_SETTLED:]
        return replace(after, recent=recent)


@dataclass(frozen=True)
class LearnedLocalTemperatures:
    """LVT: the step updates q(y_i), and its energies are their mean over the data.

    Attributes
    ----------
    temperatures : ndarray, shape (M,)
    q : ndarray, shape (M,)
        q(T) averaged over data, as of the last iteration.
    recent : tuple of float
        Mean of E[1/T] over the last blocks.
    """

    temperatures: FloatArray
    q: FloatArray
    recent: tuple[float, ...] = ()

    @property
    def at_rest_from(self) -> int | None:
        """0, if the mean of E[1/T] moved by less than 0.01 over the last 20 blocks."""
        return 0 if _at_rest(self.recent) else None

    def setting(self, iteration: int) -> Setting:
        """Local temperatures on."""
        return Setting(1.0, None)

    def after(self, energies: FloatArray) -> "LearnedLocalTemperatures":
        """Record q(T), and the mean of E[1/T] over a block."""
        inverse = float((energies @ (1.0 / self.temperatures)).mean())
        return replace(self, q=energies[-1], recent=(*self.recent, inverse)[-N_SETTLED:])


type StageTemperature = GivenTemperature | LearnedTemperature | LearnedLocalTemperatures
"""What sets the temperature of a stage.

`setting(iteration)` holds from an iteration of the stage on, and `after(energies)` returns what has
learned from a block of iterations. `q` is q(T) in force, or None, and `at_rest_from` the iteration
from which the objective stays the same, None where it is not at rest.
"""


def _at_rest(recent: tuple[float, ...]) -> bool:
    """Whether the last values of E[1/T] are all there, and lie close together."""
    return len(recent) == N_SETTLED and float(np.ptp(recent)) < SETTLED
