"""The estimate of log Z and its error while draws come in."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import RUNG_STATS, SCALAR_STATS, CycleStats, FloatArray
from pymc_tempering.evidence import rts
from pymc_tempering.evidence.datatree import read_check, read_cycles, read_prior
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.result import Evidence, plus_minus
from pymc_tempering.plots.clipped_values import Span, draw_above, span_of
from pymc_tempering.plots.marks import BLUE, GRAY, GREEN, HALF_WIDTH, ORANGE
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = (
    "running",
    "band",
    "looks",
    "looks_value",
    "final",
    "rounds",
    "exact",
    "error",
    "square_root",
    "beyond",
)
POINTS = 24
"""Numbers of draws at which the estimate is made."""


def plot_running_log_z(
    idata: xr.DataTree,
    *,
    exact: float | None = None,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw log Z and its error as they would have been after fewer draws.

    How to read it: a run that has settled keeps within its own 95 % band, and its error falls
    along the dashed line of one over the square root of the draws; log Z of the looks from the
    prior may lie below the run's by chance, and is a warning above it.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    exact : float, optional
        The true log Z (nats).
    plot_collection : PlotCollection, optional
        With panels "log_z" and, where an error can be stated, "error" along the dimension
        ``panel``; new ones by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "running", "band", "looks",
        "looks_value", "final", "rounds", "exact", "error", "square_root", "beyond",
        "xlabel", "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    NotTemperedError, LadderError
        As :func:`pymc_tempering.diagnose` does.
    ImportError
        If the backend is not installed.
    ValueError
        If the backend or a visual is not known, or ``plot_collection`` lacks a panel.

    Notes
    -----
    Running estimates are those of RTS from the first draws of all chains; where the run has
    reference draws beside them, a triangle shows the estimate from both. Those of the first draws
    are left out where they are beyond the scale of all others. The diamonds are what the
    rounds of ``pmt.sample`` reported, where it stored any (docs/reference/data_layout.md); those
    of draws that were thrown away, for a fit that was repeated, are left out.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_running_log_z(idata)  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['log_z', 'error']
    """
    stats = read_cycles(idata)
    draws, values, errors = running_rts(stats, _shift(idata))
    stated = bool(np.isfinite(errors).any())
    sheet = open_sheet(
        ("log_z", "error") if stated else ("log_z",),
        size=(7.0, 5.0 if stated else 3.2),
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    evidence = estimate_quietly(idata)
    rounds = _rounds(idata, stats)
    draw_running(sheet, "log_z", idata, (draws, values, errors), rounds, evidence, exact)
    if stated:
        _draw_errors(sheet, "error", draws, errors, rounds)
    return sheet.finish(f"log Z = {plus_minus(evidence.log_z, evidence.mcse)}")


def running_rts(stats: CycleStats, shift: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return numbers of draws, and log Z (less ``shift``) with its error after each (nats)."""
    n = stats.n_draws
    low = min(n, max(5, n // 50))
    draws = np.unique(np.linspace(low, n, min(POINTS, n)).round().astype(int))
    found = [_first_draws(stats, int(k)) for k in draws]
    values = np.array([e.log_z for e in found]) - shift
    return draws, values, np.array([e.mcse for e in found])


def draw_running(
    sheet: Sheet,
    panel: str,
    idata: xr.DataTree,
    running: tuple[FloatArray, FloatArray, FloatArray],
    rounds: xr.Dataset | None,
    evidence: Evidence,
    exact: float | None = None,
) -> None:
    """Draw the running estimate with its band, the looks' value, the rounds, the exact value."""
    draws, values, errors = running
    last = draws[-1]
    beside = _beside(idata, evidence)
    half = HALF_WIDTH * errors
    band = np.array([values, values - half, values + half])
    band[~np.isfinite(band)] = np.nan
    others = [v + sign * w for v, w in beside.values() for sign in (-1.0, 1.0)]
    others += [] if exact is None else [exact]
    ends = np.concatenate([band[:, draws.size // 4 :].ravel(), others])
    mean = np.zeros(0) if rounds is None else rounds["round_log_z"].values
    span = span_of(ends, mean)
    # The first few draws may be far off: they would hide all others, and are left out.
    off = np.any((band < span.low) | (band > span.high), axis=0)
    first = int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0
    draws, band = draws[first:], band[:, first:]
    known, finite = np.isfinite(band[1:]).all(axis=0), np.isfinite(band[0])
    if known.any():
        sheet.draw("band", panel, "fill_between_y", draws[known], band[1][known], band[2][known],
                   color=BLUE, alpha=0.25, label="95 % band")  # fmt: skip
    name = "running log Z" if known.any() else "running log Z, no error can be stated"
    sheet.draw("running", panel, "line", draws[finite], band[0][finite], color=BLUE, width=1.6,
               label=name)  # fmt: skip
    if "final" in beside:
        _draw_interval(sheet, panel, ("final", "final"), 1.02 * last, beside["final"], color="B1",
                       marker="C2", label="with reference draws")  # fmt: skip
    if rounds is not None:
        _draw_rounds(sheet, panel, span, rounds["round_draws"].values, mean)
    if "looks" in beside:
        _draw_interval(sheet, panel, ("looks", "looks_value"), 1.04 * last, beside["looks"],
                       color=ORANGE, marker="C5", label="looks from the prior")  # fmt: skip
    if exact is not None:
        sheet.draw("exact", panel, "line", [0.0, 1.04 * last], [exact, exact], color="B1",
                   width=1.2, linestyle="C1", label="exact")  # fmt: skip
    sheet.limit(panel, "y", span.low, span.high)
    sheet.limit(panel, "x", 0.0, 1.08 * last)
    sheet.label(panel, "draws of each chain", "log Z (nats)")


def _beside(idata: xr.DataTree, evidence: Evidence) -> dict[str, tuple[float, float]]:
    """Return value and half of the interval of what stands beside the running estimate."""
    found = {}
    if evidence.method != "rts" and np.isfinite(evidence.mcse):
        found["final"] = (evidence.log_z, HALF_WIDTH * evidence.mcse)
    fresh = read_check(idata)
    if fresh is not None and np.isfinite(fresh.log_z):
        wide = HALF_WIDTH * fresh.mcse if np.isfinite(fresh.mcse) else 0.0
        found["looks"] = (fresh.log_z - _shift(idata), wide)
    return found


def _draw_interval(
    sheet: Sheet,
    panel: str,
    visuals: tuple[str, str],
    place: float,
    value: tuple[float, float],
    *,
    color: str,
    marker: str,
    label: str,
) -> None:
    """Draw one estimate with its interval; ``visuals`` are the line's and the marker's."""
    middle, wide = value
    line, dot = visuals
    sheet.draw(line, panel, "line", [place, place], [middle - wide, middle + wide],
               part="interval" if line == dot else "", color=color, width=2.0)  # fmt: skip
    sheet.draw(dot, panel, "scatter", [place], [middle], color=color, marker=marker, size=8.0,
               label=label)  # fmt: skip


def _draw_rounds(sheet: Sheet, panel: str, span: Span, at: FloatArray, values: FloatArray) -> None:
    """Draw what rounds have reported, with an arrow for what is beyond the axis."""
    here = span.holds(values)
    sheet.draw("rounds", panel, "scatter", at[here], values[here], color=GREEN, marker="C4",
               size=9.0, label="after a round")  # fmt: skip
    draw_above(sheet, panel, span, at, values, color=GREEN)


def rounds_and_running(
    sheet: Sheet, panel: str, idata: xr.DataTree, stats: CycleStats, evidence: Evidence
) -> None:
    """Draw the upper panel alone, for a page of several pictures."""
    running = running_rts(stats, _shift(idata))
    draw_running(sheet, panel, idata, running, _rounds(idata, stats), evidence)


def _draw_errors(
    sheet: Sheet, panel: str, draws: FloatArray, errors: FloatArray, rounds: xr.Dataset | None
) -> None:
    """Draw the error against its fall by the root of the draws, but for the first few draws."""
    known = np.isfinite(errors)
    at, error = draws[known], errors[known]
    told = np.zeros(0) if rounds is None else rounds["round_mcse"].values
    top = 1.1 * error[error.size // 4 :].max()
    top = max([top, *(1.05 * told[told < 1.5 * top])])
    guide = error[-1] * np.sqrt(at[-1] / at)
    fits = guide <= top
    sheet.draw("square_root", panel, "line", at[fits], guide[fits], color=GRAY, width=1.2,
               linestyle="C1", label="one over the root of the draws")  # fmt: skip
    first = int(np.flatnonzero(error > top)[-1]) + 1 if np.any(error > top) else 0
    sheet.draw("error", panel, "line", at[first:], error[first:], color=BLUE, width=1.6,
               label="error (mcse)")  # fmt: skip
    if rounds is not None:
        fine = np.isfinite(told)
        _draw_rounds(sheet, panel, Span(0.0, top), rounds["round_draws"].values[fine], told[fine])
    sheet.limit(panel, "y", 0.0, top)
    sheet.limit(panel, "x", 0.0, 1.08 * draws[-1])
    sheet.label(panel, "draws of each chain", "mcse (nats)")


def _first_draws(stats: CycleStats, n: int) -> Evidence:
    """Estimate from the first ``n`` draws of all chains."""
    names = {f.name for f in fields(stats)} & {*RUNG_STATS, *SCALAR_STATS}
    return rts(replace(stats, **{name: getattr(stats, name)[:, :n] for name in names},
                       n_zero_likelihood=None, n_undefined=None))  # fmt: skip


def _shift(idata: xr.DataTree) -> float:
    """Log Z of a prior that was not normalized, which estimates are less than RTS' by."""
    prior = read_prior(idata)
    return 0.0 if prior is None else prior[0]


def _rounds(idata: xr.DataTree, stats: CycleStats) -> xr.Dataset | None:
    """Return what the rounds of the run in hand reported, by draws of each chain."""
    if "tempering" not in idata.children or "round_draws" not in idata["tempering"].data_vars:
        return None
    rounds = idata["tempering"].to_dataset()[["round_draws", "round_log_z", "round_mcse"]]
    draws = rounds["round_draws"].values
    # A repeated fit starts the draws anew: what came before it tells of draws that are gone.
    fall = np.flatnonzero(np.diff(draws) < 0)
    kept = slice(int(fall[-1]) + 1 if fall.size else 0, None)
    tuning = 0
    if "warmup_sample_stats" in idata.children:
        tuning = idata["warmup_sample_stats"].sizes["draw"]
    else:
        tuning = max(0, int(draws[-1]) // stats.n_chains - stats.n_draws)
    rounds = rounds.isel(round=kept)
    return rounds.assign(round_draws=rounds["round_draws"] / stats.n_chains - tuning)
