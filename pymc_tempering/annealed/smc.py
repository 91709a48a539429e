"""Annealed sequential Monte Carlo: independent islands of resampled particles."""

import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from pymc_tempering.annealed.schedule import (
    Annealing,
    BetaSchedule,
    WeightedEnds,
    freeze,
    learn_path,
    opened,
)
from pymc_tempering.arguments import RandomSeed, check_whole
from pymc_tempering.arrays.carried import Betas, given_betas
from pymc_tempering.chain.particles import draw_particles, sweep
from pymc_tempering.core.threads import Task
from pymc_tempering.core.weighting import (
    effective_number,
    log_mean,
    log_mean_error,
    systematic_resampling,
)
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings, with_undefined
from pymc_tempering.executors.chunks import run_work
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.references.prior import Reference

MIN_ISLANDS, MIN_ISLAND_PARTICLES = 10, 50

N_PARTICLES, N_ISLANDS, N_MOVES = 250, 20, 3
"""Defaults of `smc`."""

MIN_ISLAND_ESS = 0.3
"""Effective number of islands, as a share, below which no error is stated."""


class Island(NamedTuple):
    """What one population of particles found.

    Attributes
    ----------
    log_z : array, shape (K,)
        At each rung, in nats.
    n_evaluations, n_nan : int
        Evaluations, and particles that started where the density is no number.
    states, log_w : array, shape (n, d) and (n,)
        The particles at the end and their log weights.
    """

    log_z: np.ndarray
    n_evaluations: int
    n_nan: int
    states: np.ndarray
    log_w: np.ndarray


