"""Linked importance sampling: a Markov chain at each rung, linked to the next by a bridge."""

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import pymc as pm

from pymc_tempering.annealed.ais import MIN_PARTICLES
from pymc_tempering.annealed.linked_chains import link_blocks
from pymc_tempering.annealed.schedule import (
    BetaSchedule,
    CarriedParticles,
    Clock,
    check_schedule,
    make_schedule,
    run_warnings,
)
from pymc_tempering.annealed.transitions import compile_movers
from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.sent_model import workers_of
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.particle_weights import evidence_of_weights
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel


def linked_importance_sampling(
    model: pm.Model | CompiledModel | None = None,
    *,
    n_particles: int = 200,
    chain_length: int = 10,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by linked importance sampling.

    Each particle simulates a Markov chain of ``chain_length`` states at every rung. Two
    neighboring chains share one state, which is picked from the one with weights of the geometric
    bridge sqrt(pi_k pi_k+1) between them and put at a random place of the other. The product of
    bridge sampling estimates over all rungs is unbiased for Z, whether or not the chains mix;
    its logarithm lies below log Z in expectation.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    n_particles : int, default 200
        Independent repeats, of which the mean is taken.
    chain_length : int, default 10
        States of the chain at each rung.
    betas : int or sequence of float, optional
        Number of rungs, or the inverse temperatures from 0 to 1; as in :func:`ais`. By default as
        many rungs as make the estimates of the particles nearly equal.
    transition : str, Kernel, dict or None, optional
        What moves the states of a chain, as `kernel` of :func:`pymc_tempering.sample`. The states
        before the shared one come from its reversal in time: a kernel whose reversal is not known
        is refused.
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
        log Z with a bootstrap error over particles, which are independent (nats).

    Raises
    ------
    KernelError
        A kernel whose reversal in time is not known, or that keeps its momentum.
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model has no such path; the message says why and what to do.
    LadderError
        ``betas`` do not increase from 0 to 1.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        The estimates collapsed onto few particles (the mcse is then infinite).

    Notes
    -----
    Neal (2005), Estimating ratios of normalizing constants using linked importance sampling,
    section 3. Hamiltonian transitions are their own reversals; a sweep over coordinates is
    undone by the sweep in reverse order.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> evidence = pmt.annealed.linked_importance_sampling(system.model, random_seed=1, quiet=True)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_whole(1, chain_length=chain_length, cores=cores)
    check_executor(executor)
    check_schedule(betas)
    rng = np.random.default_rng(random_seed)
    with compiling_status(progressbar and not quiet) as report:
        movers = compile_movers(model, transition, report, reversal=True, carried=False)
        workers = workers_of(executor, cores, movers.reference, movers.kernel)
        clock = Clock()

        def link(schedule: BetaSchedule, n: int) -> CarriedParticles:
            return link_blocks(movers.reference, schedule, n, chain_length, rng, workers, report)

        schedule, _ = make_schedule(
            movers, betas, rng, cores=workers, report=report, run=link, density=1.0
        )
        done = link(schedule, n_particles)
        evidence = evidence_of_weights(
            done.log_w, rng,
            method="linked_importance_sampling",
            n_evaluations=schedule.n_evaluations + done.n_evaluations,
            seconds=clock(),
            advice="use more rungs (betas), longer chains (chain_length), or more particles",
            warnings=run_warnings(done, n_particles),
            n_undefined=done.n_nan,
        )  # fmt: skip
    return emit_warnings(evidence)
