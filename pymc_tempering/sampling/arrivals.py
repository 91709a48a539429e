"""Arrivals: which looks have come to where the posterior could be, and how the others get there.

A look that ends on its way says nothing of what a fit has missed. One has arrived if its
log-likelihood and its log posterior density are those of posterior draws, or if it came home: some
transitions at beta = 1 bring it to where draws of the fit lie. These transitions show that it can
get there. No weight and no draw is taken from where they end.
"""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.chain.particles import Particles, place, sweep
from pymc_tempering.evidence.reference_check import ARRIVAL_QUANTILE, MIN_ARRIVALS
from pymc_tempering.sampling.evaluated import Evaluated
from pymc_tempering.sampling.fit_reference import ReferenceFit
from pymc_tempering.sampling.looks import states_of
from pymc_tempering.sampling.passes import Passes
from pymc_tempering.sampling.setup import Job

HOME_SWEEPS, MAX_HOME_ROUNDS = 40, 10
"""Transitions at beta = 1 in which a state may come home, and how many times as many are made at
most, as long as each time some state has come home. In many dimensions the particles of the
annealed pass can end far from where the posterior has its mass, and be long on their way to it."""

HOME_STAGES = (1.0, 0.75, 0.5, 0.25)
"""Places on the annealed path whose tuning these transitions have, one after the other. Far from
its mass the posterior looks as it did at a hotter stage, where the metric had a longer reach."""

HOME_STEPS = (1.0, 0.3, 0.1)
"""Factors of the tuned step sizes, the next for those that the one before has left away. Outside of
the posterior's mass it can curve more strongly than where steps were tuned; a trajectory that is
too coarse for it is rejected again and again, and the state stays where it is."""

MIN_HOME_COST = 20_000
"""Density evaluations that the ways home of one group of states may take, or as many as all
annealed passes took, if that is more."""

HOME_BLOCK = 25
"""Looks that are moved on together, as long as some of a block come home."""

PART = 20
"""States that move between two looks at the clock."""


@dataclass(frozen=True, eq=False)
class WaysHome:
    """What came of states that were moved at beta = 1.

    Attributes
    ----------
    away : array of int, shape (m,)
        Which of them did not come home.
    n_evaluations : int
    ended : bool
        Whether the deadline or the bound in evaluations ended it.
    """

    away: np.ndarray
    n_evaluations: int
    ended: bool


def has_arrived(states: Evaluated, draws: Evaluated) -> np.ndarray:
    """Whether log-likelihood and log density of states are above a low quantile of draws' (n,)."""
    floors = (
        np.quantile(each, ARRIVAL_QUANTILE) for each in (draws.log_likelihood, draws.log_target)
    )
    likely, dense = floors
    return np.asarray((states.log_likelihood >= likely) & (states.log_target >= dense))


def is_above(states: Evaluated, draws: Evaluated) -> np.ndarray:
    """Whether log-likelihood and log density of states are both above those of all draws, (n,)."""
    likely, dense = draws.log_likelihood.max(), draws.log_target.max()
    return np.asarray((states.log_likelihood > likely) & (states.log_target > dense))


def bring_home(
    job: Job, passes: Passes, fit: ReferenceFit, looks: Evaluated
) -> tuple[np.ndarray, int]:
    """Move looks that are on their way at beta = 1, in blocks, while that brings some home.

    Returns
    -------
    arrived : array of bool, shape (n,)
        Whether each of the looks has arrived, by itself or by these moves.
    n_evaluations : int
    """
    arrived, evaluations = has_arrived(looks, fit.draws), 0
    idle = np.flatnonzero(~arrived)
    for start in range(0, idle.size, HOME_BLOCK):
        if arrived.sum() >= MIN_ARRIVALS:
            break
        block = idle[start : start + HOME_BLOCK]
        ways = way_home(job, passes, fit, looks.xs[block], patient=False)
        evaluations += ways.n_evaluations
        home = np.delete(block, ways.away)
        arrived[home] = True
        if home.size == 0 or ways.ended:
            break
    return arrived, evaluations


def way_home(
    job: Job, passes: Passes, fit: ReferenceFit, xs: np.ndarray, *, patient: bool = True
) -> WaysHome:
    """Move states at beta = 1 in blocks of `HOME_SWEEPS` transitions until they are home.

    Parameters
    ----------
    xs : array, shape (n, d)
        Unconstrained.
    patient : bool, default True
        Whether those that stay away are tried with smaller steps too.
    """
    at = np.arange(len(xs))
    particles = place(job.prior, job.kernel, xs, job.rng)
    bound = max(MIN_HOME_COST, passes.n_evaluations)

    def ended() -> bool:
        return particles.n_evaluations > bound or job.deadline.late

    for factor in HOME_STEPS if patient else HOME_STEPS[:1]:
        tuned = passes.best.tuning.with_steps(factor).pack(job.kernel)
        stages = [tuned[round(share * (len(tuned) - 1))] for share in HOME_STAGES]
        for _ in range(MAX_HOME_ROUNDS):
            before = at.size
            for params in stages:
                if at.size == 0 or ended():
                    break
                at = _still_away(job, particles, at, params, fit)
            if at.size in (0, before) or ended():
                break
    return WaysHome(at, len(xs) + particles.n_evaluations, at.size > 0 and ended())


def _still_away(
    job: Job, particles: Particles, at: np.ndarray, params: np.ndarray, fit: ReferenceFit
) -> np.ndarray:
    """Move particles at beta = 1 until they are home; keep the others, and their part of `at`."""
    for _ in range(HOME_SWEEPS):
        for start in range(0, particles.n, PART):
            if job.deadline.late:
                return at
            sweep(particles, 1.0, params, part=slice(start, start + PART))
        away = np.flatnonzero(~fit.known.home(states_of(particles)))
        particles.select(away)
        at = at[away]
        if at.size == 0:
            break
    return at
