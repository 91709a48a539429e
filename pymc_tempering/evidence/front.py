"""Front door of the evidence estimators: from a DataTree to an ``Evidence``, with warnings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_choice
from pymc_tempering.evidence.bar import bar, stepping_stone
from pymc_tempering.evidence.bracket import backward, forward
from pymc_tempering.evidence.datatree import read_check, read_cycles, read_prior
from pymc_tempering.evidence.mbar import mbar
from pymc_tempering.evidence.normalized_prior import over_prior
from pymc_tempering.evidence.rb_likelihood import rb_likelihood, read_parts
from pymc_tempering.evidence.reference_check import compare_legs, with_check
from pymc_tempering.evidence.result import Evidence, emit_warnings
from pymc_tempering.evidence.rts import rts
from pymc_tempering.evidence.ti import ti
from pymc_tempering.evidence.trace import read_run
from pymc_tempering.evidence.visit_counts import counts


@dataclass(frozen=True)
class Estimator:
    """An estimator: ``read`` takes arrays out of a DataTree, ``estimate`` is pure."""

    read: Callable[[xr.DataTree], Any]
    estimate: Callable[[Any], Evidence]


ESTIMATORS: dict[str, Estimator] = {
    "rts": Estimator(read_cycles, rts),
    "counts": Estimator(read_cycles, counts),
    "ti": Estimator(read_cycles, ti),
    "ti_riemann": Estimator(read_cycles, partial(ti, rule="riemann")),
    "ti_corrected": Estimator(read_cycles, partial(ti, rule="corrected")),
    "ti_simpson": Estimator(read_cycles, partial(ti, rule="simpson")),
    "ti_rb": Estimator(read_cycles, partial(ti, rao_blackwell=True)),
    "ti_corrected_rb": Estimator(read_cycles, partial(ti, rule="corrected", rao_blackwell=True)),
    "bar": Estimator(read_run, bar),
    "stepping_stone": Estimator(read_run, stepping_stone),
    "mbar": Estimator(read_run, mbar),
    "rb_likelihood": Estimator(read_parts, rb_likelihood),
    "forward": Estimator(read_run, forward),
    "backward": Estimator(read_cycles, backward),
}
"""Every estimator by name; a new one is one file and one line here."""


def log_marginal_likelihood(idata: xr.DataTree, method: str = "rts") -> Evidence:
    """Estimate the log marginal likelihood of a model from its tempering run.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    method : str, default "rts"
        "rts" (equation 12 of Carlson et al. 2016), "counts", "ti", "ti_riemann", "ti_corrected",
        "ti_simpson", "ti_rb", "ti_corrected_rb", "rb_likelihood", "backward"; from the flat trace
        that ``keep="log_ratio"`` keeps "bar", "stepping_stone", "mbar", "forward"; or any other
        name in ``pymc_tempering.evidence.ESTIMATORS``, which says what each is.

    Returns
    -------
    Evidence
        log Z and its Monte Carlo standard error, in nats.

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

    Warns
    -----
    TemperingWarning
        Once for each entry of ``Evidence.warnings``.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> pmt.log_marginal_likelihood(gaussian_run(draws=400)).verdict
    'ok'
    """
    return emit_warnings(estimate_quietly(idata, method))


def estimate_quietly(idata: xr.DataTree, method: str = "rts") -> Evidence:
    """Do as :func:`log_marginal_likelihood`, but keep the warnings in the result alone."""
    check_choice("method", method, sorted(ESTIMATORS))
    estimator = ESTIMATORS[method]
    evidence = estimator.estimate(estimator.read(idata))
    fresh = read_check(idata)
    if fresh is not None:
        # The check is of the run's reference: what a method is off by is no fault of that.
        leg = evidence if method == "rts" else rts(read_cycles(idata))
        check = compare_legs(leg, *fresh)
        if np.isfinite(leg.mcse) and not np.isfinite(evidence.mcse):
            evidence = replace(evidence, check=check)
        else:
            evidence = with_check(evidence, check)
    prior = read_prior(idata)
    return evidence if prior is None else over_prior(evidence, *prior)
