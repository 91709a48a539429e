"""Which estimators are not fit for a run or a model, and why: a cross-check leaves them out."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from pymc_tempering.annealed.schedule import Movers, prior_log_ratios
from pymc_tempering.core.cycles import RUNG_STATS, SCALAR_STATS, FloatArray
from pymc_tempering.core.weighting import FINITE_VARIANCE_KHAT, MIN_TAIL, pareto_khat

OF_RUNGS = ("ti", "ti_riemann", "ti_corrected", "ti_simpson", "ti_rb", "ti_corrected_rb")
"""Estimators from a run that average log_ratio itself at beta = 0, where its tail is longest."""

N_PRIOR_DRAWS = 4000
"""Prior draws that show whether log_ratio has a finite variance."""


def unfit_for_run(idata: xr.DataTree) -> Mapping[str, str]:
    """Say which estimators a run does not suit, and why.

    Parameters
    ----------
    idata : DataTree
        A tempering run; of the posterior of another sampler nothing is said.

    Returns
    -------
    dict of str to str
    """
    if not _is_tempered(idata):
        return {}
    upper = 'the run has an upper bound of its own, "backward", which takes no new evaluations'
    unfit = {"reverse_ais": upper}
    if _is_fitted(idata):
        why = (
            "the fitted reference holds some of the prior, so that log_ratio at beta = 0 has no "
            "variance to rely on"
        )
        return unfit | dict.fromkeys(OF_RUNGS, why)
    khat = _tail_shape(_at_reference(idata))
    return unfit | (dict.fromkeys(OF_RUNGS, _heavy(khat)) if khat > FINITE_VARIANCE_KHAT else {})


def is_of_another_sampler(idata: xr.DataTree) -> bool:
    """Whether a DataTree holds nothing of a tempering run, not even a part of its statistics."""
    stats = idata["sample_stats"].data_vars if "sample_stats" in idata.children else ()
    return not any(name in stats for name in (*RUNG_STATS, *SCALAR_STATS))


def _is_tempered(idata: xr.DataTree) -> bool:
    """Whether a DataTree holds the statistics of a tempering run."""
    return "sample_stats" in idata.children and "rb_weight" in idata["sample_stats"].data_vars


def unfit_for_prior(movers: Movers, rng: np.random.Generator) -> Mapping[str, str]:
    """Say which estimators that start from the prior a model does not suit, and why."""
    khat = _tail_shape(prior_log_ratios(movers.reference, N_PRIOR_DRAWS, rng))
    return {"thermodynamic_integration": _heavy(khat)} if khat > FINITE_VARIANCE_KHAT else {}


def _heavy(khat: float) -> str:
    return (
        "log_ratio at prior draws has no finite variance (the Pareto k-hat of its tail is "
        f"{khat:.1f}, above {FINITE_VARIANCE_KHAT})"
    )


def _is_fitted(idata: xr.DataTree) -> bool:
    """Whether the reference of a run is a fitted one: its draws name their component."""
    return "component" in idata["sample_stats"].data_vars


def _at_reference(idata: xr.DataTree) -> FloatArray:
    """log_ratio of the iterations at beta = 0 that the trace holds (nats)."""
    if "tempering_trace" not in idata.children:
        return np.empty(0)
    trace = idata["tempering_trace"].to_dataset()
    return np.asarray(trace["log_ratio"].values[trace["rung"].values == 0], dtype=float)


def _tail_shape(log_ratio: FloatArray) -> float:
    """Pareto shape of the lower tail of log_ratio; minus infinity where there are few of them."""
    finite = log_ratio[np.isfinite(log_ratio)]
    if finite.size < MIN_TAIL:
        return -np.inf
    below = finite.max() - finite
    return pareto_khat(np.log(below[below > 0.0])) if np.any(below > 0.0) else -np.inf
