"""What sets the temperature of a stage: a schedule, VT, LVT, or T = 1 throughout."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.variational.temperatures import AnnealingSchedule, TemperaturePosterior

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
