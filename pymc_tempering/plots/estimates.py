"""Estimates beside each other: of one evidence as a forest, of models by their Bayes factors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.comparison import log_marginal_likelihood
from pymc_tempering.comparison.compare import compare
from pymc_tempering.crosscheck import CrossCheck, Entry, assemble, read_cross_check
from pymc_tempering.crosscheck.judge import TOO_WIDE
from pymc_tempering.crosscheck.result import GROUP
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.plots.axes import HALF_WIDTH, Span, draw_beyond, span_of, with_room
from pymc_tempering.plots.sheet import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    Panel,
    Visuals,
    finish_picture,
    open_panels,
)

MODELS = "models"
"""What the rows of a table of ``compare`` rest on: each on a model of its own."""
KINDS = {
    OWN: (GREEN, "C4", "from own draws"),
    POSTERIOR: (ORANGE, "C5", "from posterior draws"),
    RUN: (BLUE, "C0", "from the run"),
    MODELS: (BLUE, "C0", "a model each"),
}
"""Color, marker and name of estimates by their draws, those first that are independent."""
FOREST_VISUALS = (
    *("believed", "exact", "interval", "estimate", "no_error", "disagrees"),
    *("bound", "beyond", "no_value", "numbers"),
)
ARROW = 0.05
"""Length of the arrow of a bound, as a share of the axis."""
FACTOR_VISUALS = ("interval", "estimate", "no_error", "grades", "beyond", "probability", "prior")
GRADES = (-1.0, -3.0, -5.0)
"""log Bayes factors at which Kass & Raftery (1995) change words: positive, strong, very strong."""
FAR = -12.0
"""log Bayes factor below which a model is drawn as an arrow."""
OF_MODELS = ("log_z", "mcse", "bias_direction", "verdict")
OF_FACTORS = ("log_z", "mcse", "probability", "p_mcse")
"""Columns of the table of ``compare`` that are drawn."""


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
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> run = gaussian_run(draws=400)
    >>> pc = pmt.plot_evidence({"rts": run}, exact=-2.63)
    >>> pc.viz["plot"].panel.values.tolist()
    ['forest', 'numbers']
    """
    table, believe = _rows(check, one_model=exact is not None)
    if not len(table):
        raise ValueError("plot_evidence needs at least one estimate")
    order = [*KINDS]
    table = table.sort_values("draws", key=lambda d: d.map(order.index), kind="stable")
    panels = open_panels(
        ("forest", "numbers"),
        (9.0, 1.3 + 0.34 * len(table)),
        FOREST_VISUALS,
        (plot_collection, backend, visuals, pc_kwargs),
        columns=2,
        width_ratios=[5.0, 1.3],
    )
    places = _draw_rows(panels[0], table)
    _draw_forest(panels[0], table, places, believe=believe, exact=exact)
    pairs = zip(table["log_z"], table["mcse"], strict=True)
    texts = [plus_minus(z, e) if np.isfinite(z) else "–" for z, e in pairs]
    numbers = panels[1]
    numbers.texts("numbers", [0.0] * len(texts), places, texts, horizontal_align="left")
    numbers.axes(x=(-0.05, 1.0), y=_height(table))
    numbers.drawer.remove_axis(numbers.target, axis="both")
    if numbers.backend == "matplotlib":
        numbers.target.set_axis_off()
    return finish_picture(panels)


def _draw_rows(panel: Panel, table: pd.DataFrame) -> np.ndarray:
    """Name the rows of a table from the top, and return their heights."""
    places = np.arange(len(table))[::-1].astype(float)
    panel.axes(y=_height(table), yticks=(places, table.index))
    return places


def _height(table: pd.DataFrame) -> tuple[float, float]:
    return -0.6, len(table) - 0.4


