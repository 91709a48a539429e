"""`sample_many`: the evidences of many models or data sets, on as many processes as there are."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import RandomSeed, listed, rng_of
from pymc_tempering.core.status import status_line
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.result import DATA, FAILED
from pymc_tempering.exceptions import (
    ArgumentError,
    DataMismatchError,
    ModelError,
    TemperingWarning,
    WorkerError,
    warn_user,
)
from pymc_tempering.executors.chunks import (
    ALONE,
    Ended,
    as_it_is,
    check_executor,
    pack_made,
    send_chunks,
)
from pymc_tempering.many.folder import Done, Folder, Row, open_folder
from pymc_tempering.model.bambi import is_bambi, noted
from pymc_tempering.model.check import find_model, is_model
from pymc_tempering.model.handle import CompiledModel, ModelLike
from pymc_tempering.model.identity import content_hash, rounded
from pymc_tempering.model.new_data import checked_data, copy_with_data
from pymc_tempering.sampling.call import refuse
from pymc_tempering.sampling.recorded import bulk_ess
from pymc_tempering.sampling.sample import sample

OWN = ("model", "random_seed", "progressbar", "progressbar_theme", "quiet", "unknown", "executor")
"""Arguments of `sample` that many runs do not take, or take once for all."""

MOST_NAMED = 5
"""Runs that a warning names."""

MOST_THINNED, MOST_RANKED = 99, 50
"""Draws that a value is ranked among, and scalars of a model that are ranked, at most."""

type Builder = Callable[[], pm.Model]
type Models = ModelLike | Sequence[pm.Model | Builder] | Mapping[str, pm.Model | Builder]
type Datasets = Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Case:
    """One run of many.

    Attributes
    ----------
    name : str
    model : pymc.Model or callable, optional
        Its model, or a function that builds it; None where it is the one that all share.
    data : mapping of str to array_like, optional
        What the model gets in place of its own data.
    truth : mapping of str to ndarray, optional
        Values of free variables that the data came from, to be ranked among the draws.
    """

    name: str
    model: pm.Model | Builder | None = None
    data: Mapping[str, Any] | None = None
    truth: Mapping[str, np.ndarray] = field(default_factory=dict)

    def build(self, shared: pm.Model | None) -> Any:
        """Return the model of this run, without data of its own, as it was given."""
        given: Any = shared if self.model is None else self.model
        return given() if _builds(given) else given


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
            for name, data in by_name("datasets", datasets).items()
        ]
    return None, [
        Case(name, model if _builds(model) else found_model(name, model))
        for name, model in by_name("models", models).items()
    ]


def _shared(models: Any) -> pm.Model:
    """Return the one model that data sets go with."""
    if isinstance(models, Mapping | list | tuple):
        raise ArgumentError(
            "With datasets=, models must be one model, or the handle that pmt.compile returns: "
            "each data set goes into it. Call sample_many for each of several models."
        )
    return find_model(models() if _builds(models) else models)


def found_model(name: str, model: Any) -> Any:
    """Return a model of PyMC, or of Bambi, that was given; or say which one is none."""
    if model is None:
        raise ModelError(f"models[{name!r}] is None: give a model, or a function that builds it.")
    try:
        return model if is_bambi(model) else find_model(model)
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


def by_name(argument: str, things: Any) -> dict[str, Any]:
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
            f"{argument} has the names {listed(twice)} twice, as text: seeds and "
            "files go by name, so each must be another."
        )
    return named


def root_seed(random_seed: RandomSeed) -> int:
    """Return the number that the seeds of all runs come from; a fresh one for None."""
    if isinstance(random_seed, np.random.Generator | np.random.RandomState):
        return int(rng_of(random_seed).integers(2**63))
    return int(np.random.SeedSequence(random_seed).entropy)  # type: ignore[arg-type]


def generator_of(root: int, name: str) -> np.random.Generator:
    """Return the generator of the run of that name: neither order nor the other runs matter."""
    words = np.frombuffer(sha256(name.encode()).digest(), dtype="<u4")
    return np.random.default_rng(np.random.SeedSequence(root, spawn_key=words.tolist()))


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
            given = task.case.build(shared)
            base = find_model(given)
            content = content_hash(base, task.case.data)
            data = task.case.data
            model = base if data is None else copy_with_data(base, data)
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
    ess = _least_ess(idata, model)
    texts = [str(w.message) for w in said if issubclass(w.category, TemperingWarning)]
    rng = generator_of(task.root, f"ranks of {task.case.name}")
    ranks = ranks_of(idata["posterior"], task.case.truth, ess, rng)
    row = Row(
        evidence.log_z, evidence.mcse, evidence.verdict, ess, perf_counter() - began,
        " ".join(dict.fromkeys(texts)), data_hash(idata), ranks,
    )  # fmt: skip
    return Done(row, content, noted(idata, given) if task.keeps_draws else None)


def data_hash(idata: xr.DataTree) -> str:
    """Return a hash of the observed data of a run, whatever their names, up to rounding."""
    if "observed_data" not in idata.children:
        return ""
    parts = [rounded(data.values) for data in idata["observed_data"].data_vars.values()]
    return sha256(b"".join(sorted(parts))).hexdigest()


def _least_ess(idata: xr.DataTree, model: pm.Model) -> float:
    posterior = idata["posterior"]
    kept = [posterior[rv.name] for rv in model.free_RVs if rv.name in posterior.data_vars]
    if not kept:
        return np.nan
    values = [np.asarray(variable.values, dtype=float) for variable in kept]
    columns = [v.reshape(*v.shape[:2], -1) for v in values]
    ess = bulk_ess(np.concatenate(columns, axis=2))
    return float(np.nanmin(ess)) if np.isfinite(ess).any() else np.nan


def ranks_of(
    posterior: Any, truth: Mapping[str, np.ndarray], ess: float, rng: np.random.Generator
) -> dict[str, float]:
    """Return the ranks of true values among thinned draws, as shares in (0, 1), by scalar.

    Half as many draws as independent ones are kept, so that little of their autocorrelation is
    left. Ties, and the steps of a rank, are broken at random: right draws have uniform shares.
    """
    size = posterior.sizes["chain"] * posterior.sizes["draw"]
    kept = np.linspace(0, size - 1, int(np.clip(np.nan_to_num(ess) // 2, 1, MOST_THINNED)))
    shares = {}
    for name, value in truth.items():
        if name not in posterior.data_vars:
            continue
        draws = posterior[name].transpose("chain", "draw", ...).values
        thinned = draws.reshape(size, -1)[kept.astype(int)]
        below = np.sum(thinned < value.ravel(), axis=0)
        ties = np.sum(thinned == value.ravel(), axis=0)
        share = (below + rng.random(below.size) * (ties + 1)) / (len(kept) + 1)
        for place, one in zip(np.ndindex(value.shape), share.tolist(), strict=True):
            shares[f"{name}{[*place]}" if place else name] = one
    few = np.unique(np.linspace(0, len(shares) - 1, min(len(shares), MOST_RANKED)).astype(int))
    return {name: shares[name] for name in np.array([*shares])[few].tolist()}


def sample_many(
    models: Models,
    datasets: Datasets | None = None,
    *,
    executor: Executor | None = None,
    path: str | os.PathLike[str] | None = None,
    save_draws: bool = True,
    random_seed: RandomSeed = None,
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
        ``file``, for :func:`xarray.open_datatree`. :func:`compare`, :func:`average` and
        :func:`inclusion_probabilities` take it as it is.

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
    shared, cases = cases_of(models, datasets)
    rows, folder = run_cases(
        lambda root: cases, shared, executor=executor, path=path, save_draws=save_draws,
        random_seed=random_seed, show=progressbar and not quiet, given=sample_arguments,
    )  # fmt: skip
    return table_of(rows, cases, folder)


def run_cases(
    cases_at: Callable[[int], list[Case]],
    shared: pm.Model | None = None,
    *,
    executor: Executor | None,
    path: str | os.PathLike[str] | None,
    save_draws: bool,
    random_seed: RandomSeed,
    show: bool,
    given: Mapping[str, Any],
    caller: str = "sample_many",
) -> tuple[dict[str, Row], Folder | None]:
    """Do all runs that are not done yet, and return their rows by name.

    The cases are a function of the number that all seeds come from, which `path` may hold.
    """
    check_executor(executor)
    arguments = _arguments(given, executor, caller)
    fresh = root_seed(random_seed)
    asked = None if random_seed is None else fresh
    opened = (
        nullcontext(None)
        if path is None
        else open_folder(path, asked, fresh, given, draws=save_draws)
    )
    with opened as folder, status_line(show) as report:
        root = fresh if folder is None else folder.root
        cases = cases_at(root)
        rows = {} if folder is None else _finished(folder, cases, shared, report)
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
        return rows, folder


def _arguments(given: Mapping[str, Any], executor: Executor | None, caller: str) -> dict[str, Any]:
    """Return the arguments for each call of `sample`, all of which it takes."""
    known = {
        name: parameter
        for name, parameter in inspect.signature(sample).parameters.items()
        if name not in OWN
    }
    refuse({k: v for k, v in given.items() if k not in known}, caller, known)
    return dict(given) if executor is None else {"cores": 1} | dict(given)


def _finished(
    folder: Folder, cases: Sequence[Case], shared: pm.Model | None, report: Callable[[str], None]
) -> dict[str, Row]:
    """Rows of runs that an earlier call has done, with the same models and data."""
    rows: dict[str, Row] = {}
    for case in cases:
        row = folder.finished(case.name)
        if row is not None:
            report(f"Found {len(rows) + 1} runs of an earlier call")
            folder.check_content(case.name, content_hash(case.build(shared), case.data))
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
        common = None if shared is None else pack_made(as_it_is, shared)
        return send_chunks(
            executor, run_one, common, tasks, take, what="A model", report=tell,
            lose=lambda message: Done(Row(message=message)),
        )  # fmt: skip
    try:
        for i, task in enumerate(tasks):
            take(i, run_one(shared, task))
            tell(i + 1)
    except KeyboardInterrupt:
        return Ended(interrupted=True)
    return Ended()


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
        named = "; ".join(f"{k!r}: {r.message}" for k, r in [*failed.items()][:MOST_NAMED])
        more = f"; and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        told.append(f"{len(failed)} of {len(rows)} runs failed: {named}{more}.")
    doubtful = [name for name, row in rows.items() if row.verdict not in ("ok", FAILED)]
    if doubtful:
        told.append(
            f"{len(doubtful)} of {len(rows)} runs have another verdict than 'ok': "
            f"{listed(doubtful, MOST_NAMED)}; the column message says why."
        )
    for sentence in told:
        warn_user(sentence)


def table_of(
    rows: Mapping[str, Row], cases: Sequence[Case], folder: Folder | None = None
) -> pd.DataFrame:
    """Table of the runs that were finished, in the order of the cases."""
    names = [case.name for case in cases if case.name in rows]
    table = pd.DataFrame([asdict(rows[name]) for name in names], index=pd.Index(names, name="name"))
    table.attrs[DATA] = table["data"].to_dict()
    table = table.drop(columns=["ranks", "data"])
    if folder is not None:
        table["file"] = [folder.file_of(name) for name in names]
    return table
