"""What comes before the plan: compiled models and loops, and the constant of a prior.

A prior that is not normalized gets its constant by a run of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pymc_tempering.chain.loop import run
from pymc_tempering.chain.particles import carry_states, sweep_states
from pymc_tempering.core.cycles import OVERFLOWS
from pymc_tempering.core.deadline import tell_cuts
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.exceptions import TimeLimitError, warn_user
from pymc_tempering.fields.whiten import sampled_model
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.assign import KernelChoice, compile_with_kernels
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel, ModelLike
from pymc_tempering.model.jit import compile_now
from pymc_tempering.model.path import Path
from pymc_tempering.model.terms import find_terms
from pymc_tempering.references.compiled_mixture import MIXER
from pymc_tempering.references.conditional_scoring import score_all
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.call import PLAN_SHARE, Call, Job, Options, Tally, silence
from pymc_tempering.sampling.choose_plan import choose_plan
from pymc_tempering.sampling.finish import cuts_of
from pymc_tempering.sampling.progress import ChainProgress
from pymc_tempering.sampling.rounds import estimate, run_rounds
from pymc_tempering.warmup.log_z_rounds import adapt


def compile_loops(path: Path, kernel: Compound, options: Options) -> None:
    """Compile the loops that a run calls, or find them on disk.

    Each would be compiled at its first call, and that time would count for `max_time`.
    """
    loops = [run, sweep_states]
    if path.fittable and options.reference != "prior":  # looks, and the fit of a warp
        loops += [carry_states, score_all]
        MIXER.__wrapper_address__()  # compiles it
    if options.weight_adaptation != "rts":
        loops.append(adapt)
    compile_now(kernel.explore, *loops)


def compile(
    model: ModelLike | None = None,
    *,
    kernel: KernelChoice = None,
    tempered: Sequence[str] | None = None,
    progressbar: bool = True,
) -> CompiledModel:
    """Compile a model ahead of the calls that need it, and check it at draws from its prior.

    What is compiled is kept as long as the model object lives, and every function of this package
    finds it there, whether it is given the handle or the model. So no call needs this one; it
    moves the waiting to a place of your choice, and its handle can be given other data.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    kernel : str, Kernel or dict, optional
        As in :func:`sample`. Other kernels than these may need another part of the model, which
        is compiled when they are first used.
    tempered : sequence of str, optional
        As in :func:`sample`.
    progressbar : bool, default True
        Whether to show a line of progress.

    Returns
    -------
    CompiledModel

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model cannot be tempered; the message says why and what to do.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    >>> handle = pmt.compile(model, progressbar=False)
    >>> idata = pmt.sample(500, model=handle.with_data(y=[3.0, 4.0]), random_seed=1, quiet=True)
    >>> idata.observed_data["y"].values
    array([3., 4.])
    """
    model = find_model(model)
    with compiling_status(progressbar) as report:
        inner = sampled_model(model, kernel, tempered, report=report)
        compile_with_kernels(inner, kernel, 0.8, report, terms=find_terms(inner, tempered))
    return CompiledModel(model)


TIME_SHARE = 0.5
"""Share of the time for the plan that this run may take, where there is a limit."""

type Alone = tuple[Prior, Compound]
"""The path from the reference to the prior alone, and what moves the variables on it."""


def compile_prior_alone(
    prior: Prior, choice: KernelChoice, target_accept: float, report: Callable[[str], None]
) -> Alone | None:
    """Compile what a prior needs that is not normalized; nothing where it is."""
    model, terms = prior.path.model, prior.path.terms
    if terms.normalized_prior:
        return None
    return compile_with_kernels(model, choice, target_accept, report, terms=terms.prior_alone())


def with_prior_constant(job: Job, alone: Alone | None, *, draws: int, chains: int) -> Job:
    """Give the prior of a call the log of its normalizing constant, if that is not 0.

    Where the user counts likelihood terms or potentials to the prior (`tempered=`), or a prior
    has no random draws, the path ends at prior times likelihood with a constant that is that of
    the prior times the evidence. The prior's own is found in the same way, by a run of `draws`
    draws from the same reference to the prior alone, which `compile_prior_alone` has compiled; the
    evidence is the quotient.

    Returns
    -------
    Job
        The same with the `prior_constant` of its prior, log Z and its error, in nats.

    Raises
    ------
    TimeLimitError
        The time was over before its first draw.
    """
    if alone is None:
        return job
    said = "Normalizing the prior: "
    job.report(f"{said}a run of its own")
    until = job.deadline.part(TIME_SHARE)
    own = replace(
        job, prior=alone[0], kernel=alone[1], crew=None, deadline=until.part(PLAN_SHARE),
        report=lambda at: job.report(f"{said}{at}" if isinstance(at, str) else at),
        tell=silence, tally=Tally(),
    )  # fmt: skip
    chosen = choose_plan(own)
    if chosen.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    call = Call(draws, chains=chains, keep=None)
    outcome = run_rounds(replace(own, deadline=until), call, chosen, ChainProgress)
    if outcome.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    cuts = cuts_of(outcome, searched=job.options.reference == "auto")
    drawn = [run for run in outcome.runs if run.state.n_draws > 0]
    if not drawn:
        raise TimeLimitError(f"{said}no chain of a run of its own has a draw. {tell_cuts(cuts)}")
    if cuts:
        warn_user(f"{said}{tell_cuts(cuts)}")
    evidence = estimate(outcome.chosen, drawn)
    emit_warnings(evidence, said)
    sound = evidence.verdict == "ok" and job.prior.prior_constant != OVERFLOWS
    constant = (evidence.log_z, evidence.mcse if sound else np.inf)
    return replace(job, prior=replace(job.prior, prior_constant=constant))
