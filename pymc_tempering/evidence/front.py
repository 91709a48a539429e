"""Front of the estimators that read a run: from its DataTree to an ``Evidence``."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

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
from pymc_tempering.evidence.trace import Run, read_run
from pymc_tempering.exceptions import NotTemperedError


def _default(idata: xr.DataTree) -> tuple[str, Any]:
    """Return the default estimator of a run and what it reads.

    "pooled" where there are reference draws and the trace of all draws, else "rts".
    """
    if REFERENCE_GROUP in idata.children:
        with suppress(NotTemperedError):  # draws were selected; of anything else RTS complains
            return "pooled", read_run(idata)
    return "rts", read_cycles(idata)


def estimate_quietly(idata: xr.DataTree, method: str | None = None) -> Evidence:
    """Estimate the evidence of a tempering run; the warnings stay in the result.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    method : str, optional
        A name in ``ESTIMATORS``; by default "pooled" where there are reference draws and the
        trace of all draws, else "rts".

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
    if method is None:
        method, data = _default(idata)
    else:
        check_choice("method", method, sorted(ESTIMATORS))
        data = READERS[ESTIMATORS[method].reads](idata)
    evidence = ESTIMATORS[method].estimate(data)
    assert isinstance(evidence, Evidence)
    fresh = read_check(idata)
    if fresh is not None:
        # The check is of the run's reference: what a method is off by is no fault of that.
        stats = data.stats if isinstance(data, Run) else read_cycles(idata)
        leg = evidence if method == "rts" else rts(stats)
        check = compare_looks(leg, fresh)
        if np.isfinite(leg.mcse) and not np.isfinite(evidence.mcse):
            evidence = replace(evidence, check=check)
        else:
            evidence = with_check(evidence, check)
    prior = read_prior(idata)
    return evidence if prior is None else over_prior(evidence, *prior)
