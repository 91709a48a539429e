"""From the DataTree of a run to an ``Evidence``: the table of estimators, and how one is chosen."""

import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_choice, has_group
from pymc_tempering.core.cycles import OVERFLOW_SAID, OVERFLOWS
from pymc_tempering.evidence.bar import bar, mbar, stepping_stone
from pymc_tempering.evidence.bracket import backward, forward
from pymc_tempering.evidence.datatree import (
    REFERENCE_GROUP,
    Run,
    findings_of,
    read_bridge,
    read_check,
    read_cycles,
    read_prior,
    read_run,
)
from pymc_tempering.evidence.reference_check import compare_looks, with_bridge, with_check
from pymc_tempering.evidence.result import Evidence, with_findings
from pymc_tempering.evidence.rts import counts, pooled, rts
from pymc_tempering.evidence.ti import ti
from pymc_tempering.exceptions import NotTemperedError

READERS: dict[str, Callable[[xr.DataTree], Any]] = {
    "cycles": read_cycles,
    "trace": read_run,
    "reference": read_run,
}
"""How the input of an estimator that reads a run is taken out of a DataTree."""

MODEL = "model"
"""What an estimator reads that evaluates a model."""

OWN, POSTERIOR, RUN = "own", "posterior", "run"
"""Whose draws an error rests on: the estimator's own, the posterior draws, or the whole run."""


@dataclass(frozen=True)
class Estimator:
    """An estimator of the evidence, as a row of the table of all of them.

    Attributes
    ----------
    reads : {"cycles", "trace", "reference", "model"}
        What ``estimate`` takes. "cycles": the statistics of every draw, a ``CycleStats``.
        "reference": a ``Run`` with reference draws beside it.
        "model": ``(idata, model, rng, cores, executor)``, a DataTree, a PyMC model, a random
        generator, the number of threads or None for all cores, and an executor that does the
        work in their place or None.
    estimate : callable
        Returns an ``Evidence``, or several by name (two bounds). What it warns about is in
        ``Evidence.warnings``.
    summary : str
        What it is, in one sentence with the paper, and the equation if there is one.
    draws : {"run", "posterior", "own"}, default "run"
        The draws that its error rests on: the whole run, the posterior draws of the DataTree, or
        its own, which make it independent of all others.
    by_default : bool, default True
        Whether a cross-check without ``methods`` runs it.
    repeats : str, default ""
        Estimator from whose sums it is made or corrected, so that it is no check of that one.
    averages : bool, default False
        Whether it averages log_ratio itself at beta = 0, where its tail is longest. A cross-check
        leaves it out where that has no finite variance.
    like : str, default ""
        Estimator that reads the like of it from a run, without evaluations. A cross-check of a run
        leaves it out.
    looks : callable, optional
        Runs from the prior whose ends draws can be compared with:
        ``(movers, rng, cores, executor, report, most)`` to an ``Evidence`` and weighted ends, with
        `most` rungs at most (any number for None).
    """

    reads: str
    estimate: Callable[..., Evidence | Mapping[str, Evidence]]
    summary: str
    draws: str = RUN
    by_default: bool = True
    repeats: str = ""
    averages: bool = False
    like: str = ""
    looks: Callable[..., Any] | None = None


def _by_ti(summary: str, **how: Any) -> Estimator:
    """Return the row of a rule of thermodynamic integration; Rao-Blackwellized it is RTS."""
    repeats = "rts" if how.get("rao_blackwell") else ""
    return Estimator("cycles", partial(ti, **how), summary, repeats=repeats, averages=True)


