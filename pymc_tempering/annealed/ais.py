"""Annealed importance sampling, with fresh (AIS) or persistent momentum (HAIS)."""

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import pymc as pm

from pymc_tempering.annealed.schedule import (
    Betas,
    BetaSchedule,
    CarriedParticles,
    Clock,
    Movers,
    Report,
    WeightedEnds,
    anneal_blocks,
    check_continuous,
    check_schedule,
    compile_movers,
    make_schedule,
    prior_blocks,
    run_warnings,
)
from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.sent_model import workers_of
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.particle_weights import curve_from_sums, evidence_of_weights
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.executors.crew import Workers
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.references.prior import Reference

MIN_PARTICLES, N_PARTICLES = 20, 1000
"""Least number of particles, and the default."""


def ais(
    model: pm.Model | CompiledModel | None = None,
    *,
    n_particles: int = N_PARTICLES,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by annealed importance sampling.

    Particles start at exact, independent draws from the prior and go through the densities
    prior x likelihood^beta, beta from 0 to 1, with one transition at each that leaves it
    invariant. The mean of their weights is unbiased for Z whether or not the transitions mix, so
    that its logarithm lies below log Z in expectation, by about half of its squared error.

    A pilot of other particles finds schedule, step sizes and metric; all of it is frozen before
    the particles that count start.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    n_particles : int, default 1000
    betas : int or sequence of float, optional
        Number of rungs, which are placed at equal distances along the path, or the inverse
        temperatures from 0 to 1. By default as many rungs as make the weights nearly equal.
    transition : str, Kernel, dict or None, optional
        What moves the particles at each rung, as `kernel` of :func:`pymc_tempering.sample`; by
        default HMC for real variables, Gibbs for binary ones and integers in known bounds, slice
        sampling for other integers. Also "leapfrog": one leapfrog step with fresh momentum, for
        schedules of many rungs.
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
        log Z with a bootstrap error over particles (nats), ``ess`` of the weights, and the curve
        of log Z along ``betas``. ``n_evaluations`` counts the pilot too.

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
        The weights collapsed onto few particles (the mcse is then infinite), the run was
        interrupted, or the likelihood is NaN at some prior draws.

    See Also
    --------
    hais : the same with a momentum that is kept, better where rungs are many.

    Notes
    -----
    Neal (2001), Annealed importance sampling; Goodfellow et al. (2016), section 18.7.1. The log
    weight is equation (23) of Carlson et al. (2016).

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> evidence = pmt.ais(system.model, n_particles=200, random_seed=1, progressbar=False)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    return _annealed(
        "ais", model, n_particles, betas, transition, cores, executor, random_seed,
        progressbar and not quiet,
    )  # fmt: skip


def hais(
    model: pm.Model | CompiledModel | None = None,
    *,
    n_particles: int = N_PARTICLES,
    betas: int | Sequence[float] | None = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by Hamiltonian annealed importance sampling.

    As :func:`ais`, with one leapfrog step at each rung and a momentum that goes along from rung
    to rung, renewed so that half of its power is new after a unit of time (in standard deviations
    of the rung). Many rungs of one evaluation each then move the particles far, not by a random
    walk.

    The unconstrained space of PyMC has no boundaries, so that nothing is reflected; circular
    variables go round. Discrete variables have no momentum: they move by Gibbs or slice sampling
    at each rung. A model without real variables is refused.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    n_particles : int, default 1000
    betas : int or sequence of float, optional
        Number of rungs, or the inverse temperatures from 0 to 1; as in :func:`ais`.
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
        log Z with a bootstrap error over particles (nats), as from :func:`ais`.

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
        As in :func:`ais`.

    Notes
    -----
    Sohl-Dickstein & Culpepper (2011), section 2.3, with sqrt(gamma) r for the gamma r of step 4.
    The leapfrog's halves are in the order momentum, position, momentum, which costs one
    evaluation instead of two.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> evidence = pmt.hais(system.model, n_particles=200, random_seed=1, progressbar=False)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    return _annealed(
        "hais",
        model,
        n_particles,
        betas,
        "persistent",
        cores,
        executor,
        random_seed,
        progressbar and not quiet,
    )


def _annealed(
    method: str,
    model: pm.Model | CompiledModel | None,
    n_particles: int,
    betas: Betas,
    transition: KernelChoice,
    cores: int | None,
    executor: Executor | None,
    random_seed: int | np.random.Generator | None,
    progressbar: bool,
) -> Evidence:
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_whole(1, cores=cores)
    check_executor(executor)
    check_schedule(betas)
    rng = np.random.default_rng(random_seed)
    model = find_model(model)
    if method == "hais":
        check_continuous(model, method)
    with compiling_status(progressbar) as report:
        movers = compile_movers(model, transition, report)
        workers = workers_of(executor, cores, movers.reference, movers.kernel)
        clock = Clock()
        schedule, _ = make_schedule(movers, betas, rng, cores=workers, report=report)
        evidence = annealed_up(
            method, movers.reference, schedule, n_particles, rng, workers, clock, report
        )
    return emit_warnings(evidence, stacklevel=4)


def ais_with_ends(
    movers: Movers,
    rng: np.random.Generator,
    cores: int | None,
    executor: Executor | None,
    report: Report,
    most: int | None = None,
) -> tuple[Evidence, WeightedEnds]:
    """Do as :func:`ais` by default, and keep where the particles ended, each a group of its own.

    With `most` a model whose schedule would need more rungs than that is refused (LadderError).
    No warnings are emitted; they are in the evidence.
    """
    workers = workers_of(executor, cores, movers.reference, movers.kernel)
    clock = Clock()
    schedule, _ = make_schedule(movers, None, rng, cores=workers, report=report, most=most)
    evidence, done = _upward(
        "ais", movers.reference, schedule, N_PARTICLES, rng, workers, clock, report
    )
    return evidence, WeightedEnds(done.states, done.log_w, done.index)


def annealed_up(
    method: str,
    reference: Reference,
    schedule: BetaSchedule,
    n_particles: int,
    rng: np.random.Generator,
    cores: Workers,
    clock: Clock,
    report: Report = lambda line: None,
) -> Evidence:
    """Carry particles from the reference to the target along a frozen schedule."""
    return _upward(method, reference, schedule, n_particles, rng, cores, clock, report)[0]


def _upward(
    method: str,
    reference: Reference,
    schedule: BetaSchedule,
    n_particles: int,
    rng: np.random.Generator,
    cores: Workers,
    clock: Clock,
    report: Report,
) -> tuple[Evidence, CarriedParticles]:
    starts = prior_blocks(reference, n_particles, rng)
    done = anneal_blocks(starts, schedule, cores, report=report)
    evidence = evidence_of_weights(
        done.log_w, rng,
        method=method,
        curve=curve_from_sums(schedule.betas, done.sums, done.log_w.size),
        n_evaluations=schedule.n_evaluations + done.n_evaluations,
        seconds=clock(),
        warnings=run_warnings(done, n_particles),
        n_undefined=done.n_nan,
    )  # fmt: skip
    return evidence, done
