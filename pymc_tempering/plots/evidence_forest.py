"""Estimates of one evidence as a forest: errors, bounds, and the exact value if it is known."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.comparison import log_marginal_likelihood
from pymc_tempering.crosscheck import CrossCheck, Entry, read_cross_check
from pymc_tempering.crosscheck.assemble import assemble
from pymc_tempering.crosscheck.judge import TOO_WIDE
from pymc_tempering.crosscheck.store import COLUMNS, GROUP, make_table
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.plots.axes import BLUE, GRAY, GREEN, HALF_WIDTH, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODELS = "models"
"""What the rows of a table of ``compare`` rest on: each on a model of its own."""

COLORS = {RUN: BLUE, POSTERIOR: ORANGE, OWN: GREEN, MODELS: BLUE}
LABELS = {
    RUN: "from the run",
    POSTERIOR: "from posterior draws",
    OWN: "from own draws",
    MODELS: "a model each",
}
ARROW = 0.06
"""Length of the arrow of a bound, as a share of the axis."""
FAR = 0.5
"""How far beyond the other estimates a bound is still drawn, in ranges of these."""


def plot_evidence(
    check: Any,
    *,
    exact: float | None = None,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    backend_kwargs: dict[str, Any] | None = None,
) -> "Axes":
    """Draw estimates of one evidence, or those of several models, as a forest.

    Each estimate is a dot with its 95 % interval. A bound has an arrow toward the side on which
    log Z lies. An estimate without an error is hollow, and one that disagrees with the reference
    method is crossed out. The gray band is the interval of the estimate to believe. If a bound or
    an estimate without an error lies far from the others, its value is written at the edge.

    Parameters
    ----------
    check : CrossCheck, DataTree, DataFrame, Evidence or mapping
        A cross-check; a DataTree that holds one; the table of :func:`compare`, whose rows are
        models and are not held against each other; or what :func:`log_marginal_likelihood` takes,
        alone or several by name, all of one model. A model on the context stack is used for
        posterior draws.
    exact : float, optional
        The true log Z (nats), drawn as a line.
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
    NotTemperedError, TemperingError
        If no evidence can be had from what was passed; the message names what can help.
    ImportError
        If Matplotlib is not installed.
    ValueError
        If there are no estimates, or a DataFrame is not one of :func:`compare`.

    Warns
    -----
    TemperingWarning
        What an estimate that is made here warns about.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> run = gaussian_run(draws=400)
    >>> ax = pmt.plot_evidence({"rts": pmt.log_marginal_likelihood(run)}, exact=-2.63)
    >>> ax.get_xlabel()
    'log Z (nats)'
    """
    check = _as_cross_check(check)
    table = check.table
    if not len(table):
        raise ValueError("plot_evidence needs at least one estimate")
    if ax is None:
        ax = new_axes(figsize or (8.0, 1.6 + 0.36 * len(table)), backend_kwargs)
    places = np.arange(len(table))[::-1]
    if check.believe is not None:
        best = table.loc[check.believe]
        if np.isfinite(best["mcse"]):
            half = HALF_WIDTH * best["mcse"]
            ax.axvspan(best["log_z"] - half, best["log_z"] + half, color=GRAY, alpha=0.2, lw=0)
    if exact is not None:
        ax.axvline(exact, color="black", ls="--", lw=1.0, label=f"exact: {exact:.3f}", zorder=1)
    for place, (_, row) in zip(places, table.iterrows(), strict=True):
        _draw_row(ax, place, row)
    _limit(ax, table, exact)
    _draw_arrows(ax, places, table)
    for draws in dict.fromkeys(table["draws"]):
        ax.plot([], [], "o", color=COLORS[draws], label=LABELS[draws])
    ax.set_yticks(places, table.index)
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel("log Z (nats)")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color=GRAY, alpha=0.2, lw=0.6)
    ax.set_axisbelow(True)
    right = ax.secondary_yaxis("right")
    texts = [plus_minus(z, e) for z, e in zip(table["log_z"], table["mcse"], strict=True)]
    right.set_yticks(places, texts, fontsize="small")
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    axes: Axes = ax
    return axes


def _as_cross_check(check: Any) -> CrossCheck:
    """Bring whatever is to be drawn into the form of a cross-check."""
    if isinstance(check, CrossCheck):
        return check
    if isinstance(check, pd.DataFrame):
        return _of_models(check)
    if isinstance(check, xr.DataTree) and GROUP in check.children:
        return read_cross_check(check)
    if isinstance(check, xr.DataTree) or not isinstance(check, Mapping):
        evidence = log_marginal_likelihood(check)
        check = {evidence.method: evidence}
    found = {name: log_marginal_likelihood(value) for name, value in check.items()}
    entries = [
        Entry(name, value, RUN if value.round_trips else OWN) for name, value in found.items()
    ]
    return assemble(entries, [value.seconds for value in found.values()], {})


def _of_models(table: pd.DataFrame) -> CrossCheck:
    """Rows of ``compare``, none of which is to be believed or agrees with another."""
    needed = ("log_z", "mcse", "bias_direction", "verdict")
    if missing := [name for name in needed if name not in table]:
        raise ValueError(f"the DataFrame is not a table of compare: it lacks {missing}")
    n = len(table)
    empty = {"n_evaluations": np.full(n, np.nan), "seconds": np.full(n, np.nan)}
    columns = {name: table[name].tolist() for name in needed} | empty
    columns |= {"agrees": [None] * n, "draws": [MODELS] * n}
    rows = make_table(
        [str(name) for name in table.index], {c: columns[c] for c in COLUMNS if c in columns}
    )
    return CrossCheck(rows, "unchecked", "", None, None, {})


def _draw_row(ax: Any, place: float, row: Any) -> None:
    """Draw one estimate: interval, dot, and a cross if it disagrees."""
    if not np.isfinite(row["log_z"]):
        ax.annotate(
            "no value",
            (0.5, place),
            xycoords=("axes fraction", "data"),
            ha="center",
            va="center",
            color=GRAY,
            fontsize="small",
        )
        return
    color, known = COLORS[row["draws"]], bool(np.isfinite(row["mcse"]))
    if known:
        half = HALF_WIDTH * row["mcse"]
        ax.plot([row["log_z"] - half, row["log_z"] + half], [place, place], color=color, lw=2.0)
    face = color if known else "white"
    ax.plot(row["log_z"], place, "o", color=color, mfc=face, ms=7, zorder=3)
    if not pd.isna(row["agrees"]) and not row["agrees"]:
        ax.plot(row["log_z"], place, "x", color="black", ms=10, mew=1.6, zorder=4)


def _limit(ax: Any, table: pd.DataFrame, exact: float | None) -> None:
    """Set the limits to hold all estimates with an error that are no bounds, nor too wide."""
    known = np.isfinite(table["log_z"]) & np.isfinite(table["mcse"])
    plain = table[known & (table["bias_direction"] == "") & (table["agreement"] != TOO_WIDE)]
    if not len(plain):
        return
    half = HALF_WIDTH * plain["mcse"]
    ends = [*(plain["log_z"] - half), *(plain["log_z"] + half)] + ([] if exact is None else [exact])
    low, high = min(ends), max(ends)
    own_low, own_high = ax.get_xlim()
    margin = FAR * (high - low)
    ax.set_xlim(max(own_low, low - margin), min(own_high, high + margin))


def _draw_arrows(ax: Any, places: Any, table: pd.DataFrame) -> None:
    """Draw the arrows of bounds, and write estimates beyond the edge at the edge."""
    low, high = ax.get_xlim()
    length = ARROW * (high - low)
    for place, (_, row) in zip(places, table.iterrows(), strict=True):
        value, color = row["log_z"], COLORS[row["draws"]]
        if not np.isfinite(value):
            continue
        if not low <= value <= high:
            left = value < low
            text = f"← {value:.4g}" if left else f"{value:.4g} →"
            ax.annotate(
                text,
                (0.01 if left else 0.99, place),
                color=color,
                va="center",
                xycoords=("axes fraction", "data"),
                ha="left" if left else "right",
                fontsize="small",
            )
            continue
        side = {"below": 1.0, "above": -1.0}.get(row["bias_direction"])
        if side is not None:
            half = HALF_WIDTH * row["mcse"] if np.isfinite(row["mcse"]) else 0.0
            start = value + side * half
            arrow = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 0}
            ax.annotate("", (start + side * length, place), (start, place), arrowprops=arrow)
