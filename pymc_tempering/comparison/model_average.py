"""Bayesian model averaging: draws of several models in the shares of their probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.arguments import RandomSeed, called_as, check_whole, rng_of
from pymc_tempering.comparison.compare import (
    all_evidence,
    check_same_data,
    compare,
    normalized,
    of_models,
    prior_of,
    probabilities,
)
from pymc_tempering.comparison.marginal_likelihood import Extras
from pymc_tempering.comparison.runs import RESULT, is_row, prior_in, row_draws, runs_by_name
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.crosscheck.result import CrossCheck
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import ArgumentError, warn_user
from pymc_tempering.model.bambi import NOTED, hint_of
from pymc_tempering.model.check import find_model
from pymc_tempering.model.handle import ModelLike

GROUPS = ("posterior", "posterior_predictive", "predictions", "log_likelihood")
"""Groups that are averaged where all models have them; the first must be there."""

type Weight = float | Evidence | CrossCheck
type Weights = Mapping[str, Weight] | Sequence[Weight] | pd.Series | pd.DataFrame


@called_as("average({'a': idata_a, 'b': idata_b})")
def average(
    idatas: Mapping[str, xr.DataTree] | Sequence[xr.DataTree] | pd.DataFrame,
    weights: Weights | None = None,
    *,
    models: Mapping[str, ModelLike | None] | Sequence[ModelLike | None] | None = None,
    prior: Mapping[str, float] | None = None,
    var_names: Sequence[str] | None = None,
    draws: int | None = None,
    check_data: bool = True,
    cores: int | None = None,
    random_seed: RandomSeed = None,
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
    idatas : mapping of str to DataTree, sequence of DataTree, or DataFrame
        Draws of the models, by name: runs of :func:`sample`, or draws of any other sampler. A
        sequence is named "0", "1", ... Of the table of :func:`sample_many` with a `path` the files
        are read, and its evidences are the weights.
    weights : mapping, sequence, Series or DataFrame, optional
        Weights by model: numbers, which are normalized; an ``Evidence`` or ``CrossCheck``
        each; the frame of :func:`compare`, or a column of that of
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
        Something holds no draws: an Evidence, a fit, a model; or some draws are of Bambi's ``fit``
        and others of a run on a Bambi model. The message says what stands in.
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
    if isinstance(idatas, pd.DataFrame):
        weights, prior = idatas if weights is None else weights, prior_in(idatas, prior)
    named = _named(runs_by_name("average", idatas, check_data=check_data))
    names = list(named)
    check_whole(1, cores=cores, **({} if draws is None else {"draws": draws}))
    rng = rng_of(random_seed)
    given = {} if models is None else _by_name("models", models, names, some=True)
    known = {name: model for name, model in given.items() if model is not None}
    if check_data:
        found = {name: find_model(model) for name, model in known.items()}
        check_same_data(of_models(named), of_models(found))
    groups = shared_groups(named, var_names)
    extras = Extras(None, rng, cores, progressbar and not quiet)
    probability, mcse, source = _shares(named, weights, known, prior, extras)
    model, place = pick_draws(groups["posterior"], probability, draws, rng)
    tree = {group: _join(names, sets, model, place) for group, sets in groups.items()}
    first = next(iter(named.values()))
    if "observed_data" in first.children:
        tree["observed_data"] = first["observed_data"].to_dataset()
    result = xr.DataTree.from_dict(tree)
    result.attrs |= {
        "models": names,
        "weights": probability.tolist(),
        "weights_mcse": mcse.tolist(),
        "weights_from": source,
        "counts": np.bincount(model.ravel(), minlength=len(names)).tolist(),
    }
    return result


def _named(runs: dict[str, Any]) -> dict[str, xr.DataTree]:
    """Trees by name."""
    read = (*GROUPS, "observed_data")
    named = {
        str(name): row_draws(name, run, read) if is_row(run) else run for name, run in runs.items()
    }
    for name, thing in named.items():
        if not isinstance(thing, xr.DataTree):
            raise ArgumentError(
                f"idatas[{name!r}]: a {type(thing).__name__} holds no draws: pass the run itself, "
                "and an estimate of log Z in weights=. pymc_tempering.sample(model=model) makes a "
                "run of a model, and pymc_tempering.to_datatree(fit) makes a DataTree of a fit."
            )
    posteriors = [tree["posterior"] for tree in named.values() if "posterior" in tree.children]
    if any(map(hint_of, posteriors)) and any(NOTED in one.attrs for one in posteriors):
        raise ArgumentError(
            "idatas: intercepts of Bambi's fit and of PyMC's draws mean different things: bring "
            "all draws of Bambi models to those of the fit, by pymc_tempering.to_bambi."
        )
    return named


def _shares(
    named: dict[str, xr.DataTree],
    weights: Weights | None,
    models: Mapping[str, ModelLike | None],
    prior: Mapping[str, float] | None,
    extras: Extras,
) -> tuple[FloatArray, FloatArray, str]:
    """Probabilities of the models, in their order, their errors, and where they come from."""
    names = list(named)
    if isinstance(weights, pd.DataFrame):
        table = weights
        if set(RESULT) <= set(table.columns):
            table = compare(table, prior=prior, check_data=False)
        if not {"probability", "p_mcse"} <= set(table.columns):
            raise ValueError(
                "weights is a frame without the columns probability and p_mcse of compare; of "
                'another one give a column, as in weights=table["weight"].'
            )
        columns = (_by_name("weights", table[name], names) for name in ("probability", "p_mcse"))
        probability, mcse = (np.array([*one.values()], dtype=float) for one in columns)
        return probability, _told(mcse), "table"
    given = named if weights is None else _by_name("weights", weights, names)
    if weights is None or all(isinstance(w, Evidence | CrossCheck) for w in given.values()):
        evidence = all_evidence(of_models(given), of_models(models), False, extras)
        probability, mcse = probabilities(evidence, prior_of(names, prior))
        return probability, _told(mcse), "evidence"
    if prior is not None:
        raise ValueError(
            "prior is for weights that come from evidences; multiply the weights by it instead."
        )
    try:
        numbers = [float(weight) for weight in given.values()]
    except (TypeError, ValueError):
        raise ValueError("weights must be numbers, or an Evidence for each model.") from None
    return normalized("weights", numbers), np.zeros(len(names)), "given"


def _told(mcse: FloatArray) -> FloatArray:
    """Warn if the errors of shares are not known."""
    if not np.isfinite(mcse).all():
        warn_user(
            "The error of an evidence is not known, so neither is that of the models' shares: look "
            "at the verdicts of compare."
        )
    return mcse


def _by_name(what: str, given: Any, names: list[str], *, some: bool = False) -> dict[str, Any]:
    """Bring what is given for each model, or with `some` for some of them, into a dict by name."""
    if isinstance(given, Mapping | pd.Series):
        found = {str(name): one for name, one in given.items()}
        if set(found) - set(names) or (len(found) < len(names) and not some):
            raise ValueError(f"{what} must be of the models {names}, not of {list(found)}.")
        return {name: found[name] for name in names if name in found}
    if isinstance(given, Sequence | np.ndarray) and len(given) == len(names):
        return dict(zip(names, given, strict=True))
    raise ValueError(
        f"{what} must be one for each of {len(names)} models, or by their names, not {given!r}."
    )


def shared_groups(
    named: Mapping[str, xr.DataTree], var_names: Sequence[str] | None
) -> dict[str, list[xr.Dataset]]:
    """Variables that all models have, by group, with their draws in the order (chain, draw, ...).

    Raises
    ------
    ValueError
        There are none, a model lacks one that was asked for, or dimensions, sizes, coordinates or
        numbers of draws differ.
    """
    if lacking := [name for name, tree in named.items() if "posterior" not in tree.children]:
        raise ValueError(f"models {lacking} have no group 'posterior', whose draws are averaged.")
    found = {}
    for group in GROUPS:
        if not all(group in tree.children for tree in named.values()):
            continue
        sets = {name: tree[group].to_dataset() for name, tree in named.items()}
        _check_draws(group, named, sets)
        chosen = var_names if group == "posterior" else None
        names = _names(group, sets, chosen)
        if names:
            for name in names:
                _check_alike(group, name, sets)
            found[group] = [one[names].transpose("chain", "draw", ...) for one in sets.values()]
    return found


def _names(
    group: str, sets: Mapping[str, xr.Dataset], var_names: Sequence[str] | None
) -> list[str]:
    """Names of the variables of a group that are averaged."""
    if var_names is not None:
        wanted = [var_names] if isinstance(var_names, str) else list(var_names)
        lacks = {
            model: lacking
            for model, one in sets.items()
            if (lacking := [name for name in wanted if name not in one.data_vars])
        }
        if lacks or not wanted:
            raise ValueError(f"var_names must be variables of all models; these lack: {lacks}.")
        return wanted
    first, *others = sets.values()
    names = [str(n) for n in first.data_vars if all(n in one.data_vars for one in others)]
    if not names and group == "posterior":
        held = {model: sorted(map(str, one.data_vars)) for model, one in sets.items()}
        raise ValueError(f"the models have no variable in common: {held}.")
    return names


def _check_draws(
    group: str, named: Mapping[str, xr.DataTree], sets: Mapping[str, xr.Dataset]
) -> None:
    """Raise an error unless the draws of a group are those of the posterior."""
    for model, one in sets.items():
        posterior = named[model]["posterior"].to_dataset()
        sizes = [{d: data.sizes.get(d, 0) for d in ("chain", "draw")} for data in (posterior, one)]
        if not all(sizes[0].values()):
            raise ValueError(
                f"the posterior of model {model!r} has no draws along 'chain' and 'draw'."
            )
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"{group} of model {model!r} has {sizes[1]} and its posterior {sizes[0]}, so they "
                "are not of the same draws: draw it for all of them, or drop the group."
            )


def _check_alike(group: str, name: str, sets: Mapping[str, xr.Dataset]) -> None:
    """Raise an error if a variable is not shaped and labeled alike in all models."""
    (first, one), *others = (
        (model, dataset[name].isel(chain=0, draw=0, drop=True)) for model, dataset in sets.items()
    )
    advice = "Rename it, or choose other variables by var_names"
    if group != "posterior":
        advice = "Give it the same dims and coords in all models, or drop the group"
    for model, other in others:
        if list(one.sizes.items()) != list(other.sizes.items()):
            raise ValueError(
                f"{name!r} of {group} has the dimensions {dict(one.sizes)} in model {first!r} and "
                f"{dict(other.sizes)} in model {model!r}. {advice}."
            )
        both = [dim for dim in one.indexes if dim in other.indexes]
        if odd := [dim for dim in both if not one.indexes[dim].equals(other.indexes[dim])]:
            raise ValueError(
                f"{name!r} of {group} has other coordinates along {odd[0]!r} in model {model!r} "
                f"than in model {first!r}. {advice}."
            )


def pick_draws(
    posteriors: Sequence[xr.Dataset],
    probability: FloatArray,
    draws: int | None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Pick draws of models by systematic resampling, for each chain of the result.

    With one uniform number, model i gets floor or ceil of its share of all draws, and its expected
    number is its share. They are dealt to the chains in turn. A chain takes those of a model evenly
    spaced from a stretch of that model's draws: from one chain, where all models have as many.

    Returns
    -------
    model, place : ndarray of int, shape (chain, draw)
        Which model each draw is of, and its place among that model's draws, all chains in a row.
    """
    sizes = np.array([[one.sizes["chain"], one.sizes["draw"]] for one in posteriors])
    totals, n_chains = sizes.prod(axis=1), int(sizes[:, 0].min())
    length = draws or max(int(totals.min()) // n_chains, 1)
    edges = np.floor(np.cumsum(probability) * n_chains * length + rng.random())
    edges[-1] = n_chains * length
    label = np.searchsorted(edges, np.arange(n_chains * length), side="right")
    models, place = label.reshape(length, n_chains).T.copy(), np.empty((n_chains, length), int)
    for chain, model in enumerate(models):
        model[:] = rng.permutation(model)
        for i in np.unique(model):
            start, stop = chain * totals[i] / n_chains, (chain + 1) * totals[i] / n_chains
            count = int(np.sum(model == i))
            spaced = start + (np.arange(count) + rng.random()) * (stop - start) / count
            place[chain, model == i] = np.minimum(spaced.astype(int), totals[i] - 1)
    return models, place


def _join(
    names: Sequence[str], sets: Sequence[xr.Dataset], model: np.ndarray, place: np.ndarray
) -> xr.Dataset:
    """Join the picked draws of a group, with the coordinate `model` of each."""
    variables = {}
    for name in sets[0].data_vars:
        arrays = [one[name] for one in sets]
        flat = [a.values.reshape(-1, *a.shape[2:]) for a in arrays]
        joined = np.empty((*model.shape, *arrays[0].shape[2:]), np.result_type(*flat))
        for i, rows in enumerate(flat):
            joined[model == i] = rows[place[model == i]]
        variables[name] = (arrays[0].dims, joined)
    coords = {"chain": np.arange(model.shape[0]), "draw": np.arange(model.shape[1])}
    labels = {d: c for d, c in sets[0].coords.items() if not {"chain", "draw"} & set(c.dims)}
    result = xr.Dataset(variables, coords | {str(d): c.variable for d, c in labels.items()})
    return result.assign_coords(model=(("chain", "draw"), np.array(names)[model]))
