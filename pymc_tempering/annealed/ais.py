"""Annealed importance sampling, with fresh (AIS) or persistent momentum (HAIS)."""

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import pymc as pm

from pymc_tempering.annealed.schedule import (
    Annealing,
    BetaSchedule,
    WeightedEnds,
    check_schedule,
    make_schedule,
    opened,
)
from pymc_tempering.arguments import check_whole
from pymc_tempering.arrays.carried import Carried, carried_evidence
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.exceptions import ModelError
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.check import find_model
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.layout import model_layout

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
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    show = progressbar and not quiet
    with opened(model, transition, betas, cores, executor, random_seed, show) as call:
        schedule, _ = make_schedule(call, betas)
        evidence, _ = annealed_up(call, schedule, n_particles)
    return emit_warnings(evidence)


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
    >>> evidence = pmt.annealed.hais(system.model, n_particles=200, random_seed=1, quiet=True)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_schedule(betas)
    model = find_model(model)
    if all(model_layout(model).discrete):
        raise ModelError(
            "hais keeps the momentum of real variables, and this model has none: all its free "
            "variables are discrete. Use pmt.ais, whose kernels move them."
        )
    show = progressbar and not quiet
    with opened(model, "persistent", betas, cores, executor, random_seed, show) as call:
        schedule, _ = make_schedule(call, betas)
        evidence, _ = annealed_up(call, schedule, n_particles, "hais")
    return emit_warnings(evidence)


def annealed_up(
    call: Annealing, schedule: BetaSchedule, n: int, method: str = "ais"
) -> tuple[Evidence, Carried]:
    """Carry n particles from the reference to the target along a frozen schedule."""
    done = call.up(schedule, n)
    evidence = carried_evidence(
        done, call.rng, method=method, asked=n, betas=schedule.betas,
        n_evaluations=schedule.n_evaluations, seconds=call.seconds,
    )  # fmt: skip
    return evidence, done


def ais_with_ends(call: Annealing, most: int | None = None) -> tuple[Evidence, WeightedEnds]:
    """Do as :func:`ais` by default, and keep where the particles ended, each a group of its own.

    With `most` a model whose schedule would need more rungs than that is refused (LadderError).
    No warnings are emitted; they are in the evidence.
    """
    schedule, _ = make_schedule(call, None, most=most)
    evidence, done = annealed_up(call, schedule, N_PARTICLES)
    return evidence, WeightedEnds(done.states, done.log_w, np.arange(done.log_w.size))
