"""Prior average of normalizers that depend on several variables, by annealing over temperatures.

Independent populations of particles start at prior draws, where T = 1 and the normalizers are 1,
and follow prior(theta) c(theta, T) up the temperatures (a sequential Monte Carlo sampler with
Hamiltonian moves). The product of the mean incremental weights of a population has the
expectation C(T), whatever the moves do; the spread of the populations gives the error. A plain
average over prior draws has the same expectation, but soon an effective sample size of 1.
"""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.core.population import conditional_ess, systematic_resampling
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.groups import NormalizerGroup

N_POPULATIONS = 16
"""Independent populations of particles."""

MIN_CESS = 0.6
"""Conditional effective sample size of a step, as a share of the particles."""

MOVES, MAX_LEAPS, TARGET_ACCEPT = 4, 8, 0.8
"""Hamiltonian moves after each step, their leapfrog steps at most, and their acceptance."""

MIN_STEP = 1e-5
"""Smallest step in 1 - 1 / T, as a share of the way to the next temperature."""


@dataclass(frozen=True)
class ParticleAverage:
    """Log of an average at each temperature.

    Attributes
    ----------
    log_c, mcse : array, shape (M,)
        Value and Monte Carlo standard error (nats).
    accept : float
        Mean acceptance probability of the moves.
    """

    log_c: np.ndarray
    mcse: np.ndarray
    accept: float


def log_mean_of_populations(log_z: np.ndarray) -> tuple[float, float]:
    """Log of the mean of the populations' unbiased estimates, and its delta-method error."""
    top = log_z.max()
    z = np.exp(log_z - top)
    mean = z.mean()
    return float(top + np.log(mean)), float(z.std(ddof=1) / np.sqrt(len(z)) / mean)


def hamiltonian_moves(
    group: NormalizerGroup, x: np.ndarray, temperature: float, step: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Hamiltonian moves of all particles; returns x, log normalizers, step, acceptance."""
    scale = np.maximum(x.std(axis=0), 1e-12)

    def target(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        log_prior, log_c, grad_prior, grad_c = group.evaluate(at, temperature)
        with np.errstate(invalid="ignore"):
            height = log_prior + log_c
        bad = ~np.isfinite(height)
        grad = np.where(bad[:, None], 0.0, grad_prior + grad_c)
        return np.where(bad, -np.inf, height), log_c, np.nan_to_num(grad)

    height, log_c, grad = target(x)
    accepted = []
    for _ in range(MOVES):
        momentum = rng.standard_normal(x.shape)
        energy = height - 0.5 * (momentum**2).sum(axis=1)
        new_x, new_grad, p = x, grad, momentum
        with np.errstate(over="ignore", invalid="ignore"):  # such moves are rejected
            for _ in range(rng.integers(1, MAX_LEAPS + 1)):
                p = p + 0.5 * step * scale * new_grad
                new_x = new_x + step * scale * p
                new_height, new_log_c, new_grad = target(new_x)
                p = p + 0.5 * step * scale * new_grad
            log_ratio = new_height - 0.5 * (p**2).sum(axis=1) - energy
        log_ratio = np.where(np.isnan(log_ratio), -np.inf, log_ratio)
        take = np.log(rng.random(len(x))) < log_ratio
        x = np.where(take[:, None], new_x, x)
        grad = np.where(take[:, None], new_grad, grad)
        height, log_c = np.where(take, new_height, height), np.where(take, new_log_c, log_c)
        accepted.append(float(np.exp(np.minimum(log_ratio, 0.0)).mean()))
        step *= np.exp(accepted[-1] - TARGET_ACCEPT)
    return x, log_c, step, float(np.mean(accepted))


def particle_average(
    group: NormalizerGroup, draws: np.ndarray, temperatures: np.ndarray, rng: np.random.Generator
) -> ParticleAverage:
    """Anneal prior draws, shape (n, d), up the temperatures, shape (M,), all above 1."""
    size = len(draws) // N_POPULATIONS
    x = draws[: size * N_POPULATIONS]
    log_z, here, step = np.zeros(N_POPULATIONS), 0.0, 0.5
    log_c = np.zeros(len(x))
    values, errors, accepts = [], [], []
    for goal in 1.0 - 1.0 / temperatures:
        ahead = goal - here
        while here < goal:
            ahead = min(ahead, goal - here)
            while True:
                last = here + ahead >= goal * (1.0 - 1e-12)
                there = goal if last else here + ahead
                new_log_c = group.evaluate(x, 1.0 / (1.0 - there))[1]
                if np.isnan(new_log_c).any():
                    raise NormalizerError(
                        f"The tempered normalizer of {group.label()} cannot be evaluated at "
                        f"T = {1.0 / (1.0 - there):.3g} for {np.isnan(new_log_c).mean():.1%} of "
                        "the particles: a sum gets too long or a quadrature fails its own check. "
                        f"Use lower temperatures; of the fits, {WITHOUT_NORMALIZER}."
                    )
                log_weight = new_log_c - log_c
                if conditional_ess(log_weight, 1.0) >= MIN_CESS or ahead <= MIN_STEP * goal:
                    break
                ahead *= 0.5
            by_population = log_weight.reshape(N_POPULATIONS, size)
            top = by_population.max(axis=1)
            log_z = log_z + top + np.log(np.exp(by_population - top[:, None]).mean(axis=1))
            chosen = [systematic_resampling(w, rng) + size * g for g, w in enumerate(by_population)]
            x = x[np.concatenate(chosen)]
            x, log_c, step, accept = hamiltonian_moves(group, x, 1.0 / (1.0 - there), step, rng)
            accepts.append(accept)
            here, ahead = there, ahead * 2.0
        value, error = log_mean_of_populations(log_z)
        values.append(value)
        errors.append(error)
    return ParticleAverage(np.array(values), np.array(errors), float(np.mean(accepts)))
