"""Compare models by their evidence: Bayes factors and posterior model probabilities."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pymc.backends.arviz import find_observations

from pymc_tempering.arguments import (
    RandomSeed,
    called_as,
    check_choice,
    check_whole,
    listed,
    rng_of,
)
from pymc_tempering.comparison.marginal_likelihood import Extras, evidence_of
from pymc_tempering.comparison.runs import prior_in, runs_by_name
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.datatree import POTENTIAL_DATA
from pymc_tempering.evidence.factor import SCALES, BayesFactor
from pymc_tempering.evidence.result import Evidence, emit_warnings
from pymc_tempering.exceptions import DataMismatchError, TemperingError
from pymc_tempering.model.bambi import pymc_draws
from pymc_tempering.model.check import find_model, is_model
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.identity import hash_of_data, potential_data


@called_as("bayes_factor(a, b)")
def bayes_factor(
    a: Any,
    b: Any,
    *,
    models: Sequence[ModelLike | None] | None = None,
    scale: str = "kass_raftery",
    check_data: bool = True,
    cores: int | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> BayesFactor:
    """Return the log Bayes factor of model ``a`` over model ``b``.

    log BF = log Z_a - log Z_b with mcse sqrt(mcse_a^2 + mcse_b^2), in words by the categories of
    Kass & Raftery (1995, section 3.2) on 2 log BF, or by the grades of Jeffreys (1961).

    Parameters
    ----------
    a, b : DataTree, Evidence, CrossCheck or Approximation
        What there is of the two models: whatever :func:`log_marginal_likelihood` takes.
    models : pair of pymc.Model or CompiledModel, optional
        The models of ``a`` and ``b``. Posterior draws of other samplers need them; None stands for
        one that is not needed. A model on the context stack is not used.
    scale : {"kass_raftery", "jeffreys"}, default "kass_raftery"
        Whose words ``BayesFactor.words`` are.
    check_data : bool, default True
        Raise an error if the observed data of DataTrees, fits or models differ. An ``Evidence``
        holds no data.
    cores : int, optional
        Threads that evaluate the models; all cores by default.
    random_seed : int or numpy.random.Generator, optional
        Seed of the methods that draw random numbers: those that take a model.
    progressbar : bool, default True
        Whether to show a line of progress where a model is evaluated.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    BayesFactor
        In nats, positive in favor of ``a``.

    Raises
    ------
    DataMismatchError
        If the stored observed data differ.
    NotTemperedError
        If no evidence can be had from one of them; the message names what can help.
    TemperingError
        As :func:`log_marginal_likelihood`.
    ValueError
        If ``models`` are not two, or ``scale`` is not known.

    Warns
    -----
    TemperingWarning
        For each warning of an estimate that is made here.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> bf = pmt.bayes_factor(near, far)  # two runs of pmt.sample
    >>> bf.words
    'positive evidence in favor of the first model'
    >>> bf.in_words("jeffreys")
    'substantial evidence in favor of the first model'
    >>> round(bf.posterior_odds(prior_odds=0.5).probability, 1)
    0.8
    """
    check_choice("scale", scale, SCALES)
    runs = {"the first model": a, "the second model": b}
    if models is not None and (not isinstance(models, Sequence) or len(models) != 2):
        raise ValueError(f"models must be the two models of a and b, not {models!r}")
    pair = dict(zip(runs, models, strict=True)) if models is not None else {}
    extras = Extras(None, rng_of(random_seed), cores, progressbar and not quiet)
    first, second = all_evidence(runs, pair, check_data, extras)
    mcse = float(np.hypot(first.mcse, second.mcse))
    sentences = [f"First model: {s}" for s in first.warnings]
    sentences += [f"Second model: {s}" for s in second.warnings]
    methods = (first.method, second.method)
    log_bf = first.log_z - second.log_z
    return BayesFactor(log_bf, mcse, tuple(sentences), scale, methods=methods)


@called_as("compare({'a': idata_a, 'b': idata_b})")
def compare(
    runs: Mapping[str, Any] | Sequence[Any] | pd.DataFrame,
    *,
    models: Mapping[str, ModelLike | None] | None = None,
    prior: Mapping[str, float] | None = None,
    check_data: bool = True,
    cores: int | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> pd.DataFrame:
    """Compare models by evidence and posterior model probability.

    p(M_i | y) is proportional to prior_i Z_i. Its error is that of the delta method:
    var p_i = p_i^2 sum_j (1[i = j] - p_j)^2 mcse_j^2.

    Parameters
    ----------
    runs : mapping of str to DataTree, Evidence, CrossCheck or Approximation, or DataFrame
        What there is of each model, by its name: whatever :func:`log_marginal_likelihood` takes,
        of different kinds if need be. A list is named "0", "1", ... The table of
        :func:`sample_many` is taken as it is, and no file of it is opened.
    models : mapping of str to pymc.Model or CompiledModel, optional
        The models by the same names, for those whose posterior draws are of another sampler. A
        model on the context stack is not used.
    prior : mapping of str to float, optional
        Prior probability of each model; they are normalized. Uniform by default, or what a table
        of :func:`compare` has.
    check_data : bool, default True
        Raise an error if the observed data of DataTrees, fits or models differ. An ``Evidence``
        holds no data.
    cores : int, optional
        Threads that evaluate the models; all cores by default.
    random_seed : int or numpy.random.Generator, optional
        Seed of the methods that draw random numbers: those that take a model.
    progressbar : bool, default True
        Whether to show a line of progress where a model is evaluated.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    DataFrame
        One row a model, highest ``log_z`` first, with columns ``log_z``, ``mcse`` (nats),
        ``log_bf`` (against the first row, nats), ``prior``, ``n_tours`` (missing for methods
        without tours), ``bias_direction`` ("below" or "above" log Z for a bound), ``method``,
        ``p_mcse`` (the error of the probability), ``probability`` and ``verdict``. If any ``mcse``
        is infinite, every ``p_mcse`` is.

    Raises
    ------
    DataMismatchError
        If the stored observed data differ.
    NotTemperedError
        If no evidence can be had from one of them; the message names what can help.
    TemperingError
        As :func:`log_marginal_likelihood`.
    ValueError
        If there are no runs, or failed ones, ``models`` has other names, or ``prior`` does not
        give each a finite probability >= 0.

    Warns
    -----
    TemperingWarning
        For each warning of an estimate that is made here, with the name of the model.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pmt.compare(runs)["probability"].round(1).to_dict()  # three runs of pmt.sample
    {'2.0': 0.4, '1.0': 0.4, '0.5': 0.2}
    """
    prior = prior_in(runs, prior)
    runs = runs_by_name("compare", runs, check_data=check_data)
    names = list(runs)
    weight = prior_of(names, prior)
    unknown = [name for name in models or {} if name not in runs]
    if unknown:
        raise ValueError(f"models has names that runs lacks: {unknown}; runs has {names}")
    extras = Extras(None, rng_of(random_seed), cores, progressbar and not quiet)
    evidence = all_evidence(of_models(runs), of_models(models or {}), check_data, extras)
    log_z = np.array([e.log_z for e in evidence])
    probability, error = probabilities(evidence, weight)
    # A narrow terminal shows as many of the first columns as of the last ones.
    table = pd.DataFrame(
        {
            "log_z": log_z,
            "mcse": [e.mcse for e in evidence],
            "log_bf": log_z - log_z.max(),
            "prior": weight,
            "n_tours": pd.array([e.n_tours if e.round_trips else pd.NA for e in evidence], "Int64"),
            "bias_direction": [e.bias_direction for e in evidence],
            "method": [e.method for e in evidence],
            "p_mcse": error,
            "probability": probability,
            "verdict": [e.verdict for e in evidence],
        },
        index=pd.Index(names, name="model"),
    )
    return table.sort_values("log_z", ascending=False, kind="stable")


def of_models[T](named: Mapping[str, T]) -> dict[str, T]:
    """Bring what is given by name into a dict by what messages call the models."""
    return {f"model {name!r}": thing for name, thing in named.items()}


def all_evidence(
    runs: Mapping[str, Any],
    models: Mapping[str, ModelLike | None],
    check_data: bool,
    extras: Extras,
) -> list[Evidence]:
    """Estimate each evidence, and warn with the name of the model."""
    check_whole(1, cores=extras.cores)
    found = {name: None if m is None else find_model(m) for name, m in models.items()}
    if check_data:
        check_same_data(runs, found)
    result = []
    for (name, run), rng in zip(runs.items(), extras.rng.spawn(len(runs)), strict=True):
        try:
            draws = pymc_draws(run, models.get(name))
            evidence = evidence_of(draws, replace(extras, model=found.get(name), rng=rng))
        except TemperingError as error:
            error.add_note(f"This was {name}.")
            raise
        result.append(evidence)
        if evidence is not run:
            emit_warnings(evidence, f"{name[0].upper()}{name[1:]}: ")
    return result


def prior_of(names: list[str], prior: Mapping[str, float] | None) -> FloatArray:
    """Prior probabilities of models, in the order of their names."""
    if prior is None:
        return np.full(len(names), 1.0 / len(names))
    if set(prior) != set(names):
        raise ValueError(f"prior must name the models {names}, got {list(prior)}")
    return normalized("prior probabilities", [prior[name] for name in names])


def normalized(what: str, weights: Sequence[Any]) -> FloatArray:
    """Weights as shares of their sum.

    Raises
    ------
    ValueError
        One is not finite, or negative, or all are zero.
    """
    try:
        weight = np.array([*map(float, weights)])
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be numbers, not {weights}.") from None
    if not np.all(np.isfinite(weight)) or np.any(weight < 0.0) or weight.sum() == 0.0:
        raise ValueError(f"{what} must be finite, not negative and not all 0, got {weights}.")
    return weight / weight.sum()


def probabilities(evidence: Sequence[Evidence], prior: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior probabilities of models, and their errors by the delta method; shapes (m,)."""
    log_z, mcse = (np.array([getattr(e, name) for e in evidence]) for name in ("log_z", "mcse"))
    with np.errstate(divide="ignore"):
        log_p = log_z + np.log(prior)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    if not np.all(np.isfinite(mcse)):
        return p, np.full(p.size, np.inf)
    jacobian = p[:, None] * (np.eye(p.size) - p)
    return p, np.sqrt(np.sum((jacobian * mcse) ** 2, axis=1))


