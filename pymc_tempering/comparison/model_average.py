"""Bayesian model averaging: draws of several models in the shares of their probabilities."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.comparison.shared_draws import join_group, pick_draws, shared_groups
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.compare import check_same_data, compare
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import TemperingWarning

type Weights = (
    Mapping[str, float | Evidence] | Sequence[float | Evidence] | pd.Series | pd.DataFrame
)


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
    prior: Mapping[str, float] | None = None,
    var_names: Sequence[str] | None = None,
    draws: int | None = None,
    check_data: bool = True,
    random_seed: int | np.random.Generator | None = None,
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
        Runs of the models, by name; a sequence is named "0", "1", ...
    weights : mapping, sequence, Series or DataFrame, optional
        Weights by model: numbers, which are normalized, or an :class:`Evidence` each; the frame of
        :func:`compare`, or a column of that of ``az.compare``. By default posterior probabilities
        from the evidences of the runs.
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
    random_seed : int or numpy.random.Generator, optional
        Seed of the resampling.

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
    ValueError
        No models; weights that do not fit the models, are negative, not finite or all zero; a
        variable that some model lacks or none has in common; variables whose dimensions, sizes or
        coordinates differ; predictions for other draws than the posterior's.
    DataMismatchError
        If the stored observed data differ.
    NotTemperedError, LadderError
        If a run has no evidence and no weights are given.

    Warns
    -----
    TemperingWarning
        For each warning of an evidence, and where the error of the weights is not known.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import GaussianToy, gaussian_run
    >>> runs = {str(s): gaussian_run(400, toy=GaussianToy(2.0, s)) for s in (0.5, 1.0, 2.0)}
    >>> mean = pmt.average(runs, random_seed=1)
    >>> dict(zip(mean.attrs["models"], mean.attrs["counts"]))
    {'0.5': 387, '1.0': 561, '2.0': 652}
    """
    named = _named(idatas)
    check_whole(1, **({} if draws is None else {"draws": draws}))
    shares = _shares(named, weights, prior, check_data)
    groups = shared_groups(named, var_names)
    rng = np.random.default_rng(random_seed)
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


def _named(idatas: Any) -> dict[str, xr.DataTree]:
    """Trees by name."""
    named: dict[str, xr.DataTree] = {}
    if isinstance(idatas, Mapping) and not isinstance(idatas, xr.DataTree):
        named = {str(name): tree for name, tree in idatas.items()}
    elif isinstance(idatas, list | tuple):
        named = {str(i): tree for i, tree in enumerate(idatas)}
    bad = [name for name, tree in named.items() if not isinstance(tree, xr.DataTree)]
    if not named or bad:
        what = f"{bad} are none" if bad else f"not {type(idatas).__name__} of length {len(named)}"
        raise ValueError(
            f"idatas must be DataTrees by name, or a list of DataTrees, {what}: draws are needed "
            "of each model. Evidences go into weights."
        )
    return named


def _shares(
    named: dict[str, xr.DataTree],
    weights: Weights | None,
    prior: Mapping[str, float] | None,
    check_data: bool,
) -> Shares:
    """Probabilities of the models, in their order."""
    names = list(named)
    if check_data:
        check_same_data({f"model {name!r}": tree for name, tree in named.items()})
    if isinstance(weights, pd.DataFrame):
        return _of_table(weights, names, "table")
    given = None if weights is None else _by_name(weights, names)
    if given is None or all(isinstance(w, Evidence) for w in given.values()):
        return _of_table(_compared(named if given is None else given, prior), names, "evidence")
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


def _by_name(weights: Weights, names: list[str]) -> dict[str, float | Evidence]:
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
    models: Mapping[str, xr.DataTree | float | Evidence], prior: Mapping[str, float] | None
) -> pd.DataFrame:
    """Compare models, with the warnings at the line that called `average`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = compare(models, prior=prior, check_data=False)  # type: ignore[arg-type]
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
