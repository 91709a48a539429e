"""The front door of cross-checks: run every estimator that applies, and compare the results."""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.annealed.schedule import WeightedEnds, compile_annealing
from pymc_tempering.arguments import RandomSeed, check_kind, check_whole, rng_of
from pymc_tempering.bridge.proposals import find_fit
from pymc_tempering.bridge.target import check_log_density, find_target
from pymc_tempering.crosscheck.judge import DrawCheck, Entry, compare_draws
from pymc_tempering.crosscheck.registry import ALL_ESTIMATORS, run_estimator, unfit_methods
from pymc_tempering.crosscheck.result import GROUP, CrossCheck, assemble, grouped, to_dataset
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.datatree import REFERENCE_GROUP
from pymc_tempering.evidence.estimators import MODEL, lists_estimators
from pymc_tempering.exceptions import TemperingError, TemperingWarning, WorkerError, warn_user
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.model.bambi import pymc_draws
from pymc_tempering.model.check import find_model_if_any
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.same_model import check_same_model

MAX_RUNGS = 400
"""Rungs of a schedule above which annealed importance sampling is left out by default."""

DRAWS = "draws"
"""Name of the comparison of draws among what is left out."""

MIN_DRAWS = 50
"""Draws of a chain below which draws are not compared."""


@lists_estimators(ALL_ESTIMATORS)
def cross_check(
    idata: xr.DataTree,
    model: ModelLike | None = None,
    methods: Sequence[str] | None = None,
    *,
    others: Mapping[str, Evidence] | None = None,
    random_seed: RandomSeed = None,
    cores: int | None = None,
    executor: Executor | None = None,
    progressbar: bool = True,
    quiet: bool = False,
    extend_inferencedata: bool = False,
) -> CrossCheck:
    """Estimate the evidence by several methods, and test whether they agree.

    Methods that read the tempering run need no model and no new evaluations, but they share their
    draws. If they agree, the run was analyzed well, but it may still have missed a mode. Methods
    with a model are bridge and importance sampling from the posterior draws, which also work on
    plain NUTS draws, and methods that make new runs from the prior.

    Two methods disagree if their difference is larger than their errors allow. The errors of
    independent methods are added in quadrature. Those of methods that share draws are added up,
    since their correlation is not known. Bounds are tested on the side that they bound; a lower
    one above an upper one, beyond their errors, is a disagreement. An error above a nat confirms
    nothing, and a method that is made of another one's sums is no check of it.

    Draws are compared too. The particles of "smc" (or "ais") are looks: weighted posterior draws
    that come from the prior. Where more of them lie beyond the quantiles of the run's
    `log_ratio`, taken to a density that is fitted to half of its draws, the run lacks a region.
    With all tests together the chance of a false alarm is 1 % (see Notes).

    Parameters
    ----------
    idata : DataTree
        A tempering run, or the posterior of any sampler (which needs a model).
    model : pymc.Model or CompiledModel, optional
        The model that it was drawn from; the one on the context stack, if any. Without a model
        only the methods that read the run are used.
    methods : sequence of str, optional
        By default all that are fit for the run and the model; ``left_out`` says why others are
        not. Those that are named run in any case. Those marked (trace) read the flat trace of a
        run, those marked (model) evaluate the model. Draws are compared if "smc" or "ais" is among
        them.

        {estimators}

    others : mapping of str to Evidence, optional
        Further results for the same model, by name, that are independent of `idata`: from a fit
        (``{"psis_vi": approx.tempering.evidence}``), or from another run.
    random_seed : int or numpy.random.Generator, optional
        Seed of the methods that draw random numbers.
    cores : int, optional
        Threads of the methods that evaluate the model; all cores by default.
    executor : concurrent.futures.Executor, optional
        Who does the work of the methods that make runs of their own, in place of threads: a pool
        of processes, or ``client.get_executor()`` of Dask. Each worker compiles the model once.
        Pilots, and bridge and importance sampling, run in this process. The numbers are the same.
    progressbar : bool, default True
        Whether to show which method is at work, and what it is doing.
    quiet : bool, default False
        No progress. Warnings are given all the same.
    extend_inferencedata : bool, default False
        Store the result in ``idata`` as group ``cross_check``, and replace an earlier one. What
        reads the evidence of ``idata`` afterwards then takes it from there.

    Returns
    -------
    CrossCheck
        ``table`` with one row a method (nats), independent ones first, ``verdict``, ``words``, and
        the comparison of draws.

    Raises
    ------
    ValueError
        If a method is not known, or needs a model and there is none; if one of ``others`` is no
        Evidence, or has the name of a method.
    DataMismatchError
        If `idata` is of another model: other variables, other data, or another log density than
        the one that its sampler stored.
    TemperingError
        If no method applies. If ``methods`` are given, the error of the first one that fails.
    ArgumentError
        If ``executor`` is none.
    WorkerError
        If the workers of the executor cannot do the work.

    Warns
    -----
    TemperingWarning
        If the methods or the draws disagree, or fewer than two methods have an error of at most a
        nat. The warnings of the methods are in ``CrossCheck.warnings``.

    Notes
    -----
    The 1 % are made of four tests: all pairs of estimates by Bonferroni (0.4 %), the homogeneity
    of the independent ones (0.3 %), bounds that cross (0.1 %), and the draws (0.2 %).

    Examples
    --------
    >>> import arviz as az, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    ...     y = pm.Normal("y", x, observed=1.0)  # the posterior is N(1/2, 1/2)
    >>> x = np.random.default_rng(1).normal(0.5, 0.5**0.5, size=(4, 500))
    >>> values = {"posterior": {"x": x}, "sample_stats": {"lp": -(x**2) / 2 - (1 - x) ** 2 / 2}}
    >>> idata = az.from_dict(values)
    >>> methods = ["bridge_sampling", "importance_sampling"]
    >>> check = pmt.cross_check(idata, model, methods, random_seed=1, progressbar=False)
    >>> check.verdict, list(check.table.index)
    ('agree', ['bridge_sampling', 'importance_sampling'])
    """
    check_whole(1, cores=cores)
    check_executor(executor)
    stored_in, idata, model = idata, pymc_draws(idata, model), find_model_if_any(model)
    check_kind("idata", idata, xr.DataTree, "the DataTree of a run, or of draws with a posterior")
    if model is not None:
        check_same_model(idata, model)
    chosen = _chosen(methods, model, idata)
    others = others or {}
    _check_others(others, chosen)
    rng, named = rng_of(random_seed), methods is not None
    with compiling_status(progressbar and not quiet) as report:
        task = CheckTask(idata, model, cores, executor, named, report)
        entries, left_out, draws = _run_methods(task, chosen, rng)
    entries += [Entry(label, evidence) for label, evidence in others.items()]
    if not entries:
        raise TemperingError(
            f"no method can estimate the evidence from this DataTree: {grouped(left_out)}"
        )
    check = assemble(entries, left_out, draws)
    if extend_inferencedata:
        stored_in[GROUP] = xr.DataTree(to_dataset(check))
    if check.verdict != "agree":
        warn_user(check.words)
    return check


