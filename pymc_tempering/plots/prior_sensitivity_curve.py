"""The evidence, or a Bayes factor, along the values of a prior's number."""

from typing import Any

import numpy as np

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.prior_curves import PriorSensitivity, SensitivityCurve
from pymc_tempering.plots.marks import BLUE, GRAY, HALF_WIDTH, ORANGE
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("band", "curve", "bars", "reweighted", "rerun", "default", "zero", "gap")
SHOWS = {
    "log_z": "log Z (nats)",
    "default": "log Bayes factor over the default (nats)",
    "against": "log Bayes factor over the other model (nats)",
}


def plot_prior_sensitivity(
    sensitivity: PriorSensitivity,
    name: str | None = None,
    *,
    show: str | None = None,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
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
    plot_collection : PlotCollection, optional
        With a panel "sensitivity" along the dimension ``panel``; a new one by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "band", "curve", "bars",
        "reweighted", "rerun", "default", "zero", "gap", "xlabel", "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

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
    curve = sensitivity.curves[0] if name is None else sensitivity[name]
    if show is None:
        show = "default" if sensitivity.against is None else "against"
    check_choice("show", show, SHOWS)
    value, error = _shown(sensitivity, curve, show)
    sheet = open_sheet(
        ("sensitivity",),
        size=(7.0, 4.0),
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    draw_sensitivity(sheet, "sensitivity", curve, value, error, zero=show != "log_z")
    sheet.label("sensitivity", curve.label, SHOWS[show])
    return sheet.finish()


def draw_sensitivity(
    sheet: Sheet,
    panel: str,
    curve: SensitivityCurve,
    value: FloatArray,
    error: FloatArray,
    *,
    zero: bool,
) -> None:
    """Draw the values of a curve with their errors, in the order of the axis."""
    logarithmic = _is_logarithmic(curve)
    order = np.argsort(curve.coordinate, kind="stable")
    x, half = curve.coordinate[order], HALF_WIDTH * error[order]
    x = np.log10(x) if logarithmic else x
    y = np.where(np.isfinite(half), value[order], np.nan)
    known, source = np.isfinite(y), np.array(curve.source)[order]
    for k, part in enumerate(_stretches(known)):
        sheet.draw("band", panel, "fill_between_y", x[part], (y - half)[part], (y + half)[part],
                   part=str(k), color=BLUE, alpha=0.25, label="" if k else "95 % interval",
                   )  # fmt: skip
    sheet.draw("curve", panel, "line", x, y, color=BLUE, width=1.4)
    if known.any():
        sheet.segments("bars", panel, (x[known], x[known]), ((y - half)[known], (y + half)[known]),
                       color=BLUE, width=1.2)  # fmt: skip
    for kind, marker, face, name in (
        ("reweighted", "C0", BLUE, "reweighted"), ("rerun", "C5", "B0", "fresh run"),
    ):  # fmt: skip
        here = (source == kind) & known
        if here.any():
            sheet.draw(kind, panel, "scatter", x[here], y[here], edgecolor=BLUE, facecolor=face,
                       marker=marker, size=7.0, width=1.2, label=name)  # fmt: skip
    if zero:
        sheet.draw("zero", panel, "hline", 0.0, color=GRAY, width=1.0)
    if not known.all():
        sheet.draw("gap", panel, "line", [x[0]], [np.nan], color=BLUE, alpha=0.0,
                   label="gap: no error can be stated")  # fmt: skip
    if curve.default.ndim == 0:
        _mark_default(sheet, panel, float(curve.default), logarithmic, y, half)
    if logarithmic:
        sheet.ticks(panel, "x", *log_ticks(curve.coordinate.min(), curve.coordinate.max()))


def _shown(
    sensitivity: PriorSensitivity, curve: SensitivityCurve, show: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values to draw, and their errors."""
    if show == "against":
        return sensitivity.against_of(curve)
    if show == "default":
        return curve.log_bf, curve.log_bf_mcse
    return curve.log_z, curve.mcse


def _mark_default(
    sheet: Sheet, panel: str, default: float, logarithmic: bool, y: FloatArray, half: FloatArray
) -> None:
    """Draw a line where the default is."""
    if logarithmic and default <= 0.0:
        return
    place = np.log10(default) if logarithmic else default
    ends = np.concatenate([y - half, y + half])
    ends = ends[np.isfinite(ends)]
    low, high = (ends.min(), ends.max()) if ends.size else (0.0, 1.0)
    pad = 0.08 * ((high - low) or 1.0)
    sheet.draw("default", panel, "line", [place, place], [low - pad, high + pad], color=ORANGE,
               width=1.6, linestyle="C1", label="default")  # fmt: skip
    sheet.limit(panel, "y", low - pad, high + pad)


def _is_logarithmic(curve: SensitivityCurve) -> bool:
    """Whether positive numbers span so much that their logs are drawn."""
    x = curve.coordinate
    return bool(curve.values.ndim == 1 and np.all(x > 0.0) and x.max() > 5.0 * x.min())


def _stretches(known: np.ndarray) -> list[slice]:
    """Return the stretches of places without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]])))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def log_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Return places (log10) and texts of round numbers between two positive ones."""
    steps = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1.0)
    decades = decades[:: -(-decades.size // 7)]
    round_ones = np.array([step * 10.0**d for d in decades for step in steps])
    kept = round_ones[(round_ones >= 0.99 * low) & (round_ones <= 1.01 * high)]
    return np.log10(kept).tolist(), [f"{value:g}" for value in kept]
