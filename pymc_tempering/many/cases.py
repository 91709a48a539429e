"""Which runs a call for many models means: their names, models, data and seeds."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.evidence.front import estimate_quietly
from pymc_tempering.exceptions import ArgumentError, DataMismatchError, ModelError, TemperingWarning
from pymc_tempering.executors.parcels import ALONE
from pymc_tempering.model.check import find_model, is_model
from pymc_tempering.model.content_hash import content_hash
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.new_data import checked_data, copy_with_data
from pymc_tempering.sampling.recorded import bulk_ess
from pymc_tempering.sampling.sample import sample

type Builder = Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One run of many.

    Attributes
    ----------
    name : str
    model : pymc.Model or callable, optional
        Its model, or a function that builds it; None where it is the one that all share.
    data : mapping of str to array_like, optional
        What the shared model gets in place of its own data.
    """

    name: str
    model: pm.Model | Builder | None = None
    data: Mapping[str, Any] | None = None

    def with_own_data(self, model: pm.Model) -> pm.Model:
        """Return the model of this run, given the one without its data."""
        return model if self.data is None else copy_with_data(model, self.data)

    def content(self, model: pm.Model) -> str:
        """Hash of the model and its data, the same in each process."""
        return content_hash(model, self.data)

    def build(self, shared: pm.Model | None) -> pm.Model:
        """Return the model of this run, without data of its own.

        Raises
        ------
        ModelError
            A function returned no model.
        """
        if self.model is None:
            assert shared is not None
            return shared
        return find_model(self.model() if _builds(self.model) else self.model)


def _builds(model: Any) -> bool:
    """Whether something is a function that builds a model, and no model itself."""
    return callable(model) and not isinstance(model, CompiledModel) and not is_model(model)


def cases_of(models: Any, datasets: Any = None) -> tuple[pm.Model | None, list[Case]]:
    """Return the model that all share, if there is one, and the runs in their order.

    Raises
    ------
    ArgumentError
        What was given is no list or dict, is empty, or has a name twice.
    ModelError
        Something is neither a model nor a function.
    DataMismatchError
        Data whose name, shape or kind the model does not have.
    """
    if datasets is not None:
        model = _shared(models)
        return model, [
            Case(name, data=_checked(model, name, data))
            for name, data in _named("datasets", datasets).items()
        ]
    return None, [
        Case(name, model if _builds(model) else _found(name, model))
        for name, model in _named("models", models).items()
    ]


def _shared(models: Any) -> pm.Model:
    """Return the one model that data sets go with."""
    if isinstance(models, Mapping | list | tuple):
        raise ArgumentError(
            "With datasets=, models must be one model, or the handle that pmt.compile returns: "
            "each data set goes into it. Call sample_many for each of several models."
        )
    return find_model(models() if _builds(models) else models)


def _found(name: str, model: Any) -> pm.Model:
    """Return a model that was given, or say which one is none."""
    if model is None:
        raise ModelError(f"models[{name!r}] is None: give a model, or a function that builds it.")
    try:
        return find_model(model)
    except ModelError as error:
        raise ModelError(f"models[{name!r}]: {error}") from error


def _checked(model: pm.Model, name: str, data: Any) -> dict[str, np.ndarray]:
    if not isinstance(data, Mapping):
        raise ArgumentError(
            f"datasets[{name!r}] must be a dict from the names of data to arrays, not "
            f"{type(data).__name__}."
        )
    try:
        return checked_data(model, data)
    except DataMismatchError as error:
        raise DataMismatchError(f"datasets[{name!r}]: {error}") from error


def _named(argument: str, things: Any) -> dict[str, Any]:
    """Return things by name: the key of a dict, the place in a list."""
    if isinstance(things, Mapping):
        pairs = [(str(name), thing) for name, thing in things.items()]
    elif isinstance(things, Sequence) and not isinstance(things, str):
        pairs = [(str(place), thing) for place, thing in enumerate(things)]
    else:
        raise ArgumentError(
            f"{argument} must be a list or a dict, not {type(things).__name__}; a single model "
            "goes to pmt.sample, or here with datasets=."
        )
    if not pairs:
        raise ArgumentError(f"{argument} is empty: there is nothing to sample.")
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ArgumentError(
            f"{argument} has the names {', '.join(map(repr, twice))} twice, as text: seeds and "
            "files go by name, so each must be another."
        )
    return named


