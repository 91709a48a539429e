"""The normalizing constant of a prior that is not normalized: a run of its own."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.choose_plan import choose_plan
from pymc_tempering.sampling.rounds import Goal, estimate, run_rounds
from pymc_tempering.sampling.setup import Options


def with_prior_constant(
    prior: Prior,
    model: pm.Model,
    choice: KernelChoice,
    target_accept: float,
    options: Options,
    rng: np.random.Generator,
    *,
    draws: int,
    chains: int,
    cores: int,
    report: Callable[[str], None] = lambda line: None,
) -> Prior:
    """Give a compiled prior the log of its normalizing constant, if that is not 0.

    Where the user counts likelihood terms or potentials to the prior (`tempered=`), or a prior
    has no random draws, the path ends at prior times likelihood with a constant that is that of
    the prior times the evidence. The prior's own is found in the same way, by a run of `draws`
    draws from the same reference to the prior alone; the evidence is the quotient.

    Returns
    -------
    Prior
        The same with its `prior_constant`, log Z of the prior and its error, in nats.
    """
    terms = prior.path.terms
    if terms.normalized_prior:
        return prior
    report("Normalizing the prior, by a run of its own")
    alone, kernel = compile_with_kernels(
        model, choice, target_accept, report, terms=terms.prior_alone()
    )
    chosen = choose_plan(alone, kernel, options, rng, cores=cores, report=report)
    if chosen.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    silent: Any = nullcontext(SimpleNamespace(update=lambda: None))
    outcome = run_rounds(
        chosen, options, Goal(), rng, draws=draws, chains=chains, cores=cores, keep_trace=False,
        watch=lambda *_: silent, report=lambda line: None,
    )  # fmt: skip
    if outcome.interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    evidence = estimate(outcome.chosen, outcome.runs)
    emit_warnings(evidence, "Normalizing the prior: ", stacklevel=4)
    sound = evidence.verdict == "ok"
    return replace(prior, prior_constant=(evidence.log_z, evidence.mcse if sound else np.inf))
