"""Pictures of a tempering run: its ladder, and the path of a chain along it."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_tempering.cycles import CycleStats
from pymc_tempering.datatree import read_cycles
from pymc_tempering.diagnostics import rung_table
from pymc_tempering.evidence.checks import MAX_REJECTION

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's colors, which are told apart by every kind of color vision.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"


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
    >>> from pymc_tempering.synthetic import gaussian_run
    >>> figure = pmt.plot_ladder(gaussian_run(draws=100))
    >>> len(figure.axes)
    4
    >>> figure.savefig("ladder.png")  # doctest: +SKIP
    """
    table = rung_table(read_cycles(idata))
    if axes is None:
        settings = {"figsize": figsize or (9.0, 6.5), "layout": "constrained"}
        _, axes = _pyplot().subplots(2, 2, **(settings | (backend_kwargs or {})))
    panels = np.ravel(np.asarray(axes, dtype=object))
    if panels.size != 4:
        raise ValueError(f"plot_ladder draws four panels, got {panels.size} axes")
    _draw_betas(panels[0], table)
    _draw_rejection(panels[1], table)
    _draw_occupancy(panels[2], table)
    _draw_barrier(panels[3], table)
    for ax in panels:
        _tidy(ax)
    figure: Figure = panels[0].figure
    return figure


def plot_temperature_trace(
    idata: xr.DataTree,
    *,
    chain: int = 0,
    max_iterations: int = 500,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    backend_kwargs: dict[str, Any] | None = None,
) -> "Axes":
    """Draw the rung of one chain against the iteration, with the starts of its tours marked.

    Between two marks lies one round trip: from a fresh reference draw at beta = 0 up to beta = 1
    and back. A run without the group ``tempering_trace`` (kept by ``keep="log_ratio"``) gives the
    hottest rung of each recorded draw instead.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    chain : int, default 0
        Position of the chain.
    max_iterations : int, default 500
        Iterations to show, from the first one on (draws, without ``tempering_trace``).
    ax : Axes, optional
        Axes to draw into; a new figure by default.
    figsize : tuple of float, optional
        Size of a new figure in inches.
    backend_kwargs : dict, optional
        Further arguments of ``matplotlib.pyplot.subplots``.

    Returns
    -------
    Axes
        The axes drawn into.

    Raises
    ------
    NotTemperedError, LadderError
        As :func:`pymc_tempering.diagnose` does.
    ImportError
        If Matplotlib is not installed.
    ValueError
        If there is no such chain, or ``max_iterations < 1``.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.synthetic import gaussian_run
    >>> ax = pmt.plot_temperature_trace(gaussian_run(draws=100), chain=1, max_iterations=200)
    >>> ax.get_xlabel()
    'iteration'
    """
    stats = read_cycles(idata)
    if not 0 <= chain < stats.n_chains:
        raise ValueError(f"chain must be in 0..{stats.n_chains - 1}, got {chain}")
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
    if ax is None:
        settings = {"figsize": figsize or (10.0, 3.6), "layout": "constrained"}
        _, ax = _pyplot().subplots(**(settings | (backend_kwargs or {})))
    rung, starts, flat = _trace(idata, stats, chain)
    rung, starts = rung[:max_iterations], starts[starts < max_iterations]
    last = stats.beta.size - 1
    ax.vlines(starts, -0.5, last + 0.5, color=GREEN, lw=0.9, alpha=0.45, zorder=1)
    ax.step(np.arange(rung.size), rung, where="mid", color=BLUE, lw=0.9, zorder=2)
    trips = max(starts.size - 1, 0)
    ax.plot(
        starts, np.zeros(starts.size), "^", color=GREEN, ms=7, zorder=3, clip_on=False,
        label=f"start of a tour ({trips} complete round trip{'' if trips == 1 else 's'})",
    )  # fmt: skip
    ax.set(
        xlabel="iteration" if flat else "recorded draw",
        ylabel="rung" if flat else "hottest rung of the cycle",
        xlim=(0, max(rung.size - 1, 1)),
        ylim=(-0.5, last + 0.5),
    )
    ax.set_title(f"Chain {chain}", loc="left", fontsize="medium")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, borderaxespad=0.2)
    _label_betas(ax, stats.beta)
    _tidy(ax, rungs_on="y")
    axes: Axes = ax
    return axes


def _trace(idata: xr.DataTree, stats: CycleStats, chain: int) -> tuple[Any, Any, bool]:
    """Return rungs, positions of tour starts, and whether these are single iterations."""
    if "tempering_trace" not in idata.children:
        rung = np.searchsorted(stats.beta, stats.beta_min[chain] - 1e-12)
        return rung, np.flatnonzero(stats.tour_start[chain]), False
    trace = idata["tempering_trace"].to_dataset()["rung"]
    rung = trace.transpose("chain", "iteration").values[chain].astype(int)
    rung = rung[rung >= 0]
    ends = np.flatnonzero((rung == 0) | (rung == stats.beta.size - 1))
    # The first visit to rung 0 since the last one to the top, the chain's own beginning included.
    fresh = (rung[ends] == 0) & np.concatenate([[True], rung[ends][:-1] > 0])[: ends.size]
    return rung, ends[fresh], True


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
    ax.plot([0, len(table) - 1], [0.0, barrier[-1]], color=GRAY, ls="--", lw=1.0,
            label="equal rejection rates")  # fmt: skip
    ax.set(xlabel="rung", ylabel=f"cumulative barrier (Λ = {barrier[-1]:.2f})")
    ax.set_ylim(bottom=0.0)
    ax.legend(loc="upper left", frameon=False)


def _label_betas(ax: Any, beta: Any) -> None:
    """Write beta beside a few rungs on the right, as many as there is room for."""
    shown = np.unique(np.linspace(0, beta.size - 1, min(beta.size, 6)).round().astype(int))
    right = ax.secondary_yaxis("right")
    right.set_yticks(shown, [f"{beta[k]:.2g}" for k in shown])
    right.set_ylabel("β")


def _tidy(ax: Any, rungs_on: str = "x") -> None:
    from matplotlib.ticker import MaxNLocator

    axis = ax.xaxis if rungs_on == "x" else ax.yaxis
    axis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need Matplotlib: pip install 'pymc-tempering[plots]'") from error
    return plt