def root_seed(random_seed: int | np.random.Generator | None) -> int:
    """Return the number that the seeds of all runs come from; a fresh one for None."""
    if isinstance(random_seed, np.random.Generator):
        return int(random_seed.integers(2**63))
    return int(np.random.SeedSequence(random_seed).entropy)  # type: ignore[arg-type]


def generator_of(root: int, name: str) -> np.random.Generator:
    """Return the generator of the run of that name: neither order nor the other runs matter."""
    words = np.frombuffer(sha256(name.encode()).digest(), dtype="<u4")
    return np.random.default_rng(np.random.SeedSequence(root, spawn_key=words.tolist()))


FAILED = "failed"
"""Verdict of a run that raised an error."""


@dataclass(frozen=True)
class Row:
    """What the table says of a run.

    Attributes
    ----------
    log_z, mcse : float
        In nats; not a number where the run failed.
    verdict : str
        Of log Z, or "failed".
    ess : float
        Least bulk effective sample size of all free scalars that were kept.
    seconds : float
        From the model to the row, compiling included.
    message : str
        What the run warned of, or the error that ended it.
    """

    log_z: float = np.nan
    mcse: float = np.nan
    verdict: str = FAILED
    ess: float = np.nan
    seconds: float = np.nan
    message: str = ""


@dataclass(frozen=True, eq=False)
class Assignment:
    """One run as it is sent: its case, its seed, and how to sample.

    Attributes
    ----------
    case : Case
    root : int
        The number that all seeds come from.
    arguments : mapping
        For `sample`.
    keeps_draws : bool
        Whether the draws are to come back.
    """

    case: Case
    root: int
    arguments: Mapping[str, Any]
    keeps_draws: bool


@dataclass(frozen=True, eq=False)
class Done:
    """One run that has ended.

    Attributes
    ----------
    row : Row
    content : str
        Hash of its model and data; empty where there was no model.
    tree : DataTree, optional
        The draws, where they are kept.
    """

    row: Row
    content: str = ""
    tree: xr.DataTree | None = None


def run_one(shared: pm.Model | None, task: Assignment) -> Done:
    """Sample one model; an error becomes a row.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C came before the end.
    """
    began, content = perf_counter(), ""
    # One at a time in each process: PyTensor does not compile in several threads, and warnings are
    # caught for the whole process.
    with ALONE, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            base = task.case.build(shared)
            content = task.case.content(base)
            model = task.case.with_own_data(base)
            idata = sample(
                model=model,
                random_seed=generator_of(task.root, task.case.name),
                progressbar=False,
                quiet=True,
                **task.arguments,
            )
            if idata["tempering"].attrs["interrupted"]:
                raise KeyboardInterrupt
            evidence = estimate_quietly(idata)
        except Exception as error:  # whatever a model raises
            message = f"{type(error).__name__}: {error}"
            return Done(Row(seconds=perf_counter() - began, message=message), content)
    row = Row(
        evidence.log_z,
        evidence.mcse,
        evidence.verdict,
        _least_ess(idata, model),
        perf_counter() - began,
        _warned(said),
    )
    return Done(row, content, idata if task.keeps_draws else None)


def _warned(said: list[warnings.WarningMessage]) -> str:
    """Return what this package warned of, each sentence once."""
    texts = [str(w.message) for w in said if issubclass(w.category, TemperingWarning)]
    return " ".join(dict.fromkeys(texts))


def _least_ess(idata: xr.DataTree, model: pm.Model) -> float:
    posterior = idata["posterior"]
    kept = [posterior[rv.name] for rv in model.free_RVs if rv.name in posterior.data_vars]
    if not kept:
        return np.nan
    values = [np.asarray(variable.values, dtype=float) for variable in kept]
    columns = [v.reshape(*v.shape[:2], -1) for v in values]
    ess = bulk_ess(np.concatenate(columns, axis=2))
    return float(np.nanmin(ess)) if np.isfinite(ess).any() else np.nan
