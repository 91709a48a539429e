"""Front of the estimators that read a run: from its DataTree to an ``Evidence``."""

from dataclasses import replace

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_choice
from pymc_tempering.evidence.datatree import (
    REFERENCE_GROUP,
    read_check,
    read_cycles,
    read_prior,
)
from pymc_tempering.evidence.estimators import ESTIMATORS, READERS
from pymc_tempering.evidence.normalized_prior import over_prior
from pymc_tempering.evidence.reference_check import compare_looks, with_check
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.evidence.trace import read_run
from pymc_tempering.exceptions import NotTemperedError


def default_method(idata: xr.DataTree) -> str:
    """Return "pooled" where a run has further reference draws and its whole trace, else "rts"."""
    if REFERENCE_GROUP not in idata.children:
        return "rts"
    try:
        read_run(idata)
    except NotTemperedError:  # draws were selected; what is wrong with others RTS says
        return "rts"
    return "pooled"


def estimate_quietly(idata: xr.DataTree, method: str | None = None) -> Evidence:
    """Estimate the evidence of a tempering run; the warnings stay in the result.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    method : str, optional
        A name in ``ESTIMATORS``; by default :func:`default_method`.

    Raises
    ------
    NotTemperedError
        If ``idata`` was not sampled with tempering, or is incomplete: lacks the trace, say.
    LadderError
        If its draws do not come from one ladder from beta = 0 to 1.
    SolverError
        If the equations of the method have no solution, or it was not found.
    ImportError
        If "mbar" is asked for without pymbar.
    ValueError
        If ``method`` is not known.
    """
    method = default_method(idata) if method is None else method
    check_choice("method", method, sorted(ESTIMATORS))
    estimator = ESTIMATORS[method]
    evidence = estimator.estimate(READERS[estimator.reads](idata))
    assert isinstance(evidence, Evidence)
    fresh = read_check(idata)
    if fresh is not None:
        # The check is of the run's reference: what a method is off by is no fault of that.
        leg = evidence if method == "rts" else rts(read_cycles(idata))
        check = compare_looks(leg, fresh)
        if np.isfinite(leg.mcse) and not np.isfinite(evidence.mcse):
            evidence = replace(evidence, check=check)
        else:
            evidence = with_check(evidence, check)
    prior = read_prior(idata)
    return evidence if prior is None else over_prior(evidence, *prior)
