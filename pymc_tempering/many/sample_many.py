"""`sample_many`: the evidences of many models or data sets, on as many processes as there are."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from pymc_tempering.core.status import status_line
from pymc_tempering.exceptions import TemperingWarning, WorkerError
from pymc_tempering.executors.chunks import Ended, check_executor, send_chunks
from pymc_tempering.executors.parcels import as_it_is, pack_made
from pymc_tempering.many.cases import (
    FAILED,
    Assignment,
    Case,
    Done,
    Row,
    cases_of,
    root_seed,
    run_one,
)
from pymc_tempering.many.folder import Folder, open_folder
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.sampling.call import refuse
from pymc_tempering.sampling.sample import sample

OWN = ("model", "random_seed", "progressbar", "progressbar_theme", "quiet", "unknown", "executor")
"""Arguments of `sample` that many runs do not take, or take once for all."""

MOST_NAMED = 5
"""Runs that a warning names."""

type Builder = Callable[[], pm.Model]
type Models = (
    pm.Model | CompiledModel | Sequence[pm.Model | Builder] | Mapping[str, pm.Model | Builder]
)
type Datasets = Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]


def sample_many(
    models: Models,
    datasets: Datasets | None = None,
    *,
    executor: Executor | None = None,
    path: str | os.PathLike[str] | None = None,
    save_draws: bool = True,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
    **sample_arguments: Any,
) -> pd.DataFrame:
    """Sample many models, or one model with many data sets, and return a table of their evidences.

    For subsets of covariates, cross-validation, simulation-based calibration, one held-out datum
    each. Runs are independent. A run that raises an error becomes a row with its message, and the
    others go on.

    Parameters
    ----------
    models : list or dict of models or functions, or one model
        Models, or functions without arguments that build one, which are called in the process
        that samples. The names of a dict are those of the runs; in a list it is the place. With
        `datasets` one model, or the handle that :func:`compile` returns.
    datasets : list or dict of dict, optional
        Data for the one model: from the names of its observed variables and `pm.Data` to arrays
        of the old shapes. A process compiles once for all of them.
    executor : concurrent.futures.Executor, optional
        Who does the work: a pool of processes, or ``client.get_executor()`` of Dask. By default
        the runs go one after the other in this process. Each worker does one run at a time.
    path : path-like, optional
        A folder, for the draws of each run (netCDF) and an index (``index.json``), written as each
        run ends. Called again with the same path, it goes on where it stopped: runs that are
        there are not done again, those that failed are. Runs of another model, other data, another
        seed or other arguments are refused, never written over.
    save_draws : bool, default True
        Whether the draws are written to `path`, and not the table's numbers alone.
    random_seed : int or numpy.random.Generator, optional
        Each run has a seed that is made of this one and its name, so that its numbers depend
        neither on the other runs, nor on their order, nor on who computes it.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.
    **sample_arguments
        For each call of :func:`sample`. With an executor `cores` is 1 unless it is given.

    Returns
    -------
    pandas.DataFrame
        A row a run, by name and in the order given: ``log_z`` and ``mcse`` (nats), ``verdict``
        ("failed" where there was an error), ``ess`` (least bulk effective sample size of all free
        scalars), ``seconds``, ``message`` (warnings of the run, or its error), and with `path`
        ``file``, for :func:`xarray.open_datatree`.

    Raises
    ------
    ArgumentError
        Something is no list, no model, no executor or no argument of :func:`sample`; a name
        comes twice.
    DataMismatchError
        Data that the model does not take, or a `path` with something else in it.
    WorkerError
        A model cannot be sent, a worker has other versions, or the executor takes no work.

    Warns
    -----
    TemperingWarning
        Some runs failed or have another verdict than "ok", Ctrl-C came, or the executor lost its
        workers. The table then has the runs that were finished.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    >>> datasets = {"near": {"y": [1.0, 2.0]}, "far": {"y": [1.0, 9.0]}}
    >>> table = pmt.sample_many(model, datasets, draws=500, random_seed=1, quiet=True)
    >>> bool(table.log_z["near"] > table.log_z["far"])
    True
    """
    check_executor(executor)
    arguments = _arguments(sample_arguments, executor)
    shared, cases = cases_of(models, datasets)
    fresh = root_seed(random_seed)
    asked = None if random_seed is None else fresh
    opened = (
        nullcontext(None)
        if path is None
        else open_folder(path, asked, fresh, sample_arguments, draws=save_draws)
    )
    with opened as folder, status_line(progressbar and not quiet) as report:
        rows: dict[str, Row] = {} if folder is None else _finished(folder, cases, shared, report)
        root = fresh if folder is None else folder.root
        keeps = folder is not None and save_draws
        tasks = [Assignment(c, root, arguments, keeps) for c in cases if c.name not in rows]

        def take(i: int, done: Done) -> None:
            name = tasks[i].case.name
            rows[name] = done.row
            if folder is not None:
                folder.add(name, done)

        def tell(ended: int) -> None:
            failed = sum(row.verdict == FAILED for row in rows.values())
            said = f", {failed} failed" if failed else ""
            report(f"Sampling: {len(rows)} of {len(cases)} models{said}")

        ended = _run(executor, shared, tasks, take, tell)
        _warn(rows, len(cases), ended)
        return _table(rows, cases, folder)


def _arguments(given: Mapping[str, Any], executor: Executor | None) -> dict[str, Any]:
    """Return the arguments for each call of `sample`, all of which it takes."""
    known = {
        name: parameter
        for name, parameter in inspect.signature(sample).parameters.items()
        if name not in OWN
    }
    refuse({k: v for k, v in given.items() if k not in known}, "sample_many", known)
    return dict(given) if executor is None else {"cores": 1} | dict(given)


def _finished(
    folder: Folder | None,
    cases: Sequence[Case],
    shared: pm.Model | None,
    report: Callable[[str], None],
) -> dict[str, Row]:
    """Rows of runs that an earlier call has done, with the same models and data."""
    rows: dict[str, Row] = {}
    if folder is None:
        return rows
    for case in cases:
        row = folder.finished(case.name)
        if row is not None:
            report(f"Found {len(rows) + 1} runs of an earlier call")
            folder.check_content(case.name, case.content(case.build(shared)))
            rows[case.name] = row
    return rows


def _run(
    executor: Executor | None,
    shared: pm.Model | None,
    tasks: Sequence[Assignment],
    take: Callable[[int, Done], None],
    tell: Callable[[int], None],
) -> Ended:
    """Do the runs here or send them."""
    tell(0)
    if not tasks:
        return Ended()
    if executor is not None:
        common = None if shared is None else pack_made("The model", as_it_is, shared)
        return send_chunks(
            executor, run_one, common, tasks, take, what="A model", report=tell, lose=_lost
        )
    try:
        for i, task in enumerate(tasks):
            take(i, run_one(shared, task))
            tell(i + 1)
    except KeyboardInterrupt:
        return Ended(interrupted=True)
    return Ended()


def _lost(message: str) -> Done:
    """Row of a run that ended several workers."""
    return Done(Row(message=message))


def _warn(rows: Mapping[str, Row], n: int, ended: Ended) -> None:
    """Warn of runs that failed, of doubtful ones and of missing ones.

    Raises
    ------
    WorkerError, KeyboardInterrupt
        No run was finished.
    """
    if ended.early and not rows:
        if ended.interrupted:
            raise KeyboardInterrupt("Interrupted before the first run was finished.")
        raise WorkerError(f"{ended.broken} No run was finished.")
    told = []
    if ended.early:
        cause = ended.broken or "Interrupted."
        told.append(
            f"{cause} {len(rows)} of {n} runs were finished; the table has these. With path= the "
            "next call does the others alone."
        )
    failed = {name: row for name, row in rows.items() if row.verdict == FAILED}
    if failed:
        listed = "; ".join(f"{k!r}: {r.message}" for k, r in [*failed.items()][:MOST_NAMED])
        more = f"; and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        told.append(f"{len(failed)} of {len(rows)} runs failed: {listed}{more}.")
    doubtful = [name for name, row in rows.items() if row.verdict not in ("ok", FAILED)]
    if doubtful:
        named = ", ".join(map(repr, doubtful[:MOST_NAMED]))
        more = f" and {len(doubtful) - MOST_NAMED} more" if len(doubtful) > MOST_NAMED else ""
        told.append(
            f"{len(doubtful)} of {len(rows)} runs have another verdict than 'ok': {named}{more}; "
            "the column message says why."
        )
    for sentence in told:
        warnings.warn(sentence, TemperingWarning, stacklevel=3)


def _table(rows: Mapping[str, Row], cases: Sequence[Case], folder: Folder | None) -> pd.DataFrame:
    """Table of the runs that were finished, in the order of the cases."""
    names = [case.name for case in cases if case.name in rows]
    table = pd.DataFrame([asdict(rows[name]) for name in names], index=pd.Index(names, name="name"))
    if folder is not None:
        table["file"] = [folder.file_of(name) for name in names]
    return table