def _draw_forest(
    panel: Panel,
    table: pd.DataFrame,
    places: np.ndarray,
    *,
    believe: str | None,
    exact: float | None,
) -> None:
    """Draw the rows of a cross-check's table."""
    span, height = _span(table, exact), _height(table)
    if believe is not None and np.isfinite(table.loc[believe, "mcse"]):
        value, half = table.loc[believe, "log_z"], HALF_WIDTH * table.loc[believe, "mcse"]
        low, high = ([end] * 2 for end in height)
        panel.band("believed", [value - half, value + half], low, high, color=GRAY)
    if exact is not None:
        panel.guide("exact", [exact, exact], height, label=f"exact: {exact:.3f}")
    for kind in KINDS:
        mine = (table["draws"] == kind).to_numpy()
        _draw_kind(panel, table[mine], places[mine], span, kind)
    value = table["log_z"].to_numpy(dtype=float)
    told = ~table["agrees"].astype("boolean").fillna(True).to_numpy(dtype=bool) & span.holds(value)
    panel.dots("disagrees", value[told], places[told], color="B1", marker="C3", size=13.0,
               width=1.6, label="disagrees")  # fmt: skip
    draw_beyond(panel, span, value, places)
    at = places[~np.isfinite(value)]
    edge, words = np.full(at.size, span.low + 0.01 * span.width), ["no value"] * at.size
    panel.texts("no_value", edge, at, words, color=GRAY, horizontal_align="left")
    panel.axes("log Z (nats)", x=span.ends)


def _draw_kind(
    panel: Panel, table: pd.DataFrame, places: np.ndarray, span: Span, kind: str
) -> None:
    """Draw the estimates from one kind of draws: intervals, dots, and the arrows of bounds."""
    color, marker, name = KINDS[kind]
    value, error = (table[column].to_numpy(dtype=float) for column in ("log_z", "mcse"))
    style = {"color": color, "part": kind}
    names = (name, f"{name}, no error")
    _draw_points(panel, span, value, error, places, names, marker=marker, **style)
    half = np.where(np.isfinite(error), HALF_WIDTH * error, 0.0)
    side = table["bias_direction"].map({"below": 1.0, "above": -1.0}).to_numpy(dtype=float)
    for sign, align, head in ((1.0, "left", "►"), (-1.0, "right", "◄")):
        bound = span.holds(value) & (side == sign)
        start = np.clip(value + sign * half, *span.ends)[bound]
        tip, at = start + sign * ARROW * span.width, places[bound]
        style["part"] = f"{kind}_{align}"
        panel.segments("bound", (start, tip), (at, at), **style)
        style["part"] = f"{kind}_{align}_head"
        panel.texts("bound", tip, at, [head] * at.size, **style)


def _draw_points(
    panel: Panel,
    span: Span,
    value: np.ndarray,
    error: np.ndarray,
    places: np.ndarray,
    names: tuple[str, str],
    **style: Any,
) -> None:
    """Draw dots with their intervals, cut at the ends of the axis; hollow without an error."""
    known, shown = np.isfinite(error), span.holds(value)
    here, bare = known & shown, shown & ~known  # an interval beyond the edge would cross its label
    half, at = HALF_WIDTH * error[here], places[here]
    ends = np.clip([value[here] - half, value[here] + half], *span.ends)
    line = {name: of for name, of in style.items() if name != "marker"}
    panel.segments("interval", ends, (at, at), width=2.2, **line)
    panel.dots("estimate", value[here], at, size=8.0, label=names[0], **style)
    panel.rings("no_error", value[bare], places[bare], size=8.0, label=names[1], **style)


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


def _rows(check: Any, *, one_model: bool) -> tuple[pd.DataFrame, str | None]:
    """Bring whatever is to be drawn into the table of a cross-check, with the method to believe."""
    if isinstance(check, pd.DataFrame):
        return _of_models(check), None
    if isinstance(check, xr.DataTree) and GROUP in check.children:
        check = read_cross_check(check)
    if not isinstance(check, CrossCheck):
        named = isinstance(check, Mapping) and not isinstance(check, xr.DataTree)
        things = dict(check) if named else {"": check}
        found = {name: log_marginal_likelihood(value) for name, value in things.items()}
        trees = all(isinstance(value, xr.DataTree) for value in things.values())
        if trees and len(things) > 1 and not one_model:
            rows = [[getattr(one, name) for name in OF_MODELS] for one in found.values()]
            return _of_models(pd.DataFrame(rows, index=list(found), columns=OF_MODELS)), None
        entries = [
            Entry(name or value.method, value, RUN if value.round_trips else OWN)
            for name, value in found.items()
        ]
        check = assemble(entries)
    return check.table, check.believe


