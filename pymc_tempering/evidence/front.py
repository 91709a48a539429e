"""Front of the estimators that read a run: from its DataTree to an ``Evidence``."""

from dataclasses import replace

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_choice
from pymc_tempering.evidence.datatree import read_check, read_cycles, read_prior
from pymc_tempering.evidence.estimators import ESTIMATORS, READERS
from pymc_tempering.evidence.normalized_prior import over_prior
from pymc_tempering.evidence.reference_check import compare_looks, with_check
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts


def estimate_quietly(idata: xr.DataTree, method: str = "rts") -> Evidence:
    """Estimate the evidence of a tempering run; the warnings stay in the result.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    method : str, default "rts"
        A name in ``ESTIMATORS``.

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
