"""The mean of the terms of a density ratio, its error, and whether the draws can carry it."""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import (
    FINITE_VARIANCE_KHAT,
    MAX_KHAT,
    MIN_ESS,
    ROUGH_ESS,
    effective_size,
    kish,
    log_mean,
    pareto_khat,
)
from pymc_tempering.exceptions import NullError

MAX_RANK_Z = 5.0
"""Errors by which the ranks of the draws in their conditional density may be off."""


@dataclass(frozen=True)
class Average:
    """Mean of positive terms over chains: its log, error (nats), effective number and k-hat."""

    log_mean: float
    mcse: float
    worth: float
    khat: float


def average_terms(log_terms: FloatArray) -> Average:
    """Average terms, shape (chain, draw), with an error that knows their autocorrelation.

    The relative variance of the mean is (n / K - 1) / E for n terms, with K Kish's effective
    number and E that of the autocorrelated terms; K E / n is what they are worth.
    """
    mean = log_mean(log_terms.ravel())
    if mean == -np.inf:
        return Average(mean, np.inf, 0.0, np.inf)
    terms = np.exp(log_terms - log_terms.max())
    n, even = terms.size, float(kish(terms.ravel()))
    size = float(n) if np.ptp(terms) <= 1e-9 * terms.max() else effective_size(terms)
    mcse = float(np.sqrt(max(n / even - 1.0, 0.0) / size))
    return Average(mean, mcse, even * size / n, pareto_khat(log_terms.ravel()))


def check_terms(terms: Average, n: int, available: int, outside: str) -> list[str]:
    """Refuse a null that the draws do not reach; warn where its error is rough.

    `n` of the available draws were used; `outside` says if the null is beyond their range.

    Raises
    ------
    NullError
    """
    least, most = (ROUGH_ESS, FINITE_VARIANCE_KHAT) if outside else (MIN_ESS, MAX_KHAT)
    if terms.worth < least or terms.khat > most:
        raise NullError(
            f"The null is out of reach of the draws{outside}: the {n} terms of the density ratio "
            f"are worth {terms.worth:.1f} independent ones (at least {least:.0f} are needed), and "
            f"their k-hat is {terms.khat:.2f} (at most {most}). {_more(n, available)}, or compare "
            "the evidences of the model and of the null with bayes_factor."
        )
    if terms.worth < ROUGH_ESS or terms.khat > FINITE_VARIANCE_KHAT:
        return [
            f"The terms of the density ratio are worth only {terms.worth:.0f} independent ones "
            f"(k-hat {terms.khat:.2f}), so the mcse is rough. {_more(n, available)}."
        ]
    return []


def rank_alarms(rank: FloatArray, label: str) -> list[str]:
    """Say if draws do not lie as their own conditional density says: their ranks are uniform."""
    for name, value in (("on one side", rank), ("at the ends", np.abs(2.0 * rank - 1.0))):
        error = value.std() / np.sqrt(effective_size(value))
        z = (value.mean() - 0.5) / error if error > 0.0 else np.inf
        if not abs(z) < MAX_RANK_Z:
            return [
                f"The draws of {label} do not follow the model's conditional density (too many or "
                f"too few {name}, {abs(z):.1f} errors), so the mcse is infinite: pass the model "
                "that they were drawn from, or sample longer if the chains have not mixed."
            ]
    return []


def _more(n: int, available: int) -> str:
    more = f"use all {available} draws (draws={available})"
    return f"If it is near, {more}" if n < available else "If it is near, sample more draws"
