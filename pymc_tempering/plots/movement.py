"""How chains move: their ways along the ladder, their round trips, and the tours between these."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from pymc_tempering.arguments import check_whole
from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.pieces import Tours, finite_tours, influence
from pymc_tempering.plots.axes import round_ticks, rung_ticks
from pymc_tempering.plots.sheet import BLUE, ORANGE, Panel, finished, open_panels

MOST_CHAINS = 16
FEWEST, MOST, TOURS = 120, 3000, 5
"""Iterations that are shown by default: so many tours of usual length, between these bounds."""
FAR = 4.0
"""Poisson errors from the mean of all chains beyond which a chain is drawn in another color."""

type RungPath = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Rung of each iteration of a chain (the hottest of each draw where iterations were not kept),
and the places at which a tour starts."""


def plot_temperature_trace(
    idata: xr.DataTree,
    *,
    coords: Mapping[str, Any] | None = None,
    max_iterations: int | None = None,
    **options: Any,
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
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with a panel a
        chain, "chain 0" and so on; ``backend``; ``visuals``, of "path", "starts"; and arguments of
        ``PlotCollection.wrap``.

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
    names = chain_names(idata)
    shown = _chosen(names, coords)
    paths, step = rung_paths(idata, stats)
    paths = [paths[names.index(name)] for name in shown]
    height, ticks = (1.1, 3) if len(shown) <= 4 else (0.75, 2)
    size = 9.0, 1.1 + height * len(shown)
    titles = [f"chain {name}" for name in shown]
    panels = open_panels(titles, size, ("path", "starts"), options, sharex=True)
    n = max_iterations or usual_length(paths)
    for panel, path in zip(panels, paths, strict=True):
        draw_path(panel, path, n, stats.beta, ticks)
        panel.axes("", panel.name)
        if panel is not panels[-1]:
            panel.drawer.set_ticklabel_visibility(panel.target, axis="x", visible=False)
    panels[-1].axes(step)
    what = "β of the rung" if step == "iteration" else "β of the hottest rung of the cycle"
    return finished(panels, f"{what}; triangles: a tour starts")


def chain_names(idata: xr.DataTree) -> list[Any]:
    """Names of all chains, in their order; their numbers where they have none."""
    return list(idata["sample_stats"].to_dataset()["chain"].values.tolist())


def _chosen(names: list[Any], coords: Mapping[str, Any] | None) -> list[Any]:
    """Names of the chains that were asked for."""
    wanted = list(np.atleast_1d((coords or {}).get("chain", names[:MOST_CHAINS])).tolist())
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted or set(coords or {}) - {"chain"}:
        raise ValueError(f"coords may choose among {{'chain': {names}}}, got {coords}")
    return wanted


def rung_paths(idata: xr.DataTree, stats: CycleStats) -> tuple[list[RungPath], str]:
    """Return the way of each chain, and what its places are: "iteration" or "draw"."""
    if "tempering_trace" not in idata.children:
        rungs = np.searchsorted(stats.beta, stats.beta_min - 1e-12)
        starts = map(np.flatnonzero, stats.tour_start)
        return list(zip(rungs, starts, strict=True)), "draw"
    trace = idata["tempering_trace"].to_dataset()["rung"].transpose("chain", "iteration").values
    top = stats.beta.size - 1
    return [_of_iterations(row[row >= 0].astype(np.intp), top) for row in trace], "iteration"


def _of_iterations(rung: NDArray[np.intp], top: int) -> RungPath:
    ends = np.flatnonzero((rung == 0) | (rung == top))
    # A tour starts at the first visit to rung 0 after one to the top, or after the chain's start.
    fresh = (rung[ends] == 0) & np.concatenate([[True], rung[ends][:-1] > 0])[: ends.size]
    return rung, ends[fresh]


def usual_length(paths: list[RungPath]) -> int:
    """Return how many iterations hold a few tours."""
    length = sum(rung.size for rung, _ in paths) / max(1, sum(at.size for _, at in paths))
    return int(min(max(TOURS * length, FEWEST), MOST))


def draw_path(panel: Panel, path: RungPath, n: int, beta: np.ndarray, ticks: int) -> None:
    """Draw the first iterations of one chain, with beta as labels of the rungs."""
    rung, starts = path[0][:n], path[1][path[1] < n]
    low, top = -0.16 * (beta.size - 1), beta.size - 1
    at = np.repeat(np.arange(rung.size + 1), 2)[1:-1] - 0.5
    panel.line("path", at, np.repeat(rung, 2), width=1.0)
    panel.dots("starts", starts, low, color=ORANGE, marker="C2", size=6.0)
    right = 1.01 * min(n, max(rung.size, 2))
    panel.axes(x=(-0.01 * n, right), y=(2.0 * low, 1.08 * top), yticks=rung_ticks(beta, ticks))


def plot_round_trips(
    idata: xr.DataTree,
    **options: Any,
) -> Any:
    """Draw the number of complete round trips of each chain against its draws.

    How to read it: all chains should climb along the dashed line; a flat stretch is a chain that
    does not come back from the posterior or from the reference, and an orange one has far fewer
    or more round trips than the others.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with a panel
        "round_trips"; ``backend``; ``visuals``, of "trips", "steady", "names"; and arguments of
        ``PlotCollection.wrap``: ``aes={"color": ["chain"]}`` gives each chain a color.

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
    names = chain_names(idata)
    panels = open_panels(
        ("round_trips",), (7.0, 3.4), ("trips", "steady", "names"), options, chains=names
    )
    draw_round_trips(panels[0], stats, names)
    total = int(np.maximum(stats.tour_start.sum(axis=1) - 1, 0).sum())
    chains = f"{stats.n_chains} chain{'s' if stats.n_chains > 1 else ''}"
    return finished(panels, f"{total} round trips of {chains}")


def draw_round_trips(panel: Panel, stats: CycleStats, names: list[Any]) -> None:
    """Draw the running number of tours of each chain, and of one at the mean pace."""
    # The first start begins the first tour; each later one ends a tour.
    trips = np.maximum(np.cumsum(stats.tour_start, axis=1) - 1, 0)
    draws, last = np.arange(stats.n_draws), trips[:, -1]
    odd = np.abs(last - last.mean()) > FAR * np.sqrt(max(last.mean(), 1.0))
    thin = spaced(stats.n_draws)
    for k, name in enumerate(names):
        color, width = (ORANGE, 2.0) if odd[k] else (BLUE, 1.1)
        panel.line("trips", draws[thin], trips[k][thin], color=color, width=width, chain=name)
    panel.guide("steady", [0, stats.n_draws], [0, last.mean()], label="mean pace of all chains")
    high = 1.05 * max(float(trips.max()), 1.0)
    order = np.argsort(last, kind="stable")
    ends = sorted({order[0], order[-1], *np.flatnonzero(odd)}, key=lambda k: last[k])
    if len(names) > 1:
        heights, told = apart(last[ends].astype(float), 0.06 * high), [str(names[k]) for k in ends]
        panel.texts("names", 1.01 * stats.n_draws, heights, told, horizontal_align="left")
    panel.axes(
        "draws of each chain", "complete round trips",
        x=(0.0, 1.06 * stats.n_draws), y=(0.0, high), yticks=round_ticks(high, least=1.0),
    )  # fmt: skip


def apart(heights: np.ndarray, gap: float) -> np.ndarray:
    """Return rising heights that are moved apart, as little as the gap between texts asks for."""
    steps = gap * np.arange(heights.size)
    return isotonic_regression(heights - steps).x + steps


def spaced(n: int) -> np.ndarray:
    """Return places of at most 1000 of n points, both ends among them."""
    return np.unique(np.linspace(0, n - 1, min(n, 1000)).round().astype(int))


def plot_tours(
    idata: xr.DataTree,
    **options: Any,
) -> Any:
    """Draw length and weight of each tour, and how much of the variance the largest ones hold.

    How to read it: tours are the independent pieces of the run, so no dot should lie far above
    all others; where the curve on the right is at 0.5 after a handful of tours, the error of
    log Z rests on these alone.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "weights",
        "variance"; ``backend``; ``visuals``, of "tours", "unfinished", "mean", "share", "even",
        "half"; and arguments of ``PlotCollection.wrap``.

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
    tours = finite_tours(read_cycles(idata))
    panels = open_panels(
        ("weights", "variance"), (9.0, 3.2),
        ("tours", "unfinished", "mean", "share", "even", "half"), options, columns=2,
    )  # fmt: skip
    draw_weights(panels[0], tours)
    _draw_variance(panels[1], tours)
    return finished(panels)


def draw_weights(panel: Panel, tours: Tours) -> None:
    """Draw weight at beta = 1 against length, one dot a tour."""
    length, weight = tours.sums.sum(axis=1), tours.sums[:, -1]
    whole = tours.complete
    unit = weight[whole].mean() if whole.any() and weight[whole].any() else 1.0
    relative = weight / unit
    for name, here, draw, style in (
        ("tours", whole, panel.dots, {"alpha": 0.6}),
        ("unfinished", ~whole, panel.rings, {"color": ORANGE, "width": 1.0}),
    ):
        label = f"{here.sum()} {name}"
        draw(name, length[here], relative[here], size=5.0, label=label, **style)
    right = 1.05 * max(float(length.max()), 1.0)
    panel.guide("mean", [0.0, right], 1.0, width=1.0, label="mean")
    most = relative.max()
    panel.axes(
        "length of the tour (iterations)", "weight, in mean tours",
        x=(0.0, right), y=(-0.05 * most, 1.08 * max(most, 1.0)),
    )  # fmt: skip


def _draw_variance(panel: Panel, tours: Tours) -> None:
    share = np.sort(variance_shares(tours))[::-1]
    n = share.size
    if n < 2:
        panel.line("share", 1.0, np.nan, label="too few tours")
        return
    curve = np.append(0.0, np.cumsum(share))
    thin = np.union1d(spaced(n + 1), np.arange(min(n, 50)))
    panel.guide("even", [0, n], [0.0, 1.0], width=1.0, label="if all had the same")
    panel.line("share", thin, curve[thin], width=1.6, label="share of the variance")
    half = int(np.searchsorted(curve, 0.5))
    panel.texts("half", 0.5 * n, 0.08, f"{half} of {n} tours hold half of it")
    name = "share of the variance of log Z"
    panel.axes("tours, the largest first", name, x=(0.0, n), y=(0.0, 1.02))


def variance_shares(tours: Tours) -> FloatArray:
    """Return the share of each complete tour in the variance of log Z, shape (n,)."""
    sums = tours.sums[tours.complete][:, [0, -1]]
    if len(sums) < 2 or np.any(sums.sum(axis=0) <= 0.0):
        return np.zeros(0)
    pull = influence(sums)[:, 1] ** 2
    return pull / pull.sum() if pull.sum() > 0.0 else np.zeros(0)
