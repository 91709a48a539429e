"""A compiled model for the workers of an executor: sent as a model, compiled once by each."""

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import pymc as pm

from pymc_tempering.executors.chunks import check_executor, pack_made
from pymc_tempering.executors.crew import Crew, Workers
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.compiled_model import compile_for
from pymc_tempering.model.terms import Terms
from pymc_tempering.references.prior import Prior


def workers_of(
    executor: Executor | None, cores: int | None, prior: Prior, kernel: Compound
) -> Workers:
    """Return threads, or the workers of an executor, which compile the model for themselves.

    Parameters
    ----------
    executor : concurrent.futures.Executor, optional
    cores : int, optional
        Threads where there is no executor.
    prior : Prior
        The compiled model.
    kernel : Compound
        The kernels that it was compiled for.

    Raises
    ------
    ArgumentError
        It is no executor.
    WorkerError
        The model cannot be sent.
    """
    return crew_of(executor, prior, kernel) or cores


def crew_of(executor: Executor | None, prior: Prior, kernel: Compound) -> Crew | None:
    """Return the workers of an executor, if there is one; see :func:`workers_of`."""
    check_executor(executor)
    if executor is None:
        return None
    sent = (prior.path.model, kernel, prior.path.terms)
    return Crew(executor, pack_made("The model", _compiled_here, sent), _parts(prior))


def _compiled_here(sent: tuple[pm.Model, Compound, Terms]) -> Mapping[str, Any]:
    """Compile a model in a worker; it was checked by the process that sent it."""
    model, kernel, terms = sent
    return _parts(compile_for(kernel, model, terms, check=False))


def _parts(prior: Prior) -> dict[str, Any]:
    """Return what each process has of its own, by the name that stands for it."""
    path = prior.path
    return {
        "prior": prior,
        "path": path,
        "model": path.model,
        "density": path.density,
        "draw_into": prior.draw_into,
    }
