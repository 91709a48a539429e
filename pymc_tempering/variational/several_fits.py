"""The fits of a call, from their starts to their reports: here, or on an executor's workers."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pymc.progress_bar import CustomProgress, default_progress_theme
from pymc.variational.opvi import Approximation
from rich.console import Console
from rich.progress import Progress, TextColumn

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.status import status_line
from pymc_tempering.core.threads import Task
from pymc_tempering.exceptions import DiscreteVariableError, LikelihoodError, ModelError
from pymc_tempering.executors.chunks import Crew, pack_made, run_work
from pymc_tempering.model.check import improper_priors
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.exactly import ALONE, no_search_for_garbage
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.references.prior import forward_graph
from pymc_tempering.variational.assess import target_of
from pymc_tempering.variational.fit_step import FAMILIES, compile_step, step_of
from pymc_tempering.variational.methods import FitOptions, plan_fit
from pymc_tempering.variational.stages import Callbacks, FitRun, Show, finish, run_fit
from pymc_tempering.variational.tempered_fit import TemperedFit

type Start = tuple[dict[str, Any] | None, int | None]
"""Initial values of variables and the seed of a fit, which may be left open."""


def first_approximation(
    model: pm.Model,
    approx: str = "meanfield",
    start: dict[str, Any] | None = None,
    start_sigma: dict[str, Any] | None = None,
    random_seed: int | None = None,
) -> Approximation:
    """Make the approximation that a fit begins with; unknown names in ``start`` are an error."""
    known = {rv.name for rv in model.free_RVs} | {value.name for value in model.value_vars}
    if unknown := sorted(set(start or {}) - known):
        raise ValueError(f"start names variables that are not free: {unknown}")
    more = {} if start_sigma is None else {"start_sigma": start_sigma}
    return FAMILIES[approx](model=model, random_seed=random_seed, start=start, **more)


def check_fittable(model: pm.Model) -> None:
    """Raise an error for a model that has nothing to fit, or discrete variables."""
    if not model.free_RVs:
        raise ModelError("The model has no free variables to fit.")
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "The model has no observed data and no potential: its posterior is its prior. Pass "
            "`observed=` to a variable, or add a pm.Potential."
        )
    discrete = [rv.name for rv in model.free_RVs if rv.dtype not in pm.vartypes.continuous_types]
    if discrete:
        raise DiscreteVariableError(
            f"Discrete free variables cannot be fitted: {', '.join(discrete)}. Marginalize them "
            "(pm.Mixture, or pmx.marginalize of pymc-extras)."
        )


def fit_starts(
    model: pm.Model, start: dict[str, Any] | None, restarts: int, seed: int | None
) -> list[Start]:
    """Return start and seed of each fit: the user's first, then draws from the prior."""
    fits: list[Start] = [(start, seed)]
    if restarts > 1:
        # One more than is used: of a single draw PyMC drops the first dimension.
        with ALONE:
            draws = pm.draw(model.free_RVs, draws=restarts, random_seed=seed, mode=python_mode())
        names = [rv.name for rv in model.free_RVs]
        for place in range(restarts - 1):
            own = None
            if seed is not None:
                own = int(np.random.SeedSequence([seed, place + 1]).generate_state(1)[0])
            drawn = (np.asarray(draw)[place] for draw in draws)
            fits.append((dict(zip(names, drawn, strict=True)), own))
    return fits


def prior_locations(approx: Approximation, count: int, seed: int | None) -> list[FloatArray]:
    """Draws from the prior as means of an approximation; none where it cannot be drawn from."""
    model = approx.model
    if count < 1 or improper_priors(model.free_RVs):
        return []
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs]
    place = int(np.random.SeedSequence(seed).spawn(3)[2].generate_state(1)[0])
    graph = freeze_shared(forward_graph(model))
    with ALONE:
        # One more than is used: of a single draw PyMC drops the first dimension.
        draws = pm.draw(graph, draws=count + 1, random_seed=place, mode=python_mode())
    by_name = dict(zip(names, draws, strict=True))
    order = list(approx.groups[0].ordering)
    return [np.concatenate([np.ravel(by_name[name][i]) for name in order]) for i in range(count)]


def best_of(fits: list[Approximation], asked: int) -> Approximation:
    """Return the fit with the highest final ELBO; with several, all of them are kept in it."""
    if asked == 1:
        return fits[0]
    elbo = np.array([fit.tempering.elbo for fit in fits])
    best = fits[int(np.argmax(np.where(np.isnan(elbo), -np.inf, elbo)))]
    best.restarts = tuple(fits)
    if len(fits) < asked:
        sentence = (
            f"{asked - len(fits)} of {asked} fits are missing: the ELBO was not finite at their "
            "first iteration, or the run was interrupted."
        )
        best.tempering = replace(best.tempering, warnings=(*best.tempering.warnings, sentence))
    return best


FIXED = {"approx", "step", "plan", "target", "others"}
"""Attributes of a `FitRun` that stay as they are; all others change while it runs."""


