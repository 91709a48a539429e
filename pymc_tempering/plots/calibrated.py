"""A calibration: model probabilities beside how often they came true, and ranks of parameters."""

from typing import Any

import numpy as np
from scipy import stats

from pymc_tempering.arguments import check_kind
from pymc_tempering.evidence.calibration import ALARM, Calibration
from pymc_tempering.plots.sheet import BLUE, GRAY, Panel, finished, open_panels

CALIBRATION_VISUALS = ("even", "bars", "share", "band", "ranks", "no_ranks")
GRID = np.linspace(0.0, 1.0, 101)
"""Places along the ranks."""


def plot_calibration(found: Calibration, model: str | None = None, **options: Any) -> Any:
    """Draw how often a model had generated the data, and how even the ranks of parameters are.

    How to read it: on the left the bars should meet the diagonal. Flatter dots are of probabilities
    that are too sure, steeper ones of too timid ones, and all above it of evidences of this model
    that are too low. On the right the lines should stay in the band: a slope on both sides of a
    hump is a shift of the draws, a wave is of draws that are too narrow or too wide.

    Parameters
    ----------
    found : Calibration
        From :func:`calibrate`.
    model : str, optional
        Name of the model on the left; the second one by default.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "curve",
        "ranks"; ``backend``; ``visuals``, of "even", "bars", "share", "band", "ranks", "no_ranks";
        and arguments of ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    ImportError
        If the backend is not installed.
    ValueError
        If there is no model of that name, the backend or a visual is not known, or
        ``plot_collection`` lacks a panel.

    Notes
    -----
    Bars are exact 95 % intervals. A line on the right is the empirical distribution function of
    the ranks of one scalar, less that of even ones, times the root of their number. With right
    draws all lines stay in the band with a probability of 0.99 or more, as in the test by
    Kolmogorov and Smirnov in ``Calibration.rank_p_value``.

    Examples
    --------
    >>> import numpy as np, pymc_tempering as pmt
    >>> log_z = np.random.default_rng(1).normal(size=(100, 2))
    >>> Calibration = pmt.evidence.calibration.Calibration
    >>> found = Calibration(("a", "b"), np.array([0.5, 0.5]), np.arange(100) % 2, log_z)
    >>> pc = pmt.plot_calibration(found)
    >>> pc.viz["plot"].panel.values.tolist()
    ['curve', 'ranks']
    """
    check_kind("found", found, Calibration, "what calibrate returned")
    curve = found.curve(model)
    left, right = open_panels(
        ("curve", "ranks"), (9.0, 4.0), CALIBRATION_VISUALS, options, columns=2
    )
    left.line("even", [0.0, 1.0], [0.0, 1.0], color=GRAY, width=1.0, linestyle="C1")
    p = curve["probability"]
    left.segments("bars", (p, p), (curve["low"], curve["high"]), color=BLUE, width=1.6)
    left.dots("share", p, curve["share"], size=8.0)
    ends = (-0.03, 1.03)
    name = found.names[1] if model is None else model
    left.axes(f"posterior probability of {name!r}", "share that it generated", x=ends, y=ends)
    _draw_ranks(right, [u for u in found.ranks.values() if len(u)])
    return finished([left, right])


def _draw_ranks(panel: Panel, ranks: list[np.ndarray]) -> None:
    if not ranks:
        panel.texts("no_ranks", 0.5, 0.0, "no ranks", color=GRAY, horizontal_align="center")
        panel.axes(x=(0.0, 1.0), y=(-1.0, 1.0))
        return
    half = stats.kstwobign.isf(ALARM / len(ranks))
    rows = [
        np.sqrt(len(u)) * (np.searchsorted(np.sort(u), GRID, side="right") / len(u) - GRID)
        for u in ranks
    ]
    panel.band("band", [0.0, 1.0], -half, half, color=GRAY)
    panel.line("even", [0.0, 1.0], [0.0, 0.0], color=GRAY, width=1.0, linestyle="C1", part="ranks")
    panel.curves("ranks", GRID, rows, width=1.0)
    most = 1.1 * max(half, float(np.abs(rows).max()))
    panel.axes("rank among posterior draws", "deviation from even ranks", x=(0, 1), y=(-most, most))