def smc(
    model: ModelLike | None = None,
    *,
    n_particles: int = N_PARTICLES,
    islands: int = N_ISLANDS,
    n_moves: int = N_MOVES,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by annealed sequential Monte Carlo.

    Particles from the prior go through the densities prior x likelihood^beta; at each rung they
    are weighted, resampled, and moved. Independent islands of particles, of which the mean of
    Z-hat is taken, give the error. The schedule is frozen before they start, so that Z-hat is
    unbiased, and its logarithm lies below log Z in expectation.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    n_particles : int, default 250
        Particles of each island.
    islands : int, default 20
        Independent repeats; the error has one degree of freedom less.
    n_moves : int, default 3
        Transitions of each particle at each rung.
    betas : int or sequence of float, optional
        Number of rungs, or the inverse temperatures from 0 to 1. By default those of the pilot,
        whose conditional effective sample size is one half.
    transition : str, Kernel, dict or None, optional
        What moves the particles, as `kernel` of :func:`pymc_tempering.sample`.
    cores : int, optional
        Threads; by default all cores.
    executor : concurrent.futures.Executor, optional
        Who does the work in place of threads: a pool of processes, or ``client.get_executor()``
        of Dask. Each worker compiles the model once. The pilot runs in this process.
    random_seed : int or numpy.random.Generator, optional
        Same seeds give the same estimate, whatever `cores` and
        `executor` are.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    Evidence
        log Z with its error (nats); ``per_chain`` holds log Z of each island, ``ess`` the
        effective number of islands.

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model has no such path; the message says why and what to do.
    LadderError
        ``betas`` do not increase from 0 to 1.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        A few islands hold nearly all the weight (the mcse is then infinite), or Ctrl-C ended the
        run.

    Notes
    -----
    Del Moral, Doucet & Jasra (2006), Sequential Monte Carlo samplers.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> evidence = pmt.smc(system.model, random_seed=1, progressbar=False)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    check_whole(MIN_ISLAND_PARTICLES, n_particles=n_particles)
    check_whole(MIN_ISLANDS, islands=islands)
    check_whole(1, n_moves=n_moves)
    show = progressbar and not quiet
    with opened(model, transition, betas, cores, executor, random_seed, show) as call:
        evidence, found = run_islands(call, betas, n_particles, islands, n_moves)
        states = np.concatenate([island.states for island in found])
        evidence = call.noted(evidence, states, "the particles")
    return emit_warnings(evidence)


def smc_with_ends(call: Annealing) -> tuple[Evidence, WeightedEnds]:
    """Do as :func:`smc` by default, and keep where the particles of all islands ended.

    A group of the ends is an island. No warnings are emitted; they are in the evidence.
    """
    evidence, found = run_islands(call, None, N_PARTICLES, N_ISLANDS, N_MOVES)
    states = np.concatenate([island.states for island in found])
    log_w = np.concatenate([island.log_w for island in found])
    return evidence, WeightedEnds(states, log_w, np.repeat(np.arange(len(found)), N_PARTICLES))


def run_islands(
    call: Annealing, betas: Betas, n: int, islands: int, n_moves: int
) -> tuple[Evidence, list[Island]]:
    """Run islands of n particles, each a task; after Ctrl-C those that finished, if enough."""
    path = learn_path(call)
    rungs = path.betas if betas is None else given_betas(betas, path.alive)
    schedule = freeze(call.movers, path, rungs)
    tasks = [
        island_task(call.reference, schedule, n, n_moves, own) for own in call.rng.spawn(islands)
    ]
    found, interrupted = run_work(
        tasks, call.workers, lambda done: call.report(f"Islands: {done} of {islands}")
    )
    if len(found) < MIN_ISLANDS:
        raise KeyboardInterrupt(f"Interrupted before {MIN_ISLANDS} islands were finished.")
    said = (f"Interrupted: {len(found)} of {islands} islands were finished.",) * interrupted
    return combine(found, rungs, schedule.n_evaluations, call.seconds, n, said), found


def island_task(
    reference: Reference, schedule: BetaSchedule, n: int, n_moves: int, rng: np.random.Generator
) -> Task[Island]:
    """Task that runs one island along a frozen schedule."""

    def run(stop: threading.Event) -> Island | None:
        particles = draw_particles(reference, schedule.kernel, n, rng)
        params, top = schedule.params, schedule.betas.size - 1
        curve, log_w = np.full(top + 1, -np.inf), np.zeros(n)
        curve[0] = 0.0
        for k, step in enumerate(np.diff(schedule.betas), 1):
            if stop.is_set():
                return None
            log_w = step * particles.log_ratio
            curve[k] = curve[k - 1] + log_mean(log_w)
            if curve[k] == -np.inf:
                break
            if k < top:
                particles.select(systematic_resampling(log_w, rng))
                sweep(particles, schedule.betas[k], params[k], n_moves)
        # The mean of the last weights is the step of the curve that they have made.
        before = curve[-1] - log_mean(log_w) if curve[-1] > -np.inf else 0.0
        evaluations = n + particles.n_evaluations
        return Island(curve, evaluations, particles.n_nan, particles.xs, before + log_w)

    return run


def combine(
    results: Sequence[Island],
    betas: np.ndarray,
    n_evaluations: int,
    seconds: float,
    n_particles: int,
    warnings: tuple[str, ...] = (),
) -> Evidence:
    """Average Z-hat over islands, with the error of the log of the mean.

    Parameters
    ----------
    results : sequence of Island
    betas : array, shape (K,)
    n_evaluations : int
        Of the pilot.
    seconds : float
    n_particles : int
        Of an island.
    warnings : tuple of str, default ()
    """
    n = len(results)
    rows = np.array([island.log_z for island in results])
    log_z, ess = rows[:, -1], effective_number(rows[:, -1])
    mcse, verdict = log_mean_error(log_z), "ok"
    if not ess >= MIN_ISLAND_ESS * n:
        verdict, mcse = "unchecked", np.inf
        sentence = (
            f"A few of {n} islands hold nearly all the weight (effective number {ess:.1f}), so "
            "the mcse is infinite: use more particles or moves on each, or more rungs (betas)."
        )
        warnings = (sentence, *warnings)
    found = Evidence(
        log_z=log_mean(log_z),
        mcse=mcse,
        method="smc",
        verdict=verdict,
        ess=ess,
        per_chain=log_z,
        per_chain_mcse=np.full(n, np.inf),
        betas=betas,
        log_z_curve=np.array([log_mean(row) for row in rows.T]),
        log_z_curve_mcse=np.append([log_mean_error(r) for r in rows.T[:-1]], mcse),
        halves=(log_mean(log_z[: n // 2]), log_mean(log_z[n // 2 :])),
        warnings=warnings,
        bias=-0.5 * mcse**2,
        n_evaluations=n_evaluations + sum(island.n_evaluations for island in results),
        bias_direction="below",
        seconds=seconds,
    )
    return with_undefined(found, sum(island.n_nan for island in results), n * n_particles)
