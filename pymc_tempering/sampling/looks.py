"""Looks: independent trajectories from the prior, annealed once, to see what a fit has missed.

A look starts at a fresh prior draw, moves once at each rung of a frozen path, and ends at
beta = 1. A round trip costs the square of the number of rungs, a look their number, and there is
no resampling, so that looks are independent.

A look that ends on its way says nothing of what a fit has missed. One has arrived if its
log-likelihood and its log posterior density are those of posterior draws, or if it came home: some
transitions at beta = 1 bring it to where draws of the fit lie. These transitions show that it can
get there. No weight and no draw is taken from where they end.
"""

import threading
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from pymc_tempering.chain.particles import Particles, carry, draw_particles, place, sweep
from pymc_tempering.core.deadline import NEVER, time_left
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.evidence.reference_check import ARRIVAL_QUANTILE, MIN_ARRIVALS
from pymc_tempering.executors.chunks import run_work
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, join
from pymc_tempering.sampling.fit_reference import Passes, ReferenceFit
from pymc_tempering.warmup.annealed_pass import AnnealedPass

BLOCK = 25
"""Looks of one block, which has its own generator and runs on one thread."""


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
class Looks:
    """Independent annealed trajectories.

    Attributes
    ----------
    ends : Evaluated
        Their states at beta = 1; those of zero likelihood too.
    log_w : array, shape (n,)
        Log weights of annealed importance sampling (nats).
    n_evaluations : int
        Density evaluations.
    """

    ends: Evaluated
    log_w: np.ndarray
    n_evaluations: int

    @property
    def n(self) -> int:
        """Number of looks."""
        return self.ends.n


def take_looks(job: Job, annealed: AnnealedPass, n: int, finer: int = 1) -> Looks:
    """Take n looks along the stages of an annealed pass, with their tuning.

    Parameters
    ----------
    job : Job
    annealed : AnnealedPass
    n : int
    finer : int, default 1
        Steps from each stage to the next: looks that go slower come nearer to their end.

    Returns
    -------
    Looks
        Those that came to their end before the deadline.

    Raises
    ------
    KeyboardInterrupt
    """
    betas = _finer(annealed.betas, finer)
    tuning = annealed.tuning if finer == 1 else annealed.tuning.at(betas)
    params = tuning.pack(job.kernel)
    n_intervals = betas.size - 1

    prior, kernel = job.prior, job.kernel  # a task that is sent holds no more than it needs
    deadline = job.deadline if job.crew is None else NEVER  # workers have clocks of their own

    def task(size: int, own: np.random.Generator) -> Task[tuple[Particles, np.ndarray]]:
        def run(stop: threading.Event) -> tuple[Particles, np.ndarray] | None:
            particles = draw_particles(prior, kernel, size, own)
            log_w, sums = np.zeros(size), np.zeros((n_intervals + 1, 3))
            sums[:, 0] = -np.inf
            done = 0
            for begin, end in paced(n_intervals, stop, deadline):
                carry(particles, betas, params, begin, end, log_w, sums)
                done = end
            if done < n_intervals:
                return None
            sweep(particles, 1.0, params[-1])
            return particles, log_w

        return run

    sizes = [BLOCK] * (n // BLOCK) + ([n % BLOCK] if n % BLOCK else [])
    tasks = [task(*pair) for pair in zip(sizes, job.rng.spawn(len(sizes)), strict=True)]
    began, told = perf_counter(), set[int]()

    def report(done: int) -> None:
        if done in told:
            return
        told.add(done)
        left = time_left(done / len(tasks), began)
        job.report(f"Looks from the prior: {min(BLOCK * done, n)} of {n}{left}")

    results, interrupted = run_work(tasks, job.crew or job.cores, report, job.deadline)
    if interrupted:
        raise KeyboardInterrupt("Interrupted while looks were taken.")
    if not results:
        return Looks(evaluate_states(prior, np.empty((0, prior.path.dim))), np.empty(0), 0)
    blocks = [particles for particles, _ in results]
    return Looks(
        join([states_of(particles) for particles in blocks]),
        np.concatenate([log_w for _, log_w in results]),
        sum(particles.n + particles.n_evaluations for particles in blocks),
    )


def _finer(betas: np.ndarray, n: int) -> np.ndarray:
    """Inverse temperatures with `n` even steps of their log from each to the next."""
    if n == 1:
        return betas
    logs = np.interp(
        np.arange((betas.size - 2) * n + 1) / n, np.arange(betas.size - 1), np.log(betas[1:])
    )
    first = np.linspace(0.0, betas[1], n + 1)
    return np.concatenate([first[:-1], np.exp(logs[:-1]), [1.0]])


def states_of(particles: Particles) -> Evaluated:
    """States of particles, with the terms of the target at each."""
    values = particles.values
    return Evaluated(particles.xs, values[:, LOG_REFERENCE], values[:, LOG_RATIO])


def add_looks(old: Looks, new: Looks) -> Looks:
    """Put two sets of looks together."""
    return Looks(
        join([old.ends, new.ends]),
        np.concatenate([old.log_w, new.log_w]),
        old.n_evaluations + new.n_evaluations,
    )


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


def bring_home(job: Job, passes: Passes, fit: ReferenceFit, looks: Evaluated) -> np.ndarray:
    """Move looks that are on their way at beta = 1, in blocks, while that brings some home.

    Returns
    -------
    array of bool, shape (n,)
        Whether each of the looks has arrived, by itself or by these moves.
    """
    arrived = has_arrived(looks, fit.draws)
    idle = np.flatnonzero(~arrived)
    for start in range(0, idle.size, HOME_BLOCK):
        if arrived.sum() >= MIN_ARRIVALS:
            break
        block = idle[start : start + HOME_BLOCK]
        away, ended = way_home(job, passes, fit, looks.xs[block], patient=False)
        home = np.delete(block, away)
        arrived[home] = True
        if home.size == 0 or ended:
            break
    return arrived


def way_home(
    job: Job, passes: Passes, fit: ReferenceFit, xs: np.ndarray, *, patient: bool = True
) -> tuple[np.ndarray, bool]:
    """Move states at beta = 1 in blocks of `HOME_SWEEPS` transitions until they are home.

    Parameters
    ----------
    xs : array, shape (n, d)
        Unconstrained.
    patient : bool, default True
        Whether those that stay away are tried with smaller steps too.

    Returns
    -------
    away : array of int, shape (m,)
        Which of them did not come home.
    ended : bool
        Whether the deadline or the bound in evaluations ended it.
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
    job.tally.work["looks"] += len(xs) + particles.n_evaluations
    return at, at.size > 0 and ended()


def _still_away(
    job: Job, particles: Particles, at: np.ndarray, params: np.ndarray, fit: ReferenceFit
) -> np.ndarray:
    """Move particles at beta = 1 until they are home; keep the others, and their part of `at`."""
    for _ in range(HOME_SWEEPS):
        for start in range(0, particles.n, PART):
            if job.deadline.late:
                return at
            sweep(particles, 1.0, params, part=slice(start, start + PART))
        away = np.flatnonzero(~fit.home(states_of(particles)))
        particles.select(away)
        at = at[away]
        if at.size == 0:
            break
    return at
