"""The ladder of a run: rejection between its rungs, the barrier, and the densities along it."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.ndimage import gaussian_filter1d

from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.evidence.alarms import MAX_REJECTION, neighbor_rejection
from pymc_tempering.evidence.datatree import (
    has_states,
    probabilities_of,
    read_cycles,
    read_run,
    read_states,
)
from pymc_tempering.evidence.diagnostics import cumulative_barrier, rung_table
from pymc_tempering.exceptions import NotTemperedError
from pymc_tempering.plots.axes import (
    Span,
    along_path,
    beta_text,
    draw_beyond,
    path_ticks,
    rung_ticks,
    spread_over,
)
from pymc_tempering.plots.sheet import BLUE, GRAY, ORANGE, Panel, finished, open_panels

LADDER_VISUALS = ("stem", "rejection", "gap", "limit", "occupancy", "target")
BARRIER_VISUALS = ("steps", "outline", "barrier", "dots", "beyond", "rungs")
GRID, OVERLAP = 160, 1.6
"""Points of a density, and the height of each ridge in distances between ridges."""
LOG_RATIO = "log_ratio"
LOG_BELOW = 0.1
"""First positive beta below which the axis of the barrier is that of its log."""


def plot_ladder(
    idata: xr.DataTree,
    **options: Any,
) -> Any:
    """Draw how often the chains pass from rung to rung, and where they stay.

    How to read it: the steps between rungs should be of about one height, below the dashed line
    (an orange square is a gap in the ladder), and each dot of the occupancy should lie near the
    bar of its target r.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "rejection",
        "occupancy"; ``backend``; ``visuals``, of "stem", "rejection", "gap", "limit", "occupancy",
        "target"; and arguments of ``PlotCollection.wrap``.

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
    panels = open_panels(("rejection", "occupancy"), (9.0, 2.9), LADDER_VISUALS, options, columns=2)
    draw_rejection(panels[0], table)
    _draw_occupancy(panels[1], table)
    return finished(panels)


def draw_rejection(panel: Panel, table: pd.DataFrame) -> None:
    """Draw the rejection rates between neighbors, with those of gaps marked."""
    rate = table["rejection"].to_numpy()[:-1]
    middle = np.arange(rate.size) + 0.5
    gap = ~(rate <= MAX_REJECTION)  # a rate that is not known is one too
    shown = np.nan_to_num(rate, nan=1.0)
    edge = [-0.5, rate.size + 0.5]
    label = f"{MAX_REJECTION:g}: a gap"
    panel.guide("limit", edge, MAX_REJECTION, color=GRAY, width=1.0, label=label)
    panel.segments("stem", (middle, middle), (0.0, shown), color=GRAY, width=1.2)
    for name, here, color, marker in (("rejection", ~gap, BLUE, "C0"), ("gap", gap, ORANGE, "C5")):
        panel.dots(
            name, middle[here], shown[here],
            color=color, marker=marker, size=dot_size(rate.size), label=name,
        )  # fmt: skip
    _rung_axes(panel, table, "rejection to next rung", 1.05)


def _draw_occupancy(panel: Panel, table: pd.DataFrame) -> None:
    rung, share = np.arange(len(table)), table["occupancy"].to_numpy()
    target, bar = table["target"].to_numpy(), (rung - 0.35, rung + 0.35)
    panel.segments("stem", (rung, rung), (0.0, share), color=GRAY, width=1.2)
    panel.segments("target", bar, (target, target), color=ORANGE, width=2.2, label="target r")
    panel.dots("occupancy", rung, share, size=dot_size(rung.size), label="occupancy c")
    _rung_axes(panel, table, "share of iterations", 1.15 * max(share.max(), target.max()))


def _rung_axes(panel: Panel, table: pd.DataFrame, name: str, top: float) -> None:
    ticks = rung_ticks(table["beta"].to_numpy(), 7)
    ends = -0.5, len(table) - 0.5
    panel.axes("inverse temperature β, evenly by rung", name, x=ends, y=(0.0, top), xticks=ticks)


def dot_size(n: int, usual: float = 7.0) -> float:
    """Diameter of dots that so many rungs leave room for."""
    return usual if n <= 30 else 4.0


