"""The front door of cross-checks: run every estimator that applies, and compare the results."""

import warnings
from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.crosscheck.judge import Entry, judge
from pymc_tempering.crosscheck.registry import ALL_ESTIMATORS
from pymc_tempering.crosscheck.store import GROUP, CrossCheck, make_table, to_dataset
from pymc_tempering.crosscheck.words import put_in_words
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import MODEL, RUN, lists_estimators
from pymc_tempering.evidence.front import estimate_quietly
from pymc_tempering.exceptions import TemperingError, TemperingWarning
from pymc_tempering.model.check import find_model_if_any
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel


@lists_estimators(ALL_ESTIMATORS)
def cross_check(
    idata: xr.DataTree,
    model: pm.Model | CompiledModel | None = None,
    methods: Sequence[str] | None = None,
    *,
    others: Mapping[str, Evidence] | None = None,
    random_seed: int | np.random.Generator | None = None,
    cores: int | None = None,
    progressbar: bool = True,
    extend_inferencedata: bool = True,
) -> CrossCheck:
    """Estimate the evidence by several methods, and test whether they agree.

    Methods that read the tempering run need no model and no new evaluations, but they share their
    draws. If they agree, the run was analyzed well, but it may still have missed a mode. Methods
    with a model are bridge and importance sampling from the posterior draws, which also work on
    plain NUTS draws, and methods that make new runs.

    Two methods disagree if their difference is larger than their errors allow, at a level of 1 %
    for the whole table. The errors of independent methods are added in quadrature. Those of methods
    that share draws are added up, since their correlation is not known. Bounds are tested on the
    side that they bound.

    Parameters
    ----------
    idata : DataTree
        A tempering run, or the posterior of any sampler (which needs a model).
    model : pymc.Model or CompiledModel, optional
        The model that it was drawn from; the one on the context stack, if any. Without a model
        only the methods that read the run are used.
    methods : sequence of str, optional
        By default all that apply, but for those that repeat others. Those marked (trace) read the
        flat trace of a run, those marked (model) evaluate the model.

        {estimators}

    others : mapping of str to Evidence, optional
        Further results for the same model, by name, that are independent of `idata`: from a fit
        (``{"psis_vi": approx.tempering.evidence}``), or from another run.
    random_seed : int or numpy.random.Generator, optional
        Seed of the methods that draw random numbers.
    cores : int, optional
        Threads of the methods that evaluate the model; all cores by default.
    progressbar : bool, default True
        Whether to show which method is at work.
    extend_inferencedata : bool, default True
        Store the result in ``idata`` as group ``cross_check``, and replace an earlier one.

    Returns
    -------
    CrossCheck
        ``table`` with one row a method (nats), ``verdict`` and ``words``.

    Raises
    ------
    ValueError
        If a method is not known, or needs a model and there is none; if one of ``others`` is no
        Evidence, or has the name of a method.
    TemperingError
        If no method applies. If ``methods`` are given, the error of the first one that fails.

    Warns
    -----
    TemperingWarning
        If the methods disagree, or fewer than two have an error. The warnings of the methods are
        in ``CrossCheck.warnings``.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> import xarray as xr
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    ...     y = pm.Normal("y", x, observed=1.0)  # the posterior is N(1/2, 1/2)
    >>> x = np.random.default_rng(1).normal(0.5, 0.5**0.5, size=(4, 500))
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw"), x)})})
    >>> methods = ["bridge_sampling", "importance_sampling"]
    >>> check = pmt.cross_check(idata, model, methods, random_seed=1, progressbar=False)
    >>> check.verdict, list(check.table.index)
    ('agree', ['bridge_sampling', 'importance_sampling'])
    """
    check_whole(1, cores=cores)
    model = find_model_if_any(model)
    chosen = _chosen(methods, model)
    _check_others(others or {}, chosen)
    rng = np.random.default_rng(random_seed)
    entries: list[Entry] = []
    seconds: list[float] = []
    left_out: dict[str, str] = {}
    with compiling_status(progressbar) as report:
        for n, name in enumerate(chosen, 1):
            report(f"Cross-check, method {n} of {len(chosen)}: {name}")
            started = perf_counter()
            try:
                found, draws = _run(name, idata, model, rng, cores)
            except (TemperingError, ImportError) as error:
                if methods is not None:
                    raise
                left_out[name] = str(error)
                continue
            took = perf_counter() - started
            for label, evidence in found.items():
                entries.append(Entry(label, evidence, draws))
                own = evidence.seconds
                seconds.append(own if np.isfinite(own) else took)
    for label, evidence in (others or {}).items():
        entries.append(Entry(label, evidence))
        seconds.append(evidence.seconds)
    if not entries:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise TemperingError(f"no method can estimate the evidence from this DataTree ({reasons})")
    check = assemble(entries, seconds, left_out)
    if extend_inferencedata:
        idata[GROUP] = xr.DataTree(to_dataset(check))
    if check.verdict != "agree":
        warnings.warn(check.words, TemperingWarning, stacklevel=2)
    return check


def assemble(
    entries: Sequence[Entry], seconds: Sequence[float], left_out: Mapping[str, str]
) -> CrossCheck:
    """Judge estimates and put everything into a ``CrossCheck``."""
    found = judge(entries)
    evidence = [entry.evidence for entry in entries]
    # Reading a run needs no new evaluations.
    evaluations = [
        float(0 if entry.draws == RUN else np.nan)
        if entry.evidence.n_evaluations is None
        else float(entry.evidence.n_evaluations)
        for entry in entries
    ]
    table = make_table(
        [entry.method for entry in entries],
        {
            "log_z": [e.log_z for e in evidence],
            "mcse": [e.mcse for e in evidence],
            "bias_direction": [e.bias_direction for e in evidence],
            "n_evaluations": evaluations,
            "seconds": list(seconds),
            "agrees": [found.agrees[entry.method] for entry in entries],
            "draws": [entry.draws for entry in entries],
            "verdict": [e.verdict for e in evidence],
        },
    )
    return CrossCheck(
        table=table,
        verdict=found.verdict,
        words=put_in_words(entries, found, left_out),
        believe=found.believe,
        reference=found.reference,
        left_out=dict(left_out),
        warnings=tuple(f"{e.method}: {text}" for e in entries for text in e.evidence.warnings),
    )


def _chosen(methods: Sequence[str] | None, model: pm.Model | None) -> list[str]:
    """Return the names of the methods to run, and check them before any of them runs."""
    if methods is None:
        return [
            name
            for name, row in ALL_ESTIMATORS.items()
            if row.by_default and (row.reads != MODEL or model is not None)
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


def _run(
    name: str,
    idata: xr.DataTree,
    model: pm.Model | None,
    rng: np.random.Generator,
    cores: int | None,
) -> tuple[Mapping[str, Evidence], str]:
    """Run one method and emit no warnings; they are in what it returns."""
    row = ALL_ESTIMATORS[name]
    if row.reads != MODEL:
        return {name: estimate_quietly(idata, name)}, row.draws
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        found = row.estimate(idata, model, rng.spawn(1)[0], cores)
    return (found if isinstance(found, Mapping) else {name: found}), row.draws
