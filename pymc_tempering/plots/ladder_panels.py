"""The ladder of a tempering run: temperatures, rejection, occupancy, barrier."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_tempering.evidence.alarms import MAX_REJECTION
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.diagnostics import rung_table
from pymc_tempering.plots.axes import BLUE, GRAY, ORANGE, pyplot, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def plot_ladder(
    idata: xr.DataTree,
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
    backend_kwargs: dict[str, Any] | None = None,
) -> "Figure":
    """Draw the ladder of a run in four panels.

    Inverse temperature, rejection rate between neighbors (dashed: 0.7, above which the ladder has
    a gap), occupancy against its target r, and the cumulative barrier.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    axes : array_like of Axes, shape (4,) or (2, 2), optional
        Axes to draw into; a new figure by default.
    figsize : tuple of float, optional
        Size of a new figure in inches.
    backend_kwargs : dict, optional
        Further arguments of ``matplotlib.pyplot.subplots``.

    Returns
    -------
    Figure
        The figure that holds the four panels.

    Raises
    ------
    NotTemperedError, LadderError
        As :func:`pymc_tempering.diagnose` does.
    ImportError
        If Matplotlib is not installed.
    ValueError
        If ``axes`` are not four.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> figure = pmt.plot_ladder(gaussian_run(draws=100))
    >>> len(figure.axes)
    4
    >>> figure.savefig("ladder.png")  # doctest: +SKIP
    """
    table = rung_table(read_cycles(idata))
    if axes is None:
        settings = {"figsize": figsize or (9.0, 6.5), "layout": "constrained"}
        _, axes = pyplot().subplots(2, 2, **(settings | (backend_kwargs or {})))
    panels = np.ravel(np.asarray(axes, dtype=object))
    if panels.size != 4:
        raise ValueError(f"plot_ladder draws four panels, got {panels.size} axes")
    _draw_betas(panels[0], table)
    _draw_rejection(panels[1], table)
    _draw_occupancy(panels[2], table)
    _draw_barrier(panels[3], table)
    for ax in panels:
        tidy(ax)
    figure: Figure = panels[0].figure
    return figure


def _draw_betas(ax: Any, table: "pd.DataFrame") -> None:
    beta = table["beta"].to_numpy()
    ax.plot(table.index, beta, "o-", color=BLUE, ms=5, lw=1.2)
    if beta[1] < 0.1:
        # Logarithmic down to the first positive beta, and linear from there to zero.
        ax.set_yscale("symlog", linthresh=beta[1], linscale=0.5)
        ax.set_ylim(-0.15 * beta[1], 1.6)
        decades = np.arange(np.ceil(np.log10(beta[1]) - 1e-9), 1.0)
        powers = 10.0 ** decades[:: -int(-(-decades.size // 7))]
        ax.set_yticks([0.0, *powers], ["0", *(f"{tick:g}" for tick in powers)])
        ax.minorticks_off()
    ax.set(xlabel="rung", ylabel="inverse temperature β")


def _draw_rejection(ax: Any, table: "pd.DataFrame") -> None:
    rate = table["rejection"].to_numpy()[:-1]
    bad = rate > MAX_REJECTION
    colors = np.where(bad, ORANGE, BLUE)
    ax.bar(np.arange(rate.size) + 0.5, rate, width=0.8, color=colors)
    ax.axhline(MAX_REJECTION, color=GRAY, ls="--", lw=1.0)
    ax.set(xlabel="rung", ylabel="rejection to next rung", ylim=(0.0, 1.0))
    ax.set_xlim(-0.5, rate.size + 0.5)


def _draw_occupancy(ax: Any, table: "pd.DataFrame") -> None:
    ax.bar(table.index, table["occupancy"], width=0.8, color=BLUE, label="occupancy c")
    edges = np.arange(len(table) + 1) - 0.5
    ax.stairs(table["target"], edges, color=ORANGE, lw=1.8, baseline=None, label="target r")
    top = max(table["occupancy"].max(), table["target"].max())
    ax.set(xlabel="rung", ylabel="share of iterations", ylim=(0.0, 1.3 * top))
    ax.legend(loc="upper center", ncols=2, frameon=False)


def _draw_barrier(ax: Any, table: "pd.DataFrame") -> None:
    barrier = table["barrier"].to_numpy()
    ax.plot(table.index, barrier, "o-", color=BLUE, ms=5, lw=1.2)
    ax.plot(
        [0, len(table) - 1],
        [0.0, barrier[-1]],
        color=GRAY,
        ls="--",
        lw=1.0,
        label="equal rejection rates",
    )
    ax.set(xlabel="rung", ylabel=f"cumulative barrier (Λ = {barrier[-1]:.2f})")
    ax.set_ylim(bottom=0.0)
    ax.legend(loc="upper left", frameon=False)
