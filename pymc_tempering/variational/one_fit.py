"""One fit from its start to its report, and all of it that changes, as plain values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.model.exactly import ALONE, no_search_for_garbage
from pymc_tempering.variational.assess import target_of
from pymc_tempering.variational.fit_loop import FitState
from pymc_tempering.variational.fit_start import Start, first_approximation, prior_locations
from pymc_tempering.variational.kept_steps import step_of
from pymc_tempering.variational.methods import METHODS, Request
from pymc_tempering.variational.objective import compile_step
from pymc_tempering.variational.session import Callbacks, Session, Show, run_cold, run_tempered

OF_RUN = (
    *("losses", "elbo", "inverse_temperature", "n", "q", "q_iteration"),
    *("best", "last", "stopped", "at"),
)
OF_SESSION = ("n_tempered", "trials", "tempered", "local", "rng")
"""Attributes that change while a fit runs, of its `FitState` and of its `Session`."""


@dataclass(frozen=True, eq=False)
class Settings:
    """What all starts of a call of :func:`pymc_tempering.fit` have in common; see there."""

    request: Request
    approx: str
    start_sigma: dict[str, Any] | None
    obj_optimizer: Callable[..., Any]
    total_grad_norm_constraint: float | None
    backend: str | None
    compile_kwargs: dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class FitValues:
    """All of a fit that changes.

    Attributes
    ----------
    run, session : dict
        By the names in `OF_RUN` and `OF_SESSION`.
    moving : list
        Values of what the step changes.
    """

    run: dict[str, Any]
    session: dict[str, Any]
    moving: list[Any]


def begin_fit(model: pm.Model, settings: Settings, start: Start) -> Session:
    """Make the first approximation, its step and the untempered model; compile what is new.

    In one thread at a time: graphs that are made while another thread compiles have other bits.
    """
    with ALONE, no_search_for_garbage():
        return _begun(model, settings, start)


def _begun(model: pm.Model, settings: Settings, start: Start) -> Session:
    request = settings.request
    first, seed = start
    fitted = first_approximation(model, settings.approx, first, settings.start_sigma, seed)
    plan = METHODS[request.method](request, model)
    options: dict[str, Any] = {
        "obj_n_mc": request.obj_n_mc,
        "obj_optimizer": settings.obj_optimizer,
        "total_grad_norm_constraint": settings.total_grad_norm_constraint,
        "backend": settings.backend,
        "compile_kwargs": settings.compile_kwargs,
    }
    step = step_of(
        fitted,
        lambda approx: compile_step(approx, plan.likelihood(approx), **options),
        {"approx": settings.approx, "likelihood": plan.likelihood, **options},
    )
    run = FitState(fitted, step)
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1])
    others = prior_locations(fitted, request.n_trials - 1, seed) if plan.n_trials else ()
    return Session(request.method, run, plan, target_of(fitted), rng, others=others)


def run_fit(
    session: Session, request: Request, callbacks: Callbacks = (), show: Show = lambda run: None
) -> None:
    """Run the tempered stage and the one at T = 1."""
    run_tempered(session, request.update_every, callbacks, show)
    run_cold(session, request.n, request.most, callbacks, show)


def values_of(session: Session) -> FitValues:
    """Copy all of a fit that has changed since it began."""
    return FitValues(
        {name: getattr(session.run, name) for name in OF_RUN},
        {name: getattr(session, name) for name in OF_SESSION},
        [shared.get_value() for shared in session.run.step.moving],
    )


def put_values(session: Session, values: FitValues) -> None:
    """Bring a fit that has just begun to where another process has brought it."""
    for name, value in values.run.items():
        setattr(session.run, name, value)
    for name, value in values.session.items():
        setattr(session, name, value)
    for shared, value in zip(session.run.step.moving, values.moving, strict=True):
        shared.set_value(value)
