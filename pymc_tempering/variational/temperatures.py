"""Grids of temperatures, annealing schedules, q(T), and what sets the temperature of a stage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from scipy.special import entr, roots_jacobi, softmax

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.variational.normalizers.likelihood_terms import check_temperatures

N_TEMPERATURES = 100
"""Temperatures of VT, as in Section 4 of Mandt et al. (2016)."""

N_LOCAL = 10
"""Temperatures of a datum; the tempered likelihood is evaluated at each for each datum."""

LARGEST = 10.0
"""Largest temperature, as in Section 4 of Mandt et al. (2016)."""

N_BETA = 12
"""Nodes of the quadrature over a Beta-distributed 1/T."""


def exponential_grid(n: int = N_TEMPERATURES, largest: float = LARGEST) -> FloatArray:
    """Temperatures from 1 to ``largest``, evenly spaced in log T, shape (n,)."""
    return np.geomspace(1.0, largest, n)


def inverse_grid(n: int = N_LOCAL, largest: float = LARGEST) -> FloatArray:
    """Temperatures from 1 to ``largest``, evenly spaced in 1/T, shape (n,)."""
    return 1.0 / np.linspace(1.0, 1.0 / largest, n)


def check_grid(temperatures: Sequence[float]) -> FloatArray:
    """Return the temperatures as an array that starts at 1 and increases, shape (M,).

    Raises
    ------
    ValueError
        Where they do not.
    """
    grid: FloatArray = check_temperatures(temperatures)
    if grid[0] != 1.0:
        raise ValueError(
            f"temperatures must contain 1, the model itself; the smallest is {grid[0]:g}. Start "
            "the grid at 1."
        )
    return grid


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
    n_annealing : int
        Iterations after which T = 1.
    """

    function: Callable[[float], float]
    n_annealing: int

    def inverse_temperature(self, iteration: int) -> float:
        """1/T at an iteration, counted from 0; 1 from ``n_annealing`` on."""
        if iteration >= self.n_annealing:
            return 1.0
        return 1.0 / float(self.function(iteration / self.n_annealing))


def annealing_schedule(
    schedule: str | Callable[[float], float], start: float, n_annealing: int
) -> AnnealingSchedule:
    """Build a schedule from its name or from a function, and check it.

    Raises
    ------
    ValueError
        If the name is not known, or the function does not give temperatures of 1 or higher.
    """
    if isinstance(schedule, str):
        check_choice(
            "schedule", schedule, SCHEDULES, " or a function of the share of the annealing"
        )
        named = SCHEDULES[schedule]
        return AnnealingSchedule(lambda share: named(share, start), n_annealing)
    for share in np.linspace(0.0, 1.0, 100, endpoint=False):
        temperature = float(schedule(float(share)))
        if not (np.isfinite(temperature) and temperature >= 1.0 - 1e-12):
            raise ValueError(
                f"schedule({share:.2f}) gave the temperature {temperature}; it takes the share of "
                "the annealing, from 0 to 1, and must give finite temperatures of 1 or higher"
            )
    return AnnealingSchedule(schedule, n_annealing)


def beta_grid(a: float, b: float, n: int = N_BETA) -> tuple[FloatArray, FloatArray]:
    """Temperatures and prior weights that stand for 1/T ~ Beta(a, b), each of shape (n + 1,).

    Nodes and weights of Gauss-Jacobi quadrature in 1/T, so that q(T), which is not a Beta
    distribution, is free at the nodes, and averages over it are exact for polynomials of 1/T up to
    degree 2 n - 1. T = 1 stands first with weight zero, for the stage at T = 1.

    Raises
    ------
    ValueError
        If ``a`` or ``b`` is not positive.
    """
    if not (np.isfinite([a, b]).all() and min(a, b) > 0.0):
        raise ValueError(f"the Beta prior of 1/T needs two positive numbers, got ({a}, {b})")
    nodes, weights = roots_jacobi(n, b - 1.0, a - 1.0)
    inverse = (1.0 + nodes[::-1]) / 2.0
    return (
        np.concatenate([[1.0], 1.0 / inverse]),
        np.concatenate([[0.0], weights[::-1] / weights.sum()]),
    )


