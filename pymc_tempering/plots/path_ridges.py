"""Ridgelines of a variable from the reference to the posterior."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.datatree import (
    has_states,
    probabilities_of,
    read_cycles,
    read_run,
    read_states,
)
from pymc_tempering.exceptions import NotTemperedError
from pymc_tempering.plots.marks import BLUE, beta_text, spread_over
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("ridge", "outline")
GRID, OVERLAP = 160, 1.6
"""Points of a density, and the height of each ridge in distances between ridges."""
LOG_RATIO = "log_ratio"


def plot_path(
    idata: xr.DataTree,
    var_name: str | None = None,
    *,
    coords: dict[str, Any] | None = None,
    rungs: int = 8,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
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
    plot_collection : PlotCollection, optional
        With a panel "path" along the dimension ``panel``; a new one by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "ridge", "outline", "xlabel",
        "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

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
        var_name = LOG_RATIO
        if has_states(idata):
            var_name = _first_variable(idata)
    if var_name == LOG_RATIO:
        name, values, weight = LOG_RATIO, *_log_ratios(idata, shown)
    else:
        name, values, weight = _states(idata, var_name, coords or {}, shown)
    sheet = open_sheet(
        ("path",),
        size=(7.0, 1.4 + 0.42 * len(shown)),
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    draw_ridges(sheet, "path", beta[shown], values, weight, cut=var_name == LOG_RATIO)
    sheet.label("path", f"{name} (nats)" if name == LOG_RATIO else name, "inverse temperature β")
    return sheet.finish()


def draw_ridges(
    sheet: Sheet, panel: str, beta: FloatArray, values: FloatArray, weight: FloatArray, *, cut: bool
) -> None:
    """Draw one density a rung, the coldest at the top; ``cut`` leaves out a long hot tail."""
    low, high = _ends(values, weight, len(beta) // 3 if cut else 0)
    edges = np.linspace(low, high, GRID + 1)
    middle = 0.5 * (edges[1:] + edges[:-1])
    heights = [_density(values, w, edges) for w in weight.T]
    x: list[float] = []
    curve: list[float] = []
    for k in reversed(range(len(beta))):
        height = k + OVERLAP * heights[k] / (heights[k].max() or 1.0)
        sheet.draw("ridge", panel, "fill_between_y", middle, np.full(GRID, float(k)), height,
                   part=str(k), color=BLUE, alpha=0.25)  # fmt: skip
        x, curve = [*x, *middle, np.nan], [*curve, *height, np.nan]
    sheet.draw("outline", panel, "line", x, curve, color=BLUE, width=1.2)
    sheet.ticks(panel, "y", np.arange(len(beta)), [beta_text(b) for b in beta])
    sheet.limit(panel, "x", low, high)
    sheet.limit(panel, "y", -0.1, len(beta) - 1 + OVERLAP + 0.1)


def _density(values: FloatArray, weight: FloatArray, edges: FloatArray) -> FloatArray:
    """Return a weighted density on a grid, smoothed by a normal kernel."""
    inside = (values >= edges[0]) & (values <= edges[-1])
    if not weight[inside].sum() > 0.0:
        return np.zeros(edges.size - 1)
    mass = np.histogram(values, edges, weights=weight)[0] / weight.sum()
    w = weight[inside] / weight[inside].sum()
    mean = np.sum(w * values[inside])
    spread = np.sqrt(np.sum(w * (values[inside] - mean) ** 2))
    width = max(0.9 * spread * np.sum(w**2) ** 0.2, 1e-9) / np.diff(edges)[0]
    reach = int(min(np.ceil(4.0 * width), edges.size))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(width, 0.3)) ** 2)
    padded = np.pad(mass, reach, mode="reflect" if reach < mass.size else "symmetric")
    smooth = np.convolve(padded, kernel / kernel.sum(), mode="valid")
    return np.asarray(smooth / np.diff(edges))


def _ends(values: FloatArray, weight: FloatArray, first: int) -> tuple[float, float]:
    """Return the range that holds nearly all mass of the rungs from ``first`` on."""
    order = np.argsort(values)
    lows, highs = [], []
    for w in weight.T[first:]:
        total = np.cumsum(w[order])
        at = np.searchsorted(total, total[-1] * np.array([0.003, 0.997]))
        lows.append(values[order][min(at[0], values.size - 1)])
        highs.append(values[order][min(at[1], values.size - 1)])
    low, high = float(min(lows)), float(max(highs))
    pad = 0.05 * (high - low) or 1.0
    return low - pad, high + pad


def _log_ratios(idata: xr.DataTree, shown: list[int]) -> tuple[FloatArray, FloatArray]:
    run = read_run(idata)
    stats, trace = run.stats, run.trace
    finite = np.isfinite(trace.log_ratio)
    values = trace.log_ratio[finite]
    return values, probabilities_of(stats, values)[:, shown]


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
    flat = np.asarray(values.values, dtype=float)[kept.keep]
    probability = idata["tempering_states"]["keep_probability"].transpose("chain", "state").values
    q = probabilities_of(kept.run.stats, _ratio_of_states(idata, kept.keep))
    return label, flat, q[:, shown] / probability[kept.keep][:, None]


def _ratio_of_states(idata: xr.DataTree, keep: np.ndarray) -> FloatArray:
    """Return log_ratio of the states that count."""
    iteration = idata["tempering_states"]["iteration"].transpose("chain", "state").values
    trace = idata["tempering_trace"]["log_ratio"].transpose("chain", "iteration").values
    chain = np.broadcast_to(np.arange(len(iteration))[:, None], iteration.shape)
    return np.asarray(trace[chain[keep], iteration[keep]], dtype=float)
