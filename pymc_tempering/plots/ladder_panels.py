"""The ladder of a tempering run: rejection between neighbors, and occupancy."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.evidence.alarms import MAX_REJECTION
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.diagnostics import rung_table
from pymc_tempering.plots.marks import BLUE, GRAY, ORANGE, rung_ticks
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("stem", "rejection", "gap", "limit", "occupancy", "target")


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
    >>> pc = pmt.plot_ladder(idata)  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['rejection', 'occupancy']
    >>> pc.savefig("ladder.png")  # doctest: +SKIP
    """
    table = rung_table(read_cycles(idata))
    sheet = open_sheet(
        ("rejection", "occupancy"),
        size=(9.0, 2.9),
        columns=2,
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    draw_rejection(sheet, "rejection", table)
    _draw_occupancy(sheet, "occupancy", table)
    return sheet.finish()


def draw_rejection(sheet: Sheet, panel: str, table: pd.DataFrame) -> None:
    """Draw the rejection rates between neighbors, with those of gaps marked."""
    rate = table["rejection"].to_numpy()[:-1]
    middle = np.arange(rate.size) + 0.5
    gap = ~(rate <= MAX_REJECTION)  # a rate that is not known is one too
    shown = np.nan_to_num(rate, nan=1.0)
    edge = [-0.5, rate.size + 0.5]
    sheet.draw("limit", panel, "line", edge, [MAX_REJECTION] * 2, color=GRAY, linestyle="C1",
               width=1.0, label=f"{MAX_REJECTION:g}: a gap")  # fmt: skip
    sheet.segments("stem", panel, (middle, middle), (0.0 * shown, shown), color=GRAY, width=1.2)
    for visual, here, color, marker, name in (
        ("rejection", ~gap, BLUE, "C0", "rejection"),
        ("gap", gap, ORANGE, "C5", "gap"),
    ):
        if here.any():
            sheet.draw(visual, panel, "scatter", middle[here], shown[here], color=color,
                       marker=marker, size=_size(rate.size), label=name)  # fmt: skip
    sheet.limit(panel, "y", 0.0, 1.05)
    _rung_axis(sheet, panel, table, "rejection to next rung")


def _draw_occupancy(sheet: Sheet, panel: str, table: pd.DataFrame) -> None:
    rung, share = np.arange(len(table)), table["occupancy"].to_numpy()
    target = table["target"].to_numpy()
    sheet.segments("stem", panel, (rung, rung), (0.0 * share, share), color=GRAY, width=1.2)
    sheet.segments("target", panel, (rung - 0.35, rung + 0.35), (target, target), color=ORANGE,
                   width=2.2, label="target r")  # fmt: skip
    sheet.draw("occupancy", panel, "scatter", rung, share, color=BLUE, marker="C0",
               size=_size(rung.size), label="occupancy c")  # fmt: skip
    sheet.limit(panel, "y", 0.0, 1.15 * max(share.max(), target.max()))
    _rung_axis(sheet, panel, table, "share of iterations")


def _rung_axis(sheet: Sheet, panel: str, table: pd.DataFrame, name: str) -> None:
    sheet.ticks(panel, "x", *rung_ticks(table["beta"].to_numpy(), 7))
    sheet.limit(panel, "x", -0.5, len(table) - 0.5)
    sheet.label(panel, "inverse temperature β, evenly by rung", name)


def _size(n: int) -> float:
    """Diameter of dots that so many rungs leave room for."""
    return 7.0 if n <= 30 else 4.0