def _chosen(methods: Sequence[str] | None, model: pm.Model | None, idata: xr.DataTree) -> list[str]:
    """Return the names of the methods to run, and check them before any of them runs."""
    if methods is None:
        return [
            name
            for name, row in ALL_ESTIMATORS.items()
            if row.by_default
            and (row.reads != MODEL or model is not None)
            and (row.reads != "reference" or REFERENCE_GROUP in idata.children)
        ]
    if isinstance(methods, str):
        methods = [methods]
    unknown = [name for name in methods if name not in ALL_ESTIMATORS]
    if unknown or not methods:
        raise ValueError(f"methods must be among {sorted(ALL_ESTIMATORS)}, got {list(methods)}")
    needy = [name for name in methods if ALL_ESTIMATORS[name].reads == MODEL]
    if needy and model is None:
        raise ValueError(f"{needy} need a model: pass model=, or call this inside `with model:`")
    return list(dict.fromkeys(methods))


def _check_others(others: Mapping[str, Evidence], chosen: Sequence[str]) -> None:
    """Raise an error for a result that is no Evidence, or that has the name of a method."""
    for name, evidence in others.items():
        if not isinstance(evidence, Evidence):
            raise ValueError(
                f"others[{name!r}] must be an Evidence, not {type(evidence).__name__}; a fit of "
                "pmt.fit has it as approx.tempering.evidence (None if its prior is improper)."
            )
        if name in chosen:
            raise ValueError(f"others has the name of a method that runs here: {name!r}; rename it")