def plot_barrier(
    idata: xr.DataTree,
    **options: Any,
) -> Any:
    """Draw the local barrier lambda(beta) along the path, with the rungs.

    How to read it: the gray area between two rungs is the rejection rate between them and the
    whole area is Lambda, so rungs belong where the curve is high; where the dots rise above the
    area, the rungs are too far apart for the curve to be followed.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with a panel "barrier";
        ``backend``; ``visuals``, of "steps", "outline", "barrier", "dots", "beyond", "rungs"; and
        arguments of ``PlotCollection.wrap``.

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
    panels = open_panels(("barrier",), (7.0, 3.2), BARRIER_VISUALS, options)
    draw_barrier(panels[0], idata, stats)
    total = cumulative_barrier(neighbor_rejection(stats))[-1]
    return finished(panels, f"Λ = {total:.2f} on {stats.beta.size} rungs")


def draw_barrier(panel: Panel, idata: xr.DataTree, stats: CycleStats) -> None:
    """Draw rejection rates as areas between the rungs, and lambda at each."""
    first = stats.beta[1] if stats.beta[1] < LOG_BELOW else 1.0
    place = along_path(stats.beta, first)
    rate = np.nan_to_num(neighbor_rejection(stats), nan=1.0)
    height = rate / np.diff(place)
    sides = place[:-1], place[1:]
    panel.bars("steps", height, *sides, alpha=0.35, label="rejection, as area")
    panel.line("outline", np.repeat(place, 2)[1:-1], np.repeat(height, 2), color=GRAY, width=1.0)
    # d beta / d place: the first beta below it, and beta itself on the log part.
    local = _local_barrier(idata, stats) * np.maximum(stats.beta, first)
    known = np.isfinite(local)
    top = _top(height, local[known])
    low = -0.06 * top
    # A reference with a heavy tail may have a lambda far above all others at beta = 0.
    draw_beyond(
        panel, Span(low, top), local, place, upright=True, name="off the axis: λ = ", color=BLUE
    )
    known &= ~(local > top)
    panel.line("barrier", place[known], local[known])
    panel.dots(
        "dots", place[known], local[known],
        marker="C0", size=dot_size(place.size, 6.0), label="λ at the rungs",
    )  # fmt: skip
    panel.segments("rungs", (place, place), (low, 0.0), color=ORANGE, label="rungs")
    names = "inverse temperature β", "λ(β)"
    if first < 1.0:
        names = f"{names[0]}, log above the first rung", "λ per unit of the axis"
    ends = -0.02 * place[-1], 1.02 * place[-1]
    panel.axes(*names, x=ends, y=(low, top), xticks=path_ticks(first))


def _normal_barrier(stats: CycleStats) -> FloatArray:
    """Return lambda at every rung as if log_ratio were normal there; NaN where that is unknown."""
    weight = np.nansum(stats.rb_weight, axis=(0, 1))
    sums = stats.rb_log_ratio_sum, stats.rb_log_ratio_sqsum
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean, square = (np.nansum(each, axis=(0, 1)) / weight for each in sums)
        return np.sqrt((square - mean**2) / (2.0 * np.pi))


def _local_barrier(idata: xr.DataTree, stats: CycleStats) -> FloatArray:
    """Return lambda at every rung, shape (K,), from its states where the trace was kept."""
    if "tempering_trace" not in idata.children:
        return _normal_barrier(stats)
    trace = idata["tempering_trace"].to_dataset().transpose("chain", "iteration")
    rung, ratio = trace["rung"].values.ravel(), trace["log_ratio"].values.ravel()
    kept = (rung >= 0) & np.isfinite(ratio)
    rung, ratio, n = rung[kept].astype(np.intp), ratio[kept], stats.beta.size
    count = np.bincount(rung, minlength=n)
    count = np.where(count < 2, np.nan, count)
    mean = np.bincount(rung, ratio, n) / count
    return 0.5 * np.bincount(rung, np.abs(ratio - mean[rung]), n) / count


def _top(height: FloatArray, local: FloatArray) -> float:
    """Return the upper end of the axis, which leaves out what is far above all else."""
    ordered = np.sort(np.concatenate([height, local]))
    rest = max(height.max(), *ordered[:-1])
    return 1.15 * float(ordered[-1] if ordered[-1] <= 2.5 * rest else rest)


def plot_path(
    idata: xr.DataTree,
    var_name: str | None = None,
    *,
    coords: dict[str, Any] | None = None,
    rungs: int = 8,
    **options: Any,
) -> Any:
    """Draw the density of a variable at rungs from the reference to the posterior, as ridges.

    How to read it: from the bottom (beta = 0, the reference) to the top (beta = 1, the posterior)
    each ridge should overlap its neighbors; modes that part on the way show where the chains have
    to pass.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="states"``; for ``log_ratio`` one with
        its default ``keep="log_ratio"`` is enough.
    var_name : str, optional
        A variable of ``posterior``, or "log_ratio". By default the first variable where states
        were kept, and ``log_ratio`` otherwise.
    coords : dict, optional
        Selects one element of a variable with dimensions; the first one by default.
    rungs : int, default 8
        Most rungs to draw.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with a panel "path";
        ``backend``; ``visuals``, of "ridge", "outline"; and arguments of ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    NotTemperedError
        If states, or the trace for ``log_ratio``, were not kept.
    ImportError
        If the backend is not installed.
    ValueError
        If there is no such variable, the backend or a visual is not known, or ``plot_collection``
        lacks a panel.

    Notes
    -----
    All states count at all rungs, each by q(beta_k | x), equation (7) of Carlson et al. (2016),
    over the probability with which it was kept. Of states with little weight at beta = 1 one in
    twenty is kept, so that ridges of a long ladder are rougher at the bottom. Each ridge is scaled
    to one height, so that heights say nothing of a rung beside another.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_path(idata, "x")  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['path']
    """
    beta = read_cycles(idata).beta
    shown = spread_over(beta.size, max(2, rungs))
    if var_name is None:
        var_name = _first_variable(idata) if has_states(idata) else LOG_RATIO
    of_ratio = var_name == LOG_RATIO
    if of_ratio:
        run = read_run(idata)
        name, values = f"{LOG_RATIO} (nats)", run.trace.log_ratio[np.isfinite(run.trace.log_ratio)]
        weight = probabilities_of(run.stats, values)[:, shown]
    else:
        name, values, weight = _states(idata, var_name, coords or {}, shown)
    size = (7.0, 1.4 + 0.42 * len(shown))
    panels = open_panels(("path",), size, ("ridge", "outline"), options)
    _draw_ridges(panels[0], beta[shown], values, weight, cut=of_ratio)
    panels[0].axes(name, "inverse temperature β")
    return finished(panels)


def _draw_ridges(
    panel: Panel, beta: FloatArray, values: FloatArray, weight: FloatArray, *, cut: bool
) -> None:
    """Draw one density a rung, the coldest at the top; ``cut`` leaves out a long hot tail."""
    n = len(beta)
    span = _ends(values, weight, n // 3 if cut else 0)
    edges = np.linspace(*span, GRID + 1)
    middle = 0.5 * (edges[1:] + edges[:-1])
    heights = np.array([_density(values, w, edges) for w in weight.T])
    most = heights.max(axis=1, keepdims=True)
    heights *= OVERLAP / np.where(most > 0.0, most, 1.0)
    heights += np.arange(n)[:, None]
    for k in reversed(range(n)):
        panel.band("ridge", middle, float(k), heights[k], part=str(k))
    panel.curves("outline", middle, heights[::-1], width=1.2)
    ticks = range(n), map(beta_text, beta)
    panel.axes(x=span, y=(-0.1, n - 1 + OVERLAP + 0.1), yticks=ticks)


def _density(values: FloatArray, weight: FloatArray, edges: FloatArray) -> FloatArray:
    """Return a weighted density on a grid, smoothed by a normal kernel."""
    inside = (values >= edges[0]) & (values <= edges[-1])
    if not weight[inside].sum() > 0.0:
        return np.zeros(edges.size - 1)
    mass = np.histogram(values, edges, weights=weight)[0] / weight.sum()
    w = weight[inside] / weight[inside].sum()
    mean = np.sum(w * values[inside])
    spread = np.sqrt(np.sum(w * (values[inside] - mean) ** 2))
    width = 0.9 * spread * np.sum(w**2) ** 0.2 / np.diff(edges)[0]
    return gaussian_filter1d(mass, max(width, 0.3), mode="mirror") / np.diff(edges)


def _ends(values: FloatArray, weight: FloatArray, first: int) -> tuple[float, float]:
    """Return the range that holds nearly all mass of the rungs from ``first`` on."""
    ends = [
        np.quantile(values, [0.003, 0.997], weights=w, method="inverted_cdf")
        for w in weight.T[first:]
        if w.any()
    ]
    low, high = float(np.min(ends)), float(np.max(ends))
    pad = 0.05 * (high - low) or 1.0
    return low - pad, high + pad


def _first_variable(idata: xr.DataTree) -> str:
    names = idata["tempering_states"].to_dataset().data_vars
    return str(next(n for n in names if n not in ("iteration", "keep_probability")))


def _states(
    idata: xr.DataTree, var_name: str, coords: dict[str, Any], shown: list[int]
) -> tuple[str, FloatArray, FloatArray]:
    """Return the label, the values and the weights at the shown rungs of the kept states."""
    try:
        kept = read_states(idata)
    except NotTemperedError as error:
        error.add_note('Without states, plot_path(idata, "log_ratio") draws log_ratio.')
        raise
    if var_name not in kept.variables:
        raise ValueError(f"no variable {var_name!r}; there are {list(kept.variables.data_vars)}")
    values = kept.variables[var_name].sel(coords)
    rest = {dim: 0 for dim in values.dims if dim not in ("chain", "state")}
    values = values.isel(rest).transpose("chain", "state")
    picked = {str(d): values.coords[d].item() for d in {*coords, *rest} if d in values.coords}
    label = f"{var_name}[{', '.join(str(v) for v in picked.values())}]" if picked else var_name
    return label, np.asarray(values.values, dtype=float)[kept.keep], kept.weights(shown)
