"""Prior average of normalizers that depend on several variables, by annealing over temperatures.

Independent populations of particles start at prior draws, where T = 1 and the normalizers are 1,
and follow prior(theta) c(theta, T) up the temperatures (a sequential Monte Carlo sampler with
Hamiltonian moves). The product of the mean incremental weights of a population estimates C(T); the
spread of the populations gives the error. Temperatures and step sizes follow the particles of all
populations together, which leaves a bias of the order of one over their number. A plain average
over prior draws has none, but soon an effective sample size of 1.
"""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.chain.particles import Particles, place_under, sweep
from pymc_tempering.core.weighting import (
    conditional_ess,
    log_mean,
    log_mean_error,
    systematic_resampling,
)
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.kernels import HMC, Block, Compound
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.groups import NormalizerGroup

N_POPULATIONS = 16
"""Independent populations of particles."""

MIN_CESS = 0.6
"""Conditional effective sample size of a step, as a share of the particles."""

MOVES, MAX_LEAPS, TARGET_ACCEPT, PATH_LENGTH = 4, 8, 0.8, 1.2
"""Hamiltonian moves after each step, their leapfrog steps at most, their acceptance and length."""

MIN_STEP = 1e-5
"""Smallest step in 1 - 1 / T, as a share of the way to the next temperature."""


@dataclass(frozen=True)
class ParticleAverage:
    """Log of an average at each temperature.

    Attributes
    ----------
    by_population : array, shape (M, 16)
        Log of the average of each population (nats).
    accept : float
        Mean acceptance probability of the moves.
    """

    by_population: np.ndarray
    accept: float

    @property
    def log_c(self) -> np.ndarray:
        """Value (nats), shape (M,)."""
        return np.array([log_mean(log_z) for log_z in self.by_population])

    @property
    def mcse(self) -> np.ndarray:
        """Monte Carlo standard error (nats), shape (M,)."""
        return np.array([log_mean_error(log_z) for log_z in self.by_population])

    def interpolated(self, matrix: np.ndarray) -> "ParticleAverage":
        """Return the populations at other temperatures, each interpolated by itself."""
        return ParticleAverage(matrix @ self.by_population, self.accept)


def moved(particles: Particles, step: float) -> tuple[float, float]:
    """Move all particles; returns the next step size and the mean acceptance.

    The temperature is the last coordinate of a state, which no kernel moves.
    """
    kernel, accepted = particles.kernel, []
    scale = np.maximum(particles.xs.std(axis=0), 1e-12)
    for _ in range(MOVES):
        before = particles.accepted
        sweep(particles, 1.0, kernel.pack(np.array([step]), scale, None))
        accepted.append(float(np.mean(particles.accepted - before)) / particles.n)
        step *= np.exp(accepted[-1] - TARGET_ACCEPT)
    return step, float(np.mean(accepted))


def particle_average(
    group: NormalizerGroup, draws: np.ndarray, temperatures: np.ndarray, rng: np.random.Generator
) -> ParticleAverage:
    """Anneal prior draws, shape (n, d), up the temperatures, shape (M,), all above 1."""
    size = len(draws) // N_POPULATIONS
    xs = np.column_stack([draws[: size * N_POPULATIONS], np.ones(size * N_POPULATIONS)])
    kernel = Compound((HMC(TARGET_ACCEPT, PATH_LENGTH, MAX_LEAPS),), (Block.real(group.dim),))
    log_z, here, step = np.zeros(N_POPULATIONS), 0.0, 0.5
    log_c = np.zeros(len(xs))
    values, accepts = [], []
    for goal in 1.0 - 1.0 / temperatures:
        ahead = goal - here
        while here < goal:
            there, xs, log_weight = _next_temperature(group, xs, log_c, here, ahead, goal)
            by_population = log_weight.reshape(N_POPULATIONS, size)
            log_z = log_z + [log_mean(log_w) for log_w in by_population]
            chosen = [systematic_resampling(w, rng) + size * g for g, w in enumerate(by_population)]
            particles = place_under(group.density, kernel, xs[np.concatenate(chosen)], rng)
            step, accept = moved(particles, step)
            xs, log_c = particles.xs, particles.log_ratio.copy()
            accepts.append(accept)
            here, ahead = there, 2.0 * (there - here)
        values.append(log_z)
    return ParticleAverage(np.array(values), float(np.mean(accepts)))


def _next_temperature(
    group: NormalizerGroup,
    xs: np.ndarray,
    log_c: np.ndarray,
    here: float,
    ahead: float,
    goal: float,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Go on in 1 - 1 / T as far as the weights allow; returns it, states there, log weights.

    Raises
    ------
    NormalizerError
        A normalizer is not a number.
    """
    ahead = min(ahead, goal - here)
    while True:
        there = goal if here + ahead >= goal * (1.0 - 1e-12) else here + ahead
        temperature = 1.0 / (1.0 - there)
        xs = np.column_stack([xs[:, :-1], np.full(len(xs), temperature)])
        new_log_c = group.evaluate(xs[:, :-1], temperature)[1]
        if np.isnan(new_log_c).any():
            raise NormalizerError(
                f"The tempered normalizer of {group.label()} cannot be evaluated at "
                f"T = {temperature:.3g} for {np.isnan(new_log_c).mean():.1%} of the particles: a "
                "sum gets too long or a quadrature fails its own check. Use lower temperatures; of "
                f"the fits, {WITHOUT_NORMALIZER}."
            )
        log_weight = new_log_c - log_c
        if conditional_ess(log_weight, 1.0) >= MIN_CESS or ahead <= MIN_STEP * goal:
            return there, xs, log_weight
        ahead *= 0.5
