"""Estimates beside each other: of one evidence, of several models, and along a prior's number."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.arguments import called_as, check_choice, check_kind, has_group
from pymc_tempering.comparison.compare import compare
from pymc_tempering.comparison.inclusion import inclusion_probabilities
from pymc_tempering.comparison.marginal_likelihood import log_marginal_likelihood
from pymc_tempering.comparison.runs import runs_by_name
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.crosscheck.judge import TOO_WIDE, Entry
from pymc_tempering.crosscheck.result import GROUP, CrossCheck, assemble, read_cross_check
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN
from pymc_tempering.evidence.prior_curves import PriorSensitivity, SensitivityCurve
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.plots.axes import HALF_WIDTH, Span, draw_beyond, log_ticks, span_of, with_room
from pymc_tempering.plots.sheet import BLUE, GRAY, GREEN, ORANGE, Panel, finished, open_panels

type Points = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Values, their errors, and the heights that they stand at."""

NO_ERROR = "no error can be stated"
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
    "believed",
    "exact",
    "interval",
    "estimate",
    "no_error",
    "disagrees",
    "bound",
    "beyond",
    "no_value",
    "numbers",
)
ARROW = 0.05
"""Length of the arrow of a bound, as a share of the axis."""
INCLUSION_VISUALS = ("interval", "estimate", "no_error", "probability", "prior")
FACTOR_VISUALS = ("interval", "estimate", "no_error", "grades", "beyond", "probability", "prior")
GRADES = (-1.0, -3.0, -5.0)
"""log Bayes factors at which Kass & Raftery (1995) change words: positive, strong, very strong."""
FAR = -12.0
"""log Bayes factor below which a model is drawn as an arrow."""
CURVE_VISUALS = ("band", "curve", "bars", "reweighted", "rerun", "default", "zero", "gap")
SHOWS = {
    "log_z": "log Z (nats)",
    "default": "log Bayes factor over the default (nats)",
    "against": "log Bayes factor over the other model (nats)",
}
OF_MODELS = ("log_z", "mcse", "bias_direction", "verdict")
OF_FACTORS = ("log_z", "mcse", "probability", "p_mcse")
"""Columns of the table of ``compare`` that are drawn."""


