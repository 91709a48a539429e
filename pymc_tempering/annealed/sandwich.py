"""Two stochastic bounds of log Z over one path: annealing up from the prior, down from draws."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.annealed.ais import MIN_PARTICLES, annealed_up
from pymc_tempering.annealed.reverse_ais import annealed_down, checked_states, downward
from pymc_tempering.annealed.schedule import (
    BetaSchedule,
    CarriedParticles,
    Clock,
    anneal_blocks,
    check_schedule,
    make_schedule,
    prior_blocks,
)
from pymc_tempering.annealed.transitions import compile_movers
from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.sent_model import workers_of
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.evidence.bracket import Sandwich, join_bounds
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel


def sandwich(
    idata: xr.DataTree,
    model: pm.Model | CompiledModel | None = None,
    *,
    n_particles: int = 1000,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Sandwich:
    """Bracket the log marginal likelihood between two stochastic bounds.

    :func:`ais` lies below log Z in expectation, :func:`reverse_ais` above it, if it starts from
    true posterior draws. Both go over one schedule, frozen before either starts. The gap bounds
    how far the transitions are from equilibrium, and shrinks with more rungs.

    Parameters
    ----------
    idata : DataTree
        Posterior draws of the model, from any sampler.
    model : pymc.Model or CompiledModel, optional
        The model they were drawn from; by default the one on the context stack.
    n_particles : int, default 1000
        Particles in each direction.
    betas : int or sequence of float, optional
        Number of rungs, or the inverse temperatures from 0 to 1; as in :func:`ais`.
    transition : str, Kernel, dict or None, optional
        As in :func:`reverse_ais`.
    cores : int, optional
        Threads; by default all cores.
    executor : concurrent.futures.Executor, optional
        Who does the work in place of threads: a pool of processes, or ``client.get_executor()``
        of Dask. Each worker compiles the model once. The pilot runs in this process.
    random_seed : int or numpy.random.Generator, optional
        Same seeds give the same bounds, whatever `cores` and
        `executor` are.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    Sandwich
        Both bounds with their errors, the gap, and on what the upper one rests.

    Raises
    ------
    DataMismatchError
        The posterior does not fit the model.
    KernelError
        A kernel whose reversal in time is not known.
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model has no such path; the message says why and what to do.
    LadderError
        ``betas`` do not increase from 0 to 1.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        What the two estimates warn about, and bounds that cross or lie far apart.

    Notes
    -----
    Grosse, Ghahramani & Adams (2015). For the likelihood of data under an undirected model with
    latent variables see :func:`raise_`.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> idata = pmt.sample(200, model=system.model, random_seed=1, quiet=True)
    >>> both = pmt.sandwich(idata, system.model, n_particles=200, random_seed=1, progressbar=False)
    >>> both.verdict
    'ok'
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_whole(1, cores=cores)
    check_executor(executor)
    check_schedule(betas)
    rng = np.random.default_rng(random_seed)
    with compiling_status(progressbar and not quiet) as report:
        movers = compile_movers(model, transition, report, reversal=True)
        reference = movers.reference
        workers = workers_of(executor, cores, reference, movers.kernel)
        states = checked_states(idata, reference, n_particles)
        clock = Clock()
        down = downward(reference, states, rng, workers, report)

        def harder(schedule: BetaSchedule, n: int) -> CarriedParticles:
            up = anneal_blocks(prior_blocks(reference, n, rng), schedule, workers, report=report)
            other = down(schedule, n)
            worse = min(up, other, key=lambda trial: effective_number(trial.log_w))
            return replace(
                worse,
                n_evaluations=up.n_evaluations + other.n_evaluations,
                interrupted=up.interrupted or other.interrupted,
            )

        schedule, _ = make_schedule(movers, betas, rng, cores=workers, report=report, run=harder)
        method = "hais" if transition == "persistent" else "ais"
        lower = annealed_up(method, reference, schedule, n_particles, rng, workers, clock, report)
        if any(sentence.startswith("Interrupted") for sentence in lower.warnings):
            raise KeyboardInterrupt("Interrupted before the upper bound.")
        clock = Clock()
        shared = replace(schedule, n_evaluations=0)  # the pilot counts once
        upper = annealed_down(reference, shared, states, rng, workers, clock, report)
    both = join_bounds(lower, upper)
    for evidence in (lower, upper):
        emit_warnings(evidence)
    if both.verdict in ("crossed", "wide"):
        emit_warnings(replace(lower, warnings=(both.words.split(" The lower bound needs")[0],)))
    return both
