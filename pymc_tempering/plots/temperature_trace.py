"""The path of one chain along the ladder, with the starts of its tours."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import CycleStats
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.plots.axes import BLUE, GREEN, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    Between two marks is one round trip: from a fresh reference draw at beta = 0 up to beta = 1
    and back. For a run without the group ``tempering_trace`` (kept by ``keep="log_ratio"``) the
    hottest rung of each recorded draw is drawn instead.

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
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
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
        ax = new_axes(figsize or (10.0, 3.6), backend_kwargs)
    rung, starts, flat = _trace(idata, stats, chain)
    rung, starts = rung[:max_iterations], starts[starts < max_iterations]
    last = stats.beta.size - 1
    ax.vlines(starts, -0.5, last + 0.5, color=GREEN, lw=0.9, alpha=0.45, zorder=1)
    ax.step(np.arange(rung.size), rung, where="mid", color=BLUE, lw=0.9, zorder=2)
    trips = max(starts.size - 1, 0)
    ax.plot(
        starts,
        np.zeros(starts.size),
        "^",
        color=GREEN,
        ms=7,
        zorder=3,
        clip_on=False,
        label=f"start of a tour ({trips} complete round trip{'' if trips == 1 else 's'})",
    )
    ax.set(
        xlabel="iteration" if flat else "recorded draw",
        ylabel="rung" if flat else "hottest rung of the cycle",
        xlim=(0, max(rung.size - 1, 1)),
        ylim=(-0.5, last + 0.5),
    )
    ax.set_title(f"Chain {chain}", loc="left", fontsize="medium")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, borderaxespad=0.2)
    _label_betas(ax, stats.beta)
    tidy(ax, rungs_on="y")
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
    # A tour starts at the first visit to rung 0 after one to the top, or after the chain's start.
    fresh = (rung[ends] == 0) & np.concatenate([[True], rung[ends][:-1] > 0])[: ends.size]
    return rung, ends[fresh], True


def _label_betas(ax: Any, beta: Any) -> None:
    """Write beta beside a few rungs on the right, as many as there is room for."""
    shown = np.unique(np.linspace(0, beta.size - 1, min(beta.size, 6)).round().astype(int))
    right = ax.secondary_yaxis("right")
    right.set_yticks(shown, [f"{beta[k]:.2g}" for k in shown])
    right.set_ylabel("β")
