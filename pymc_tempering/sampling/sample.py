"""`sample`: simulated tempering with the whole chain in compiled code, chains on threads."""

import inspect
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Literal

import xarray as xr

from pymc_tempering.arguments import RandomSeed, called_as, check_whole, rng_of
from pymc_tempering.chain.pieces import crew_of
from pymc_tempering.core.deadline import Deadline, deadline_in
from pymc_tempering.core.ladder import RungWeights
from pymc_tempering.core.threads import one_thread
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.fields.whiten import sampled_model
from pymc_tempering.kernels.assign import KernelChoice, compile_with_kernels
from pymc_tempering.model.bambi import noted
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.origin import with_longer_sums
from pymc_tempering.model.terms import find_terms
from pymc_tempering.sampling.call import (
    CHECK_SHARE,
    PLAN_SHARE,
    Call,
    Job,
    Options,
    Tally,
    as_names,
    check_kept_names,
    goal_of,
    plain_choice,
    plain_options,
    refuse,
    refuse_model,
    silence,
)
from pymc_tempering.sampling.choose_plan import ChosenPlan, choose_plan
from pymc_tempering.sampling.finish import finish_call
from pymc_tempering.sampling.kept import ending_by_sigterm, recording
from pymc_tempering.sampling.precompile import (
    compile_loops,
    compile_prior_alone,
    with_prior_constant,
)
from pymc_tempering.sampling.progress import ChainProgress, check_progressbar
from pymc_tempering.sampling.rounds import run_rounds

LEAST_SHARE = 0.1
"""Share of `max_time` that the chains get at least, also where the plan took all of it."""


