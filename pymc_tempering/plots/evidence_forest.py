"""Estimates of one evidence as a forest: errors, bounds, and the exact value if it is known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.comparison import log_marginal_likelihood
from pymc_tempering.crosscheck import CrossCheck, Entry, read_cross_check
from pymc_tempering.crosscheck.assemble import assemble
from pymc_tempering.crosscheck.judge import TOO_WIDE
from pymc_tempering.crosscheck.store import GROUP, make_table
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.plots.clipped_values import Span, draw_beyond, span_of, with_room
from pymc_tempering.plots.marks import BLUE, GRAY, GREEN, HALF_WIDTH, ORANGE
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

MODELS = "models"
"""What the rows of a table of ``compare`` rest on: each on a model of its own."""

KINDS = {
    OWN: (GREEN, "C4", "from own draws"),
    POSTERIOR: (ORANGE, "C5", "from posterior draws"),
    RUN: (BLUE, "C0", "from the run"),
    MODELS: (BLUE, "C0", "a model each"),
}
"""Color, marker and name of estimates by their draws, those first that are independent."""
VISUALS = (
    *("believed", "exact", "interval", "estimate", "no_error", "disagrees"),
    *("bound", "beyond", "no_value", "numbers"),
)
ARROW = 0.05
"""Length of the arrow of a bound, as a share of the axis."""


def plot_evidence(
    check: Any,
    *,
    exact: float | None = None,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw estimates of one evidence, or those of several models, as a forest.

    How to read it: estimates from draws of their own stand first, since they are independent of
    the run, and the 95 % intervals of all should overlap the gray band of the one to believe.

    A bound has an arrow toward the side on which log Z lies. An estimate without an error is
    hollow, and one that disagrees with the reference method has a cross. If an estimate lies far
    from the others, an arrow at the edge has its value beside it.

    Parameters
    ----------
    check : CrossCheck, DataTree, DataFrame, Evidence or mapping
        A cross-check; a DataTree that holds one; the table of :func:`compare`, whose rows are
        models and are not held against each other; or what :func:`log_marginal_likelihood` takes,
        alone or several by name. Several DataTrees are models, as in :func:`compare`, unless
        `exact` is given; anything else by name are estimates for one model. A model on the context
        stack is used for posterior draws.
    exact : float, optional
        The true log Z (nats) of the one model, drawn as a line.
    plot_collection : PlotCollection, optional
        With panels "forest" and "numbers" along the dimension ``panel``; new ones by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "believed", "exact", "interval",
        "estimate", "no_error", "disagrees", "bound", "beyond", "no_value", "numbers", "xlabel",
        "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel; "interval", "estimate" and
        "no_error" have the kind of draws appended, as in "estimate_run".

    Raises
    ------
    NotTemperedError, TemperingError
        If no evidence can be had from what was passed; the message names what can help.
    ImportError
        If the backend is not installed.
    ValueError
        If there are no estimates, a DataFrame is not one of :func:`compare`, the backend or a
        visual is not known, or ``plot_collection`` lacks a panel.

    Warns
    -----
    TemperingWarning
        What an estimate that is made here warns about.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_evidence({"rts": idata}, exact=-2.63)  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['forest', 'numbers']
    """
    check = _as_cross_check(check, one_model=exact is not None)
    if not len(check.table):
        raise ValueError("plot_evidence needs at least one estimate")
    order = [*KINDS]
    table = check.table.sort_values("draws", key=lambda d: d.map(order.index), kind="stable")
    figure = {"width_ratios": [5.0, 1.3]} | dict(pc_kwargs.pop("figure_kwargs", {}))
    sheet = open_sheet(
        ("forest", "numbers"),
        size=(9.0, 1.3 + 0.34 * len(table)),
        columns=2,
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        figure_kwargs=figure,
        **pc_kwargs,
    )
    places = np.arange(len(table))[::-1].astype(float)
    draw_forest(sheet, "forest", table, places, believe=check.believe, exact=exact)
    pairs = zip(table["log_z"], table["mcse"], strict=True)
    texts = [plus_minus(z, e) if np.isfinite(z) else "–" for z, e in pairs]
    sheet.texts("numbers", "numbers", [0.0] * len(texts), places, texts, horizontal_align="left")
    sheet.limit("numbers", "x", -0.05, 1.0)
    sheet.limit("numbers", "y", -0.6, len(table) - 0.4)
    sheet.hide("numbers")
    return sheet.finish()


def draw_forest(
    sheet: Sheet,
    panel: str,
    table: pd.DataFrame,
    places: np.ndarray,
    *,
    believe: str | None,
    exact: float | None,
) -> None:
    """Draw the rows of a cross-check's table at heights ``places``."""
    span = _span(table, exact)
    bottom, top = -0.6, len(table) - 0.4
    if believe is not None and np.isfinite(table.loc[believe, "mcse"]):
        value, half = table.loc[believe, "log_z"], HALF_WIDTH * table.loc[believe, "mcse"]
        sheet.draw("believed", panel, "fill_between_y", [value - half, value + half],
                   [bottom, bottom], [top, top], color=GRAY, alpha=0.25)  # fmt: skip
    if exact is not None:
        sheet.draw("exact", panel, "line", [exact, exact], [bottom, top], color="B1", width=1.2,
                   linestyle="C1", label=f"exact: {exact:.3f}")  # fmt: skip
    for kind in KINDS:
        mine = (table["draws"] == kind).to_numpy()
        if mine.any():
            _draw_kind(sheet, panel, table[mine], places[mine], span, kind)
    told = ~table["agrees"].astype("boolean").fillna(True).to_numpy(dtype=bool)
    value = table["log_z"].to_numpy(dtype=float)
    told &= span.holds(value)
    if told.any():
        sheet.draw("disagrees", panel, "scatter", value[told], places[told], color="B1",
                   marker="C3", size=13.0, width=1.6, label="disagrees")  # fmt: skip
    draw_beyond(sheet, panel, span, value, places)
    none = ~np.isfinite(value)
    if none.any():
        edge = span.low + 0.01 * span.width
        sheet.texts("no_value", panel, [edge] * none.sum(), places[none],
                    ["no value"] * none.sum(), color=GRAY, horizontal_align="left")  # fmt: skip
    sheet.limit(panel, "x", span.low, span.high)
    sheet.limit(panel, "y", bottom, top)
    sheet.ticks(panel, "y", places, table.index)
    sheet.label(panel, "log Z (nats)")


