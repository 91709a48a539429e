"""The evidence, or a Bayes factor, along the values of a prior's number."""

from typing import Any

import numpy as np

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.prior_curves import PriorSensitivity
from pymc_tempering.evidence.sensitivity_curve import SensitivityCurve
from pymc_tempering.plots.axes import HALF_WIDTH, log_ticks
from pymc_tempering.plots.sheet import GRAY, ORANGE, Panel, Visuals, finish_picture, open_panels

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
    if show == "against":
        value, error = sensitivity.against_of(curve)
    elif show == "default":
        value, error = curve.log_bf, curve.log_bf_mcse
    else:
        value, error = curve.log_z, curve.mcse
    asked = (plot_collection, backend, visuals, pc_kwargs)
    panels = open_panels(("sensitivity",), (7.0, 4.0), VISUALS, asked)
    _draw_sensitivity(panels[0], curve, value, error, zero=show != "log_z")
    panels[0].axes(curve.label, SHOWS[show])
    return finish_picture(panels)


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
    for k, part in enumerate(_stretches(known)):
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
        panel.line("gap", [x[0]], [np.nan], alpha=0.0, label="gap: no error can be stated")
    if curve.default.ndim == 0 and not (logarithmic and curve.default <= 0.0):
        place = np.log10(curve.default) if logarithmic else float(curve.default)
        least, most = (low[known].min(), high[known].max()) if known.any() else (0.0, 1.0)
        pad = 0.08 * ((most - least) or 1.0)
        y_ends = (least - pad, most + pad)
        panel.guide("default", [place, place], y_ends, color=ORANGE, width=1.6, label="default")
        panel.axes(y=y_ends)
    if logarithmic:
        panel.axes(xticks=log_ticks(curve.coordinate.min(), curve.coordinate.max()))


def _stretches(known: np.ndarray) -> list[slice]:
    """Return the stretches of places without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]])))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
