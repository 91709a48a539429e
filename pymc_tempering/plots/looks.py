"""Fitted draws against looks from the prior: whether the fit has missed something."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import has_group
from pymc_tempering.core.cycles import BoolArray, FloatArray, cold_log_ratio
from pymc_tempering.evidence.datatree import LOOKS_GROUP, read_cycles
from pymc_tempering.evidence.reference_check import suspect_above
from pymc_tempering.exceptions import NotTemperedError
from pymc_tempering.plots.axes import Span, round_ticks
from pymc_tempering.plots.sheet import ORANGE, Panel, finished, open_panels

VISUALS = ("draws", "looks", "ends", "on_way", "suspects", "limit", "beyond")
BINS = 60
GROUP = "tempering_check"
SMALL_WEIGHT = 1e-3
"""A share of all looks' weight below which a look does not widen the axis."""

type Kinds = dict[str, BoolArray]
"""Which looks arrived ("ends"), are on their way, or are suspects: each look is one of these."""
type Looks = tuple[FloatArray, FloatArray, Kinds]
"""Where looks ended, their weights and their kinds."""


def plot_looks(
    idata: xr.DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    coords: dict[str, Any] | None = None,
    **options: Any,
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
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with a panel "looks"
        and one named after each element; ``backend``; ``visuals``, of "draws", "looks", "ends",
        "on_way", "suspects", "limit", "beyond"; and arguments of ``PlotCollection.wrap``.

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
    >>> ends = {"log_ratio": ratio, "log_weight": np.zeros(50), "arrived": np.ones(50, bool)}
    >>> looks = xr.Dataset({name: ("look", values) for name, values in ends.items()})
    >>> run["tempering_check"] = xr.DataTree(looks)
    >>> pmt.plot_looks(run).viz["plot"].panel.values.tolist()
    ['looks']
    """
    if not has_group(idata, GROUP):
        raise NotTemperedError(
            f"this DataTree has no group {GROUP!r}, which holds the looks from the prior: only a "
            "run of pymc_tempering.sample with a fitted reference that was checked has one"
        )
    elements = _elements(idata, var_names, coords or {})
    size, columns = (7.0, 3.4), 1
    if elements:
        size, columns = (9.0, 3.2 * (len(elements) // 2 + 1)), 2
    panels = open_panels(("looks", *elements), size, VISUALS, options, columns=columns)
    weight, kinds = draw_looks(panels[0], idata)
    for panel, (draws, ends) in zip(panels[1:], elements.values(), strict=True):
        span = _common_range(draws, ends, weight, kinds["suspects"])
        _draw_both(panel, draws, (ends, weight, kinds), span, {})
        panel.axes(panel.name, "density")
    return finished(panels, f"{weight.size} looks from the prior")


def draw_looks(panel: Panel, idata: xr.DataTree) -> tuple[FloatArray, Kinds]:
    """Draw both densities of log_ratio, the looks one by one, and where they become suspect.

    Returns the weights of the looks and their kinds.
    """
    draws = cold_log_ratio(read_cycles(idata)).ravel()
    draws = draws[np.isfinite(draws)]
    limit = suspect_above(draws)
    looks = idata[GROUP].to_dataset()
    ends = looks["log_ratio"].values.astype(float)
    log_weight = looks["log_weight"].values.astype(float)
    known = np.isfinite(log_weight)
    weight = np.where(known, np.exp(log_weight - max(log_weight[known], default=0.0)), 0.0)
    weight /= max(weight.sum(), 1.0)  # it is at least 1 but where no weight is known
    suspect, arrived = ends > limit, looks["arrived"].values.astype(bool)
    kinds = {"ends": arrived & ~suspect, "on_way": ~(arrived | suspect), "suspects": suspect}
    told = {
        "draws": f"{draws.size} draws of the run",
        "looks": "looks, by weight",
        "ends": "looks that arrived" if kinds["on_way"].any() else "ends of looks",
        "on_way": "looks on their way",
        "suspects": f"{suspect.sum()} suspect{'' if suspect.sum() == 1 else 's'}",
    }
    top = _draw_both(panel, draws, (ends, weight, kinds), _range(draws, ends, limit), told)
    panel.guide("limit", limit, [-0.17 * top, top], label="suspect beyond")
    panel.axes("log_ratio: target over reference (nats)", "density")
    return weight, kinds


def _draw_both(
    panel: Panel, draws: FloatArray, looks: Looks, span: Span, names: dict[str, str]
) -> float:
    """Draw the density of draws, that of looks by weight, and each look; return the top of it.

    ``names`` are those of the visuals in the legend.
    """
    ends, weight, kinds = looks
    edges = np.linspace(*span, BINS + 1)
    density = np.histogram(draws, edges, density=True)[0]
    top, label = 1.1 * density.max(), names.get("draws", "")
    panel.bars("draws", density, edges[:-1], edges[1:], alpha=0.5, label=label)
    inside = span.holds(ends)
    if weight[inside].sum() > 0.0:
        rough, label = edges[::3], names.get("looks", "")
        outline = np.histogram(ends, rough, weights=weight)[0] / np.diff(rough)
        heights = np.pad(np.repeat(np.minimum(outline, 2.0 * top), 2), 1)
        panel.line("looks", np.repeat(rough, 2), heights, width=1.6, label=label)
        top = max(top, min(1.1 * outline.max(), 2.0 * top))
    rows = -top * (0.05 + 0.1 * np.modf(0.618034 * np.arange(ends.size))[0])
    for visual, draw, style in (
        ("ends", panel.dots, {"size": 4.0, "alpha": 0.7}),
        ("on_way", panel.rings, {"marker": "C0", "size": 4.0}),
        ("suspects", panel.dots, {"color": ORANGE, "marker": "C5", "size": 7.0}),
    ):
        shown, label = kinds[visual] & inside, names.get(visual, "")
        draw(visual, ends[shown], rows[shown], label=label, **style)
    out = ~(ends >= span.low), ends > span.high
    left, right = (span.width * (0.08 if side.any() else 0.02) for side in out)
    for side, words, place, n in (
        ("left", "◄ {}", span.low - 0.9 * left, out[0].sum()),
        ("right", "{} ►", span.high + 0.9 * right, out[1].sum()),
    ):
        if n:
            at = place, -0.1 * top
            panel.texts("beyond", *at, words.format(n), part=side, horizontal_align=side)
    x, y = (span.low - left, span.high + right), (-0.18 * top, 1.05 * top)
    panel.axes(x=x, y=y, yticks=round_ticks(1.05 * top, 5))
    return float(top)


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
    draws, ends = (
        values[names].sel({dim: at for dim, at in coords.items() if dim in values.dims})
        for values in (draws, ends)
    )
    for name, at, i_at in xarray_sel_iter(draws, skip_dims={"chain", "draw"}):
        values, end = (
            np.asarray(both[name].sel(at).values, dtype=float).ravel() for both in (draws, ends)
        )
        found[labeller.make_label_flat(name, at, i_at)] = values[np.isfinite(values)], end
    return found


def _range(draws: FloatArray, ends: FloatArray, limit: float) -> Span:
    """Return an axis for all draws but a far tail, and all that may be suspect."""
    bottom, middle, most = np.quantile(draws, [0.001, 0.5, 1.0])
    spread = max(most - bottom, 1.0)
    highest = np.max(ends[np.isfinite(ends)], initial=-np.inf)
    high = max(most, limit, min(highest, middle + 20.0 * spread))
    return Span(bottom - 0.75 * spread, high + 0.05 * (high - bottom))


def _common_range(
    draws: FloatArray, ends: FloatArray, weight: FloatArray, strange: BoolArray
) -> Span:
    """Return an axis for nearly all draws, and all looks that weigh something."""
    low, high = np.quantile(draws, [0.001, 0.999])
    heavy = ends[(np.isfinite(ends) & ((weight > SMALL_WEIGHT) | strange))]
    low, high = min(low, *heavy), max(high, *heavy)
    return Span(low, high) if high > low else Span(low - 0.5, high + 0.5)
