"""A picture of fits: their ELBO and their temperatures over the iterations."""

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from pymc.variational.opvi import Approximation

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.plots.axes import BLUE, GRAY, GREEN, ORANGE, pyplot, tidy
from pymc_tempering.variational.fit_datatree import tempering_of
from pymc_tempering.variational.tempered_fit import TemperedFit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PURPLE, YELLOW, SKY = "#CC79A7", "#E69F00", "#56B4E9"

POINTS = 200
"""Points of a curve; each is a median over the iterations between them."""


def plot_annealing(
    fits: Approximation | Mapping[str, Approximation],
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
    backend_kwargs: dict[str, Any] | None = None,
) -> "Figure":
    """Draw the untempered ELBO and E[1/T] of one or several fits against the iteration.

    The ELBO is that at T = 1 of the approximation at each iteration, whatever the temperature was
    then: medians over short stretches, since each single value is noisy. A dot marks where the
    stage at T = 1 begins. The axis of the ELBO leaves out the first descent.

    Parameters
    ----------
    fits : Approximation or dict of Approximation
        From :func:`pymc_tempering.fit`; a dict gives them names.
    axes : array_like of Axes, shape (2,), optional
        Axes to draw into, ELBO first; a new figure by default.
    figsize : tuple of float, optional
        Size of a new figure in inches.
    backend_kwargs : dict, optional
        Further arguments of ``matplotlib.pyplot.subplots``.

    Returns
    -------
    Figure
        The figure that holds both panels.

    Raises
    ------
    ValueError
        If there is no fit, one does not come from :func:`pymc_tempering.fit`, or ``axes`` are not
        two.
    ImportError
        If Matplotlib is not installed.

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
    >>> figure = pmt.plot_annealing(approx)
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['ELBO at T = 1 (nats)', 'E[1/T]']
    """
    named = dict(fits) if isinstance(fits, Mapping) else {"": fits}
    if not named:
        raise ValueError("plot_annealing needs at least one fit")
    reports = {name: tempering_of(approx, "plot_annealing") for name, approx in named.items()}
    if axes is None:
        settings = {"figsize": figsize or (7.5, 6.0), "layout": "constrained", "sharex": True}
        _, axes = pyplot().subplots(2, 1, **(settings | (backend_kwargs or {})))
    panels = np.ravel(np.asarray(axes, dtype=object))
    if panels.size != 2:
        raise ValueError(f"plot_annealing draws two panels, got {panels.size} axes")
    colors = cycle((BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GRAY))
    lows, highs = [], []
    for (name, report), color in zip(reports.items(), colors, strict=False):
        label = name or report.method.replace("_", " ")
        at, elbo = _curve(report.elbo_history)
        panels[0].plot(at, elbo, color=color, lw=1.4, label=label)
        at, inverse = _curve(report.inverse_temperature)
        panels[1].plot(at, inverse, color=color, lw=1.4, label=label)
        _mark(panels, report, color)
        late = elbo[elbo.size // 4 :]
        lows.append(late.min())
        highs.append(elbo.max())
    room = max(max(highs) - min(lows), 1e-6)
    panels[0].set_ylim(min(lows) - 0.15 * room, max(highs) + 0.1 * room)
    panels[0].set_ylabel("ELBO at T = 1 (nats)")
    panels[1].set(xlabel="iteration", ylabel="E[1/T]", ylim=(0.0, 1.05))
    for ax in panels:
        tidy(ax)
    panels[0].legend(loc="lower right", frameon=False)
    figure: Figure = panels[0].figure
    return figure


def _curve(history: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return iterations and medians of a history over short stretches."""
    parts = np.array_split(np.arange(history.size), min(POINTS, history.size))
    return (
        np.array([part.mean() for part in parts]),
        np.array([np.median(history[part]) for part in parts]),
    )


def _mark(panels: Any, report: TemperedFit, color: str) -> None:
    """Mark the begin of the stage at T = 1."""
    n = report.n_tempered
    if 0 < n < report.n_iterations:
        at, elbo = _curve(report.elbo_history)
        panels[0].plot(n, np.interp(n, at, elbo), "o", color=color, ms=6)
        panels[1].plot(n, 1.0, "o", color=color, ms=6)
