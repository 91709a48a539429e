"""Bayes factors against the best model, and the probabilities of the models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pymc_tempering.comparison.compare import compare
from pymc_tempering.plots.clipped_values import Span, draw_beyond, span_of, with_room
from pymc_tempering.plots.marks import BLUE, GRAY, HALF_WIDTH, ORANGE
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("interval", "estimate", "no_error", "grades", "beyond", "probability", "prior")
GRADES = (-1.0, -3.0, -5.0)
"""log Bayes factors at which Kass & Raftery (1995) change words: positive, strong, very strong."""
FAR = -12.0
"""log Bayes factor below which a model is drawn as an arrow."""
COLUMNS = ("log_z", "mcse", "probability", "p_mcse")


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
    >>> pc = pmt.plot_bayes_factors(runs)  # three runs of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['log_bf', 'probability']
    """
    table = runs if isinstance(runs, pd.DataFrame) else compare(_mapping(runs))
    if missing := [name for name in COLUMNS if name not in table]:
        raise ValueError(f"the DataFrame is not a table of compare: it lacks {missing}")
    if not len(table):
        raise ValueError("plot_bayes_factors needs at least one model")
    table = table.sort_values("log_z", ascending=False, kind="stable")
    sheet = open_sheet(
        ("log_bf", "probability"),
        size=(9.0, 1.5 + 0.36 * len(table)),
        columns=2,
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    _draw_factors(sheet, "log_bf", table)
    _draw_probabilities(sheet, "probability", table)
    return sheet.finish()


def _mapping(runs: Any) -> Mapping[str, Any]:
    if not isinstance(runs, Mapping):
        raise ValueError(
            f"plot_bayes_factors takes the table of compare or a dict of name to run, not "
            f"{type(runs).__name__}"
        )
    return runs


def _draw_factors(sheet: Sheet, panel: str, table: pd.DataFrame) -> None:
    log_z, mcse = (table[name].to_numpy(dtype=float) for name in ("log_z", "mcse"))
    factor, error = log_z - log_z[0], np.hypot(mcse, mcse[0])
    error[0] = 0.0
    places = np.arange(len(table))[::-1].astype(float)
    near = factor >= FAR
    half = np.where(np.isfinite(error), HALF_WIDTH * error, 0.0)
    ends = np.concatenate([(factor - half)[near], (factor + half)[near], [0.0, -1.2]])
    span = span_of(np.maximum(ends, 1.5 * FAR), np.zeros(0))
    span = with_room(span, factor, np.array([*GRADES, 0.0]))
    bottom, top = -0.6, len(table) - 0.4
    for k, grade in enumerate(GRADES):
        if span.low < grade:
            sheet.draw("grades", panel, "line", [grade, grade], [bottom, top], color=GRAY,
                       width=1.0, linestyle="C2", part=str(k))  # fmt: skip
    sheet.draw("grades", panel, "line", [0.0, 0.0], [bottom, top], color="B1", width=1.0)
    _draw_points(sheet, panel, span, factor, error, places)
    draw_beyond(sheet, panel, span, factor, places)
    sheet.limit(panel, "x", span.low, span.high)
    sheet.limit(panel, "y", bottom, top)
    sheet.ticks(panel, "y", places, table.index)
    sheet.label(panel, f"log Bayes factor over {table.index[0]!r} (nats)")


def _draw_probabilities(sheet: Sheet, panel: str, table: pd.DataFrame) -> None:
    p, error = (table[name].to_numpy(dtype=float) for name in ("probability", "p_mcse"))
    places = np.arange(len(table))[::-1].astype(float)
    sheet.segments("probability", panel, (0.0 * p, p), (places, places), color=GRAY, width=1.2)
    if "prior" in table:
        prior = table["prior"].to_numpy(dtype=float)
        sheet.segments("prior", panel, (prior, prior), (places - 0.3, places + 0.3), color=ORANGE,
                       width=2.0, label="prior")  # fmt: skip
    _draw_points(sheet, panel, Span(0.0, 1.0), p, error, places, "posterior")
    sheet.limit(panel, "x", -0.03, 1.03)
    sheet.limit(panel, "y", -0.6, len(table) - 0.4)
    sheet.ticks(panel, "y", places, table.index)
    sheet.label(panel, "probability of the model")


def _draw_points(
    sheet: Sheet,
    panel: str,
    span: Span,
    value: np.ndarray,
    error: np.ndarray,
    places: np.ndarray,
    name: str = "",
) -> None:
    """Draw dots with their intervals, cut at the ends of the axis; hollow without an error."""
    known, shown = np.isfinite(error), span.holds(value)
    here, bare = known & shown, shown & ~known
    if here.any():
        half = HALF_WIDTH * error[here]
        low, high = (
            np.maximum(value[here] - half, span.low),
            np.minimum(value[here] + half, span.high),
        )
        sheet.segments("interval", panel, (low, high), (places[here], places[here]), color=BLUE,
                       width=2.2)  # fmt: skip
        sheet.draw("estimate", panel, "scatter", value[here], places[here], color=BLUE, size=8.0,
                   label=name)  # fmt: skip
    if bare.any():
        sheet.draw("no_error", panel, "scatter", value[bare], places[bare], edgecolor=BLUE,
                   facecolor="B0", size=8.0, width=1.4, label="no error can be stated")  # fmt: skip
