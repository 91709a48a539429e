"""Methods of a cross-check, one after another: what they found, and which were left out and why."""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.annealed.schedule import WeightedEnds, annealing_of, compile_movers
from pymc_tempering.crosscheck.draw_check import DrawCheck
from pymc_tempering.crosscheck.entry import Entry
from pymc_tempering.crosscheck.fitness import is_of_another_sampler, unfit_for_prior, unfit_for_run
from pymc_tempering.crosscheck.look_runs import LOOKING, check_from_prior
from pymc_tempering.crosscheck.method_progress import Steps
from pymc_tempering.crosscheck.registry import ALL_ESTIMATORS
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import MODEL, estimate_quietly
from pymc_tempering.exceptions import TemperingError, TemperingWarning, WorkerError

MAX_RUNGS = 400
"""Rungs of a schedule above which annealed importance sampling is left out by default."""

NO_RUN = "they read a tempering run, which these draws are not"
"""Why methods are left out of the check of draws of another sampler."""

DRAWS = "draws"
"""Name of the comparison of draws among what is left out."""


@dataclass(frozen=True, eq=False)
class CheckTask:
    """What methods work on.

    Attributes
    ----------
    idata : DataTree
    model : pymc.Model, optional
    rng : numpy.random.Generator
    cores : int, optional
    executor : concurrent.futures.Executor, optional
        In place of threads, for the methods that make runs of their own.
    named : bool
        Whether the methods were asked for by name, so that each of them has to run.
    """

    idata: xr.DataTree
    model: pm.Model | None
    rng: np.random.Generator
    cores: int | None
    executor: Executor | None
    named: bool


@dataclass(frozen=True, eq=False)
class Found:
    """What methods have found.

    Attributes
    ----------
    entries : list of Entry
    seconds : list of float
        Of each entry.
    left_out : dict of str to str
    draws : DrawCheck or None
    """

    entries: list[Entry]
    seconds: list[float]
    left_out: dict[str, str]
    draws: DrawCheck | None


def run_methods(task: CheckTask, chosen: Sequence[str], steps: Steps) -> Found:
    """Run methods, and compare draws with those of the first one that has looks.

    Each method has a generator of its own, so that what one draws does not depend on others that
    are left out.

    Raises
    ------
    TemperingError
        Of the first method that fails, if they were asked for by name.
    WorkerError
        The workers of the executor cannot do the work.
    """
    rngs = dict(zip(chosen, task.rng.spawn(len(chosen)), strict=True))
    own = task.rng.spawn(2)
    entries: list[Entry] = []
    seconds: list[float] = []
    left_out = {} if task.named else _unfit(task, chosen, own[0])
    looks: tuple[str, WeightedEnds] | None = None
    for name in chosen:
        steps.begin(name)
        if name not in left_out:
            started = perf_counter()
            try:
                found, ends = _run(name, task, rngs[name], steps)
            except (TemperingError, ImportError) as error:
                if task.named or isinstance(error, WorkerError):
                    raise
                left_out[name] = str(error)
            else:
                row, took = ALL_ESTIMATORS[name], perf_counter() - started
                for label, evidence in found.items():
                    entries.append(Entry(label, evidence, row.draws, row.repeats))
                    mine = evidence.seconds
                    seconds.append(mine if np.isfinite(mine) else took)
                if ends is not None and (looks is None or name == next(iter(LOOKING))):
                    looks = name, ends
        steps.end()
    draws = None
    if looks is not None and task.model is not None:
        steps.begin("draws")
        try:
            draws = check_from_prior(task.idata, task.model, looks[1], looks[0], own[1], task.cores)
        except TemperingError as error:
            left_out[DRAWS] = str(error)
    return Found(entries, seconds, left_out, draws)


def _unfit(task: CheckTask, chosen: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Say which of the chosen methods do not suit the run or the model, and why."""
    unfit = dict(unfit_for_run(task.idata))
    if task.model is not None and is_of_another_sampler(task.idata):
        unfit |= {name: NO_RUN for name, row in ALL_ESTIMATORS.items() if row.reads != MODEL}
    if task.model is not None and "thermodynamic_integration" in chosen:
        with suppress(TemperingError):  # the method itself says why it does not run
            unfit |= unfit_for_prior(compile_movers(task.model, None, lambda line: None), rng)
    return {name: why for name, why in unfit.items() if name in chosen}


def _run(
    name: str, task: CheckTask, rng: np.random.Generator, steps: Steps
) -> tuple[Mapping[str, Evidence], WeightedEnds | None]:
    """Run one method and emit no warnings; they are in what it returns."""
    row, model = ALL_ESTIMATORS[name], task.model
    if row.reads != MODEL:
        return {name: estimate_quietly(task.idata, name)}, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        if name in LOOKING and model is not None:
            movers = compile_movers(model, None, steps.report)
            limit = {"most": MAX_RUNGS} if name == "ais" and not task.named else {}
            call = annealing_of(movers, rng, task.cores, task.executor, steps.report)
            evidence, ends = LOOKING[name](call, **limit)
            return {name: evidence}, ends
        found = row.estimate(task.idata, model, rng, task.cores, task.executor)
    return (found if isinstance(found, Mapping) else {name: found}), None