@called_as("plot_evidence({'a': idata_a, 'b': idata_b})")
def plot_evidence(
    check: Any,
    *,
    exact: float | None = None,
    one_model: bool | None = None,
    **options: Any,
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
        alone or several by name. A model on the context stack is used for posterior draws.
    exact : float, optional
        The true log Z (nats) of the one model, drawn as a line.
    one_model : bool, optional
        Whether several by name are estimates for one model, which should agree. By default they
        are one where `exact` is given, and otherwise of a model each, as in :func:`compare`.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "forest",
        "numbers"; ``backend``; ``visuals``, of "believed", "exact", "interval", "estimate",
        "no_error", "disagrees", "bound", "beyond", "no_value", "numbers"; and arguments of
        ``PlotCollection.wrap``.

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
    one_model = exact is not None if one_model is None else one_model
    table, believe = _rows(check, one_model=one_model)
    if not len(table):
        raise ValueError("plot_evidence needs at least one estimate")
    order = [*KINDS]
    table = table.sort_values("draws", key=lambda d: d.map(order.index), kind="stable")
    forest, numbers = open_panels(
        ("forest", "numbers"), (9.0, 1.3 + 0.34 * len(table)), FOREST_VISUALS, options,
        columns=2, width_ratios=[5.0, 1.3],
    )  # fmt: skip
    table["place"] = places = _draw_rows(forest, table)
    _draw_forest(forest, table, believe, exact)
    pairs = zip(table["log_z"], table["mcse"], strict=True)
    texts = [plus_minus(z, e) if np.isfinite(z) else "–" for z, e in pairs]
    numbers.texts("numbers", 0.0, places, texts, horizontal_align="left")
    numbers.axes(x=(-0.05, 1.0), y=_height(table))
    numbers.drawer.remove_axis(numbers.target, axis="both")
    if numbers.backend == "matplotlib":
        numbers.target.set_axis_off()
    return finished([forest, numbers])


def _draw_rows(panel: Panel, table: pd.DataFrame) -> np.ndarray:
    """Name the rows of a table from the top, and return their heights."""
    places = np.arange(len(table))[::-1].astype(float)
    panel.axes(y=_height(table), yticks=(places, table.index))
    return places


def _height(table: pd.DataFrame) -> tuple[float, float]:
    return -0.6, len(table) - 0.4


def _draw_forest(
    panel: Panel, table: pd.DataFrame, believe: str | None, exact: float | None
) -> None:
    """Draw the rows of a cross-check's table, each at its ``place``."""
    span, height = _span(table, exact), _height(table)
    if believe is not None and np.isfinite(table.loc[believe, "mcse"]):
        value, half = table.loc[believe, "log_z"], HALF_WIDTH * table.loc[believe, "mcse"]
        panel.band("believed", [value - half, value + half], *height, color=GRAY)
    if exact is not None:
        panel.guide("exact", exact, height, label=f"exact: {exact:.3f}")
    for kind in KINDS:
        _draw_kind(panel, table[table["draws"] == kind], span, kind)
    value, places = table["log_z"].to_numpy(dtype=float), table["place"].to_numpy()
    told = ~table["agrees"].astype("boolean").fillna(True).to_numpy(dtype=bool) & span.holds(value)
    panel.dots(
        "disagrees", value[told], places[told],
        color="B1", marker="C3", size=13.0, width=1.6, label="disagrees",
    )  # fmt: skip
    draw_beyond(panel, span, value, places)
    panel.texts(
        "no_value", span.low + 0.01 * span.width, places[~np.isfinite(value)], "no value",
        color=GRAY, horizontal_align="left",
    )  # fmt: skip
    panel.axes("log Z (nats)", x=span)


def _draw_kind(panel: Panel, table: pd.DataFrame, span: Span, kind: str) -> None:
    """Draw the estimates from one kind of draws: intervals, dots, and the arrows of bounds."""
    color, marker, name = KINDS[kind]
    value, error, places = table[["log_z", "mcse", "place"]].to_numpy(dtype=float).T
    style, names = {"color": color, "part": kind}, (name, f"{name}, no error")
    _draw_points(panel, span, (value, error, places), names, marker=marker, **style)
    side = table["bias_direction"].map({"below": 1.0, "above": -1.0}).to_numpy(dtype=float)
    bound = span.holds(value) & np.isfinite(side)
    side, at = side[bound], places[bound]
    half = HALF_WIDTH * np.where(np.isfinite(error), error, 0.0)[bound]
    start = np.clip(value[bound] + side * half, *span)
    tip = start + side * ARROW * span.width
    panel.segments("bound", (start, tip), (at, at), **style)
    style["part"] = f"{kind}_head"
    panel.texts("bound", tip, at, np.where(side > 0.0, "►", "◄"), **style)


def _draw_points(
    panel: Panel, span: Span, points: Points, names: tuple[str, str], **style: Any
) -> None:
    """Draw dots with their intervals, cut at the ends of the axis; hollow without an error."""
    value, error, places = points
    known, shown = np.isfinite(error), span.holds(value)
    here, bare = known & shown, shown & ~known  # an interval beyond the edge would cross its label
    half, at = HALF_WIDTH * error[here], places[here]
    ends = np.clip([value[here] - half, value[here] + half], *span)
    line = {name: of for name, of in style.items() if name != "marker"}
    panel.segments("interval", ends, (at, at), width=2.2, **line)
    panel.dots("estimate", value[here], at, size=8.0, label=names[0], **style)
    panel.rings("no_error", value[bare], places[bare], size=8.0, label=names[1], **style)


def _span(table: pd.DataFrame, exact: float | None) -> Span:
    """Return an axis for all estimates with an error that are no bounds, nor too wide."""
    value, error = table[["log_z", "mcse"]].to_numpy(dtype=float).T
    finite = np.isfinite(value)
    known = finite & np.isfinite(error)
    near = known & (table["agreement"] != TOO_WIDE).to_numpy()
    plain = near & (table["bias_direction"] == "").to_numpy()
    plain = plain if plain.any() else finite
    half = HALF_WIDTH * np.where(known, error, 0.0)
    lines = np.array([] if exact is None else [exact])
    ends = np.concatenate([(value - half)[plain], (value + half)[plain], lines])
    others = np.concatenate([value, (value - half)[near], (value + half)[near]])
    labels = np.where(finite, value, -np.inf)  # "no value" stands at the left, too
    return with_room(span_of(ends, others), labels, lines)


def _rows(check: Any, *, one_model: bool) -> tuple[pd.DataFrame, str | None]:
    """Bring whatever is to be drawn into the table of a cross-check, with the method to believe."""
    if isinstance(check, pd.DataFrame):
        told = set(OF_MODELS) <= set(check)
        return _of_models(check if told else compare(runs_by_name("plot_evidence", check))), None
    if has_group(check, GROUP):
        check = read_cross_check(check)
    if not isinstance(check, CrossCheck):
        named = isinstance(check, Mapping) and not isinstance(check, xr.DataTree)
        things = dict(check) if named else {"": check}
        found = {name: log_marginal_likelihood(value) for name, value in things.items()}
        if len(things) > 1 and not one_model:
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
    return table.assign(agrees=None, agreement="", draws=MODELS)


@called_as("plot_bayes_factors({'a': idata_a, 'b': idata_b})")
def plot_bayes_factors(
    runs: Any,
    **options: Any,
) -> Any:
    """Draw log Bayes factors against the best model, and the probabilities of all models.

    How to read it: the further left a model, the stronger the evidence against it (dotted lines:
    -1 positive, -3 strong, -5 very strong); where an interval reaches zero, the run was too short
    to tell this model from the best one.

    Parameters
    ----------
    runs : DataFrame, mapping or sequence
        The table of :func:`compare`, or what it takes: runs by the names of the models, or the
        table of :func:`sample_many`.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "log_bf",
        "probability"; ``backend``; ``visuals``, of "interval", "estimate", "no_error", "grades",
        "beyond", "probability", "prior"; and arguments of ``PlotCollection.wrap``.

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
    >>> pc = pmt.plot_bayes_factors(runs)  # three runs of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['log_bf', 'probability']
    """
    if not (isinstance(runs, pd.DataFrame) and set(OF_FACTORS) <= set(runs)):
        runs = compare(runs_by_name("plot_bayes_factors", runs))
    if not len(runs):
        raise ValueError("plot_bayes_factors needs at least one model")
    table = runs.sort_values("log_z", ascending=False, kind="stable")
    size = 9.0, 1.5 + 0.36 * len(table)
    panels = open_panels(("log_bf", "probability"), size, FACTOR_VISUALS, options, columns=2)
    _draw_factors(panels[0], table)
    _draw_probabilities(panels[1], table, "probability of the model")
    return finished(panels)


def _draw_factors(panel: Panel, table: pd.DataFrame) -> None:
    log_z, mcse = table[["log_z", "mcse"]].to_numpy(dtype=float).T
    factor, error = log_z - log_z[0], np.hypot(mcse, mcse[0])
    error[0] = 0.0
    near = factor >= FAR
    half = np.where(np.isfinite(error), HALF_WIDTH * error, 0.0)
    ends = np.concatenate([(factor - half)[near], (factor + half)[near], [0.0, -1.2]])
    span = span_of(np.maximum(ends, 1.5 * FAR), np.zeros(0))
    span = with_room(span, factor, np.array([*GRADES, 0.0]))
    for grade in GRADES:
        if span.low < grade:
            panel.line(
                "grades", grade, _height(table),
                color=GRAY, width=1.0, linestyle="C2", part=f"{-grade:g}",
            )  # fmt: skip
    panel.line("grades", 0.0, _height(table), color="B1", width=1.0)
    places = _draw_rows(panel, table)
    _draw_points(panel, span, (factor, error, places), ("", NO_ERROR))
    draw_beyond(panel, span, factor, places)
    panel.axes(f"log Bayes factor over {table.index[0]!r} (nats)", x=span)


def _draw_probabilities(panel: Panel, table: pd.DataFrame, label: str) -> None:
    p, error = table[["probability", "p_mcse"]].to_numpy(dtype=float).T
    places = _draw_rows(panel, table)
    panel.segments("probability", (0.0, p), (places, places), color=GRAY, width=1.2)
    if "prior" in table:
        prior, ends = table["prior"].to_numpy(dtype=float), (places - 0.3, places + 0.3)
        panel.segments("prior", (prior, prior), ends, color=ORANGE, width=2.0, label="prior")
    _draw_points(panel, Span(0.0, 1.0), (p, error, places), ("posterior", NO_ERROR))
    panel.axes(label, x=(-0.03, 1.03))


def plot_inclusion(found: Any, terms: Any = None, **options: Any) -> Any:
    """Draw the probability that each term belongs in the model, beside its prior.

    How to read it: a dot right of the orange tick is a term that the data speak for, one left of it
    a term that they speak against; near the tick they say little.

    Parameters
    ----------
    found : DataFrame, mapping or sequence
        The table of :func:`inclusion_probabilities`, or what that takes: the table of
        :func:`sample_many`, say.
    terms : mapping of str to collection of str, optional
        As :func:`inclusion_probabilities` takes them.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with a panel
        "inclusion"; ``backend``; ``visuals``, of "interval", "estimate", "no_error",
        "probability", "prior"; and arguments of ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    ArgumentError, DataMismatchError, NotTemperedError, TemperingError
        As :func:`inclusion_probabilities`.
    ImportError
        If the backend is not installed.
    ValueError
        As :func:`inclusion_probabilities`; or the backend or a visual is not known, or
        ``plot_collection`` lacks a panel.

    Warns
    -----
    TemperingWarning
        For each warning of an estimate that is made here, with the name of the model.

    Notes
    -----
    Intervals are 95 %, from the errors of the evidences, and end at 0 and 1.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> Evidence = pmt.evidence.Evidence
    >>> runs = {"1": Evidence(-9.0, 0.01, "rts", "ok"), "age": Evidence(-5.0, 0.01, "rts", "ok")}
    >>> pc = pmt.plot_inclusion(runs)
    >>> pc.viz["plot"].panel.values.tolist()
    ['inclusion']
    """
    if not (isinstance(found, pd.DataFrame) and found.index.name == "term"):
        found = inclusion_probabilities(found, terms)
    size = (6.0, 1.5 + 0.36 * len(found))
    panels = open_panels(("inclusion",), size, INCLUSION_VISUALS, options)
    _draw_probabilities(panels[0], found, "probability of inclusion")
    return finished(panels)


def plot_prior_sensitivity(
    sensitivity: PriorSensitivity,
    name: str | None = None,
    *,
    show: str | None = None,
    **options: Any,
) -> Any:
    """Draw one curve of a prior sensitivity with its 95 % intervals, and mark the default.

    How to read it: a curve that is flat around the dashed default means that the answer does not
    hang on this prior; one that crosses zero over another model changes the verdict there.

    Disks are from the reweighted draws of the default run, squares from fresh runs; a gap is left
    where no error can be stated.

    Parameters
    ----------
    sensitivity : PriorSensitivity
        From :func:`pymc_tempering.prior_sensitivity`.
    name : str, optional
        Which curve; the first by default.
    show : {"log_z", "default", "against"}, optional
        log Z; or the log Bayes factor over the default, or over the other model. By default the
        last that there is.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with a panel
        "sensitivity"; ``backend``; ``visuals``, of "band", "curve", "bars", "reweighted", "rerun",
        "default", "zero", "gap"; and arguments of ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    KeyError
        If there is no curve of that name.
    ImportError
        If the backend is not installed.
    ValueError
        If ``show`` is not known, or "against" without another model; if the backend or a visual is
        not known, or ``plot_collection`` lacks a panel.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     b = pm.Normal("b", 0, 1)
    ...     y = pm.Normal("y", b, 1, observed=1.5)
    ...     idata = pmt.sample(500, random_seed=1, quiet=True)
    >>> found = pmt.prior_sensitivity(idata, model, {"b": [0.5, 1.0, 2.0]}, quiet=True)
    >>> pc = pmt.plot_prior_sensitivity(found)
    >>> pc.viz["plot"].panel.values.tolist()
    ['sensitivity']
    """
    check_kind("sensitivity", sensitivity, PriorSensitivity, "what prior_sensitivity returned")
    curve = sensitivity.curves[0] if name is None else sensitivity[name]
    if show is None:
        show = "default" if sensitivity.against is None else "against"
    check_choice("show", show, SHOWS)
    if show == "against":
        value, error = sensitivity.against_of(curve)
    elif show == "default":
        value, error = curve.log_bf, curve.log_bf_mcse
    else:
        value, error = curve.log_z, curve.mcse
    panels = open_panels(("sensitivity",), (7.0, 4.0), CURVE_VISUALS, options)
    _draw_sensitivity(panels[0], curve, value, error, zero=show != "log_z")
    panels[0].axes(curve.label, SHOWS[show])
    return finished(panels)


def _draw_sensitivity(
    panel: Panel, curve: SensitivityCurve, value: FloatArray, error: FloatArray, *, zero: bool
) -> None:
    """Draw the values of a curve with their errors, in the order of the axis."""
    x = curve.coordinate
    # Where positive numbers span much, their logs are drawn.
    logarithmic = bool(curve.values.ndim == 1 and np.all(x > 0.0) and x.max() > 5.0 * x.min())
    order = np.argsort(x, kind="stable")
    x = np.log10(x[order]) if logarithmic else x[order]
    half = HALF_WIDTH * error[order]
    y = np.where(np.isfinite(half), value[order], np.nan)
    low, high = y - half, y + half
    known, source = np.isfinite(y), np.array(curve.source)[order]
    for k, part in enumerate(np.ma.clump_unmasked(np.ma.masked_invalid(y))):
        label = "" if k else "95 % interval"
        panel.band("band", x[part], low[part], high[part], part=str(k), label=label)
    panel.line("curve", x, y)
    panel.segments("bars", (x[known], x[known]), (low[known], high[known]), width=1.2)
    for kind, draw, marker, name in (
        ("reweighted", panel.dots, "C0", "reweighted"),
        ("rerun", panel.rings, "C5", "fresh run"),
    ):
        here = (source == kind) & known
        draw(kind, x[here], y[here], marker=marker, width=1.2, label=name)
    if zero:
        panel.level("zero", 0.0, color=GRAY, width=1.0)
    if not known.all():
        panel.line("gap", x[0], np.nan, alpha=0.0, label=f"gap: {NO_ERROR}")
    if curve.default.ndim == 0 and not (logarithmic and curve.default <= 0.0):
        place = np.log10(curve.default) if logarithmic else float(curve.default)
        least, most = (low[known].min(), high[known].max()) if known.any() else (0.0, 1.0)
        pad = 0.08 * ((most - least) or 1.0)
        ends = least - pad, most + pad
        panel.guide("default", place, ends, color=ORANGE, width=1.6, label="default")
        panel.axes(y=ends)
    if logarithmic:
        panel.axes(xticks=log_ticks(curve.coordinate.min(), curve.coordinate.max()))
