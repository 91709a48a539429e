"""Front door of the evidence estimators: from a DataTree to an ``Evidence``, with warnings."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xarray as xr

from pymc_tempering.datatree import read_check, read_cycles, read_prior
from pymc_tempering.evidence.legs import compare_legs, with_check
from pymc_tempering.evidence.prior import over_prior
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.exceptions import TemperingWarning


@dataclass(frozen=True)
class Estimator:
    """An estimator: ``read`` takes arrays out of a DataTree, ``estimate`` is pure."""

    read: Callable[[xr.DataTree], Any]
    estimate: Callable[[Any], Evidence]


ESTIMATORS: dict[str, Estimator] = {
    "rts": Estimator(read_cycles, rts),
}
"""Every estimator by name; a new one is one file and one line here."""


def log_marginal_likelihood(idata: xr.DataTree, method: str = "rts") -> Evidence:
    """Estimate the log marginal likelihood of a model from its tempering run.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    method : str, default "rts"
        Name in ``ESTIMATORS``. "rts" is equation (12) of Carlson et al. (2016), see
        :func:`pymc_tempering.evidence.rts`.

    Returns
    -------
    Evidence
        log Z and its Monte Carlo standard error, in nats.

    Raises
    ------
    NotTemperedError
        If ``idata`` was not sampled with tempering, or is incomplete.
    LadderError
        If its draws do not come from one ladder from beta = 0 to 1.
    ValueError
        If ``method`` is not known.

    Warns
    -----
    TemperingWarning
        Once for each entry of ``Evidence.warnings``.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.synthetic import gaussian_run
    >>> pmt.log_marginal_likelihood(gaussian_run(draws=400)).verdict
    'ok'
    """
    evidence = estimate(idata, method)
    for sentence in evidence.warnings:
        warnings.warn(sentence, TemperingWarning, stacklevel=2)
    return evidence


def estimate(idata: xr.DataTree, method: str = "rts") -> Evidence:
    """Do as :func:`log_marginal_likelihood`, but keep the warnings in the result alone."""
    if method not in ESTIMATORS:
        raise ValueError(f"method must be one of {sorted(ESTIMATORS)}, got {method!r}")
    estimator = ESTIMATORS[method]
    evidence = estimator.estimate(estimator.read(idata))
    fresh = read_check(idata)
    if fresh is not None:
        evidence = with_check(evidence, compare_legs(evidence, *fresh))
    prior = read_prior(idata)
    return evidence if prior is None else over_prior(evidence, *prior)
