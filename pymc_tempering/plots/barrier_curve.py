"""The local barrier along the path, with the rungs that it asks for."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.evidence import rungs
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.plots.marks import BLUE, GRAY, ORANGE, along_path, path_ticks
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("steps", "outline", "barrier", "dots", "beyond", "rungs")
LOG_BELOW = 0.1
"""First positive beta below which the axis is that of its log."""


def plot_barrier(
    idata: xr.DataTree,
    *,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw the local barrier lambda(beta) along the path, with the rungs.

    How to read it: the gray area between two rungs is the rejection rate between them and the
    whole area is Lambda, so rungs belong where the curve is high; where the dots rise above the
    area, the rungs are too far apart for the curve to be followed.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    plot_collection : PlotCollection, optional
        With a panel "barrier" along the dimension ``panel``; a new one by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "steps", "outline", "barrier", "dots",
        "beyond", "rungs", "xlabel", "ylabel", "legend", "title".
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
    A move up from beta by a small step d is rejected at the rate d E|V - E V| / 2, with V the
    log_ratio of states at beta; lambda is that over d. The dots state it from the states of
    each rung, or where these were not kept (``pm.sample``) from the standard deviation of V as if
    it were normal: lambda = sd(V) / sqrt(2 pi). Where the first positive beta is below 0.1 the axis
    is linear up to it and logarithmic above, and lambda is that per unit of the axis, so that areas
    stay rejection rates. Local and global barrier are
    those of Syed, Bouchard-Cote, Deligiannidis & Doucet (2022), there for parallel tempering.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_barrier(idata)  # a run of pmt.sample
    >>> pc.viz["barrier"]["picture"].sizes["panel"]
    1
    """
    stats = read_cycles(idata)
    sheet = open_sheet(
        ("barrier",),
        size=(7.0, 3.2),
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    draw_barrier(sheet, "barrier", stats, local_barrier(idata, stats))
    total = rungs.cumulative_barrier(rungs.neighbor_rejection(stats))[-1]
    return sheet.finish(f"Λ = {total:.2f} on {stats.beta.size} rungs")


def draw_barrier(sheet: Sheet, panel: str, stats: CycleStats, local: FloatArray) -> None:
    """Draw rejection rates as areas between the rungs, and lambda at each (``local``)."""
    first = stats.beta[1] if stats.beta[1] < LOG_BELOW else 1.0
    place = along_path(stats.beta, first)
    rate = np.nan_to_num(rungs.neighbor_rejection(stats), nan=1.0)
    height = rate / np.diff(place)
    sheet.draw("steps", panel, "hist", height, place[:-1], place[1:], color=GRAY, alpha=0.35,
               label="rejection, as area")  # fmt: skip
    outline = np.repeat(height, 2)
    sheet.draw("outline", panel, "line", np.repeat(place, 2)[1:-1], outline, color=GRAY, width=1.0)
    # d beta / d place: the first beta below it, and beta itself on the log part.
    local = local * np.maximum(stats.beta, first)
    known = np.isfinite(local)
    top = _top(height, local[known])
    # A reference with a heavy tail may have a lambda far above all others at beta = 0.
    far = known & (local > top)
    if far.any():
        words = [f"▲ λ = {value:.2g}" for value in local[far]]
        sheet.texts("beyond", panel, place[far], [0.94 * top] * len(words), words,
                    color=BLUE, horizontal_align="left")  # fmt: skip
    known &= ~far
    sheet.draw("barrier", panel, "line", place[known], local[known], color=BLUE, width=1.4)
    sheet.draw("dots", panel, "scatter", place[known], local[known], color=BLUE, marker="C0",
               size=6.0 if place.size <= 30 else 4.0, label="λ at the rungs")  # fmt: skip
    low = -0.06 * top
    sheet.segments("rungs", panel, (place, place), (0.0 * place + low, 0.0 * place), color=ORANGE,
                   width=1.4, label="rungs")  # fmt: skip
    sheet.limit(panel, "y", low, top)
    pad = 0.02 * place[-1]
    sheet.limit(panel, "x", -pad, place[-1] + pad)
    sheet.ticks(panel, "x", *path_ticks(first))
    per = "λ(β)" if first == 1.0 else "λ per unit of the axis"
    scale = "" if first == 1.0 else ", log above the first rung"
    sheet.label(panel, f"inverse temperature β{scale}", per)


def _normal_barrier(stats: CycleStats) -> FloatArray:
    """Return lambda at every rung as if log_ratio were normal there; NaN where that is unknown."""
    weight = np.nansum(stats.rb_weight, axis=(0, 1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.nansum(stats.rb_log_ratio_sum, axis=(0, 1)) / weight
        square = np.nansum(stats.rb_log_ratio_sqsum, axis=(0, 1)) / weight
        variance = square - mean**2
    variance[~(variance >= 0.0)] = np.nan
    return np.asarray(np.sqrt(variance / (2.0 * np.pi)))


def local_barrier(idata: xr.DataTree, stats: CycleStats) -> FloatArray:
    """Return lambda at every rung, shape (K,), from its states where the trace was kept."""
    if "tempering_trace" not in idata.children:
        return _normal_barrier(stats)
    trace = idata["tempering_trace"].to_dataset().transpose("chain", "iteration")
    rung, ratio = trace["rung"].values.ravel(), trace["log_ratio"].values.ravel()
    kept = (rung >= 0) & np.isfinite(ratio)
    rung, ratio = rung[kept].astype(np.intp), ratio[kept]
    count = np.bincount(rung, minlength=stats.beta.size).astype(float)
    count[count < 2.0] = np.nan
    mean = np.bincount(rung, ratio, stats.beta.size) / count
    apart = np.bincount(rung, np.abs(ratio - mean[rung]), stats.beta.size) / count
    return np.asarray(0.5 * apart)


def _top(height: FloatArray, local: FloatArray) -> float:
    """Return the upper end of the axis, which leaves out what is far above all else."""
    ordered = np.sort(np.concatenate([height, local]))
    rest = max(height.max(), *ordered[:-1])
    return 1.15 * float(ordered[-1] if ordered[-1] <= 2.5 * rest else rest)
