"""Round trips of each chain while draws come in."""

from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize import isotonic_regression

from pymc_tempering.core.cycles import CycleStats
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.plots.marks import BLUE, ORANGE, whole_ticks
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.rung_paths import chain_names
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("trips", "steady", "names")
FAR = 4.0
"""Poisson errors from the mean of all chains beyond which a chain is drawn in another color."""


def plot_round_trips(
    idata: xr.DataTree,
    *,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw the number of complete round trips of each chain against its draws.

    How to read it: all chains should climb along the dashed line; a flat stretch is a chain that
    does not come back from the posterior or from the reference, and an orange one has far fewer
    or more round trips than the others.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    plot_collection : PlotCollection, optional
        With a panel "round_trips" along the dimension ``panel``; a new one by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "trips", "steady", "names",
        "xlabel", "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``: ``aes={"color": ["chain"]}`` gives each chain a color.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual, panel and chain.

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
    >>> pc = pmt.plot_round_trips(idata)  # a run of pmt.sample
    >>> dict(pc.viz["trips"]["picture"].sizes)
    {'panel': 1, 'chain': 4}
    """
    stats = read_cycles(idata)
    _, names = chain_names(stats, idata, stats.n_chains)
    sheet = open_sheet(
        ("round_trips",),
        size=(7.0, 3.4),
        known=VISUALS,
        chains=names,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    draw_round_trips(sheet, "round_trips", stats, names)
    total = int(np.maximum(stats.tour_start.sum(axis=1) - 1, 0).sum())
    chains = f"{stats.n_chains} chain{'s' if stats.n_chains > 1 else ''}"
    return sheet.finish(f"{total} round trips of {chains}")


def draw_round_trips(sheet: Sheet, panel: str, stats: CycleStats, names: list[Any]) -> None:
    """Draw the running number of tours of each chain, and of one at the mean pace."""
    # The first start begins the first tour; each later one ends a tour.
    trips = np.maximum(np.cumsum(stats.tour_start, axis=1) - 1, 0)
    draws = np.arange(stats.n_draws)
    mean = trips[:, -1].mean()
    odd = np.abs(trips[:, -1] - mean) > FAR * np.sqrt(max(mean, 1.0))
    thin = spaced(trips.shape[1])
    for k, name in enumerate(names):
        color, width = (ORANGE, 2.0) if odd[k] else (BLUE, 1.1)
        sheet.draw("trips", panel, "line", draws[thin], trips[k][thin], color=color, width=width,
                   chain=name)  # fmt: skip
    sheet.draw("steady", panel, "line", [0, stats.n_draws], [0.0, mean], color="B1", width=1.2,
               linestyle="C1", label="mean pace of all chains")  # fmt: skip
    high = 1.05 * max(float(trips.max()), 1.0)
    order = np.argsort(trips[:, -1], kind="stable")
    ends = sorted({int(order[0]), int(order[-1]), *np.flatnonzero(odd).tolist()})
    if len(names) > 1:
        ends.sort(key=lambda k: trips[k, -1])
        heights = apart(trips[ends, -1].astype(float), 0.06 * high)
        sheet.texts("names", panel, [1.01 * stats.n_draws] * len(ends), heights,
                    [str(names[k]) for k in ends], horizontal_align="left")  # fmt: skip
    sheet.limit(panel, "x", 0.0, 1.06 * stats.n_draws)
    sheet.limit(panel, "y", 0.0, high)
    at = whole_ticks(high)
    sheet.ticks(panel, "y", at, at)
    sheet.label(panel, "draws of each chain", "complete round trips")


def apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """Return rising heights that are moved apart, as little as the gap between texts asks for."""
    steps = gap * np.arange(heights.size)
    return np.asarray(isotonic_regression(heights - steps).x + steps)


def spaced(n: int, most: int = 1000) -> np.ndarray:
    """Return places of at most so many of n points, both ends among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))
