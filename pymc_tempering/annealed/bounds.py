"""Bounds of log Z from posterior draws that are annealed down: reverse AIS, and the sandwich."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.annealed.ais import MIN_PARTICLES, annealed_up
from pymc_tempering.annealed.schedule import (
    BetaSchedule,
    CarriedParticles,
    Clock,
    Report,
    anneal_blocks,
    check_schedule,
    compile_movers,
    make_schedule,
    placed_blocks,
    prior_blocks,
    run_warnings,
)
from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.sent_model import workers_of
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.particle_weights import evidence_of_weights
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.evidence.stochastic_bounds import Sandwich, join_bounds
from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.executors.crew import Workers
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.path import Path
from pymc_tempering.model.unconstrain import unconstrained_draws
from pymc_tempering.references.prior import Reference, evaluate_draws

N_SHARE = 20_000
"""Prior draws that tell the share."""


def prior_log_ratios(reference: Reference, n: int, rng: np.random.Generator) -> np.ndarray:
    """log_ratio at n exact, independent prior draws, shape (n,), in nats."""
    draws = reference.draw(n, reference.spawn(rng))
    return np.asarray(evaluate_draws(reference.path, draws)[1])


def log_share_alive(reference: Reference, rng: np.random.Generator) -> tuple[float, float]:
    """Log of the share of the prior with a positive likelihood, and its error (nats).

    At any beta above 0 a path stays on this part of the prior. So what goes down to beta = 0 comes
    to the prior on this part, whose normalizing constant is the share.
    """
    log_ratio = prior_log_ratios(reference, N_SHARE, rng)
    share = float(np.mean(np.isfinite(log_ratio)))  # NaN and infinity count as none, as in a run
    if share in (0.0, 1.0):
        return (0.0, 0.0) if share else (-np.inf, np.inf)
    return float(np.log(share)), float(np.sqrt((1.0 - share) / (share * N_SHARE)))


def reverse_ais(
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
) -> Evidence:
    """Estimate the log marginal likelihood by annealing posterior draws down to the prior.

    The path of :func:`ais` in the other direction, with reversed transitions: the mean of the
    weights is unbiased for 1 / Z, so that minus its logarithm lies *above* log Z in expectation.
    That holds for true posterior draws alone. Draws that miss a mode change it by
    log(share / reach), with the share of the posterior that they see and the chance that a
    particle annealed upward ends there: below log Z by up to -log(share), and nothing in the run
    shows it.

    Parameters
    ----------
    idata : DataTree
        Posterior draws of the model, from any sampler; constrained values are enough.
    model : pymc.Model or CompiledModel, optional
        The model they were drawn from; by default the one on the context stack.
    n_particles : int, default 1000
        Draws to start from, taken at equal distances over all chains; all of them if they are
        fewer.
    betas : int or sequence of float, optional
        Number of rungs, or the inverse temperatures from 0 to 1; as in :func:`ais`.
    transition : str, Kernel, dict or None, optional
        As in :func:`ais`; "persistent" is that of :func:`hais`. The path down takes the kernels'
        reversals in time: one that has none ("nuts", a kernel of your own that states none) is
        refused.
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
        log Z (nats) with the larger of a bootstrap error and of one over batches of consecutive
        draws, since these are not independent.

    Raises
    ------
    DataMismatchError
        The posterior does not fit the model: names, shapes, or draws of zero density.
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
        The weights collapsed onto few draws (the mcse is then infinite), or Ctrl-C ended the run.

    See Also
    --------
    sandwich : this and :func:`ais` together.

    Notes
    -----
    Grosse, Ghahramani & Adams (2015), Sandwiching the marginal likelihood using bidirectional
    Monte Carlo.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> idata = pmt.sample(200, model=system.model, random_seed=1, quiet=True)
    >>> settings = {"n_particles": 200, "random_seed": 1, "progressbar": False}
    >>> evidence = pmt.reverse_ais(idata, system.model, **settings)
    >>> evidence.bias_direction
    'above'
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
        schedule, _ = make_schedule(movers, betas, rng, cores=workers, report=report, run=down)
        evidence = annealed_down(reference, schedule, states, rng, workers, clock, report)
    return emit_warnings(evidence)


@dataclass(frozen=True)
class PosteriorStates:
    """Posterior draws as starting states.

    Attributes
    ----------
    xs : array, shape (n, d)
        Unconstrained.
    chain : array of int, shape (n,)
        Chain that each comes from; draws of a chain stand in their order.
    """

    xs: np.ndarray
    chain: np.ndarray


def posterior_states(idata: xr.DataTree, path: Path, n: int) -> PosteriorStates:
    """Take n posterior draws at equal distances over all chains, unconstrained.

    All draws are taken where there are fewer than n.

    Raises
    ------
    DataMismatchError
        The posterior is not one of this model; see :func:`unconstrained_draws`.
    """
    draws = unconstrained_draws(idata, path.model, path.layout)
    n_chains, n_draws = draws.shape[:2]
    total = n_chains * n_draws
    index = np.unique(np.linspace(0, total - 1, min(n, total)).astype(int))
    return PosteriorStates(draws.reshape(total, -1)[index], index // n_draws)


def checked_states(idata: xr.DataTree, reference: Reference, n: int) -> PosteriorStates:
    """Take posterior draws as starting states, and refuse such as the model does not allow."""
    states = posterior_states(idata, reference.path, n)
    if len(states.xs) < MIN_PARTICLES:
        raise DataMismatchError(
            f"The posterior has {len(states.xs)} draws, where {MIN_PARTICLES} are needed."
        )
    log_reference, log_ratio = evaluate_draws(reference.path, states.xs)
    impossible = ~np.isfinite(log_reference + log_ratio)
    if impossible.any():
        raise DataMismatchError(
            f"{impossible.mean():.1%} of the posterior draws have zero density in this model: they "
            "are not draws from its posterior. Pass the model, with the data, that they come from."
        )
    return states


def downward(
    reference: Reference,
    states: PosteriorStates,
    rng: np.random.Generator,
    cores: Workers,
    report: Report = lambda line: None,
) -> Callable[[BetaSchedule, int], CarriedParticles]:
    """Trial runs for an automatic schedule, from draws at equal distances.

    Annealing down can need more rungs than annealing up: from a narrow density to a wide one the
    weights have the heavier tail.
    """

    def run(schedule: BetaSchedule, n: int) -> CarriedParticles:
        index = np.linspace(0, len(states.xs) - 1, n).astype(int)
        starts = placed_blocks(reference, states.xs[index], rng)
        return anneal_blocks(starts, schedule, cores, down=True, report=report)

    return run


def annealed_down(
    reference: Reference,
    schedule: BetaSchedule,
    states: PosteriorStates,
    rng: np.random.Generator,
    cores: Workers,
    clock: Clock,
    report: Report = lambda line: None,
) -> Evidence:
    """Carry posterior draws to the reference along a frozen schedule."""
    share = log_share_alive(reference, rng)
    starts = placed_blocks(reference, states.xs, rng)
    done = anneal_blocks(starts, schedule, cores, down=True, report=report)
    return evidence_of_weights(
        done.log_w, rng,
        method="reverse_ais",
        n_evaluations=schedule.n_evaluations + done.n_evaluations + N_SHARE,
        seconds=clock(),
        inverse=True,
        group=states.chain[done.index],
        share=share,
        noun="posterior draws",
        advice="use more rungs (betas), or more draws",
        warnings=run_warnings(done, len(states.xs)),
        n_undefined=done.n_nan,
    )  # fmt: skip


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
