"""The normalizing constant of a prior that is not normalized: a run of its own."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.core.cycles import OVERFLOWS
from pymc_tempering.core.deadline import tell_cuts
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.exceptions import TimeLimitError, warn_user
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.call import PLAN_SHARE, Call, Job
from pymc_tempering.sampling.choose_plan import choose_plan
from pymc_tempering.sampling.finish import cuts_of
from pymc_tempering.sampling.rounds import estimate, run_rounds

TIME_SHARE = 0.5
"""Share of the time for the plan that this run may take, where there is a limit."""

type Alone = tuple[Prior, Compound]
"""The path from the reference to the prior alone, and what moves the variables on it."""


def compile_prior_alone(
    prior: Prior,
    model: pm.Model,
    choice: KernelChoice,
    target_accept: float,
    report: Callable[[str], None],
) -> Alone | None:
    """Compile what a prior needs that is not normalized; nothing where it is."""
    terms = prior.path.terms
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
    job.report("Normalizing the prior, by a run of its own")
    until = job.deadline.part(TIME_SHARE)
    own = replace(
        job, prior=alone[0], kernel=alone[1], crew=None, deadline=until.part(PLAN_SHARE),
        report=lambda line: job.report(f"Normalizing the prior. {line}"),
    )  # fmt: skip
    chosen = choose_plan(own)
    if chosen.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    silent: Any = nullcontext(SimpleNamespace(update=lambda: None))
    call = Call(draws, chains=chains, keep=None)
    outcome = run_rounds(replace(own, deadline=until), call, chosen, lambda *_: silent)
    if outcome.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    said = "Normalizing the prior: "
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
