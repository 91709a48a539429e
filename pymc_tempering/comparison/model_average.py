"""Bayesian model averaging: draws of several models in the shares of their probabilities."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.comparison.compare import ModelLike, compare
from pymc_tempering.comparison.evidence_of import MODEL_ALONE, Extras, is_fit, is_model_alone
from pymc_tempering.comparison.same_data import check_same_data
from pymc_tempering.comparison.shared_draws import join_group, pick_draws, shared_groups
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.crosscheck import CrossCheck
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import ArgumentError, TemperingWarning
from pymc_tempering.model.check import find_model

type Weight = float | Evidence | CrossCheck
type Weights = Mapping[str, Weight] | Sequence[Weight] | pd.Series | pd.DataFrame


@dataclass(frozen=True)
class Shares:
    """Probabilities of models, their errors, and where they come from; shapes (m,)."""

    probability: FloatArray
    mcse: FloatArray
    source: str


def average(
    idatas: Mapping[str, xr.DataTree] | Sequence[xr.DataTree],
    weights: Weights | None = None,
    *,
    models: Mapping[str, ModelLike] | Sequence[ModelLike] | None = None,
    prior: Mapping[str, float] | None = None,
    var_names: Sequence[str] | None = None,
    draws: int | None = None,
    check_data: bool = True,
    cores: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> xr.DataTree:
    """Average models: posterior and predictive draws in the shares of their probabilities.

    The posterior under all models together, p(theta | y) = sum_i p(M_i | y) p(theta | y, M_i)
    (Hoeting et al. 1999). Draws are picked by systematic resampling, so that the number from each
    model is its share of all draws rounded up or down, and each draw of a model is picked as often
    as any other or once more. The picked draws of a model keep their order, and models alternate
    at random, so that effective sample sizes of the result still tell of autocorrelation.

    Parameters
    ----------
    idatas : mapping of str to DataTree, or sequence of DataTree
        Draws of the models, by name: runs of :func:`sample`, or draws of any other sampler. A
        sequence is named "0", "1", ...
    weights : mapping, sequence, Series or DataFrame, optional
        Weights by model: numbers, which are normalized; an :class:`Evidence` or
        :class:`CrossCheck` each; the frame of :func:`compare`, or a column of that of
        ``az.compare``. By default posterior probabilities from the evidences of the runs, as
        :func:`compare` finds them.
    models : mapping or sequence of pymc.Model or CompiledModel, optional
        The models by the names of the runs, or in their order. Draws of other samplers need them
        for the evidence; None in a sequence stands for one that is not needed. A model on the
        context stack is not used.
    prior : mapping of str to float, optional
        Prior probability of each model, where weights come from evidences; uniform by default.
    var_names : sequence of str, optional
        Variables of ``posterior``; by default those that all models have. A variable of one name
        must mean the same in all of them.
    draws : int, optional
        Draws in each chain of the result, which has as many chains as the model with the fewest;
        by default so many that there are as many draws as the shortest run has.
    check_data : bool, default True
        Raise an error if the observed data differ.
    cores : int, optional
        Threads that evaluate the models; all cores by default.
    random_seed : int or numpy.random.Generator, optional
        Seed of the resampling, and of the methods that take a model.
    progressbar : bool, default True
        Whether to show a line of progress where a model is evaluated.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    DataTree
        Groups ``posterior``, and ``posterior_predictive``, ``predictions`` and ``log_likelihood``
        where all models have them, with dimensions (chain, draw), and ``observed_data``. In each,
        the coordinate ``model`` (chain, draw) names the model of a draw. Attributes of the tree:
        ``models``, ``weights``, ``weights_mcse`` (infinite where not known, 0 for given numbers),
        ``weights_from`` and ``counts``.

    Raises
    ------
    ArgumentError
        Something holds no draws: an Evidence, a fit, a model. The message says what stands in.
    ValueError
        No runs; ``models`` of other names; weights that do not fit the models, are negative, not
        finite or all zero; a variable that some model lacks or none has in common; variables whose
        dimensions, sizes or coordinates differ; predictions for other draws than the posterior's.
    DataMismatchError
        If the stored observed data differ.
    NotTemperedError, LadderError
        If a run has no evidence and no weights are given: draws of another sampler without their
        model, say.

    Warns
    -----
    TemperingWarning
        For each warning of an evidence, and where the error of the weights is not known.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> mean = pmt.average(runs, random_seed=1)  # three runs of pmt.sample
    >>> dict(zip(mean.attrs["models"], mean.attrs["counts"]))
    {'0.5': 387, '1.0': 561, '2.0': 652}
    """
    named = _named(idatas)
    check_whole(1, cores=cores, **({} if draws is None else {"draws": draws}))
    rng = np.random.default_rng(random_seed)
    found = _models(models, list(named))
    if check_data:
        label = {name: f"model {name!r}" for name in named}
        known = {label[name]: model for name, model in found.items()}
        check_same_data({label[name]: tree for name, tree in named.items()}, known)
    groups = shared_groups(named, var_names)
    shares = _shares(
        named, weights, found, prior, Extras(None, rng, cores, progressbar and not quiet)
    )
    picked = pick_draws(groups["posterior"], shares.probability, draws, rng)
    tree = {group: join_group(list(named), sets, picked) for group, sets in groups.items()}
    first = next(iter(named.values()))
    if "observed_data" in first.children:
        tree["observed_data"] = first["observed_data"].to_dataset()
    result = xr.DataTree.from_dict(tree)
    counts = np.bincount(np.concatenate([part.model for part in picked]), minlength=len(named))
    result.attrs |= {
        "models": list(named),
        "weights": shares.probability.tolist(),
        "weights_mcse": shares.mcse.tolist(),
        "weights_from": shares.source,
        "counts": counts.tolist(),
    }
    return result


NO_DRAWS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (
        lambda thing: isinstance(thing, Evidence | CrossCheck),
        "an estimate of log Z holds no draws: pass the run that it is from, and the estimate "
        "itself in weights=",
    ),
    (
        is_fit,
        "a fit is averaged by its draws: pymc_tempering.to_datatree(fit) makes a DataTree of them",
    ),
    (is_model_alone, MODEL_ALONE),
)
"""What is no DataTree, and the sentence that says what can help."""


def _named(idatas: Any) -> dict[str, xr.DataTree]:
    """Trees by name."""
    named: dict[str, Any] = {}
    if isinstance(idatas, Mapping) and not isinstance(idatas, xr.DataTree):
        named = {str(name): tree for name, tree in idatas.items()}
    elif isinstance(idatas, list | tuple):
        named = {str(i): tree for i, tree in enumerate(idatas)}
    if not named:
        what = type(idatas).__name__ + (" of length 0" if hasattr(idatas, "__len__") else "")
        raise ValueError(f"idatas must be DataTrees by name, or a list of them, not {what}.")
    for name, thing in named.items():
        if not isinstance(thing, xr.DataTree):
            kind = f"a {type(thing).__name__} is no DataTree, and its draws are needed"
            why = next((sentence for fits, sentence in NO_DRAWS if fits(thing)), kind)
            raise ArgumentError(f"idatas[{name!r}]: {why}.")
    return named


def _models(models: Any, names: list[str]) -> dict[str, pm.Model]:
    """Models by the names of the runs, without those that are not given."""
    if models is None:
        return {}
    if isinstance(models, Mapping):
        given = {str(name): model for name, model in models.items()}
    elif isinstance(models, list | tuple) and len(models) == len(names):
        given = dict(zip(names, models, strict=True))
    else:
        raise ValueError(
            f"models must be by the names of the runs, {names}, or a list of {len(names)}."
        )
    if unknown := sorted(set(given) - set(names)):
        raise ValueError(f"models has names that idatas lacks: {unknown}; idatas has {names}.")
    return {name: find_model(model) for name, model in given.items() if model is not None}


def _shares(
    named: dict[str, xr.DataTree],
    weights: Weights | None,
    models: Mapping[str, pm.Model],
    prior: Mapping[str, float] | None,
    extras: Extras,
) -> Shares:
    """Probabilities of the models, in their order."""
    names = list(named)
    if isinstance(weights, pd.DataFrame):
        return _of_table(weights, names, "table")
    given: Any = named if weights is None else _by_name(weights, names)
    if weights is None or all(isinstance(w, Evidence | CrossCheck) for w in given.values()):
        return _of_table(_compared(given, models, prior, extras), names, "evidence")
    if prior is not None:
        raise ValueError(
            "prior is for weights that come from evidences; multiply the weights by it instead."
        )
    try:
        weight = np.array([given[name] for name in names], dtype=float)
    except (TypeError, ValueError):
        raise ValueError("weights must be numbers, or an Evidence for each model.") from None
    if not np.all(np.isfinite(weight)) or np.any(weight < 0.0) or weight.sum() == 0.0:
        raise ValueError(f"weights must be finite, not negative and not all 0, got {given}.")
    return Shares(weight / weight.sum(), np.zeros(len(names)), "given")


def _by_name(weights: Weights, names: list[str]) -> dict[str, Weight]:
    """Weights by the names of the models."""
    if isinstance(weights, Mapping | pd.Series):
        given = {str(name): weight for name, weight in weights.items()}
        if set(given) != set(names):
            raise ValueError(f"weights must be of the models {names}, not of {list(given)}.")
        return {name: given[name] for name in names}
    given_list = list(weights) if isinstance(weights, Sequence | np.ndarray) else []
    if len(given_list) != len(names):
        raise ValueError(
            f"weights must be one for each of {len(names)} models, or by their names, not "
            f"{weights!r}."
        )
    return dict(zip(names, given_list, strict=True))


def _compared(
    runs: Mapping[str, Any],
    models: Mapping[str, pm.Model],
    prior: Mapping[str, float] | None,
    extras: Extras,
) -> pd.DataFrame:
    """Compare models, with the warnings at the line that called `average`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = compare(
            runs, models=models, prior=prior, check_data=False, cores=extras.cores,
            random_seed=extras.rng, progressbar=extras.progressbar,
        )  # fmt: skip
    for warning in caught:
        warnings.warn(str(warning.message), warning.category, stacklevel=4)
    return table


def _of_table(table: pd.DataFrame, names: list[str], source: str) -> Shares:
    """Shares from a frame of `compare`."""
    if not {"probability", "p_mcse"} <= set(table.columns):
        raise ValueError(
            "weights is a frame without the columns probability and p_mcse of compare; of another "
            'one give a column, as in weights=table["weight"].'
        )
    found = [str(name) for name in table.index]
    if sorted(found) != sorted(names):
        raise ValueError(f"weights must be of the models {names}, not of {found}.")
    rows = [found.index(name) for name in names]
    mcse = table["p_mcse"].to_numpy(dtype=float)[rows]
    if not np.isfinite(mcse).all():
        warnings.warn(
            "The error of an evidence is not known, so neither is that of the models' shares: look "
            "at the verdicts of compare.",
            TemperingWarning,
            stacklevel=4,
        )
    return Shares(table["probability"].to_numpy(dtype=float)[rows], mcse, source)
