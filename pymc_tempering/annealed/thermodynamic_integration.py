"""Thermodynamic integration with independent chains at each rung of a ladder."""

import threading
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import pymc as pm

from pymc_tempering.annealed.beta_quadrature import CHAIN_RULES, Rung, evidence_of_chains
from pymc_tempering.annealed.schedule import (
    BetaSchedule,
    Clock,
    check_schedule,
    freeze,
    given_betas,
    learn_path,
)
from pymc_tempering.annealed.transitions import Movers, compile_movers
from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.chain.particles import draw_particles, place, sweep
from pymc_tempering.chain.sent_model import workers_of
from pymc_tempering.core.ladder import barrier_of
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.executors.crew import run_work
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.references.prior import Reference
from pymc_tempering.warmup.annealed_pass import AnnealedPass

RUNGS_PER_BARRIER, MIN_RUNGS = 4.0, 17
MIN_CHAINS, MIN_DRAWS = 2, 50


def thermodynamic_integration(
    model: pm.Model | CompiledModel | None = None,
    *,
    draws: int = 500,
    chains: int = 4,
    tune: int = 100,
    betas: int | Sequence[float] | None = None,
    rule: str = "corrected",
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by thermodynamic integration.

    log Z is the integral over beta of the mean of log_ratio at beta. Independent chains run at
    each rung of a ladder, from the particles of a pilot; at beta = 0 the draws are exact. Draws
    there of zero likelihood are counted apart: the integral is then over the rest, plus the
    logarithm of their share.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    draws : int, default 500
        Transitions of each chain that count.
    chains : int, default 4
        Chains at each rung.
    tune : int, default 100
        Transitions of each chain before those that count; nothing is tuned in them, the pilot
        did that.
    betas : int or sequence of float, optional
        Number of rungs, which are placed at equal distances along the path, or the inverse
        temperatures from 0 to 1. By default four rungs a unit of length, and 17 at least.
    rule : {"corrected", "trapezoid"}, default "corrected"
        The trapezoid rule, or the one corrected by the variances of log_ratio.
    transition : str, Kernel, dict or None, optional
        What moves the chains, as `kernel` of :func:`pymc_tempering.sample`.
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
        ``mcse`` is made of the sampling error, which knows autocorrelation and disagreement of
        the chains, and of an estimate of the discretization error, from the same rule on every
        second rung, whose size ``bias`` holds (nats).

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
        A rung has too few effective draws (the mcse is then infinite), or the discretization
        error is larger than the sampling error.

    Notes
    -----
    Gelman & Meng (1998); Friel, Hurn & Wyse (2014), Improving power posterior estimation of
    statistical evidence.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> evidence = pmt.thermodynamic_integration(system.model, random_seed=1, progressbar=False)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    check_whole(MIN_DRAWS, draws=draws)
    check_whole(MIN_CHAINS, chains=chains)
    check_whole(0, tune=tune)
    check_whole(1, cores=cores)
    check_executor(executor)
    check_schedule(betas)
    check_choice("rule", rule, CHAIN_RULES)
    rng = np.random.default_rng(random_seed)
    with compiling_status(progressbar and not quiet) as report:
        movers = compile_movers(model, transition, report)
        workers = workers_of(executor, cores, movers.reference, movers.kernel)
        clock = Clock()
        path = learn_path(movers, rng, report, keep_states=True)
        if betas is None:
            length = RUNGS_PER_BARRIER * barrier_of(path.alive)[1][-1]
            betas = max(MIN_RUNGS, 2 * int(np.ceil(0.5 * length)) + 1)
        schedule = freeze(movers, path, given_betas(betas, path))
        rungs = schedule.betas
        owns = rng.spawn(rungs.size)
        tasks: list[Task] = [_reference_task(movers, draws * chains, chains, owns[0])]
        tasks += [
            _chain_task(movers.reference, schedule, path, k, chains, tune, draws, owns[k])
            for k in range(1, rungs.size)
        ]
        results, interrupted = run_work(
            tasks, workers, lambda done: report(f"Chains: {done} of {rungs.size} rungs")
        )
        if interrupted:
            raise KeyboardInterrupt("Interrupted before all rungs had their chains.")
        evidence = evidence_of_chains(rungs, results, rule, path.n_evaluations, clock())
    return emit_warnings(evidence)


def states_near(path: AnnealedPass, beta: float) -> np.ndarray:
    """States of some likelihood of the stage nearest to `beta` in length, shape (n, d)."""
    grid, length = barrier_of(path.alive)
    at = np.interp([beta, *path.betas], grid, length)
    stage = np.argmin(np.abs(at[1:] - at[0]))
    return np.asarray(path.states[stage][path.log_ratio[stage] > -np.inf])


def _reference_task(movers: Movers, n: int, chains: int, rng: np.random.Generator) -> Task:
    """Task that evaluates exact draws at beta = 0."""

    def run(stop: threading.Event) -> Rung:
        particles = draw_particles(movers.reference, movers.kernel, n, rng)
        log_ratio = particles.log_ratio
        alive = log_ratio[log_ratio > -np.inf]
        kept = alive[: alive.size // chains * chains].reshape(chains, -1)
        return kept, n, n - alive.size, particles.n_nan

    return run


def _chain_task(
    reference: Reference,
    schedule: BetaSchedule,
    path: AnnealedPass,
    k: int,
    chains: int,
    tune: int,
    draws: int,
    rng: np.random.Generator,
) -> Task:
    """Task that runs the chains of the rung `k`."""
    beta, params = float(schedule.betas[k]), schedule.params[k]
    pool = states_near(path, beta)

    def run(stop: threading.Event) -> Rung | None:
        starts = pool[rng.choice(len(pool), chains)]
        particles = place(reference, schedule.kernel, starts, rng)
        parts = [
            sweep(particles, beta, params, end - begin) for begin, end in paced(tune + draws, stop)
        ]
        trace = np.concatenate(parts) if parts else np.empty((0, chains))
        if len(trace) < tune + draws:
            return None
        return trace[tune:].T, chains + particles.n_evaluations, 0, 0

    return run
