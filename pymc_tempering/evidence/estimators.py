"""The table of estimators: what a row says of one, and the rows of those that read a run."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import xarray as xr

from pymc_tempering.evidence.bar import bar, stepping_stone
from pymc_tempering.evidence.bracket import backward, forward
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.mbar import mbar
from pymc_tempering.evidence.pooled import pooled
from pymc_tempering.evidence.rb_likelihood import rb_likelihood, read_parts
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.evidence.ti import ti
from pymc_tempering.evidence.trace import read_run
from pymc_tempering.evidence.visit_counts import counts

READERS: dict[str, Callable[[xr.DataTree], Any]] = {
    "cycles": read_cycles,
    "parts": read_parts,
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
    reads : {"cycles", "parts", "trace", "reference", "model"}
        What ``estimate`` takes. "cycles": the statistics of every draw, a ``CycleStats``.
        "parts": a list of these, one for each log Z-hat. "trace": every iteration, a ``Run``.
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
    "ti": Estimator(
        "cycles",
        ti,
        "Thermodynamic integration by the trapezoid rule, equation (20) of Carlson et al. (2016).",
        averages=True,
    ),
    "ti_riemann": Estimator(
        "cycles",
        partial(ti, rule="riemann"),
        "Thermodynamic integration by the right Riemann sum, an upper bound on the integral, "
        "Figure 2 of Carlson et al. (2016).",
        averages=True,
    ),
    "ti_corrected": Estimator(
        "cycles",
        partial(ti, rule="corrected"),
        "Thermodynamic integration by the trapezoid rule with second moments, Friel et al. (2014).",
        averages=True,
    ),
    "ti_simpson": Estimator(
        "cycles",
        partial(ti, rule="simpson"),
        "Thermodynamic integration by Simpson's rule for uneven rungs, equation (20) of Carlson "
        "et al. (2016).",
        averages=True,
    ),
    "ti_rb": Estimator(
        "cycles",
        partial(ti, rao_blackwell=True),
        'As "ti", with Rao-Blackwellized means, equation (21) of Carlson et al. (2016).',
        repeats="rts",
        averages=True,
    ),
    "ti_corrected_rb": Estimator(
        "cycles",
        partial(ti, rule="corrected", rao_blackwell=True),
        'As "ti_corrected", with Rao-Blackwellized moments, Friel et al. (2014) and equation (21) '
        "of Carlson et al. (2016).",
        repeats="rts",
        averages=True,
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
        "MBAR, all states for all rungs, solved by pymbar, Shirts & Chodera (2008).",
    ),
    "rb_likelihood": Estimator(
        "parts",
        rb_likelihood,
        "Maximum of the Rao-Blackwellized likelihood, for chains with different log Z-hat, "
        "equation (14) of Carlson et al. (2016).",
        repeats="rts",
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
