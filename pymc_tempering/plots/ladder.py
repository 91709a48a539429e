"""The ladder of a run: rejection between its rungs, occupancy, and the local barrier along it."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.evidence import rungs
from pymc_tempering.evidence.alarms import MAX_REJECTION
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.diagnostics import rung_table
from pymc_tempering.plots.axes import Span, along_path, draw_beyond, path_ticks, rung_ticks
from pymc_tempering.plots.sheet import (
    BLUE,
    GRAY,
    ORANGE,
    Panel,
    Visuals,
    finish_picture,
    open_panels,
)

LADDER_VISUALS = ("stem", "rejection", "gap", "limit", "occupancy", "target")
BARRIER_VISUALS = ("steps", "outline", "barrier", "dots", "beyond", "rungs")
LOG_BELOW = 0.1
"""First positive beta below which the axis of the barrier is that of its log."""


def plot_ladder(
    idata: xr.DataTree,
    *,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw how often the chains pass from rung to rung, and where they stay.

    How to read it: the steps between rungs should be of about one height, below the dashed line
    (an orange square is a gap in the ladder), and each dot of the occupancy should lie near the
    bar of its target r.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    plot_collection : PlotCollection, optional
        Panels to draw into, by their names along the dimension ``panel``; new ones by default.
        Here "rejection" and "occupancy".
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "stem", "rejection", "gap", "limit",
        "occupancy", "target", and as everywhere "xlabel", "ylabel", "legend" and "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``, for instance ``figure_kwargs={"figsize": (900, 300)}``
        in dots.

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

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> pc = pmt.plot_ladder(gaussian_run(draws=100))
    >>> pc.viz["plot"].panel.values.tolist()
    ['rejection', 'occupancy']
    >>> pc.savefig("ladder.png")  # doctest: +SKIP
    """
    table = rung_table(read_cycles(idata))
    asked = (plot_collection, backend, visuals, pc_kwargs)
    names = ("rejection", "occupancy")
    panels = open_panels(names, (9.0, 2.9), LADDER_VISUALS, asked, columns=2)
    draw_rejection(panels[0], table)
    _draw_occupancy(panels[1], table)
    return finish_picture(panels)


def draw_rejection(panel: Panel, table: pd.DataFrame) -> None:
    """Draw the rejection rates between neighbors, with those of gaps marked."""
    rate = table["rejection"].to_numpy()[:-1]
    middle = np.arange(rate.size) + 0.5
    gap = ~(rate <= MAX_REJECTION)  # a rate that is not known is one too
    shown = np.nan_to_num(rate, nan=1.0)
    edge = [-0.5, rate.size + 0.5]
    panel.guide("limit", edge, [MAX_REJECTION] * 2, color=GRAY, width=1.0,
                label=f"{MAX_REJECTION:g}: a gap")  # fmt: skip
    panel.segments("stem", (middle, middle), (0.0 * shown, shown), color=GRAY, width=1.2)
    for visual, here, style in (
        ("rejection", ~gap, {"color": BLUE, "marker": "C0"}),
        ("gap", gap, {"color": ORANGE, "marker": "C5"}),
    ):
        size = dot_size(rate.size)
        panel.dots(visual, middle[here], shown[here], size=size, label=visual, **style)
    _rung_axes(panel, table, "rejection to next rung", 1.05)


def _draw_occupancy(panel: Panel, table: pd.DataFrame) -> None:
    rung, share = np.arange(len(table)), table["occupancy"].to_numpy()
    target = table["target"].to_numpy()
    panel.segments("stem", (rung, rung), (0.0 * share, share), color=GRAY, width=1.2)
    panel.segments("target", (rung - 0.35, rung + 0.35), (target, target), color=ORANGE, width=2.2,
                   label="target r")  # fmt: skip
    panel.dots("occupancy", rung, share, size=dot_size(rung.size), label="occupancy c")
    _rung_axes(panel, table, "share of iterations", 1.15 * max(share.max(), target.max()))


def _rung_axes(panel: Panel, table: pd.DataFrame, name: str, top: float) -> None:
    panel.axes(
        "inverse temperature β, evenly by rung",
        name,
        x=(-0.5, len(table) - 0.5),
        y=(0.0, top),
        xticks=rung_ticks(table["beta"].to_numpy(), 7),
    )


def dot_size(n: int, usual: float = 7.0) -> float:
    """Diameter of dots that so many rungs leave room for."""
    return usual if n <= 30 else 4.0


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
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> pc = pmt.plot_barrier(gaussian_run(draws=100))
    >>> pc.viz["barrier"]["picture"].sizes["panel"]
    1
    """
    stats = read_cycles(idata)
    asked = (plot_collection, backend, visuals, pc_kwargs)
    panels = open_panels(("barrier",), (7.0, 3.2), BARRIER_VISUALS, asked)
    draw_barrier(panels[0], idata, stats)
    total = rungs.cumulative_barrier(rungs.neighbor_rejection(stats))[-1]
    return finish_picture(panels, f"Λ = {total:.2f} on {stats.beta.size} rungs")


def draw_barrier(panel: Panel, idata: xr.DataTree, stats: CycleStats) -> None:
    """Draw rejection rates as areas between the rungs, and lambda at each."""
    first = stats.beta[1] if stats.beta[1] < LOG_BELOW else 1.0
    place = along_path(stats.beta, first)
    rate = np.nan_to_num(rungs.neighbor_rejection(stats), nan=1.0)
    height = rate / np.diff(place)
    panel.bars("steps", height, place, alpha=0.35, label="rejection, as area")
    panel.line("outline", np.repeat(place, 2)[1:-1], np.repeat(height, 2), color=GRAY, width=1.0)
    # d beta / d place: the first beta below it, and beta itself on the log part.
    local = _local_barrier(idata, stats) * np.maximum(stats.beta, first)
    known = np.isfinite(local)
    top = _top(height, local[known])
    low = -0.06 * top
    # A reference with a heavy tail may have a lambda far above all others at beta = 0.
    draw_beyond(panel, Span(low, top), local, place, upright=True, name="λ = ", color=BLUE)
    known &= ~(local > top)
    panel.line("barrier", place[known], local[known])
    panel.dots("dots", place[known], local[known], marker="C0", size=dot_size(place.size, 6.0),
               label="λ at the rungs")  # fmt: skip
    panel.segments("rungs", (place, place), (0.0 * place + low, 0.0 * place), color=ORANGE,
                   label="rungs")  # fmt: skip
    pad, scale, per = 0.02 * place[-1], "", "λ(β)"
    if first < 1.0:
        scale, per = ", log above the first rung", "λ per unit of the axis"
    panel.axes(
        f"inverse temperature β{scale}",
        per,
        x=(-pad, place[-1] + pad),
        y=(low, top),
        xticks=path_ticks(first),
    )


def _normal_barrier(stats: CycleStats) -> FloatArray:
    """Return lambda at every rung as if log_ratio were normal there; NaN where that is unknown."""
    weight = np.nansum(stats.rb_weight, axis=(0, 1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.nansum(stats.rb_log_ratio_sum, axis=(0, 1)) / weight
        square = np.nansum(stats.rb_log_ratio_sqsum, axis=(0, 1)) / weight
        variance = square - mean**2
    variance[~(variance >= 0.0)] = np.nan
    return np.asarray(np.sqrt(variance / (2.0 * np.pi)))


def _local_barrier(idata: xr.DataTree, stats: CycleStats) -> FloatArray:
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