def begin_fit(model: pm.Model, options: FitOptions, start: Start) -> FitRun:
    """Make the first approximation, its step and the untempered model; compile what is new.

    In one thread at a time: graphs that are made while another thread compiles have other bits.
    """
    with ALONE, no_search_for_garbage():
        first, seed = start
        fitted = first_approximation(model, options.approx, first, options.start_sigma, seed)
        plan = plan_fit(options, model)
        compiling: dict[str, Any] = {
            "obj_n_mc": options.obj_n_mc,
            "obj_optimizer": options.obj_optimizer,
            "total_grad_norm_constraint": options.total_grad_norm_constraint,
            "backend": options.backend,
            "compile_kwargs": options.compile_kwargs,
        }
        step = step_of(
            fitted,
            lambda approx: compile_step(approx, plan.likelihood(approx), **compiling),
            {"approx": options.approx, "likelihood": plan.likelihood, **compiling},
        )
        others = prior_locations(fitted, options.n_trials - 1, seed) if plan.n_trials else ()
        rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1])
        target = target_of(fitted)
        return FitRun(fitted, step, plan, target, *step.start(fitted), rng, others)


SHOW_EVERY = 100
"""Iterations between two updates of the bar."""


@contextmanager
def show_progress(total: int, progressbar: bool) -> Iterator[Show]:
    """Yield a function that shows the iterations, loss and E[1/T] of a run."""
    if not progressbar:
        yield lambda run: None
        return
    bar = CustomProgress(
        *Progress.get_default_columns(),
        TextColumn("loss {task.fields[loss]:,.5g}, E[1/T] {task.fields[inverse]:.3f}"),
        console=Console(theme=default_progress_theme),
    )
    with bar:
        task = bar.add_task("Fitting", total=total, loss=np.nan, inverse=np.nan)
        shown = 0

        def show(run: FitRun) -> None:
            nonlocal shown
            if run.n - shown < SHOW_EVERY and run.n < total:
                return
            shown = run.n
            recent = run.losses[max(0, run.n - 1000) : run.n]
            loss = float(recent.mean()) if recent.size else np.nan
            bar.update(task, completed=run.n, total=max(total, run.n), loss=loss, inverse=run.at)

        yield show


type Judged = TemperedFit | LikelihoodError
"""The report of a fit, or why it has no parameters to keep."""


type FitEnd = tuple[int, dict[str, Any], Judged]
"""What a worker sends back: the place among the starts, all that has changed, and the report."""


def fits_here(
    model: pm.Model,
    options: FitOptions,
    starts: Sequence[Start],
    callbacks: Callbacks,
    progressbar: bool,
) -> Iterator[tuple[FitRun, Judged]]:
    """Fit from each start, and say how it ended; one that was interrupted is the last."""
    for start in starts:
        run = begin_fit(model, options, start)
        with show_progress(options.n, progressbar) as show:
            run_fit(run, callbacks, show)
        yield run, _judge(run)
        if run.stopped == "interrupted":
            return


def fits_sent(
    model: pm.Model,
    options: FitOptions,
    starts: Sequence[Start],
    executor: Executor,
    progressbar: bool,
) -> Iterator[tuple[FitRun, Judged]]:
    """As :func:`fits_here`, on the workers of an executor.

    A worker begins each fit, and sends what has changed. It begins here, too, so that it can be
    continued: the first before any is sent, so that what is wrong with the arguments is said at
    once, the others as they are put together.

    Raises
    ------
    WorkerError
        The executor lost its workers, or the model or an argument cannot be sent.
    KeyboardInterrupt
        Ctrl-C came before the first fit was finished.
    """
    run = begin_fit(model, options, starts[0])
    if run.plan.log_c is not None and run.plan.log_c_mcse is not None:
        options = replace(options, log_c=(run.plan.log_c, run.plan.log_c_mcse))
    crew = Crew(executor, pack_made("The model", _named, model), _named(model))
    tasks: list[Task[FitEnd]] = [
        partial(_fit_one, model, options, start, place) for place, start in enumerate(starts)
    ]
    with status_line(progressbar) as report:
        ends, _ = run_work(tasks, crew, lambda done: report(f"Fits: {done} of {len(tasks)}"))
    if not ends:
        raise KeyboardInterrupt("Interrupted before the first fit was finished.")
    for place, changed, judged in ends:
        if place > 0:
            run = begin_fit(model, options, starts[place])
        for name, value in changed.items():
            setattr(run, name, value)
        run.publish()
        yield run, judged


def _named(model: pm.Model) -> Mapping[str, Any]:
    """Name what each process has of its own."""
    return {"model": model}


def _fit_one(
    model: pm.Model, options: FitOptions, start: Start, place: int, stop: threading.Event
) -> FitEnd:
    """Do one fit in a worker."""
    run = begin_fit(model, options, start)
    run_fit(run)
    judged = _judge(run)
    return place, {k: v for k, v in vars(run).items() if k not in FIXED}, judged


def _judge(run: FitRun) -> Judged:
    try:
        return finish(run)
    except LikelihoodError as error:
        return error