ESTIMATORS: dict[str, Estimator] = {
    "pooled": Estimator(
        "reference",
        pooled,
        'As "rts", with further draws of the reference: the states of the chains and these draws '
        "as one sample, by a bridge, Meng & Wong (1996).",
    ),
    "rts": Estimator(
        "cycles",
        rts,
        "Rao-Blackwellized tempered sampling, equation (12) of Carlson et al. (2016).",
    ),
    "counts": Estimator(
        "cycles",
        counts,
        "Counts of visits in place of Rao-Blackwell weights, equation (11) of Carlson et al. "
        "(2016).",
    ),
    "ti": _by_ti(
        "Thermodynamic integration by the trapezoid rule, equation (20) of Carlson et al. (2016)."
    ),
    "ti_riemann": _by_ti(
        "Thermodynamic integration by the right Riemann sum, an upper bound on the integral, "
        "Figure 2 of Carlson et al. (2016).",
        rule="riemann",
    ),
    "ti_corrected": _by_ti(
        "Thermodynamic integration by the trapezoid rule with second moments, Friel et al. (2014).",
        rule="corrected",
    ),
    "ti_simpson": _by_ti(
        "Thermodynamic integration by Simpson's rule for uneven rungs, equation (20) of Carlson "
        "et al. (2016).",
        rule="simpson",
    ),
    "ti_rb": _by_ti(
        'As "ti", with Rao-Blackwellized means, equation (21) of Carlson et al. (2016).',
        rao_blackwell=True,
    ),
    "ti_corrected_rb": _by_ti(
        'As "ti_corrected", with Rao-Blackwellized moments, Friel et al. (2014) and equation (21) '
        "of Carlson et al. (2016).",
        rule="corrected",
        rao_blackwell=True,
    ),
    "bar": Estimator(
        "trace",
        bar,
        "Bennett's acceptance ratio between neighboring rungs, Bennett (1976), equation (17) of "
        "Carlson et al. (2016).",
    ),
    "stepping_stone": Estimator(
        "trace",
        stepping_stone,
        "Stepping stones: each rung's states reach for the next rung, Xie et al. (2011).",
    ),
    "mbar": Estimator(
        "trace",
        mbar,
        "MBAR, all states for all rungs, Shirts & Chodera (2008).",
    ),
    "forward": Estimator(
        "trace",
        forward,
        "Lower end of the bracket, unbiased for Z, equation (11) of Carlson et al. (2016) with a "
        "fixed denominator.",
    ),
    "backward": Estimator(
        "cycles",
        backward,
        "Upper end of the bracket, unbiased for 1 / Z, equation (11) of Carlson et al. (2016) "
        "from the other end.",
    ),
}
"""The estimators that read a run, by name. A new one is one file and one row here.

Of estimates that are equally good the first row speaks for the run.
"""


def lists_estimators[F: Callable[..., Any]](rows: Mapping[str, Estimator]) -> Callable[[F], F]:
    """Return a decorator that puts a table in place of ``{estimators}`` in a docstring."""

    def fill(function: F) -> F:
        lines = []
        for line in (function.__doc__ or "").splitlines():
            if line.strip() == "{estimators}":
                lines += _bullets(rows, line[: line.index("{")])
            else:
                lines.append(line)
        if function.__doc__:  # python -OO has none
            function.__doc__ = "\n".join(lines)
        return function

    return fill


def _bullets(rows: Mapping[str, Estimator], indent: str) -> list[str]:
    """Return one bullet a row, in lines of at most 100 characters."""
    lines = []
    for name, row in rows.items():
        mark = f" ({row.reads})" if row.reads in ("trace", "reference", MODEL) else ""
        text = row.summary + ("" if row.by_default else " A cross-check runs it only by name.")
        lines += textwrap.wrap(
            f'- "{name}"{mark}: {text}',
            width=100,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_on_hyphens=False,
        )
    return lines


def _default(idata: xr.DataTree) -> tuple[str, Any]:
    """Return the default estimator of a run and what it reads.

    "pooled" where there are reference draws and the trace of all draws, else "rts".
    """
    if has_group(idata, REFERENCE_GROUP):
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
        trace of all draws, else "rts", with the bridge to the draws where the run made one.

    Raises
    ------
    NotTemperedError
        If ``idata`` was not sampled with tempering, or is incomplete: lacks the trace, say.
    LadderError
        If its draws do not come from one ladder from beta = 0 to 1.
    SolverError
        If the equations of the method have no solution, or it was not found.
    ValueError
        If ``method`` is not known.
    """
    by_default = method is None
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
    if by_default:
        evidence = with_bridge(evidence, read_bridge(idata))
    evidence = with_findings(evidence, findings_of(idata))
    prior = read_prior(idata)
    return evidence if prior is None else over_prior(evidence, *prior)


def over_prior(evidence: Evidence, log_z: float, mcse: float) -> Evidence:
    """Divide an evidence by the normalizing constant of its prior.

    Parameters
    ----------
    evidence : Evidence
        Log of the integral of prior times likelihood, with the prior not normalized.
    log_z, mcse : float
        Log of the prior's normalizing constant and its error (nats), from another run.

    Returns
    -------
    Evidence
        ``log_z`` under the normalized prior; the errors add in quadrature. The curve along the
        ladder is left as it is.
    """
    known = bool(np.isfinite(mcse))
    note = (
        "The prior's own normalizing constant has no error, so neither has the evidence: sample "
        "more draws."
    )
    if (log_z, mcse) == OVERFLOWS:
        note = OVERFLOW_SAID
    first, second = evidence.halves
    return replace(
        evidence,
        log_z=evidence.log_z - log_z,
        mcse=float(np.hypot(evidence.mcse, mcse)),
        verdict=evidence.verdict if known or evidence.verdict != "ok" else "unchecked",
        per_chain=evidence.per_chain - log_z,
        halves=(first - log_z, second - log_z),
        warnings=evidence.warnings if known else (*evidence.warnings, note),
        prior_term=(log_z, mcse),
    )
