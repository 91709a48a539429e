"""The paths of all chains along the ladder, with the starts of their tours."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.plots.marks import BLUE, ORANGE, rung_ticks
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.rung_paths import RungPath, chain_names, rung_paths
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("path", "starts")
MOST_CHAINS = 16
FEWEST, MOST, TOURS = 120, 3000, 5
"""Iterations that are shown by default: so many tours of usual length, between these bounds."""


def plot_temperature_trace(
    idata: xr.DataTree,
    *,
    coords: Mapping[str, Any] | None = None,
    max_iterations: int | None = None,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw the rung of each chain against the iteration, one panel a chain.

    How to read it: each chain should go up and down all along; between two triangles is one
    round trip, from a fresh reference draw at beta = 0 to beta = 1 and back, and a chain that
    stays at one height without a triangle is stuck there.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not. Without the group ``tempering_trace``
        (kept by ``keep="log_ratio"``) the hottest rung of each recorded draw is drawn instead.
    coords : mapping, optional
        ``{"chain": [0, 3]}`` draws these chains alone. All by default, but no more than 16.
    max_iterations : int, optional
        Iterations to show, from the first one on (draws, without ``tempering_trace``). By default
        about five tours, so that a short ladder is no solid block.
    plot_collection : PlotCollection, optional
        With one panel a chain, "chain 0" and so on, along the dimension ``panel``; new ones by
        default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "path", "starts", "xlabel",
        "ylabel", "legend", "title".
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
        If there is no such chain, ``max_iterations < 1``, the backend or a visual is not known, or
        ``plot_collection`` lacks a panel.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_temperature_trace(idata, coords={"chain": [1, 2]})  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['chain 1', 'chain 2']
    """
    if max_iterations is not None:
        check_whole(1, max_iterations=max_iterations)
    stats = read_cycles(idata)
    shown, names = _chosen(stats.n_chains, *chain_names(stats, idata, stats.n_chains), coords)
    paths, flat = rung_paths(idata, stats)
    panels = [f"chain {name}" for name in names]
    height = 1.1 if len(shown) <= 4 else 0.75
    sheet = open_sheet(
        panels,
        size=(9.0, 1.1 + height * len(shown)),
        tight=True,
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        figure_kwargs={"sharex": True} | dict(pc_kwargs.pop("figure_kwargs", {})),
        **pc_kwargs,
    )
    n = max_iterations or usual_length([paths[k] for k in shown])
    for panel, k in zip(panels, shown, strict=True):
        draw_path(sheet, panel, paths[k], n, stats.beta, 2 if len(shown) > 4 else 3)
        sheet.label(panel, "", panel)
        if panel != panels[-1]:
            sheet.drawer.set_ticklabel_visibility(sheet.target(panel), axis="x", visible=False)
    sheet.label(panels[-1], "iteration" if flat else "draw")
    what = "β of the rung" if flat else "β of the hottest rung of the cycle"
    return sheet.finish(f"{what}; triangles: a tour starts")


def usual_length(paths: list[RungPath]) -> int:
    """Return how many iterations hold a few tours."""
    length = sum(path.rung.size for path in paths) / max(1, sum(p.starts.size for p in paths))
    return int(min(max(TOURS * length, FEWEST), MOST))


def draw_path(
    sheet: Sheet, panel: str, path: RungPath, n: int, beta: np.ndarray, ticks: int
) -> None:
    """Draw the first iterations of one chain, with beta as labels of the rungs."""
    rung, starts = path.rung[:n], path.starts[path.starts < n]
    top = beta.size - 1
    at = np.repeat(np.arange(rung.size + 1), 2)[1:-1] - 0.5
    sheet.draw("path", panel, "line", at, np.repeat(rung, 2), color=BLUE, width=1.0)
    low = -0.16 * top
    sheet.draw("starts", panel, "scatter", starts, np.full(starts.size, low), color=ORANGE,
               marker="C2", size=6.0)  # fmt: skip
    sheet.limit(panel, "y", 2.0 * low, 1.08 * top)
    sheet.limit(panel, "x", -0.01 * n, 1.01 * min(n, max(rung.size, 2)))
    sheet.ticks(panel, "y", *rung_ticks(beta, ticks))


def _chosen(
    n: int, places: list[int], names: list[Any], coords: Mapping[str, Any] | None
) -> tuple[list[int], list[Any]]:
    """Return positions and names of the chains that were asked for."""
    wanted = (coords or {}).get("chain", names[:MOST_CHAINS])
    wanted = list(np.atleast_1d(wanted).tolist())
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted or set(coords or {}) - {"chain"}:
        raise ValueError(f"coords may choose among {{'chain': {names}}}, got {coords}")
    return [places[names.index(name)] for name in wanted], wanted
