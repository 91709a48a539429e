"""Looks from the prior: independent trajectories that are annealed once, along a frozen path."""

import threading
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from pymc_tempering.chain.particles import Particles, carry, draw_particles, sweep
from pymc_tempering.core.deadline import NEVER, time_left
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.executors.chunks import run_work
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, join, states_of, way_of
from pymc_tempering.warmup.annealed_pass import AnnealedPass

BLOCK = 25
"""Looks of one block, which has its own generator and runs on one thread."""


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

    prior, kernel = way_of(job), job.kernel  # a task that is sent holds no more than it needs
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
        return Looks(evaluate_states(job.prior, np.empty((0, prior.path.dim))), np.empty(0), 0)
    blocks = [particles for particles, _ in results]
    return Looks(
        join([states_of(job, prior, particles) for particles in blocks]),
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


def add_looks(old: Looks, new: Looks) -> Looks:
    """Put two sets of looks together."""
    return Looks(
        join([old.ends, new.ends]),
        np.concatenate([old.log_w, new.log_w]),
        old.n_evaluations + new.n_evaluations,
    )
