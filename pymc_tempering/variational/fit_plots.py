"""A picture of fits: their ELBO and their temperatures over the iterations."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
from pymc.variational.opvi import Approximation

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.plots.sheet import (
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    Panel,
    finished,
    open_panels,
)
from pymc_tempering.variational.tempered_fit import TemperedFit, tempering_of

PURPLE, YELLOW, SKY = "#CC79A7", "#E69F00", "#56B4E9"

VISUALS = ("elbo", "inverse_temperature", "cold")
LINES = ("C0", "C1", "C2", "C3")
"""Kinds of line, so that fits can be told apart in gray."""
POINTS = 200
"""Points of a curve; each is a median over the iterations between them."""


def plot_annealing(
    fits: Approximation | Mapping[str, Approximation],
    **options: Any,
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
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "elbo",
        "inverse_temperature"; ``backend``; ``visuals``, of "elbo", "inverse_temperature", "cold";
        and arguments of ``PlotCollection.wrap``.

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
    panels = open_panels(("elbo", "inverse_temperature"), (7.0, 5.0), VISUALS, options)
    draw_annealing(panels[0], panels[1], reports)
    return finished(panels)


def draw_annealing(top: Panel, bottom: Panel, reports: Mapping[str, TemperedFit]) -> None:
    """Draw both curves of each fit, and where its stage at T = 1 begins."""
    colors = cycle((BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GRAY))
    curves = [_curve(report.elbo_history) for report in reports.values()]
    low = min(elbo[elbo.size // 4 :].min() for _, elbo in curves)
    high = max(elbo.max() for _, elbo in curves)
    room = max(high - low, 1e-6)
    low, high = low - 0.15 * room, high + 0.1 * room
    for k, ((name, report), color) in enumerate(zip(reports.items(), colors, strict=False)):
        style = {"color": color, "part": str(k)}
        line: dict[str, Any] = {"width": 1.6, "linestyle": LINES[k % len(LINES)]} | style
        at, elbo = curves[k]
        label = name or report.method.replace("_", " ")
        first = int(np.flatnonzero(elbo < low)[-1]) + 1 if np.any(elbo < low) else 0
        top.line("elbo", at[first:], elbo[first:], label=label, **line)
        bottom.line("inverse_temperature", *_curve(report.inverse_temperature), **line)
        n = report.n_tempered
        if 0 < n < report.n_iterations:
            if n >= at[first]:
                top.dots("cold", [n], [np.interp(n, at, elbo)], size=8.0, **style)
            bottom.dots("cold", [n], [1.0], size=8.0, **style)
    longest = max(report.n_iterations for report in reports.values())
    ends = (-0.02 * longest, 1.02 * longest)
    top.axes("", "ELBO at T = 1 (nats)", x=ends, y=(low, high))
    bottom.axes("iteration; dots: T = 1 from here", "E[1/T]", x=ends, y=(0.0, 1.08))


def _curve(history: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return iterations and medians of a history over short stretches."""
    parts = np.array_split(np.arange(history.size), min(POINTS, history.size))
    return (
        np.array([part.mean() for part in parts]),
        np.array([np.median(history[part]) for part in parts]),
    )