@dataclass(frozen=True, eq=False)
class CheckTask:
    """What methods work on.

    Attributes
    ----------
    idata : DataTree
    model : pymc.Model, optional
    cores : int, optional
    executor : concurrent.futures.Executor, optional
        In place of threads, for the methods that make runs of their own.
    named : bool
        Whether the methods were asked for by name, so that each of them has to run.
    report : callable
        Takes a line of progress.
    """

    idata: xr.DataTree
    model: pm.Model | None
    cores: int | None
    executor: Executor | None
    named: bool
    report: Any


def _run_methods(
    task: CheckTask, chosen: Sequence[str], rng: np.random.Generator
) -> tuple[list[Entry], dict[str, str], DrawCheck | None]:
    """Run methods, and compare draws with the looks of the last one that has any.

    Each method has a generator of its own, so that what one draws does not depend on others that
    are left out.

    Returns what they found, which were left out and why, and the comparison of draws.

    Raises
    ------
    TemperingError
        Of the first method that fails, if they were asked for by name.
    WorkerError
        The workers of the executor cannot do the work.
    """
    rngs, own = rng.spawn(len(chosen)), rng.spawn(2)
    entries: list[Entry] = []
    left_out = {} if task.named else unfit_methods(task.idata, task.model, list(chosen), own[0])
    looks: tuple[str, WeightedEnds] | None = None
    for k, (name, own_rng) in enumerate(zip(chosen, rngs, strict=True), 1):
        if name in left_out:
            continue
        line = f"Cross-check: {name}, {k}/{len(chosen)}"
        task.report(line)
        row, started = ALL_ESTIMATORS[name], perf_counter()
        try:
            found, ends = _run(name, task, own_rng, line)
        except (TemperingError, ImportError) as error:
            if task.named or isinstance(error, WorkerError):
                raise
            left_out[name] = str(error)
            continue
        took = perf_counter() - started
        for label, evidence in found.items():
            timed = evidence if np.isfinite(evidence.seconds) else replace(evidence, seconds=took)
            entries.append(Entry(label, timed, row.draws, row.repeats))
        looks = looks if ends is None else (name, ends)
    if looks is None or task.model is None:
        return entries, left_out, None
    task.report("Cross-check: draws")
    try:
        method, ends = looks
        draws = check_from_prior(task.idata, task.model, ends, method, own[1], task.cores)
    except TemperingError as error:
        return entries, left_out | {DRAWS: str(error)}, None
    return entries, left_out, draws


def _run(
    name: str, task: CheckTask, rng: np.random.Generator, line: str
) -> tuple[Mapping[str, Evidence], WeightedEnds | None]:
    """Run one method, and keep where its looks ended if it has any; it emits no warnings.

    What it is doing is reported after a line that names it.
    """
    row = ALL_ESTIMATORS[name]

    def report(text: str) -> None:
        task.report(f"{line}: {text}")

    if row.looks is None or task.model is None:
        found = run_estimator(name, task.idata, task.model, rng, task.cores, task.executor)
        return found, None
    most = None if task.named else MAX_RUNGS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        call = compile_annealing(task.model, None, rng, task.cores, task.executor, report)
        evidence, ends = row.looks(call, most)
    return {name: evidence}, ends


def check_from_prior(
    idata: xr.DataTree,
    model: pm.Model,
    ends: WeightedEnds,
    method: str,
    rng: np.random.Generator,
    cores: int | None,
) -> DrawCheck:
    """Compare posterior draws with looks from the prior.

    A mixture of t's with 5 % prior is fitted to the first half of each chain. The second half
    tells the quantiles of the log ratio of the posterior to it.

    Raises
    ------
    ModelError, DataMismatchError, TemperingError
        The draws cannot be seen in the unconstrained space, or are too few.
    """
    target, states = find_target(idata, model, cores)
    chains, draws, dim = states.shape
    if draws < MIN_DRAWS:
        raise TemperingError(f"{draws} draws a chain are too few, {MIN_DRAWS} are needed")
    first, second = states[:, : draws // 2], states[:, draws // 2 :].reshape(-1, dim)
    check_log_density(target.log_density(second), target.path, second)
    density = find_fit("mixture", target)(first.reshape(-1, dim), rng)
    own, _ = density.log_ratio(target, second)
    looks, _ = density.log_ratio(target, ends.states)
    if not np.isfinite(ends.log_w).any():
        raise TemperingError(f"all looks by {method} have weight zero")
    log_w = np.where(np.isfinite(ends.states).all(axis=1), ends.log_w, -np.inf)
    return compare_draws(own.reshape(chains, -1), looks, log_w, ends.group, method=method)