@dataclass(frozen=True)
class TemperaturePosterior:
    """q(y): the variational distribution over a grid of temperatures.

    Attributes
    ----------
    temperatures : ndarray, shape (M,)
    log_prior : ndarray, shape (M,)
        log pi_m.
    logits : ndarray, shape (M,)
        log q(y_m) up to a constant.
    """

    temperatures: FloatArray
    log_prior: FloatArray
    logits: FloatArray

    @property
    def q(self) -> FloatArray:
        """Probability of each temperature, shape (M,)."""
        return np.asarray(softmax(self.logits))

    @property
    def inverse_temperature(self) -> float:
        """E_q[1/T]."""
        return float(self.q @ (1.0 / self.temperatures))

    def update(self, energies: FloatArray, damping: float) -> "TemperaturePosterior":
        """Take one damped step of equation (9) of Mandt et al. (2016).

        ``energies`` (M,) holds E_q[log-likelihood] / T_m - log C(T_m). Its logarithms are mixed,
        which is a step of 1 - damping along the natural gradient.
        """
        target = energies + self.log_prior
        return replace(self, logits=damping * self.logits + (1.0 - damping) * target)

    def at_least(self, temperature: float) -> "TemperaturePosterior":
        """Return q(y) given that T is at least so high, or the largest of the grid."""
        allowed = self.temperatures >= min(temperature, self.temperatures[-1]) * (1.0 - 1e-12)
        return replace(self, logits=np.where(allowed, self.logits, -np.inf))

    def offset(self, log_c: FloatArray) -> float:
        """Terms of the tempered ELBO, equation (5), that depend on q(y) alone (nats)."""
        return float(self.q @ (self.log_prior - log_c) + entr(self.q).sum())


def uniform_posterior(temperatures: FloatArray) -> TemperaturePosterior:
    """q(y) before the first update: uniform over the grid, as its prior is."""
    n = temperatures.size
    return TemperaturePosterior(temperatures, np.full(n, -np.log(n)), np.zeros(n))


N_SETTLED = 20
"""Updates over which q(T) must have been at rest."""

SETTLED = 0.01
"""Range of E[1/T] over these updates that counts as rest."""


@dataclass(frozen=True)
class Setting:
    """What a stage sets before a block of iterations.

    Attributes
    ----------
    weights : float or ndarray
        What the step's ``set_weights`` takes.
    inverse_temperature : float
        E[1/T], for the record; NaN where the compiled step gives it.
    offset : float
        Terms of the tempered ELBO that do not depend on the approximation (nats).
    """

    weights: Any
    inverse_temperature: float
    offset: float = 0.0


class StageTemperature(Protocol):
    """One stage's temperatures; ``after`` returns a new value."""

    @property
    def q(self) -> FloatArray | None:
        """q(T) in force, shape (M,), or None."""

    @property
    def settled(self) -> bool:
        """Whether the temperatures have come to rest."""

    @property
    def free_from(self) -> int:
        """Iteration of the stage from which on its objective stays the same."""

    def setting(self, iteration: int) -> Setting:
        """Return the setting from an iteration of the stage on."""

    def after(self, energies: FloatArray) -> "StageTemperature":
        """Learn from the energies of a block, one row an iteration."""


@dataclass(frozen=True)
class ColdTemperature:
    """The stage at T = 1.

    Attributes
    ----------
    weights : float or ndarray
        What the likelihood takes for T = 1.
    q : ndarray, shape (M,), or None
    """

    weights: Any = 1.0
    q: FloatArray | None = None
    settled: bool = True
    free_from: int = 0

    def setting(self, iteration: int) -> Setting:
        """T = 1."""
        return Setting(self.weights, 1.0)

    def after(self, energies: FloatArray) -> "ColdTemperature":
        """Nothing to learn."""
        return self