def check_same_data(
    runs: Mapping[str, Any], models: Mapping[str, pm.Model | None] | None = None
) -> None:
    """Raise an error if runs, by what messages call them, have different observed data.

    Data in potentials are compared where two runs have some by one name, or in potentials that are
    alike. `models` are those that are known, by the same names, for draws that hold no data.

    Raises
    ------
    DataMismatchError
    """
    found = {name: _observed(run, (models or {}).get(name)) for name, run in runs.items()}
    data = {name: values for name, values in found.items() if values is not None}
    names = list(data)
    for other in names[1:]:
        odd = _unmatched(data[names[0]], data[other])
        if odd:
            raise DataMismatchError(
                f"{names[0]} and {other} have different observed data in {odd}, so their evidence "
                "cannot be compared; check_data=False overrides this for data that are the same "
                "in another shape"
            )
    held = [(name, _in_potentials(run, (models or {}).get(name))) for name, run in runs.items()]
    for (one, own), (other, others) in combinations(held, 2):
        odd = [name for name in own if own[name] != others.get(name, own[name])]
        if odd:
            raise DataMismatchError(
                f"{one} and {other} have different data in their potentials, {listed(odd)}, so "
                "their evidence cannot be compared; check_data=False overrides this for what is no "
                "data, such as covariates or numbers of a prior"
            )


