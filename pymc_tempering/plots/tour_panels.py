"""Weights and lengths of tours: whether a few of them make the estimate."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.pieces import Tours, finite_tours
from pymc_tempering.plots.marks import BLUE, ORANGE
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.round_trips import spaced
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("tours", "unfinished", "mean", "share", "even", "half")
MOST_DOTS = 3000


def plot_tours(
    idata: xr.DataTree,
    *,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw length and weight of each tour, and how much of the variance the largest ones hold.

    How to read it: tours are the independent pieces of the run, so no dot should lie far above
    all others; where the curve on the right is at 0.5 after a handful of tours, the error of
    log Z rests on these alone.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    plot_collection : PlotCollection, optional
        With panels "weights" and "variance" along the dimension ``panel``; new ones by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "tours", "unfinished", "mean",
        "share", "even", "half", "xlabel", "ylabel", "legend", "title".
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
    The weight of a tour is its sum of q(beta = 1 | x), in multiples of the mean tour's. To first
    order tour j moves log Z by w_j / W - v_j / V, with v_j its sum of q(beta = 0 | x) and W, V the
    sums over all tours; the squares of these are the terms of the variance.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_tours(idata)  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['weights', 'variance']
    """
    stats = read_cycles(idata)
    sheet = open_sheet(
        ("weights", "variance"),
        size=(9.0, 3.2),
        columns=2,
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    tours = finite_tours(stats)
    draw_weights(sheet, "weights", tours)
    _draw_variance(sheet, "variance", tours)
    return sheet.finish()


def draw_weights(sheet: Sheet, panel: str, tours: Tours) -> None:
    """Draw weight at beta = 1 against length, one dot a tour."""
    length, weight = tours.sums.sum(axis=1), tours.sums[:, -1]
    whole = tours.complete
    unit = weight[whole].mean() if whole.any() and weight[whole].any() else 1.0
    relative = weight / unit
    for visual, here, color, face, name in (
        ("tours", whole, BLUE, BLUE, "tours"),
        ("unfinished", ~whole, ORANGE, "none", "unfinished"),
    ):
        kept = _most_telling(relative, here)
        if kept.size:
            fill = "B0" if face == "none" else face
            sheet.draw(visual, panel, "scatter", length[kept], relative[kept], edgecolor=color,
                       facecolor=fill, size=5.0, width=1.0, label=f"{here.sum()} {name}",
                       alpha=0.6 if visual == "tours" else 1.0)  # fmt: skip
    right = 1.05 * max(float(length.max()), 1.0)
    sheet.draw("mean", panel, "line", [0.0, right], [1.0, 1.0], color="B1", width=1.0,
               linestyle="C1", label="mean")  # fmt: skip
    sheet.limit(panel, "x", 0.0, right)
    sheet.limit(panel, "y", -0.05 * relative.max(), 1.08 * max(relative.max(), 1.0))
    sheet.label(panel, "length of the tour (iterations)", "weight, in mean tours")


def _most_telling(relative: FloatArray, here: np.ndarray) -> np.ndarray:
    """Return the tours to draw: the largest ones, and of the others as many as there is room."""
    places = np.flatnonzero(here)
    if places.size <= MOST_DOTS:
        return places
    order = places[np.argsort(relative[places])]
    return np.concatenate([order[:-500][spaced(order.size - 500, MOST_DOTS - 500)], order[-500:]])


def _draw_variance(sheet: Sheet, panel: str, tours: Tours) -> None:
    share = np.sort(variance_shares(tours))[::-1]
    n = share.size
    if n < 2:
        sheet.draw("share", panel, "line", [1.0], [np.nan], color=BLUE,
                   label="too few tours")  # fmt: skip
        return
    at = np.arange(n + 1)
    curve = np.append(0.0, np.cumsum(share))
    thin = np.unique(np.concatenate([spaced(n + 1, 500), np.arange(min(n, 50))]))
    sheet.draw("even", panel, "line", [0, n], [0.0, 1.0], color="B1", width=1.0, linestyle="C1",
               label="if all had the same")  # fmt: skip
    sheet.draw("share", panel, "line", at[thin], curve[thin], color=BLUE, width=1.6,
               label="share of the variance")  # fmt: skip
    sheet.limit(panel, "x", 0.0, float(n))
    sheet.limit(panel, "y", 0.0, 1.02)
    half = int(np.searchsorted(curve, 0.5))
    sheet.texts("half", panel, [0.5 * n], [0.08], [f"{half} of {n} tours hold half of it"])
    sheet.label(panel, "tours, the largest first", "share of the variance of log Z")


def variance_shares(tours: Tours) -> FloatArray:
    """Return the share of each complete tour in the variance of log Z, shape (n,)."""
    sums = tours.sums[tours.complete][:, [0, -1]]
    if len(sums) < 2 or np.any(sums.sum(axis=0) <= 0.0):
        return np.zeros(0)
    share = sums / sums.sum(axis=0)
    pull = (share[:, 1] - share[:, 0]) ** 2
    return np.asarray(pull / pull.sum()) if pull.sum() > 0.0 else np.zeros(0)