def _of_models(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``compare``, none of which agrees or disagrees with another."""
    _check_table(table, OF_MODELS)
    return table.assign(agrees=None, agreement="", draws=MODELS)


def _check_table(table: pd.DataFrame, columns: tuple[str, ...]) -> None:
    """Raise an error unless a frame is one of ``compare``."""
    if missing := [name for name in columns if name not in table]:
        raise ValueError(f"the DataFrame is not a table of compare: it lacks {missing}")


def plot_bayes_factors(
    runs: Any,
    *,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw log Bayes factors against the best model, and the probabilities of all models.

    How to read it: the further left a model, the stronger the evidence against it (dotted lines:
    -1 positive, -3 strong, -5 very strong); where an interval reaches zero, the run was too short
    to tell this model from the best one.

    Parameters
    ----------
    runs : DataFrame or mapping
        The table of :func:`compare`, or what it takes: runs by the names of the models.
    plot_collection : PlotCollection, optional
        With panels "log_bf" and "probability" along the dimension ``panel``; new ones by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "interval", "estimate", "no_error",
        "grades", "beyond", "probability", "prior", "xlabel", "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    DataMismatchError, NotTemperedError, TemperingError
        As :func:`compare` does.
    ImportError
        If the backend is not installed.
    ValueError
        If a DataFrame is not one of :func:`compare`, there is no model, the backend or a visual is
        not known, or ``plot_collection`` lacks a panel.

    Warns
    -----
    TemperingWarning
        For each warning of an estimate that is made here, with the name of the model.

    Notes
    -----
    Words by Kass & Raftery (1995, section 3.2). Intervals are 95 %; those of probabilities come
    from the delta method and end at 0 and 1. Hollow: no error can be stated.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import GaussianToy, gaussian_run
    >>> runs = {str(s): gaussian_run(400, toy=GaussianToy(2.0, s)) for s in (0.5, 1.0, 2.0)}
    >>> pc = pmt.plot_bayes_factors(runs)
    >>> pc.viz["plot"].panel.values.tolist()
    ['log_bf', 'probability']
    """
    if not isinstance(runs, pd.DataFrame | Mapping):
        raise ValueError(
            f"plot_bayes_factors takes the table of compare or a dict of name to run, not "
            f"{type(runs).__name__}"
        )
    table = runs if isinstance(runs, pd.DataFrame) else compare(runs)
    _check_table(table, OF_FACTORS)
    if not len(table):
        raise ValueError("plot_bayes_factors needs at least one model")
    table = table.sort_values("log_z", ascending=False, kind="stable")
    names, size = ("log_bf", "probability"), (9.0, 1.5 + 0.36 * len(table))
    asked = (plot_collection, backend, visuals, pc_kwargs)
    panels = open_panels(names, size, FACTOR_VISUALS, asked, columns=2)
    _draw_factors(panels[0], table)
    _draw_probabilities(panels[1], table)
    return finish_picture(panels)


def _draw_factors(panel: Panel, table: pd.DataFrame) -> None:
    log_z, mcse = (table[name].to_numpy(dtype=float) for name in ("log_z", "mcse"))
    factor, error = log_z - log_z[0], np.hypot(mcse, mcse[0])
    error[0] = 0.0
    near = factor >= FAR
    half = np.where(np.isfinite(error), HALF_WIDTH * error, 0.0)
    ends = np.concatenate([(factor - half)[near], (factor + half)[near], [0.0, -1.2]])
    span = span_of(np.maximum(ends, 1.5 * FAR), np.zeros(0))
    span = with_room(span, factor, np.array([*GRADES, 0.0]))
    for k, grade in enumerate(GRADES):
        if span.low < grade:
            panel.guide("grades", [grade, grade], _height(table), color=GRAY, width=1.0,
                        linestyle="C2", part=str(k))  # fmt: skip
    panel.line("grades", [0.0, 0.0], _height(table), color="B1", width=1.0)
    places = _draw_rows(panel, table)
    _draw_points(panel, span, factor, error, places, ("", "no error can be stated"))
    draw_beyond(panel, span, factor, places)
    panel.axes(f"log Bayes factor over {table.index[0]!r} (nats)", x=span.ends)


def _draw_probabilities(panel: Panel, table: pd.DataFrame) -> None:
    p, error = (table[name].to_numpy(dtype=float) for name in ("probability", "p_mcse"))
    places = _draw_rows(panel, table)
    panel.segments("probability", (0.0 * p, p), (places, places), color=GRAY, width=1.2)
    if "prior" in table:
        prior, ends = table["prior"].to_numpy(dtype=float), (places - 0.3, places + 0.3)
        panel.segments("prior", (prior, prior), ends, color=ORANGE, width=2.0, label="prior")
    names = ("posterior", "no error can be stated")
    _draw_points(panel, Span(0.0, 1.0), p, error, places, names)
    panel.axes("probability of the model", x=(-0.03, 1.03))