def _in_potentials(run: Any, model: pm.Model | None) -> dict[str, str]:
    """Hashes of the data in potentials by name; none of what does not tell."""
    own = getattr(run, "model", None)  # that of a fit
    model = own if is_model(own) else model
    held = {} if model is None else potential_data(model)
    if not isinstance(run, xr.DataTree):
        return held
    if "tempering" in run.children:
        return dict(json.loads(run["tempering"].attrs.get(POTENTIAL_DATA, "{}")))
    observed, constant = (
        run[group].to_dataset().data_vars if group in run.children else {}
        for group in ("observed_data", "constant_data")
    )
    stored = {str(n): hash_of_data(v.values) for n, v in constant.items() if v.dtype.kind in "biuf"}
    if model is None and not observed:  # all that was observed is in potentials
        return stored
    return held | {name: known for name, known in stored.items() if name in held}


def _observed(run: Any, model: pm.Model | None) -> dict[str, np.ndarray] | None:
    """Observed data by name; None for what holds none, as an ``Evidence``."""
    own = getattr(run, "model", None)  # that of a fit
    if is_model(own):
        model = own
    if isinstance(run, xr.DataTree):
        if "observed_data" in run.children:
            variables = run["observed_data"].to_dataset().data_vars
            return {str(name): np.ravel(values.values) for name, values in variables.items()}
        if model is None:  # results that were stored may lack the data, draws may not
            return {} if "posterior" in run.children else None
    if model is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # symbolic data cannot be compared
        return {name: np.ravel(values) for name, values in find_observations(model).items()}


def _unmatched(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Return the variables of one that equal no variable of the other, by name if possible."""
    rest = dict(b)
    odd = []
    for name, values in sorted(a.items(), key=lambda item: item[0] not in b):
        twins = [name] if name in b else [other for other in rest if other not in a]
        twin = next((t for t in twins if t in rest and _same(values, rest[t])), None)
        if twin is None:
            odd.append(name)
        else:
            del rest[twin]
    return sorted({*odd, *rest})


def _same(a: ArrayLike, b: ArrayLike) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if not (np.issubdtype(a.dtype, np.number) and np.issubdtype(b.dtype, np.number)):
        return bool(np.array_equal(a, b))
    # Data that are standardized twice agree up to rounding, relative to their scale.
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
    return bool(np.allclose(a, b, rtol=0.0, atol=1e-9 * scale, equal_nan=True))
