"""Fitted draws against looks from the prior: whether the fit has missed something."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import BoolArray, FloatArray, cold_log_ratio
from pymc_tempering.evidence.datatree import LOOKS_GROUP, read_cycles
from pymc_tempering.evidence.reference_check import suspect_above
from pymc_tempering.exceptions import NotTemperedError
from pymc_tempering.plots.marks import BLUE, GRAY, ORANGE, round_ticks
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("draws", "looks", "ends", "on_way", "suspects", "limit", "beyond")
DOTS: dict[str, Any] = {"color": BLUE, "size": 4.0, "alpha": 0.7}
RINGS: dict[str, Any] = {"edgecolor": BLUE, "facecolor": "B0", "marker": "C0", "size": 4.0}
SQUARES: dict[str, Any] = {"color": ORANGE, "marker": "C5", "size": 7.0}
BINS = 60
GROUP = "tempering_check"
SMALL_WEIGHT = 1e-3
"""A share of all looks' weight below which a look does not widen the axis."""


def plot_looks(
    idata: xr.DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    coords: dict[str, Any] | None = None,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw the run's draws beside the ends of the looks from the prior.

    The first panel compares log_ratio; each of `var_names` adds a panel for each of its elements.

    How to read it: looks may end left of the draws, where they have not come up yet; rings are
    those that have not arrived, and say nothing of what the run may lack. Looks right of the
    dashed line (orange squares) have found a region that the fitted reference hardly
    covers, and so a tail or a mode that the run may lack. In the panel of a variable the outline
    of the looks should lie over the draws, but for noise; what looks alone have reached is missing.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with a fitted reference that was checked.
    var_names : str or sequence of str, optional
        Variables of ``posterior``; "all" stands for all free variables and deterministics.
    coords : dict, optional
        Selects elements of variables with dimensions.
    plot_collection : PlotCollection, optional
        With a panel "looks", and one named after each element, along the dimension ``panel``; a
        new one by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "draws", "looks", "ends",
        "on_way", "suspects", "limit", "beyond", "xlabel", "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    NotTemperedError
        If there is no group ``tempering_check``, or no run; for `var_names`, no group
        ``tempering_looks``.
    ImportError
        If the backend is not installed.
    ValueError
        If the backend, a visual or a variable is not known, or ``plot_collection`` lacks a panel.

    Notes
    -----
    log_ratio is log p(x, y) less the log density of the reference, in nats: large where the
    reference is far too thin. The blue outline is the density of the looks, each by its weight of
    annealed importance sampling; the dots and rings below are the looks themselves, and an arrow
    counts those beyond the axis. The dashed line is where
    :func:`pymc_tempering.sample` begins to suspect a state.

    Examples
    --------
    >>> import numpy as np, xarray as xr, pymc_tempering as pmt
    >>> run, ratio = idata.copy(), np.random.default_rng(0).normal(-1, 0.3, 50)
    >>> ends = {"log_ratio": ("look", ratio), "log_weight": ("look", np.zeros(50))}
    >>> run["tempering_check"] = xr.DataTree(xr.Dataset(ends))
    >>> pmt.plot_looks(run).viz["plot"].panel.values.tolist()
    ['looks']
    """
    if not isinstance(idata, xr.DataTree) or GROUP not in idata.children:
        raise NotTemperedError(
            f"this DataTree has no group {GROUP!r}, which holds the looks from the prior: only a "
            "run of pymc_tempering.sample with a fitted reference that was checked has one"
        )
    elements = _elements(idata, var_names, coords or {})
    many = bool(elements)
    sheet = open_sheet(
        ("looks", *elements),
        size=(9.0, 3.2 * (len(elements) // 2 + 1)) if many else (7.0, 3.4),
        columns=2 if many else 1,
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    draw_looks(sheet, "looks", idata)
    weight = _weights(idata[GROUP].to_dataset()["log_weight"].values.astype(float))
    kinds = _kinds(idata)
    for panel, (draws, ends) in elements.items():
        span = _common_range(draws, ends, weight, kinds["suspects"])
        _draw_both(sheet, panel, draws, ends, weight, kinds, span, told=False)
        sheet.label(panel, panel, "density")
    n = idata[GROUP].sizes["look"]
    return sheet.finish(f"{n} looks from the prior")


def draw_looks(sheet: Sheet, panel: str, idata: xr.DataTree) -> None:
    """Draw both densities of log_ratio, the looks one by one, and where they become suspect."""
    draws = _draws(idata)
    looks = idata[GROUP].to_dataset()
    ends = looks["log_ratio"].values.astype(float)
    weight = _weights(looks["log_weight"].values.astype(float))
    limit = suspect_above(draws)
    low, high = _range(draws, ends, limit)
    kinds = _kinds(idata)
    top = _draw_both(sheet, panel, draws, ends, weight, kinds, (low, high), told=True)
    sheet.draw("limit", panel, "line", [limit, limit], [-0.17 * top, top], color="B1", width=1.2,
               linestyle="C1", label="suspect beyond")  # fmt: skip
    sheet.label(panel, "log_ratio: target over reference (nats)", "density")


def _draw_both(
    sheet: Sheet,
    panel: str,
    draws: FloatArray,
    ends: FloatArray,
    weight: FloatArray,
    kinds: dict[str, BoolArray],
    ends_of_axis: tuple[float, float],
    *,
    told: bool,
) -> float:
    """Draw the density of draws, that of looks by weight, and each look; return the top of it."""
    low, high = ends_of_axis
    edges = np.linspace(low, high, BINS + 1)

    def label(text: str) -> dict[str, str]:
        return {"label": text} if told else {}

    density = np.histogram(draws, edges, density=True)[0]
    top = 1.1 * density.max()
    sheet.draw("draws", panel, "hist", density, edges[:-1], edges[1:], color=GRAY, alpha=0.5,
               **label(f"{draws.size} draws of the run"))  # fmt: skip
    inside = (ends >= low) & (ends <= high)
    if weight[inside].sum() > 0.0:
        rough = np.linspace(low, high, BINS // 3 + 1)
        mass = np.histogram(ends[inside], rough, weights=weight[inside])[0]
        outline = mass / np.diff(rough)
        sheet.draw("looks", panel, "line", np.repeat(rough, 2),
                   np.concatenate([[0.0], np.repeat(np.minimum(outline, 2.0 * top), 2), [0.0]]),
                   color=BLUE, width=1.6, **label("looks, by weight"))  # fmt: skip
        top = max(top, min(1.1 * outline.max(), 2.0 * top))
    rows = -top * (0.05 + 0.1 * np.modf(0.618034 * np.arange(ends.size))[0])
    n_strange = kinds["suspects"].sum()
    for visual, style, name in (
        ("ends", DOTS, "looks that arrived" if kinds["on_way"].any() else "ends of looks"),
        ("on_way", RINGS, "looks on their way"),
        ("suspects", SQUARES, f"{n_strange} suspect{'s' if n_strange > 1 else ''}"),
    ):
        here = kinds[visual]
        if here.any():
            shown = here & inside
            sheet.draw(visual, panel, "scatter", ends[shown], rows[shown], **style, **label(name))
    left, right = ~(ends >= low), ends > high
    room = _draw_counts(sheet, panel, (low, high), -0.1 * top, (int(left.sum()), int(right.sum())))
    sheet.limit(panel, "y", -0.18 * top, 1.05 * top)
    sheet.ticks(panel, "y", *round_ticks(1.05 * top, 5))
    sheet.limit(panel, "x", low - room[0], high + room[1])
    return float(top)


def _draw_counts(
    sheet: Sheet, panel: str, ends: tuple[float, float], height: float, count: tuple[int, int]
) -> tuple[float, float]:
    """Say how many looks are beyond each end of the axis; return the room that the words take."""
    low, high = ends
    room = [(0.08 if n else 0.02) * (high - low) for n in count]
    for side, n, place, text in (
        ("left", count[0], low - 0.9 * room[0], f"◄ {count[0]}"),
        ("right", count[1], high + 0.9 * room[1], f"{count[1]} ►"),
    ):
        if n:
            sheet.texts("beyond", panel, [place], [height], [text], tag=side,
                        horizontal_align=side)  # fmt: skip
    return room[0], room[1]


def _elements(
    idata: xr.DataTree, var_names: str | Sequence[str] | None, coords: dict[str, Any]
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return the draws and the ends of looks of each element, by its label.

    Raises
    ------
    NotTemperedError
        The ends of looks were not kept.
    ValueError
        There is no such variable.
    """
    if var_names is None:
        return {}
    if LOOKS_GROUP not in idata.children or "posterior" not in idata.children:
        raise NotTemperedError(
            f"var_names needs the groups {LOOKS_GROUP!r} and 'posterior', and this DataTree lacks "
            f"one of them: leave var_names out, or sample again"
        )
    ends, draws = idata[LOOKS_GROUP].to_dataset(), idata["posterior"].to_dataset()
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    if names == ["all"]:
        names = [str(name) for name in ends.data_vars]
    unknown = [name for name in names if name not in ends.data_vars or name not in draws.data_vars]
    if unknown:
        raise ValueError(f"var_names has {unknown}; there are {list(map(str, ends.data_vars))}")
    from arviz_base import xarray_sel_iter
    from arviz_base.labels import BaseLabeller

    found, labeller = {}, BaseLabeller()
    draws, ends = (_selected(values[names], coords) for values in (draws, ends))
    for name, at, i_at in xarray_sel_iter(draws, skip_dims={"chain", "draw"}):
        values, end = (
            np.asarray(both[name].sel(at).values, dtype=float).ravel() for both in (draws, ends)
        )
        found[labeller.make_label_flat(name, at, i_at)] = values[np.isfinite(values)], end
    return found


def _selected(values: xr.Dataset, coords: dict[str, Any]) -> xr.Dataset:
    return values.sel({dim: at for dim, at in coords.items() if dim in values.dims})


def _draws(idata: xr.DataTree) -> FloatArray:
    """log_ratio of the draws where it is finite."""
    draws = cold_log_ratio(read_cycles(idata)).ravel()
    return draws[np.isfinite(draws)]


def _kinds(idata: xr.DataTree) -> dict[str, BoolArray]:
    """Tell looks apart: those that arrived, those on their way, and suspects.

    A suspect has found a region which the fitted reference hardly covers.
    """
    looks = idata[GROUP].to_dataset()
    ends = looks["log_ratio"].values.astype(float)
    strange = ends > suspect_above(_draws(idata))
    known = "arrived" in looks  # not in runs that were stored before it was told
    arrived = looks["arrived"].values.astype(bool) if known else np.ones(ends.size, dtype=bool)
    return {"ends": arrived & ~strange, "on_way": ~arrived & ~strange, "suspects": strange}


def _weights(log_weight: FloatArray) -> FloatArray:
    """Return normalized weights; zero where the log weight is minus infinity or unknown."""
    known = np.isfinite(log_weight)
    weight = np.zeros(log_weight.size)
    if known.any():
        weight[known] = np.exp(log_weight[known] - log_weight[known].max())
        weight /= weight.sum()
    return weight


def _range(draws: FloatArray, ends: FloatArray, limit: float) -> tuple[float, float]:
    """Return ends of the axis: all draws but a far tail, and all that may be suspect."""
    bottom, middle, most = np.quantile(draws, [0.001, 0.5, 1.0])
    spread = max(most - bottom, 1.0)
    highest = np.max(ends[np.isfinite(ends)], initial=-np.inf)
    high = max(most, limit, min(highest, middle + 20.0 * spread))
    return bottom - 0.75 * spread, high + 0.05 * (high - bottom)


def _common_range(
    draws: FloatArray, ends: FloatArray, weight: FloatArray, strange: BoolArray
) -> tuple[float, float]:
    """Return ends of the axis: nearly all draws, and all looks that weigh something."""
    low, high = np.quantile(draws, [0.001, 0.999])
    heavy = ends[(np.isfinite(ends) & ((weight > SMALL_WEIGHT) | strange))]
    low, high = min(low, *heavy), max(high, *heavy)
    wide = high > low
    return (float(low), float(high)) if wide else (float(low) - 0.5, float(high) + 0.5)
