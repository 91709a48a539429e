"""The normalizing constant of a prior that is not normalized: a run of its own."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.sampling.choose_plan import choose_plan
from pymc_tempering.sampling.goal import Goal
from pymc_tempering.sampling.rounds import estimate, run_rounds
from pymc_tempering.sampling.setup import Job

TIME_SHARE = 0.5
"""Share of the time for the plan that this run may take, where there is a limit."""


def with_prior_constant(
    job: Job,
    model: pm.Model,
    choice: KernelChoice,
    target_accept: float,
    *,
    draws: int,
    chains: int,
) -> Job:
    """Give the prior of a call the log of its normalizing constant, if that is not 0.

    Where the user counts likelihood terms or potentials to the prior (`tempered=`), or a prior
    has no random draws, the path ends at prior times likelihood with a constant that is that of
    the prior times the evidence. The prior's own is found in the same way, by a run of `draws`
    draws from the same reference to the prior alone; the evidence is the quotient.

    Returns
    -------
    Job
        The same with the `prior_constant` of its prior, log Z and its error, in nats.
    """
    terms = job.prior.path.terms
    if terms.normalized_prior:
        return job
    job.report("Normalizing the prior, by a run of its own")
    alone, kernel = compile_with_kernels(
        model, choice, target_accept, job.report, terms=terms.prior_alone()
    )
    own = replace(
        job, prior=alone, kernel=kernel, crew=None, deadline=job.deadline.part(TIME_SHARE),
        report=lambda line: job.report(f"Normalizing the prior. {line}"),
    )  # fmt: skip
    chosen = choose_plan(own)
    if chosen.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    silent: Any = nullcontext(SimpleNamespace(update=lambda: None))
    outcome = run_rounds(
        own, chosen, Goal(), draws=draws, chains=chains, keep_trace=False, watch=lambda *_: silent
    )
    if outcome.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    evidence = estimate(outcome.chosen, outcome.runs)
    emit_warnings(evidence, "Normalizing the prior: ", stacklevel=4)
    sound = evidence.verdict == "ok"
    constant = (evidence.log_z, evidence.mcse if sound else np.inf)
    return replace(job, prior=replace(job.prior, prior_constant=constant))
