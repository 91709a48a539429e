"""A picture of fits: their ELBO and their temperatures over the iterations."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from pymc.variational.opvi import Approximation

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.plots.marks import BLUE, GRAY, GREEN, ORANGE
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Visuals
from pymc_tempering.variational.tempered_fit import TemperedFit, tempering_of

PURPLE, YELLOW, SKY = "#CC79A7", "#E69F00", "#56B4E9"

VISUALS = ("elbo", "inverse_temperature", "cold")
LINES = ("C0", "C1", "C2", "C3")
"""Kinds of line, so that fits can be told apart in gray."""
POINTS = 200
"""Points of a curve; each is a median over the iterations between them."""


def plot_annealing(
    fits: Approximation | Mapping[str, Approximation],
    *,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw the untempered ELBO and E[1/T] of one or several fits against the iteration.

    How to read it: the ELBO should be flat at the end, and the fit that ends highest is the
    closest to its posterior; one that ends lower with the same model is in a worse optimum.

    The ELBO is that at T = 1 of the approximation at each iteration, whatever the temperature was
    then: medians over short stretches, since each single value is noisy. A dot marks where the
    stage at T = 1 begins. The first descent of the ELBO is left out.

    Parameters
    ----------
    fits : Approximation or dict of Approximation
        From :func:`pymc_tempering.fit`; a dict gives them names.
    plot_collection : PlotCollection, optional
        With panels "elbo" and "inverse_temperature" along the dimension ``panel``; new ones by
        default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "elbo", "inverse_temperature",
        "cold", "xlabel", "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel; parts have the fit's number appended.

    Raises
    ------
    ValueError
        If there is no fit, one does not come from :func:`pymc_tempering.fit`, the backend or a
        visual is not known, or ``plot_collection`` lacks a panel.
    ImportError
        If the backend is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=np.array([1.2, 0.7, 1.1]))
    >>> adam = pm.adam(learning_rate=0.05)
    >>> approx = pmt.fit(2000, model=model, obj_optimizer=adam, random_seed=1, progressbar=False)
    >>> pc = pmt.plot_annealing(approx)
    >>> pc.viz["plot"].panel.values.tolist()
    ['elbo', 'inverse_temperature']
    """
    named = dict(fits) if isinstance(fits, Mapping) else {"": fits}
    if not named:
        raise ValueError("plot_annealing needs at least one fit")
    reports = {name: tempering_of(approx, "plot_annealing") for name, approx in named.items()}
    sheet = open_sheet(
        ("elbo", "inverse_temperature"),
        size=(7.0, 5.0),
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    draw_annealing(sheet, reports)
    return sheet.finish()


def draw_annealing(sheet: Any, reports: Mapping[str, TemperedFit]) -> None:
    """Draw both curves of each fit, and where its stage at T = 1 begins."""
    colors = cycle((BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GRAY))
    curves = [_curve(report.elbo_history) for report in reports.values()]
    low = min(elbo[elbo.size // 4 :].min() for _, elbo in curves)
    high = max(elbo.max() for _, elbo in curves)
    room = max(high - low, 1e-6)
    low, high = low - 0.15 * room, high + 0.1 * room
    for k, ((name, report), color) in enumerate(zip(reports.items(), colors, strict=False)):
        style = {"color": color, "width": 1.6, "linestyle": LINES[k % len(LINES)], "part": str(k)}
        at, elbo = curves[k]
        label = name or report.method.replace("_", " ")
        first = int(np.flatnonzero(elbo < low)[-1]) + 1 if np.any(elbo < low) else 0
        sheet.draw("elbo", "elbo", "line", at[first:], elbo[first:], label=label, **style)
        at_inverse, inverse = _curve(report.inverse_temperature)
        sheet.draw("inverse_temperature", "inverse_temperature", "line", at_inverse, inverse,
                   **style)  # fmt: skip
        n = report.n_tempered
        if 0 < n < report.n_iterations:
            for panel, height in (("elbo", np.interp(n, at, elbo)), ("inverse_temperature", 1.0)):
                if panel != "elbo" or n >= at[first]:
                    sheet.draw("cold", panel, "scatter", [float(n)], [float(height)], color=color,
                               part=str(k), size=8.0)  # fmt: skip
    longest = max(report.n_iterations for report in reports.values())
    for panel in ("elbo", "inverse_temperature"):
        sheet.limit(panel, "x", -0.02 * longest, 1.02 * longest)
    sheet.limit("elbo", "y", low, high)
    sheet.limit("inverse_temperature", "y", 0.0, 1.08)
    sheet.label("elbo", "", "ELBO at T = 1 (nats)")
    sheet.label("inverse_temperature", "iteration; dots: T = 1 from here", "E[1/T]")


def _curve(history: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return iterations and medians of a history over short stretches."""
    parts = np.array_split(np.arange(history.size), min(POINTS, history.size))
    return (
        np.array([part.mean() for part in parts]),
        np.array([np.median(history[part]) for part in parts]),
    )
