"""Annealed sequential Monte Carlo: independent islands of resampled particles."""

import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_tempering.annealed.schedule import (
    Annealing,
    BetaSchedule,
    Movers,
    WeightedEnds,
    freeze,
    learn_path,
    opened,
)
from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.arrays.carried import Betas, given_betas
from pymc_tempering.chain.particles import draw_particles, sweep
from pymc_tempering.core.threads import Task
from pymc_tempering.core.weighting import (
    RESAMPLING,
    effective_number,
    kish,
    log_mean,
    log_mean_error,
)
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings, with_undefined
from pymc_tempering.executors.chunks import run_work
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.references.prior import Reference
from pymc_tempering.warmup.annealed_pass import anneal

MIN_ISLANDS, MIN_ISLAND_PARTICLES = 10, 50

N_PARTICLES, N_ISLANDS, N_MOVES = 250, 20, 3
"""Defaults of `smc`."""

MIN_ROOTS = 5.0
"""Effective number of ancestors, in the median island, below which genealogies are not used."""

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
    variance : float
        Relative variance of Z-hat by genealogy; NaN where that is not known.
    roots : float
        Effective number of ancestors.
    states, log_w : array, shape (n, d) and (n,), optional
        The particles at the end and their log weights, if they are kept.
    """

    log_z: np.ndarray
    n_evaluations: int
    n_nan: int
    variance: float = np.nan
    roots: float = 0.0
    states: np.ndarray | None = None
    log_w: np.ndarray | None = None


class _Stopped(Exception):
    """An island was told to stop."""


def smc(
    model: pm.Model | CompiledModel | None = None,
    *,
    n_particles: int = N_PARTICLES,
    islands: int = N_ISLANDS,
    n_moves: int = N_MOVES,
    betas: int | Sequence[float] | None = None,
    adaptive: bool = False,
    resampling: str = "systematic",
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by annealed sequential Monte Carlo.

    Particles from the prior go through the densities prior x likelihood^beta; at each rung they
    are weighted, resampled, and moved. Independent islands of particles, of which the mean of
    Z-hat is taken, give the error. With a schedule that is frozen before they start (the default,
    from a pilot) Z-hat is unbiased, so that its logarithm lies below log Z in expectation.

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
    adaptive : bool, default False
        Let each island find its own schedule and step sizes as it goes: no pilot, and a bias of
        order 1 / n_particles in Z-hat. Takes no ``betas``.
    resampling : {"systematic", "multinomial"}, default "systematic"
        "multinomial" has a larger variance, and states it from the genealogy of the particles
        (Lee & Whiteley 2018), where enough ancestors survive.
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
    Del Moral, Doucet & Jasra (2006), Sequential Monte Carlo samplers. Lee & Whiteley (2018),
    Variance estimation in the particle filter.

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
    check_choice("resampling", resampling, RESAMPLING)
    if adaptive and (betas is not None or resampling != "systematic"):
        raise ValueError("adaptive=True finds its own betas and resamples systematically.")
    show = progressbar and not quiet
    with opened(model, transition, betas, cores, executor, random_seed, show) as call:
        evidence, _ = run_islands(
            call, betas, n_particles, islands, n_moves, resampling, adaptive=adaptive
        )
    return emit_warnings(evidence)


def smc_with_ends(call: Annealing) -> tuple[Evidence, WeightedEnds]:
    """Do as :func:`smc` by default, and keep where the particles of all islands ended.

    A group of the ends is an island. No warnings are emitted; they are in the evidence.
    """
    evidence, found = run_islands(
        call, None, N_PARTICLES, N_ISLANDS, N_MOVES, "systematic", keep=True
    )
    group = np.repeat(np.arange(len(found)), N_PARTICLES)
    states = [island.states for island in found if island.states is not None]
    log_w = [island.log_w for island in found if island.log_w is not None]
    return evidence, WeightedEnds(np.concatenate(states), np.concatenate(log_w), group)


def run_islands(
    call: Annealing,
    betas: Betas,
    n: int,
    islands: int,
    n_moves: int,
    resampling: str,
    *,
    adaptive: bool = False,
    keep: bool = False,
) -> tuple[Evidence, list[Island]]:
    """Run islands of n particles, each a task; after Ctrl-C those that finished, if enough."""
    movers, rungs, evaluations = call.movers, np.array([0.0, 1.0]), 0
    if adaptive:
        tasks = [_adaptive(movers, n, own) for own in call.rng.spawn(islands)]
    else:
        path = learn_path(movers, call.rng, call.report)
        rungs = path.betas if betas is None else given_betas(betas, path.alive)
        schedule, evaluations = freeze(movers, path, rungs), path.n_evaluations
        tasks = [
            _frozen(movers.reference, schedule, n, n_moves, resampling, own, keep)
            for own in call.rng.spawn(islands)
        ]
    found, interrupted = run_work(
        tasks, call.workers, lambda done: call.report(f"Islands: {done} of {islands}")
    )
    if len(found) < MIN_ISLANDS:
        raise KeyboardInterrupt(f"Interrupted before {MIN_ISLANDS} islands were finished.")
    said = (f"Interrupted: {len(found)} of {islands} islands were finished.",) * interrupted
    evidence = combine(
        found, rungs, evaluations, call.seconds, unbiased=not adaptive, n_particles=n,
        warnings=said,
    )  # fmt: skip
    return evidence, found


def _frozen(
    reference: Reference,
    schedule: BetaSchedule,
    n: int,
    n_moves: int,
    resampling: str,
    rng: np.random.Generator,
    keep: bool = False,
) -> Task[Island]:
    """Task that runs one island along a frozen schedule."""

    def run(stop: threading.Event) -> Island | None:
        particles = draw_particles(reference, schedule.kernel, n, rng)
        params, top = schedule.params, schedule.betas.size - 1
        root, curve = np.arange(n), np.full(top + 1, -np.inf)
        curve[0], log_w = 0.0, np.zeros(n)
        for k, step in enumerate(np.diff(schedule.betas), 1):
            if stop.is_set():
                return None
            log_w = step * particles.log_ratio
            curve[k] = curve[k - 1] + log_mean(log_w)
            if curve[k] == -np.inf:
                break
            if k < top:
                index = RESAMPLING[resampling](log_w, rng)
                root = root[index]
                particles.select(index)
                sweep(particles, schedule.betas[k], params[k], n_moves)
        found = Island(curve, n + particles.n_evaluations, particles.n_nan)
        if resampling == "multinomial" and curve[-1] > -np.inf:
            families = np.bincount(root, weights=np.exp(log_w - log_w.max()))
            found = found._replace(
                variance=genealogy_variance(log_w, root, top - 1), roots=float(kish(families))
            )
        if keep:
            # The mean of the last weights is the step of the curve that they have made.
            before = curve[-1] - log_mean(log_w) if curve[-1] > -np.inf else 0.0
            found = found._replace(states=particles.xs, log_w=before + log_w)
        return found

    return run


def _adaptive(movers: Movers, n: int, rng: np.random.Generator) -> Task[Island]:
    """Task that runs one island which finds its schedule as it goes."""

    def run(stop: threading.Event) -> Island | None:
        def check(beta: float) -> None:
            if stop.is_set():
                raise _Stopped

        try:
            path = anneal(movers.reference, movers.mixing, rng, n_particles=n, report=check)
        except _Stopped:
            return None
        return Island(path.log_z, path.n_evaluations, path.n_undefined)

    return run


def combine(
    results: Sequence[Island],
    betas: np.ndarray,
    n_evaluations: int,
    seconds: float,
    *,
    unbiased: bool,
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
    unbiased : bool
        Whether the schedule was frozen.
    n_particles : int
        Of an island.
    warnings : tuple of str, default ()
    """
    n = len(results)
    log_z = np.array([island.log_z[-1] for island in results])
    own = np.array([island.variance for island in results])
    value, ess = log_mean(log_z), effective_number(log_z)
    mcse = log_mean_error(log_z)
    if np.median([island.roots for island in results]) >= MIN_ROOTS and np.isfinite(value):
        share = np.exp(log_z - value)
        genealogy = float(np.sum(share**2 * own)) / n**2
        if genealogy > 0.0:
            mcse = float(np.sqrt(genealogy))
    verdict = "ok"
    if not ess >= MIN_ISLAND_ESS * n:
        verdict, mcse = "unchecked", np.inf
        sentence = (
            f"A few of {n} islands hold nearly all the weight (effective number {ess:.1f}), so "
            "the mcse is infinite: use more particles or moves on each, or more rungs (betas)."
        )
        warnings = (sentence, *warnings)
    curve: dict[str, Any] = {}
    if unbiased:
        rows = np.array([island.log_z for island in results])
        curve = {
            "betas": betas,
            "log_z_curve": np.array([log_mean(row) for row in rows.T]),
            "log_z_curve_mcse": np.append([log_mean_error(r) for r in rows.T[:-1]], mcse),
        }
    found = Evidence(
        log_z=value,
        mcse=mcse,
        method="smc",
        verdict=verdict,
        ess=ess,
        per_chain=log_z,
        per_chain_mcse=np.sqrt(np.where(own > 0.0, own, np.inf)),
        halves=(log_mean(log_z[: n // 2]), log_mean(log_z[n // 2 :])),
        warnings=warnings,
        bias=-0.5 * mcse**2 if unbiased else float("nan"),
        n_evaluations=n_evaluations + sum(island.n_evaluations for island in results),
        bias_direction="below" if unbiased else "",
        seconds=seconds,
        **curve,
    )
    return with_undefined(found, sum(island.n_nan for island in results), n * n_particles)


def genealogy_variance(log_w: np.ndarray, root: np.ndarray, n_resampled: int) -> float:
    """Estimate the relative variance of Z-hat of one population from its genealogy.

    1 - (n / (n-1))^(r+1) (1 - sum_e (sum of W_i over descendants of e)^2), with W the normalized
    last weights, e the ancestors at the start and r the number of times that the population was
    resampled: the estimator V of Lee & Whiteley (2018) for weights after the last reweighting,
    relative to Z-hat^2. It holds for multinomial resampling, and may be negative.

    Parameters
    ----------
    log_w : array, shape (n,)
        Last weights, of the particles before any resampling by them.
    root : array of int, shape (n,)
        Ancestor of each particle.
    n_resampled : int
    """
    w = np.exp(log_w - log_w.max())
    families = np.bincount(root, weights=w / w.sum(), minlength=w.size)
    n = w.size
    return float(1.0 - (n / (n - 1.0)) ** (n_resampled + 1) * (1.0 - np.sum(families**2)))