@dataclass(frozen=True)
class AnnealedTemperature:
    """AVI: a schedule sets the temperature."""

    schedule: AnnealingSchedule
    q: FloatArray | None = None
    settled: bool = False
    free_from: int = 0

    def setting(self, iteration: int) -> Setting:
        """1/T of the schedule."""
        inverse = self.schedule.inverse_temperature(iteration)
        return Setting(inverse, inverse)

    def after(self, energies: FloatArray) -> "AnnealedTemperature":
        """Nothing to learn."""
        return self


@dataclass(frozen=True)
class LearnedTemperature:
    """VT: q(y) by equation (9) of Mandt et al. (2016), damped.

    Attributes
    ----------
    posterior : TemperaturePosterior
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

    posterior: TemperaturePosterior
    log_c: FloatArray
    damping: float
    by_temperature: bool = False
    scale: float = 1.0
    floor: AnnealingSchedule | None = None
    recent: tuple[float, ...] = ()
    done: int = 0

    @property
    def free_from(self) -> int:
        """Iteration from which on there is no floor."""
        return 0 if self.floor is None else self.floor.n_annealing

    @property
    def lowest(self) -> float:
        """Smallest temperature that q(y) may take now."""
        return 1.0 if self.floor is None else 1.0 / self.floor.inverse_temperature(self.done)

    @property
    def in_force(self) -> TemperaturePosterior:
        """q(y) above the floor."""
        return self.posterior.at_least(self.lowest)

    @property
    def inverse_temperature(self) -> float:
        """E[1/T] in force; that of the floor where it lies above the grid, which needs no C(T)."""
        inverse = self.in_force.inverse_temperature
        return inverse if self.by_temperature else min(inverse, 1.0 / self.lowest)

    @property
    def q(self) -> FloatArray:
        """q(T) in force, shape (M,)."""
        return self.in_force.q

    @property
    def settled(self) -> bool:
        """Whether E[1/T] moved by less than 0.01 over the last 20 updates, without a floor."""
        return self.lowest == 1.0 and _at_rest(self.recent)

    def setting(self, iteration: int) -> Setting:
        """E[1/T], or q(y), with the terms of equation (5) that depend on q(y) alone."""
        now, inverse = self.in_force, self.inverse_temperature
        offset = now.offset(self.log_c) / self.scale
        return Setting(now.q if self.by_temperature else inverse, inverse, offset)

    def after(self, energies: FloatArray) -> "LearnedTemperature":
        """Update q(y) with the mean over a block of iterations."""
        mean = energies.mean(axis=0)
        if not self.by_temperature:
            mean = mean[0] / self.posterior.temperatures - self.log_c
        posterior = self.posterior.update(mean, self.damping)
        after = replace(self, posterior=posterior, done=self.done + len(energies))
        recent = (*self.recent, after.inverse_temperature)[-N_SETTLED:]
        return replace(after, recent=recent)


@dataclass(frozen=True)
class LearnedLocalTemperatures:
    """LVT: the compiled step holds and updates q(y_i), and returns E[1/T].

    Attributes
    ----------
    mean_q : SharedVariable
        q(T) averaged over data, shape (M,).
    weights : float
        What switches the local temperatures on.
    recent : tuple of float
        Mean of E[1/T] over the last blocks.
    """

    mean_q: SharedVariable
    weights: float = 1.0
    recent: tuple[float, ...] = ()
    free_from: int = 0

    @property
    def q(self) -> FloatArray:
        """q(T) averaged over data, shape (M,)."""
        q: FloatArray = self.mean_q.get_value()
        return q

    @property
    def settled(self) -> bool:
        """Whether the mean of E[1/T] moved by less than 0.01 over the last 20 blocks."""
        return _at_rest(self.recent)

    def setting(self, iteration: int) -> Setting:
        """Local temperatures on."""
        return Setting(self.weights, np.nan)

    def after(self, energies: FloatArray) -> "LearnedLocalTemperatures":
        """Record the mean of E[1/T] over a block."""
        return replace(self, recent=(*self.recent, float(energies.mean()))[-N_SETTLED:])


def _at_rest(recent: tuple[float, ...]) -> bool:
    """Whether the last values of E[1/T] are all there, and lie close together."""
    return len(recent) == N_SETTLED and float(np.ptp(recent)) < SETTLED
