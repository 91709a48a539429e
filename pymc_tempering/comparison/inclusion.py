"""How probable it is that a term belongs in the model: sums over the models that have it."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from pymc_tempering.arguments import called_as
from pymc_tempering.comparison.compare import compare

type Terms = Mapping[str, Collection[str]]

NONE = ("", "1", "0", "none")
"""What a name may have that is no term: nothing, and the intercept of a formula or its absence."""


@called_as("inclusion_probabilities(table, terms={'a': ['x'], 'b': ['x', 'z']})")
def inclusion_probabilities(runs: Any, terms: Terms | None = None, **compared: Any) -> pd.DataFrame:
    """Return the probability of each term, over all models that were compared.

    P(term | y) is the sum of p(M_i | y) over the models that have the term. Its error is that of
    the delta method, var P = sum_j p_j^2 (1[term in j] - P)^2 mcse_j^2, and the inclusion Bayes
    factor is the change of its odds: log P / (1 - P) less the same of the prior.

    Parameters
    ----------
    runs : DataFrame, mapping or sequence
        What :func:`compare` takes, or its table: the table of :func:`sample_many` over all subsets
        of the covariates, say.
    terms : mapping of str to collection of str, optional
        The terms of each model, by the name of the model. By default the names of the models are
        read as formulas: "age + income" has two terms, and "1" or "none" has none.
    **compared
        As :func:`compare` takes them: `prior`, `models`, `check_data`, ...

    Returns
    -------
    DataFrame
        One row a term, most probable first, with columns ``log_bf`` (inclusion Bayes factor, nats),
        ``mcse`` (its error, nats), ``n_models`` (how many models have the term), ``prior``,
        ``p_mcse`` and ``probability``. A term of all models, or of none with a prior, has no Bayes
        factor. Errors are infinite if that of any evidence is.

    Raises
    ------
    ValueError
        ``terms`` are not of these models, or no model has a term.
    ArgumentError, DataMismatchError, NotTemperedError, TemperingError
        As :func:`compare`.

    Warns
    -----
    TemperingWarning
        As :func:`compare`.

    Notes
    -----
    The prior of a term follows from that of the models. Where all subsets are equally probable it
    is one half. A term that is in more models than another has more, and an interaction that comes
    only with its main effects has less.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> Evidence = pmt.evidence.Evidence
    >>> log_z = {"1": -9.0, "age": -5.0, "income": -9.5, "age + income": -6.0}
    >>> runs = {name: Evidence(value, 0.01, "rts", "ok") for name, value in log_z.items()}
    >>> pmt.inclusion_probabilities(runs)["probability"].round(2).to_dict()
    {'age': 0.98, 'income': 0.27}
    """
    table = compare(runs, **compared)
    of_model = _terms_of([*table.index], terms)
    found = list(dict.fromkeys(term for name in table.index for term in of_model[name]))
    if not found:
        raise ValueError("no model has a term: give terms= by the names of the models.")
    rows = {
        term: _row(table, np.array([term in of_model[n] for n in table.index])) for term in found
    }
    result = pd.DataFrame.from_dict(rows, orient="index").rename_axis("term")
    return result.sort_values(["probability", "log_bf"], ascending=False, kind="stable")


def _terms_of(names: list[str], terms: Terms | None) -> dict[str, set[str]]:
    """Terms of each model."""
    if terms is None:
        split = {name: {part.strip() for part in name.split("+")} for name in names}
        return {name: parts.difference(NONE) for name, parts in split.items()}
    if not isinstance(terms, Mapping) or not set(names) <= {str(name) for name in terms}:
        raise ValueError(f"terms must be a dict with the terms of each model: {names}.")
    for name, own in terms.items():
        if isinstance(own, str) or not isinstance(own, Collection):
            raise ValueError(f"terms[{name!r}] must be a list of names, not {own!r}.")
    return {str(name): set(map(str, own)) for name, own in terms.items()}


def _row(table: pd.DataFrame, has: np.ndarray) -> dict[str, float]:
    """Sum up the models that have a term; the delta method on log odds holds for any share."""
    with np.errstate(divide="ignore"):
        prior = table["prior"].to_numpy(dtype=float)
        log_p = table["log_z"].to_numpy(dtype=float) + np.log(prior)
    log_p -= np.logaddexp.reduce(log_p)
    mcse = table["mcse"].to_numpy(dtype=float)
    inside, outside = (np.logaddexp.reduce(log_p[of], initial=-np.inf) for of in (has, ~has))
    known = np.isfinite(mcse).all()
    log_bf = error = np.nan
    p_error = 0.0 if known else np.inf
    if prior[has].sum() > 0.0 and prior[~has].sum() > 0.0:
        share = np.exp(np.where(has, log_p - inside, log_p - outside))
        error = float(np.linalg.norm(share * mcse)) if known else np.inf
        log_bf = inside - outside - float(np.log(prior[has].sum() / prior[~has].sum()))
        p_error = error * float(np.exp(inside + outside))
    return {
        "log_bf": log_bf,
        "mcse": error,
        "n_models": int(has.sum()),
        "prior": float(prior[has].sum()),
        "p_mcse": p_error,
        "probability": float(np.exp(inside)),
    }