@called_as("sample(1000, model=model)")
def sample(
    draws: int | None = None,
    *,
    tune: int = 0,
    chains: int = 4,
    cores: int | None = None,
    executor: Executor | None = None,
    model: ModelLike | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool | str = True,
    progressbar_theme: Any = None,
    quiet: bool = False,
    kernel: KernelChoice = None,
    target_accept: float = 0.8,
    tempered: Sequence[str] | None = None,
    ladder_move: str = "metropolized_gibbs",
    weight_adaptation: str = "rts",
    reference: str = "auto",
    betas: Sequence[float] | None = None,
    rungs_per_barrier: float = 1.5,
    rung_weights: RungWeights | None = None,
    check_looks: int = 100,
    target_mcse: float | None = None,
    target_ess: float | None = None,
    max_time: float | None = None,
    max_steps: int | None = None,
    reference_draws: int | None = None,
    keep: Literal["log_ratio", "states"] | None = "log_ratio",
    var_names: Sequence[str] | None = None,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    idata_kwargs: dict[str, Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    **unknown: Any,
) -> xr.DataTree:
    """Draw from the posterior by simulated tempering, and learn its evidence on the way.

    The same algorithm as `SimulatedTempering`, with the whole loop compiled. A draw is the state
    of the chain at a visit to beta = 1, so `posterior` holds only draws from the posterior; what
    happened in between is in `sample_stats`.

    Parameters
    ----------
    draws : int, optional
        Draws of each chain; in the first round, where a target asks for several. Where it is left
        open the first round has 1,000, or down to 250 where a value of the density is dear, and
        rounds of doubling length go on until the least bulk effective sample size of all free
        scalars is 400, or a chain has 8,000.
    tune : int, default 0
        Draws of each chain to throw away. The warm-up is automatic and comes before; chains
        start at a fresh reference draw with everything frozen, so that none is needed.
    chains : int, default 4
    cores : int, optional
        Threads; by default as many as there are chains and cores. Above one, annealed passes have
        a thread each, three or six in all.
    executor : concurrent.futures.Executor, optional
        Who runs the chains, and takes looks, in place of threads: a pool of processes, or
        ``client.get_executor()`` of Dask. Each worker compiles the model once. Fit and warm-up
        stay in this process.
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    random_seed : int or numpy.random.Generator, optional
        Same seeds give the same draws, whatever `cores` and `executor` are.
    progressbar : bool or str, default True
        As in `pm.sample`; where there is no terminal, a line every ten seconds.
    progressbar_theme : rich.theme.Theme, optional
    quiet : bool, default False
        Neither progress nor messages; warnings are given all the same.
    kernel : str, Kernel or dict, optional
        What moves the variables at each temperature: a kernel, or its name, for all variables that
        it can move; or a mapping from the names of variables to kernels or their names. A step
        method class of PyMC may stand for a kernel. The names are:

        - "hmc": Hamiltonian Monte Carlo. Moves real variables.
        - "nuts": The No-U-Turn sampler. Moves real variables.
        - "slice": Slice sampling, without gradients. Moves real variables and integers.
        - "metropolis": Random-walk Metropolis with the covariance of each rung, without
          gradients. Moves real variables and integers.
        - "gibbs": Gibbs sampling. Moves binary variables and integers in known bounds.
        - "langevin": Discrete Langevin proposals, which flip many variables with one gradient.
          Moves binary variables.
        - "transfer": Transfer of units between two cells, by Metropolis. Moves vectors of
          counts with a fixed sum.

        A discrete variable that gets a kernel is not summed out; others are where that is exact
        and cheap (`docs/explanation/kernels.md`).

        What is left open gets a default: "hmc" for real variables ("slice" where the density has no
        gradient, "metropolis" where it is dear too), "slice" for integers without known bounds,
        "gibbs" for binary variables and integers in known bounds, "transfer" for vectors of counts
        with a fixed sum.
    target_accept : float, default 0.8
        Acceptance probability that the step size of each rung is tuned for.
        It is for "hmc" and "nuts", by name or by default; other kernels keep their own target.
    tempered : sequence of str, optional
        Likelihood terms and potentials that beta acts on; by default all. What is left out counts
        to the prior: log Z is then that of the named terms under the *normalized* product of the
        prior and the others. Its normalizing constant takes a run of its own, as it does for a
        prior without random draws, and its error is in the mcse.
    ladder_move : str, default "metropolized_gibbs"
        How the chain moves on the ladder: "gibbs" draws beta given x (Carlson et al. 2016,
        eq. 7), "metropolized_gibbs" the same without proposing to stay (Liu 1996),
        "nonreversible" keeps a direction until a rejection (Sakai & Hukushima 2016).
    weight_adaptation : {"rts", "wang_landau", "sams"}, default "rts"
        How the warm-up learns the weights of the ladder, log Z-hat, before they are frozen: by
        rounds of frozen weights with an RTS estimate after each (Carlson et al. 2016, section 2.4),
        or at every iteration, by the Wang-Landau algorithm with gains of 1 / t in the end
        (Belardinelli & Pereyra 2007) or by self-adjusted mixture sampling (Tan 2017; eq. 19 of
        Carlson et al.).
    reference : {"auto", "prior", "fitted"}, default "auto"
        Distribution at beta = 0: the prior; a mixture of t's fitted to tempered draws; or
        ("auto") the fitted one where looks from the prior find nothing else. With binary variables
        that are not summed out it is the prior, and a bridge to the draws gives log Z.
    betas : sequence of float, optional
        Inverse temperatures from 0 to 1; by default they are placed so that neighboring
        rejection rates are equal.
    rungs_per_barrier : float, default 1.5
        Intervals of an automatic ladder, per unit of the barrier.
    rung_weights : callable or sequence of float, optional
        Target occupancies r of the rungs, up to a factor: a function of beta, as
        ``lambda beta: np.exp(2 * beta)`` of Carlson et al. (2016), or with `betas` one number each.
        By default all are equal, which measured best (`docs/design.md`).
    check_looks : int, default 100
        Looks from the prior that must find nothing which a fitted reference does not cover: single
        trajectories from fresh prior draws to beta = 1, annealed once. By default they begin with
        fewer, 50 at least, where a value of the density is dear.
    target_mcse : float, optional
        Go on in rounds of doubling length until log Z has this error (nats) and looks,
        chains and halves agree.
    target_ess : float, optional
        Go on in rounds of doubling length until the least bulk effective sample size of all free
        scalars, unconstrained, is this. Where `draws` is left open it is 400 by default, and chains
        of up to 8 times the first length go on for an error of log Z of .05 as well.
    max_time : float, optional
        Seconds at most, compiling apart, for the whole call; it ends before, once it has its draws
        or its targets. After them the chains stop, be it in their first round. A stage that the
        time cuts short is named in a warning, with about how long the call would have needed.
    max_steps : int, optional
        Density evaluations, scouts apart, after which no further round starts; one that has started
        is finished.
    reference_draws : int, optional
        Independent draws of the reference beside the chains, which make log Z more precise at the
        price of one value of the density each; 0 for none. By default their number is that of the
        evaluations before the run, scouts apart (30,000 at most), and five for each draw of a
        chain, 200,000 at most; above 40 dimensions d / 40 times fewer, and none where their weights
        are too uneven to help. They take a trace, so there are none with `keep=None`.
    keep : {"log_ratio", "states"} or None, default "log_ratio"
        The flat trace of log_ratio and rung of every iteration; with "states" also the states of
        all rungs that `expectation` weights, constrained and with deterministics. Those with
        q(beta_K | x) below 0.01 are kept with probability q / 0.01, at least 0.05 (and weighted
        accordingly), so that the memory is at most 8 bytes times iterations times numbers in a
        draw, and on a long ladder a fraction of that.
    var_names : sequence of str, optional
        Variables to keep in `posterior`; by default all.
    discard_tuned_samples : bool, default True
    compute_convergence_checks : bool, default True
        PyMC's R-hat and effective sample size checks of the draws.
    idata_kwargs : dict, optional
        For `pm.to_inference_data`.
    checkpoint : path, optional
        Folder to make, where the run is written as it goes, so that :func:`resume` can go on with
        it whatever ends this process. The first time is when the plan is frozen, before any draw.
    checkpoint_every : float, default 60.0
        Seconds between checkpoints, for which the chains pause; with `executor` once the pieces
        that are under way, of five seconds at most, have come back.
    **unknown
        Nothing else is taken. Arguments of `pm.sample` that mean nothing here (`step`, `initvals`,
        `nuts_sampler`, ...) are refused, each with the reason.

    Returns
    -------
    xarray.DataTree
        Groups `posterior`, `sample_stats` (one schema for both front doors), `observed_data`,
        `constant_data`, `tempering`, `tempering_plan` (what :func:`extend` goes on with),
        `tempering_check` and `tempering_looks` where looks were taken, `tempering_reference` where
        there are reference draws, and `tempering_trace` and `tempering_states` where kept.

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model cannot be tempered; the message says why and what to do.
    StuckChainError
        A chain did not come back to beta = 1 before its first draw.
    TimeLimitError
        `max_time` was over before there was anything to return.
    WorkerError
        The executor cannot do the work.
    ArgumentError
        An argument that is not taken.
    CheckpointError
        The path of the checkpoint is in use, or cannot be written to.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        If the verdict on log Z is not "ok", the draws do not suffice (see `draws`), a chain was
        stuck, something was cut short, or a goal was not met.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    ...     idata = pmt.sample(500, random_seed=1, quiet=True)
    >>> idata.posterior["mu"].shape
    (4, 500)
    """
    refuse(unknown, "sample", inspect.signature(sample).parameters)
    draws, goal = goal_of(draws, target_ess, target_mcse, max_time, max_steps)
    refuse_model(draws, "sample")
    check_whole(1, cores=cores)
    check_progressbar(progressbar)
    rng = rng_of(random_seed)
    options = Options(
        ladder_move, reference, betas, rungs_per_barrier, check_looks,
        weight_adaptation, rung_weights,
    )  # fmt: skip
    call = Call(
        draws, tune, chains, goal, plain_options(options), plain_choice(kernel), target_accept,
        None if tempered is None else as_names(tempered), reference_draws, keep,
        None if var_names is None else as_names(var_names), discard_tuned_samples,
        compute_convergence_checks, idata_kwargs or {},
    )  # fmt: skip
    check_executor(executor)
    given, model = model, find_model(model)
    check_kept_names(model, call.var_names)
    cores = min(chains, cores or os.cpu_count() or 1)
    show, tally = bool(progressbar) and not quiet, Tally()
    with (
        ending_by_sigterm(checkpoint is not None) as leave_if_told,
        recording(checkpoint, checkpoint_every, call, rng, kernel, options) as recorder,
        compiling_status(show, progressbar_theme) as report,
        one_thread(),
    ):
        check_for = max_time and CHECK_SHARE * max_time
        deadline: Deadline | None = None

        def planned() -> tuple[Job, ChosenPlan, Deadline]:
            nonlocal deadline
            inner = sampled_model(model, kernel, tempered, reference, report, check_for)
            prior, compound = compile_with_kernels(
                inner, kernel, target_accept, report, terms=find_terms(inner, tempered),
                check_for=check_for,
            )  # fmt: skip
            alone = compile_prior_alone(prior, kernel, target_accept, report)
            report("Preparing the loops")
            compile_loops(prior.path, compound, options)
            tally.end("compiling")
            crew = crew_of(executor, prior, compound)
            deadline = deadline or deadline_in(max_time)  # the first one holds for longer sums too
            plan_by = deadline.part(PLAN_SHARE)
            tell = silence if quiet else report.tell
            job = Job(prior, compound, options, rng, cores, report, tell, plan_by, crew, tally)
            job = with_prior_constant(job, alone, draws=draws, chains=chains)
            tally.end("prior_constant")
            return job, choose_plan(job), deadline

        job, chosen, deadline = with_longer_sums(planned)
        leave_if_told()  # a search that was cut short is nothing to go on with
        job = replace(job, deadline=_run_deadline(deadline, chosen, max_time))
        watch = partial(ChainProgress, progressbar=progressbar)
        outcome = run_rounds(job, call, chosen, watch, recorder)
        report("Putting the draws together")
        with report.aside():
            return noted(finish_call(call, job, outcome, quiet=quiet), given)


def _run_deadline(deadline: Deadline, chosen: ChosenPlan, max_time: float | None) -> Deadline:
    """Deadline of the chains: they get some time even where the plan took all of it."""
    if chosen.interrupted:
        return deadline_in(max(1.0, 0.2 * (perf_counter() - deadline.began)))
    if max_time is None:
        return deadline
    return deadline.after(LEAST_SHARE * max_time)
