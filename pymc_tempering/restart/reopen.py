"""From what is kept of a run to its job and its plan, if the model at hand is that of the run."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.core.installed import versions_of
from pymc_tempering.exceptions import CheckpointError, warn_user
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.identity import differences, identity_of
from pymc_tempering.model.terms import find_terms
from pymc_tempering.sampling.call import Job, choice_of, kernels_in_words
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.compile_loops import compile_loops
from pymc_tempering.sampling.kept import CODEC, probe, read_plan
from pymc_tempering.storage.plain_values import unpack

NEAR = 1e-6
"""Relative difference of densities above which the model is another one. Less comes from another
machine or library."""


def read_about(part: bytes, packages: Iterable[str]) -> dict[str, Any]:
    """Read what a run is known by, if these packages have the versions of the run.

    Raises
    ------
    CheckpointError
        Some differ; the message has both.
    """
    plain, _ = unpack(part)  # of another version even the classes may be others
    check_versions(plain["dict"]["versions"]["dict"], packages)
    about: dict[str, Any] = CODEC.from_bytes(part)
    return about


def check_versions(stored: dict[str, str], packages: Iterable[str]) -> None:
    """Compare stored versions with those here.

    Raises
    ------
    CheckpointError
    """
    now = versions_of(packages)
    other = [
        f"{name} {stored.get(name)} (here {version})"
        for name, version in now.items()
        if stored.get(name) != version
    ]
    if other:
        raise CheckpointError(
            f"The run was begun with {', '.join(other)}, and another version may give other "
            "draws: go on with it where these versions are installed."
        )


def reopen(
    about: dict[str, Any],
    plan: bytes,
    model: pm.Model | CompiledModel | None,
    kernel: KernelChoice,
    *,
    cores: int,
    show: bool,
) -> tuple[Job, ChosenPlan]:
    """Compile the model of a run, and read its plan.

    Parameters
    ----------
    about : dict
        See `read_about`.
    plan : bytes
    model : pymc.Model or CompiledModel, optional
    kernel : str, Kernel or dict, optional
        Where the run had one of the user's own.
    cores : int
    show : bool
        Whether to show a line of progress.

    Raises
    ------
    CheckpointError
        Model, data or kernels are not those of the run; the message names what differs.

    Warns
    -----
    TemperingWarning
        Densities differ from those of the run by rounding.
    """
    model, call = find_model(model), about["call"]
    found = differences(about["seal"]["identity"], identity_of(model))
    if found:  # before anything is compiled
        raise CheckpointError(
            f"The model here is not the one of the run: {found}. Pass the model and the data that "
            "the run was begun with."
        )
    with compiling_status(show) as report:
        terms, choice = find_terms(model, call.tempered), choice_of(call.kernel, kernel)
        prior, compound = compile_with_kernels(
            model, choice, call.target_accept, report, terms=terms
        )
        here, words = kernels_in_words(compound), about["kernels"]
        if here != words:
            raise CheckpointError(
                f"The run has the kernels {'; '.join(words)}, and here they are "
                f"{'; '.join(here)}: pass kernel= as at first."
            )
        report("Compiling the loops")
        compile_loops(prior.path, compound, call.options)
        prior = replace(prior, prior_constant=about["prior_constant"])
        job = Job(prior, compound, call.options, np.random.default_rng(0), cores, report)
    _check_density(job, about["seal"])
    return job, read_plan(job, plan)


def _check_density(job: Job, seal: dict[str, Any]) -> None:
    """Compare the compiled density with the stored one at some states."""
    same, stored = True, (seal["probe_x"], seal["probe_density"])
    for name, old, new in zip(("prior draws", "density"), stored, probe(job.prior), strict=True):
        if not (
            old.shape == new.shape and np.allclose(old, new, rtol=NEAR, atol=NEAR, equal_nan=True)
        ):
            raise CheckpointError(
                f"The model here is not the one of the run: its {name} differ. Pass the model and "
                "the data that the run was begun with."
            )
        same = same and bool(np.array_equal(old, new, equal_nan=True))
    if not same:
        warn_user(
            "Densities differ from those of the run in their last digits: this is another machine, "
            "or another library of linear algebra. The draws are of the same law, and not the very "
            "ones that the run would have made."
        )
