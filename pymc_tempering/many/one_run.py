"""One run of many, in whatever process it falls to: a row of the table, and maybe the draws."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.executors.parcels import ALONE
from pymc_tempering.many.cases import Case, generator_of
from pymc_tempering.sampling.enough_draws import bulk_ess
from pymc_tempering.sampling.sample import sample

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
