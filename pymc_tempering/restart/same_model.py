"""Whether the model at hand is the one that a run was begun with, and its compiled form."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.exceptions import CheckpointError, TemperingWarning
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.model.identity import differences, identity_of
from pymc_tempering.model.terms import find_terms
from pymc_tempering.sampling.call import Call, choice_of, kernels_in_words
from pymc_tempering.sampling.compile_loops import compile_loops
from pymc_tempering.sampling.plan_values import compare_probes, probe
from pymc_tempering.sampling.setup import Job


def check_identity(model: pm.Model, stored: dict[str, dict[str, str]]) -> None:
    """Compare a model with what is stored of the one of the run, before anything is compiled.

    Raises
    ------
    CheckpointError
        Variables, data or terms are others; the message names them.
    """
    found = differences(stored, identity_of(model))
    if found:
        raise CheckpointError(
            f"The model here is not the one of the run: {found}. Pass the model and the data that "
            "the run was begun with."
        )


def compile_again(
    model: pm.Model,
    call: Call,
    kernel: KernelChoice,
    words: list[str],
    report: Callable[[str], None],
    *,
    rng: np.random.Generator,
    cores: int,
) -> Job:
    """Compile the model of a run with its kernels.

    Parameters
    ----------
    model : pymc.Model
    call : Call
    kernel : str, Kernel or dict, optional
        Where the run had one of the user's own.
    words : list of str
        Kernels of the run, see `kernels_in_words`.
    report : callable
    rng : numpy.random.Generator
    cores : int

    Raises
    ------
    CheckpointError
        The kernels are not those of the run.
    """
    terms = find_terms(model, call.tempered)
    choice = choice_of(call.kernel, kernel)
    prior, compound = compile_with_kernels(model, choice, call.target_accept, report, terms=terms)
    here = kernels_in_words(compound)
    if here != words:
        raise CheckpointError(
            f"The run has the kernels {'; '.join(words)}, and here they are {'; '.join(here)}: "
            "pass kernel= as at first."
        )
    report("Compiling the loops")
    compile_loops(prior.path, compound, call.options)
    return Job(prior, compound, call.options, rng, cores, report)


def with_checked_density(job: Job, seal: dict[str, Any], constant: tuple[float, float]) -> Job:
    """Compare the compiled density with the stored one, and give the prior its constant.

    Raises
    ------
    CheckpointError
        They differ by more than rounding.

    Warns
    -----
    TemperingWarning
        They differ by rounding.
    """
    same = compare_probes((seal["probe_x"], seal["probe_density"]), probe(job.prior))
    if not same:
        warnings.warn(
            "Densities differ from those of the run in their last digits: this is another machine, "
            "or another library of linear algebra. The draws are of the same law, and not the very "
            "ones that the run would have made.",
            TemperingWarning,
            stacklevel=3,
        )
    return replace(job, prior=replace(job.prior, prior_constant=constant))