def _draw_kind(
    sheet: Sheet, panel: str, table: pd.DataFrame, places: np.ndarray, span: Span, kind: str
) -> None:
    """Draw the estimates from one kind of draws: intervals, dots, and the arrows of bounds."""
    color, marker, name = KINDS[kind]
    value, error = (table[column].to_numpy(dtype=float) for column in ("log_z", "mcse"))
    known, shown = np.isfinite(error), span.holds(value)
    half = np.where(known, HALF_WIDTH * error, 0.0)
    here = known & shown  # an interval of a value beyond the edge would cross its label
    low = np.clip(value - half, span.low, span.high)[here]
    high = np.clip(value + half, span.low, span.high)[here]
    if here.any():
        sheet.segments("interval", panel, (low, high), (places[here], places[here]), color=color,
                       width=2.2, part=kind)  # fmt: skip
        sheet.draw("estimate", panel, "scatter", value[here], places[here], color=color,
                   marker=marker, size=8.0, part=kind, label=name)  # fmt: skip
    bare = shown & ~known
    if bare.any():
        sheet.draw("no_error", panel, "scatter", value[bare], places[bare], edgecolor=color,
                   facecolor="B0", marker=marker, size=8.0, width=1.4, part=kind,
                   label=f"{name}, no error")  # fmt: skip
    side = table["bias_direction"].map({"below": 1.0, "above": -1.0}).to_numpy(dtype=float)
    for sign, align, head in ((1.0, "left", "►"), (-1.0, "right", "◄")):
        bound = shown & (side == sign)
        if bound.any():
            start = np.clip(value + sign * half, span.low, span.high)[bound]
            tip = start + sign * ARROW * span.width
            at = places[bound]
            name = f"{kind}_{align}"
            sheet.segments("bound", panel, (start, tip), (at, at), color=color, width=1.4,
                           part=name)  # fmt: skip
            sheet.texts("bound", panel, tip, at, [head] * at.size, color=color, tag=name)


def _span(table: pd.DataFrame, exact: float | None) -> Span:
    """Return an axis for all estimates with an error that are no bounds, nor too wide."""
    value, error = (table[column].to_numpy(dtype=float) for column in ("log_z", "mcse"))
    finite = np.isfinite(value)
    known = finite & np.isfinite(error)
    plain = known & (table["bias_direction"] == "").to_numpy()
    plain &= (table["agreement"] != TOO_WIDE).to_numpy()
    half = HALF_WIDTH * np.where(known, error, 0.0)
    if not plain.any():
        plain = finite
    ends = np.concatenate([(value - half)[plain], (value + half)[plain]])
    if exact is not None:
        ends = np.append(ends, exact)
    near = known & (table["agreement"] != TOO_WIDE).to_numpy()
    others = np.concatenate([value, (value - half)[near], (value + half)[near]])
    lines = np.array([] if exact is None else [exact])
    labels = np.where(finite, value, -np.finfo(float).max)  # "no value" stands at the left, too
    return with_room(span_of(ends, others), labels, lines)


def _as_cross_check(check: Any, *, one_model: bool) -> CrossCheck:
    """Bring whatever is to be drawn into the form of a cross-check."""
    if isinstance(check, CrossCheck):
        return check
    if isinstance(check, pd.DataFrame):
        return _of_models(check)
    if isinstance(check, xr.DataTree) and GROUP in check.children:
        return read_cross_check(check)
    if isinstance(check, xr.DataTree) or not isinstance(check, Mapping):
        evidence = log_marginal_likelihood(check)
        check = {evidence.method: evidence}
    found = {name: log_marginal_likelihood(value) for name, value in check.items()}
    trees = all(isinstance(value, xr.DataTree) for value in check.values())
    if trees and len(check) > 1 and not one_model:
        return _of_models(_table_of(found))
    entries = [
        Entry(name, value, RUN if value.round_trips else OWN) for name, value in found.items()
    ]
    return assemble(entries, [value.seconds for value in found.values()], {})


def _table_of(found: Mapping[str, Evidence]) -> pd.DataFrame:
    """Put evidences of models into a table, as `compare` does."""
    columns = ("log_z", "mcse", "bias_direction", "verdict")
    rows = [[getattr(one, name) for name in columns] for one in found.values()]
    return pd.DataFrame(rows, index=list(found), columns=columns)


def _of_models(table: pd.DataFrame) -> CrossCheck:
    """Rows of ``compare``, none of which is to be believed or agrees with another."""
    needed = ("log_z", "mcse", "bias_direction", "verdict")
    if missing := [name for name in needed if name not in table]:
        raise ValueError(f"the DataFrame is not a table of compare: it lacks {missing}")
    n = len(table)
    empty = {"n_evaluations": np.full(n, np.nan), "seconds": np.full(n, np.nan)}
    columns = {name: table[name].tolist() for name in needed} | empty
    columns |= {"agrees": [None] * n, "agreement": [""] * n, "draws": [MODELS] * n}
    rows = make_table([str(name) for name in table.index], columns)
    return CrossCheck(rows, "unchecked", "", None, None, {})
