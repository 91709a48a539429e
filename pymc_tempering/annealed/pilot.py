"""The pilot: a small population that learns the path, so that all is frozen for the counted run.

Particles from the reference go to the target by annealed sequential Monte Carlo, the next beta
by conditional effective sample size. What stays is a sample of log_ratio over the whole path, for
the schedule, and for each stage the standard deviations and the step size of the transition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.annealed.particles import Particles, draw_particles, sweep
from pymc_tempering.annealed.transition import (
    ACCEPTANCE,
    N_EVALUATIONS,
    TARGET_ACCEPT,
    TRANSITIONS,
    WALK,
    pack,
)
from pymc_tempering.core.ladder import PathSample, fine_grid
from pymc_tempering.core.population import next_beta, systematic_resampling
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.references.prior import Reference

N_PARTICLES, CESS = 256, 0.5
MAX_STAGES = 2000
MIN_SWEEPS, MAX_SWEEPS, MAX_TUNING = 2, 12, 10
TOLERANCE = 0.1
"""A stage sweeps, and a step size is tuned, until the acceptance is this near to its target."""


@dataclass(frozen=True)
class Pilot:
    """What the pilot found, a row a stage.

    Attributes
    ----------
    transition : str
        The one whose step sizes were tuned.
    betas, log_z : array, shape (S,)
    log_ratio : array, shape (S, n)
        Of the particles after their moves.
    states : array, shape (S, n, d)
        The particles, unconstrained.
    step_sizes : array, shape (S,)
    scales : array, shape (S, d)
        Standard deviations of the particles, unconstrained.
    n_evaluations : int
    """

    transition: str
    betas: np.ndarray
    log_z: np.ndarray
    log_ratio: np.ndarray
    states: np.ndarray
    step_sizes: np.ndarray
    scales: np.ndarray
    n_evaluations: int

    @property
    def sample(self) -> PathSample:
        """The particles of some likelihood as a sample over the whole path.

        Prior draws of zero likelihood are out at any beta above 0. What is left at beta = 0 is the
        prior on the rest, whose normalizing constant is the rest's share: otherwise a jump at
        beta = 0 would count as length, and draw all rungs to it.
        """
        alive = self.log_ratio > -np.inf
        counts = alive.sum(axis=1)
        log_z = np.where(self.betas == 0.0, np.log(counts / alive.shape[1]), self.log_z)
        return PathSample(self.log_ratio[alive], self.betas, log_z, counts)

    @cached_property
    def barrier(self) -> tuple[np.ndarray, np.ndarray]:
        """Grid of betas, and the sum of the rejection rates up to each of its points.

        The rejection rate between beta and beta + delta is near delta E|log_ratio - log_ratio'|
        / 2 for two independent states: the length of the path in steps of one size, as the
        standard deviation of log_ratio would measure it, but finite where that is not.
        """
        grid = fine_grid(self.betas)
        rejections = np.maximum(self.sample.rejections(grid), 1e-12)
        return grid, np.concatenate([[0.0], np.cumsum(rejections)])

    def params(self, betas: np.ndarray) -> np.ndarray:
        """Tuning numbers at any inverse temperatures, shape (K, P), between those of the stages."""
        floor = 0.5 * self.betas[1]
        at, known = np.log(np.asarray(betas) + floor), np.log(self.betas + floor)
        step = np.exp(np.interp(at, known, np.log(self.step_sizes)))
        columns = [np.interp(at, known, column) for column in np.log(self.scales).T]
        return pack(self.transition, step, np.exp(np.column_stack(columns)))

    def nearest(self, beta: float) -> np.ndarray:
        """States of some likelihood of the stage nearest to `beta` in length, shape (n, d)."""
        grid, length = self.barrier
        at = np.interp([beta, *self.betas], grid, length)
        stage = np.argmin(np.abs(at[1:] - at[0]))
        return np.asarray(self.states[stage][self.log_ratio[stage] > -np.inf])


def run_pilot(
    reference: Reference,
    rng: np.random.Generator,
    transition: str,
    *,
    n_particles: int = N_PARTICLES,
    cess: float = CESS,
    check: Callable[[], None] = lambda: None,
) -> Pilot:
    """Carry a small population from the reference to the target, tuning on the way.

    Parameters
    ----------
    reference : Reference
    rng : numpy.random.Generator
    transition : str
        The transition to tune, by name in `TRANSITIONS`. The particles themselves move by
        trajectories ("hmc"), which mix best, unless it is "metropolis".
    n_particles : int, default 256
    cess : float, default 0.5
        Conditional effective sample size of each stage, as a share of the particles.
    check : callable, optional
        Called at each stage; it may raise to end the work.

    Returns
    -------
    Pilot

    Raises
    ------
    LikelihoodError
        The path cannot be entered, or has no end.
    """
    own = "metropolis" if TRANSITIONS[transition] == WALK else "hmc"
    dim = reference.path.dim
    particles = draw_particles(reference, n_particles, rng)
    outside = ~np.isfinite(particles.xs).all(axis=1)
    scale = _scale(particles.xs[~outside], np.ones(dim))
    if not (particles.log_ratio > -np.inf).any():
        raise LikelihoodError(
            f"The likelihood is zero at all {n_particles} prior draws of the pilot: the path from "
            "prior to posterior cannot be entered. Use a prior nearer to the data."
        )
    first = np.where(outside[:, None], np.nan, particles.xs)
    rows = [(0.0, 0.0, particles.log_ratio.copy(), first, 1.0, scale)]
    beta, log_z = 0.0, 0.0
    step = tuned = dim**-0.25
    while beta < 1.0:
        check()
        if len(rows) > MAX_STAGES:
            raise LikelihoodError(
                f"The pilot is at beta = {beta:.2g} after {MAX_STAGES} stages: the prior is too "
                "far from the posterior for this path. Use a tighter prior."
            )
        new = next_beta(particles.log_ratio, beta, cess)
        log_w = (new - beta) * particles.log_ratio
        log_z += float(logsumexp(log_w) - np.log(n_particles))
        beta = new
        particles.select(systematic_resampling(log_w, rng))
        scale = _scale(particles.xs, scale)
        step = _sweep_until_tuned(particles, beta, own, step, scale, MIN_SWEEPS, MAX_SWEEPS)
        scale = _scale(particles.xs, scale)
        if transition == own:
            tuned = step
        else:
            tuned = _sweep_until_tuned(particles, beta, transition, tuned, scale, 1, MAX_TUNING)
        row = (beta, log_z, particles.log_ratio.copy(), particles.xs.copy(), tuned, scale)
        rows.append(row)
    rows[0] = (*rows[0][:4], rows[1][4], rows[0][5])  # exact draws need no step
    betas, log_zs, log_ratios, states, steps, scales = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    evaluations = n_particles + int(particles.totals[N_EVALUATIONS])
    return Pilot(transition, betas, log_zs, log_ratios, states, steps, scales, evaluations)


def _sweep_until_tuned(
    particles: Particles, beta: float, transition: str, step: float, scale: np.ndarray,
    least: int, most: int,
) -> float:  # fmt: skip
    """Sweep and change the step size until the acceptance is near its target; return it."""
    goal, n = TARGET_ACCEPT[transition], len(particles.xs)
    tolerance = min(TOLERANCE, 0.5 * (1.0 - goal))
    for i in range(most):
        before = particles.totals[ACCEPTANCE]
        sweep(particles, beta, pack(transition, np.array([step]), scale[None])[0])
        off = (particles.totals[ACCEPTANCE] - before) / n - goal
        if i + 1 >= least and abs(off) < tolerance:
            break
        step = float(np.clip(step * np.exp(1.5 * off * 0.2 / (1.0 - goal)), 1e-8, 10.0))
    return step


def _scale(xs: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Take standard deviations of particles, shape (d,); `fallback` where they do not vary."""
    with np.errstate(over="ignore", invalid="ignore"):
        scale = xs.std(axis=0) if len(xs) else np.full(fallback.shape, np.nan)
    return np.where(np.isfinite(scale) & (scale > 0), scale, fallback)


def space_betas(pilot: Pilot, n_rungs: int) -> np.ndarray:
    """Inverse temperatures from 0 to 1 at equal distances along the path, shape (n_rungs,)."""
    grid, length = pilot.barrier
    betas = np.interp(np.linspace(0.0, length[-1], n_rungs), length, grid)
    betas[0], betas[-1] = 0.0, 1.0
    # Grid points that no particle tells apart must not give the same beta twice.
    for i, (low, high) in enumerate(pairwise(betas[:-1])):
        if high <= low:
            betas[i + 1] = np.nextafter(low, 1.0)
    return np.unique(betas)
