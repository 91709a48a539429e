"""The front doors ``fit`` and ``refine``, and the fits of a call: here, or on workers."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pymc.variational.opvi import Approximation

from pymc_tempering.arguments import RandomSeed, as_seed, check_whole
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.status import status_line
from pymc_tempering.exceptions import (
    ArgumentError,
    DiscreteVariableError,
    LikelihoodError,
    ModelError,
    warn_user,
)
from pymc_tempering.executors.chunks import Crew, check_executor, pack_made, run_work
from pymc_tempering.model.check import check_densities, find_model, improper_priors
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.exactly import ALONE, no_search_for_garbage
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.index_checks import check_indices
from pymc_tempering.model.layout import is_discrete
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.refusals import terms_named
from pymc_tempering.references.prior import forward_graph
from pymc_tempering.variational.assess import has_minibatch, target_of
from pymc_tempering.variational.fit_step import FAMILIES, compile_step, step_of
from pymc_tempering.variational.methods import FitOptions, plan_fit
from pymc_tempering.variational.stages import FitRun, finish, run_cold, run_fit
from pymc_tempering.variational.tempered_fit import GIVEN, TemperedFit

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
    """Raise an error for a model with nothing to fit, discrete variables, or no density."""
    check_densities(model)
    if not model.free_RVs:
        raise ModelError("The model has no free variables to fit.")
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "The model has no observed data and no potential: its posterior is its prior. Pass "
            "`observed=` to a variable, or add a pm.Potential."
        )
    discrete = [rv.name for rv in model.free_RVs if is_discrete(rv)]
    if discrete:
        raise DiscreteVariableError(
            f"Discrete free variables cannot be fitted: {', '.join(discrete)}. Marginalize them "
            "(pm.Mixture, or pmx.marginalize of pymc-extras), or use pymc_tempering.sample."
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
        for place in range(restarts - 1):
            own = None
            if seed is not None:
                own = int(np.random.SeedSequence([seed, place + 1]).generate_state(1)[0])
            drawn = zip(model.free_RVs, draws, strict=True)
            fits.append(({rv.name: np.asarray(draw)[place] for rv, draw in drawn}, own))
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
    order = approx.groups[0].ordering
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


FIXED = {"approx", "step", "plan", "target", "others", "callbacks", "show"}
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
"""Iterations between two updates of the line."""


@contextmanager
def show_progress(total: int, progressbar: bool) -> Iterator[Callable[[FitRun], None]]:
    """Yield a function that shows the iterations, loss and E[1/T] of a run."""
    with compiling_status(progressbar) as report:
        report("Preparing the fit")
        shown = -SHOW_EVERY

        def show(run: FitRun) -> None:
            nonlocal shown
            if run.n - shown < SHOW_EVERY and run.n < total:
                return
            shown = run.n
            recent = run.losses[max(0, run.n - 1000) : run.n]
            loss = f"{recent.mean():,.5g}" if recent.size else "not known"
            report(f"Fit: {run.n:,} of {total:,} iterations, loss {loss}, E[1/T] {run.at:.3f}")

        yield show


type Judged = TemperedFit | LikelihoodError
"""The report of a fit, or why it has no parameters to keep."""


type FitEnd = tuple[int, dict[str, Any], Judged]
"""What a worker sends back: the place among the starts, all that has changed, and the report."""


def fits_here(
    model: pm.Model,
    options: FitOptions,
    starts: Sequence[Start],
    callbacks: Sequence[Callable[..., None]],
    progressbar: bool,
) -> Iterator[tuple[FitRun, Judged]]:
    """Fit from each start, and say how it ended; one that was interrupted is the last."""
    for start in starts:
        with show_progress(options.n, progressbar) as show, terms_named(model):
            run = begin_fit(model, options, start)
            run.callbacks, run.show = callbacks, show
            run_fit(run)
            judged = _judge(run)
        yield run, judged
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
    crew = Crew(executor, pack_made(_named, model), _named(model))
    tasks = [partial(_fit_one, model, options, start, place) for place, start in enumerate(starts)]
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


RUN = "_tempering_run"
"""Attribute of an approximation that lets ``refine`` continue its fit."""


def fit(
    n: int = 10_000,
    method: str = "annealed",
    model: ModelLike | None = None,
    *,
    approx: str = "meanfield",
    temperatures: Sequence[float] | None = None,
    schedule: str | Callable[[float], float] = "linear",
    tA: float | None = None,
    max_n: int | None = None,
    normalizer: str = "global",
    normalizer_draws: int | None = None,
    inverse_temperature_prior: tuple[float, float] | None = None,
    update_every: int = 10,
    damping: float = 0.9,
    first_temperatures: str = "annealed",
    callbacks: Sequence[Callable[..., None]] | None = None,
    obj_optimizer: Callable[..., Any] | None = None,
    obj_n_mc: int = 1,
    total_grad_norm_constraint: float | None = None,
    start: dict[str, Any] | None = None,
    start_sigma: dict[str, Any] | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    restarts: int = 1,
    trials: int | None = None,
    executor: Executor | None = None,
) -> Approximation:
    """Fit a Gaussian approximation with a likelihood that is hot at first and ends at T = 1.

    As ``pm.fit``, but the likelihood counts with a weight E[1/T] that is below 1 at first, so that
    the fit is less likely to end in a poor local optimum (Mandt et al. 2016). The prior is never
    tempered. Every method ends with a stage at T = 1, so that what is returned approximates the
    posterior of the model as it is written.

    Parameters
    ----------
    n : int, default 10000
        Iterations, tempered ones included.
    method : str, default "annealed"
        "annealed": a schedule lowers the temperature (AVI). "variational_tempering": the
        temperature is a further variable, with a distribution q(T) on a grid (VT).
        "local_variational_tempering": one such variable for each element of the observed data
        (LVT). "advi": T = 1 throughout, the same as ``pm.fit``.
    model : pymc.Model or CompiledModel, optional
        The model of the context by default. All free variables continuous.
    approx : {"meanfield", "fullrank"}, default "meanfield"
        Gaussian with independent elements, or with a full covariance, in the unconstrained space.
    temperatures : sequence of float, optional
        Increasing, from 1. VT: the grid, by default 100 from 1 to 10, evenly spaced in log T. LVT:
        the grid of each datum, by default 10 from 1 to 10, evenly spaced in 1/T. AVI: the last is
        where the schedule starts, by default 10.
    schedule : str or callable, default "linear"
        AVI, and VT's annealed start: "linear" (in T), "exponential" (linear in log T), or a
        function of the share of the annealing, in [0, 1), that gives temperatures of 1 or higher.
    tA : float, optional
        Length of the tempered stage in effective passes over the data: iterations, or, with
        ``pm.Minibatch``, iterations times minibatch size over total size. By default half of
        ``n``. VT and LVT leave it sooner, once E[1/T] and the ELBO are at rest.
    max_n : int, optional
        The stage at T = 1 goes on beyond ``n`` until the ELBO is at rest, to this many iterations
        in all. By default 4 ``n``; ``n`` for "advi".
    normalizer : {"global", "local"}, default "global"
        VT: what the tempered likelihood is divided by, C(T), the average over the prior, or
        c(theta, T). The latter needs no C(T), which may be infinite, but a free scale parameter
        then does what the temperature should.
    normalizer_draws : int, optional
        `draws` of :func:`pymc_tempering.variational.log_partition` for C(T), where it is not known
        exactly. With a number the same seed gives the same fit on machines that are slow and fast.
    inverse_temperature_prior : tuple of float, optional
        LVT: (a, b) for 1/T ~ Beta(a, b) instead of a grid.
    update_every : int, default 10
        Iterations between two updates of the temperature.
    damping : float, default 0.9
        Share of the old log q(T) that an update keeps; in [0, 1), and 0 is no damping. LVT updates
        at each iteration, with a damping that amounts to the same.
    first_temperatures : {"annealed", "uniform"}, default "annealed"
        VT: "annealed" keeps q(T) above the temperature of ``schedule`` for the first 80 % of the
        tempered stage; a function may start above the grid, where C(T) is infinite. "uniform" is
        the paper's form: q(T) starts uniform over the grid, and equation (9) alone moves it.
    callbacks : sequence of callable, optional
        As those of ``pm.fit``: (approx, losses, i) after each iteration. ``StopIteration`` ends
        the stage: a tempered one passes on to T = 1.
    obj_optimizer : callable, optional
        An optimizer of PyMC, by default ``pm.adagrad_window`` as in ``pm.fit``. Its
        steps are small: ``pm.adam(learning_rate=0.01)`` is often at rest sooner.
    obj_n_mc : int, default 1
        Draws from the approximation in each iteration.
    total_grad_norm_constraint : float, optional
        Bound on the norm of the gradient.
    start : dict, optional
        Initial values of variables, as for ``pm.fit``.
    start_sigma : dict, optional
        Initial standard deviations (unconstrained space), by value variable; meanfield only.
    random_seed : int or numpy.random.Generator, optional
        Seed.
    progressbar : bool, default True
        Whether to show progress.
    backend : str, optional
        Backend that PyTensor compiles for.
    compile_kwargs : dict, optional
        Further arguments of the compilation.
    restarts : int, default 1
        Fits, of which the one with the highest final ELBO is returned. The first begins at
        ``start``, the others at draws from the prior; C(T) is computed once.
    trials : int, optional
        Fits at T = 1, one from the same start and the others from draws of the prior, that take
        two thirds of the iterations of the tempered stage; half of them are given up in each
        round, and the best end by the ELBO goes on, a tempered or a cold one. Heat leads out of
        bad starts, and can merge parts of a model. By default 8 for VT with annealed first
        temperatures; 1 for AVI, from the same start and on top of ``n`` as far as ``max_n``
        allows, so that it ends no worse than ``pm.fit`` would there; else 0.
    executor : concurrent.futures.Executor, optional
        Who does the fits, which then run at the same time: a pool of processes, or
        ``client.get_executor()`` of Dask. Same seeds give the same fits. Takes no ``callbacks``.

    Returns
    -------
    Approximation
        PyMC's. With ``restarts``, ``restarts`` holds all of them, each with its ``tempering``.
        ``hist`` holds the loss of each iteration, the negative *tempered* ELBO (of LVT
        without the terms of q(T) alone), scaled as PyMC does with minibatches; ``tempering`` the
        ``TemperedFit``: ELBO at T = 1 (nats), log Z, k-hat, temperatures, and the optimum of
        the tempered model.

    Raises
    ------
    DiscreteVariableError
        If a free variable is discrete.
    ModelError
        If nothing is observed, or a term has no tempered normalizer where one is needed.
    LikelihoodError
        If the ELBO is not finite at the first iteration.
    ValueError
        If temperatures are below 1, lack 1 or do not increase, or another argument is wrong.
    ArgumentError
        If ``executor`` is none, or there are ``callbacks`` beside it.
    WorkerError
        If the workers of the executor cannot do the work.

    Warns
    -----
    TemperingWarning
        If the ELBO is not at rest, k-hat is high, or the ELBO became non-finite: the best
        parameters so far are kept then.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=np.array([1.2, 0.7, 1.1]))
    >>> adam = pm.adam(learning_rate=0.05)
    >>> approx = pmt.fit(2000, model=model, obj_optimizer=adam, random_seed=1, progressbar=False)
    >>> approx.tempering.converged, round(float(approx.mean.eval()[0]), 1)
    (True, 0.8)
    """
    given = locals() | {"log_c": None, "obj_optimizer": obj_optimizer or pm.adagrad_window}
    model = find_model(model)
    check_indices(model)
    check_fittable(model)
    check_executor(executor)
    if executor is not None and callbacks:
        raise ArgumentError(
            "callbacks see a fit while it runs, and with executor= it runs in another process: "
            "leave one of the two out."
        )
    if obj_n_mc > 1 and has_minibatch(model):
        raise ValueError(f"obj_n_mc must be 1 with pm.Minibatch, got {obj_n_mc}")
    options = FitOptions(**{field.name: given[field.name] for field in fields(FitOptions)})
    starts = fit_starts(model, start, restarts, as_seed(random_seed))
    ended = (
        fits_here(model, options, starts, callbacks or (), progressbar)
        if executor is None
        else fits_sent(model, options, starts, executor, progressbar)
    )
    found: list[Approximation] = []
    failure: LikelihoodError | None = None
    for run, judged in ended:
        if isinstance(judged, LikelihoodError):
            failure = failure or judged
        else:
            found.append(_attach(run, judged))
    if failure is not None and not found:
        raise failure
    best = best_of(found, restarts)
    setattr(best, GIVEN, given["model"])
    _warn(best)
    return best


def refine(
    approx: Approximation,
    n: int = 10_000,
    *,
    callbacks: Sequence[Callable[..., None]] | None = None,
    progressbar: bool = True,
) -> Approximation:
    """Continue a fit at T = 1, with the step that was compiled for it.

    Parameters
    ----------
    approx : Approximation
        From :func:`pymc_tempering.fit`; changed in place.
    n : int, default 10000
        Further iterations.
    callbacks : sequence of callable, optional
        As for :func:`pymc_tempering.fit`; ``i`` and ``losses`` count from the very beginning.
    progressbar : bool, default True
        Whether to show progress.

    Returns
    -------
    Approximation
        The same object, its ``hist`` and ``tempering`` brought up to date.

    Raises
    ------
    ValueError
        If ``approx`` does not come from :func:`pymc_tempering.fit`, or ``n`` is below 1.

    Warns
    -----
    TemperingWarning
        As :func:`pymc_tempering.fit` does.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=np.array([1.2, 0.7, 1.1]))
    >>> adam = pm.adam(learning_rate=0.05)
    >>> approx = pmt.fit(2000, model=model, obj_optimizer=adam, random_seed=1, progressbar=False)
    >>> approx = pmt.refine(approx, 500, progressbar=False)
    >>> approx.tempering.n_iterations  # 2000, a trial of 666 at T = 1, and 500
    3166
    """
    run = getattr(approx, RUN, None)
    if not isinstance(run, FitRun):
        raise ValueError("approx does not come from pmt.fit, so there is no fit to continue")
    check_whole(1, n=n)
    run.stopped, run.callbacks = "", callbacks or ()
    goal = run.n + n
    with show_progress(goal, progressbar) as run.show:
        run_cold(run, goal, goal)
        report = finish(run)
    _warn(_attach(run, report))
    return approx


def _attach(run: FitRun, report: TemperedFit) -> Approximation:
    approx = run.approx
    approx.hist = run.losses[: run.n].copy()
    approx.tempering = report
    setattr(approx, RUN, run)
    return approx


def _warn(approx: Approximation) -> None:
    for sentence in approx.tempering.warnings:
        warn_user(sentence)
