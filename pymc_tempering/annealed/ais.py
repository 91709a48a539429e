"""Annealed importance sampling: up with fresh or kept momentum (HAIS), down, and both ways."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from pymc_tempering.annealed.schedule import (
    Annealing,
    BetaSchedule,
    WeightedEnds,
    make_schedule,
    opened,
)
from pymc_tempering.arguments import RandomSeed, check_whole
from pymc_tempering.arrays.carried import (
    MIN_PARTICLES,
    N_SHARE,
    Carried,
    carried_evidence,
    check_schedule,
)
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.bracket import Sandwich, join_bounds
from pymc_tempering.evidence.result import emit_warnings, untold
from pymc_tempering.exceptions import DataMismatchError, ModelError
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.bambi import pymc_draws
from pymc_tempering.model.check import find_model
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.path import Path
from pymc_tempering.model.same_model import check_same_model, untold_model
from pymc_tempering.model.unconstrain import unconstrained_draws
from pymc_tempering.references.prior import evaluate_draws

N_PARTICLES = 1000
"""Particles by default."""


def ais(
    model: ModelLike | None = None,
    *,
    n_particles: int = N_PARTICLES,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
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
        evidence, done = annealed_up(call, schedule, n_particles)
        evidence = call.noted(evidence, done.states, "the particles")
    return emit_warnings(evidence)


def hais(
    model: ModelLike | None = None,
    *,
    n_particles: int = N_PARTICLES,
    betas: int | Sequence[float] | None = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by Hamiltonian annealed importance sampling.

    As :func:`ais`, with one leapfrog step at each rung and a momentum that goes along from rung
    to rung, renewed so that half of its power is new after a unit of time (in standard deviations
    of the rung). Many rungs of one evaluation each then move the particles far, not by a random
    walk.

    The unconstrained space of PyMC has no boundaries, so that nothing is reflected. Discrete
    variables that are not summed out have no momentum: they move by Gibbs or slice sampling at
    each rung. A model without real variables is refused.

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
    return ais(
        model, n_particles=n_particles, betas=betas, transition="persistent", cores=cores,
        executor=executor, random_seed=random_seed, progressbar=progressbar, quiet=quiet,
    )  # fmt: skip


def annealed_up(call: Annealing, schedule: BetaSchedule, n: int) -> tuple[Evidence, Carried]:
    """Carry n particles from the reference to the target along a frozen schedule."""
    done = call.up(schedule, n)
    method = "hais" if schedule.kernel.carries else "ais"
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


def reverse_ais(
    idata: xr.DataTree,
    model: ModelLike | None = None,
    *,
    n_particles: int = 1000,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
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
        draws, since these are not independent. "unchecked" where the sampler stored no log density
        of the draws, since nothing then tells whether they are of this model.

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
    show = progressbar and not quiet
    idata = pymc_draws(idata, model)
    check_same_model(idata, find_model(model))
    with opened(
        model, transition, betas, cores, executor, random_seed, show, reversal=True
    ) as call:
        states = checked_states(idata, call.reference.path, n_particles)
        call = call.from_now()
        schedule, _ = make_schedule(call, betas, run=trials_down(call, states))
        evidence = untold(annealed_down(call, schedule, states), untold_model(idata))
        evidence = call.noted(evidence, states.xs)
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


def checked_states(idata: xr.DataTree, path: Path, n: int) -> PosteriorStates:
    """Take posterior draws as starting states, and refuse such as the model does not allow."""
    states = posterior_states(idata, path, n)
    if len(states.xs) < MIN_PARTICLES:
        raise DataMismatchError(
            f"The posterior has {len(states.xs)} draws, where {MIN_PARTICLES} are needed."
        )
    log_reference, log_ratio = evaluate_draws(path, states.xs)
    impossible = ~np.isfinite(log_reference + log_ratio)
    if impossible.any():
        raise DataMismatchError(
            f"{impossible.mean():.1%} of the posterior draws have zero density in this model: they "
            "are not draws from its posterior. Pass the model, with the data, that they come from."
        )
    return states


def trials_down(call: Annealing, states: PosteriorStates) -> Callable[[BetaSchedule, int], Carried]:
    """Trial runs for an automatic schedule, from draws at equal distances.

    Annealing down can need more rungs than annealing up: from a narrow density to a wide one the
    weights have the heavier tail.
    """

    def run(schedule: BetaSchedule, n: int) -> Carried:
        index = np.linspace(0, len(states.xs) - 1, n).astype(int)
        return call.down(schedule, states.xs[index])

    return run


def annealed_down(call: Annealing, schedule: BetaSchedule, states: PosteriorStates) -> Evidence:
    """Carry posterior draws to the reference along a frozen schedule."""
    share = call.log_share_alive()
    done = call.down(schedule, states.xs)
    return carried_evidence(
        done, call.rng,
        method="reverse_ais",
        asked=len(states.xs),
        chain=states.chain,
        n_evaluations=schedule.n_evaluations + N_SHARE,
        seconds=call.seconds,
        inverse=True,
        share=share,
        noun="posterior draws",
        advice="use more rungs (betas), or more draws",
    )  # fmt: skip


def sandwich(
    idata: xr.DataTree,
    model: ModelLike | None = None,
    *,
    n_particles: int = 1000,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
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
    >>> idata = pmt.sample(200, model=system.model, random_seed=2, quiet=True)
    >>> both = pmt.sandwich(idata, system.model, n_particles=200, random_seed=1, progressbar=False)
    >>> both.verdict
    'ok'
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    show = progressbar and not quiet
    idata = pymc_draws(idata, model)
    check_same_model(idata, find_model(model))
    with opened(
        model, transition, betas, cores, executor, random_seed, show, reversal=True
    ) as call:
        states = checked_states(idata, call.reference.path, n_particles)
        call = call.from_now()
        down = trials_down(call, states)

        def harder(schedule: BetaSchedule, n: int) -> Carried:
            up, other = call.up(schedule, n), down(schedule, n)
            worse = min(up, other, key=lambda trial: effective_number(trial.log_w))
            return replace(
                worse,
                n_evaluations=up.n_evaluations + other.n_evaluations,
                interrupted=up.interrupted or other.interrupted,
            )

        schedule, _ = make_schedule(call, betas, run=harder)
        lower, done = annealed_up(call, schedule, n_particles)
        if done.interrupted:
            raise KeyboardInterrupt("Interrupted before the upper bound.")
        shared = replace(schedule, n_evaluations=0)  # the pilot counts once
        upper = untold(annealed_down(call.from_now(), shared, states), untold_model(idata))
    both = join_bounds(lower, upper)
    for evidence in (lower, upper):
        emit_warnings(evidence)
    if both.verdict in ("crossed", "wide"):
        emit_warnings(replace(lower, warnings=(both.words.split(" The lower bound needs")[0],)))
    return both
