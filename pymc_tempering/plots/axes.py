"""Axes: ticks of rungs and betas, round ticks, where an axis ends, and arrows beyond its ends."""

from typing import Any, NamedTuple

import numpy as np

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.plots.sheet import Panel

HALF_WIDTH = 1.959963984540054
"""Standard errors in half of a 95 % interval."""
MOST_TICKS = 8
ROOM = 0.08
"""Part of the axis that is left free at each end."""
LABEL = 0.14
"""Part of the axis that the label of a value beyond it takes."""

type Ticks = tuple[list[float], list[str]]
"""Places on an axis, and the texts there."""


def spread_over(n: int, most: int = MOST_TICKS) -> list[int]:
    """Return at most so many whole numbers from 0 to n - 1, both ends and equal steps between.

    The last step may be longer than the others, never shorter.
    """
    step = max(1, -(-(n - 1) // max(most - 1, 1)))
    return [*range(0, n - step, step), n - 1]


def beta_text(beta: float) -> str:
    """Write an inverse temperature shortly."""
    text = f"{beta:.2g}" if beta >= 1e-3 or beta == 0.0 else f"{beta:.0e}"
    return text.replace("e-0", "e-")


def rung_ticks(betas: FloatArray, most: int = MOST_TICKS) -> Ticks:
    """Ticks at some rungs, where rungs are evenly spaced."""
    shown = spread_over(betas.size, most)
    return [float(k) for k in shown], [beta_text(betas[k]) for k in shown]


def along_path(beta: Any, first: float) -> FloatArray:
    """Return the place of each beta on an axis that is linear up to ``first`` and then a log.

    The two parts meet with one slope, so that a density along beta stays continuous on the axis.
    With ``first`` = 1 it is beta itself.
    """
    beta = np.asarray(beta, dtype=float)
    return np.where(beta <= first, beta / first, 1.0 + np.log(np.maximum(beta, first) / first))


def path_ticks(first: float) -> Ticks:
    """Ticks at betas along :func:`along_path`."""
    if first == 1.0:
        betas = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    else:
        decades = np.arange(np.ceil(np.log10(first) - 1e-9), 1.0)
        betas = [0.0, *10.0 ** decades[:: -int(-(-decades.size // 6))][::-1]]
    return along_path(betas, first).tolist(), [beta_text(beta) for beta in betas]


def round_ticks(high: float, most: int = 6, least: float = 0.0) -> Ticks:
    """Ticks at so many round steps from 0 to ``high`` at most, none shorter than ``least``."""
    power = 10.0 ** np.floor(np.log10(high / most))
    steps = [max(power * m, least) for m in (1.0, 2.0, 5.0, 10.0)]
    step = next(step for step in steps if high / step <= most)
    places = np.arange(int(high / step + 1e-9) + 1) * step
    return places.tolist(), [f"{place:.6g}" for place in places]


def log_ticks(low: float, high: float) -> Ticks:
    """Ticks at the log10 of round numbers between two positive ones."""
    steps = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1.0)
    decades = decades[:: -(-decades.size // 7)]
    round_ones = np.array([step * 10.0**d for d in decades for step in steps])
    kept = round_ones[(round_ones >= 0.99 * low) & (round_ones <= 1.01 * high)]
    return np.log10(kept).tolist(), [f"{value:g}" for value in kept]


class Span(NamedTuple):
    """Ends of an axis."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """Length of the axis."""
        return self.high - self.low

    def holds(self, value: FloatArray) -> np.ndarray:
        """Whether each value is on the axis."""
        return (value >= self.low) & (value <= self.high)


def span_of(ends: FloatArray, others: FloatArray) -> Span:
    """Return an axis that holds ``ends``, and of ``others`` those that are not far beyond.

    Parameters
    ----------
    ends : ndarray, shape (n,)
        Must be on the axis.
    others : ndarray, shape (m,)
        Are, if they lie within half a range of ``ends``.
    """
    ends, others = ends[np.isfinite(ends)], others[np.isfinite(others)]
    ends = ends if ends.size else others if others.size else np.zeros(1)
    unit = np.ptp(ends) or 0.1 * max(abs(ends[0]), 1.0)
    near = np.abs(others - np.clip(others, ends.min(), ends.max())) <= 0.5 * unit
    held = np.append(ends, others[near])
    pad = ROOM * (np.ptp(held) or 0.1 * max(abs(held[0]), 1.0))
    return Span(float(held.min() - pad), float(held.max() + pad))


def with_room(span: Span, values: FloatArray, lines: FloatArray) -> Span:
    """Widen an axis so that no line over all rows strikes through the label of a value beyond it.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Of the rows; those beyond an end have a label there.
    lines : ndarray, shape (m,)
        Places of lines over all rows.
    """
    low, high = span
    lines, room = lines[span.holds(lines)], LABEL * span.width
    if np.any(values < low):
        low = min([low, *(lines[lines < low + room] - room / (1.0 - LABEL))])
    if np.any(values > high):
        high = max([high, *(lines[lines > high - room] + room / (1.0 - LABEL))])
    return Span(low, high)


def draw_beyond(
    panel: Panel,
    span: Span,
    values: FloatArray,
    places: FloatArray,
    *,
    upright: bool = False,
    name: str = "",
    **style: Any,
) -> None:
    """Draw an arrow at the edge for each value beyond it, with the value beside the arrow.

    The values are along x, at heights ``places``; with ``upright`` they are along y.
    """
    if upright:
        inset, sides = 0.05 * span.width, (("below", "▼ {}{:.3g}"), ("above", "▲ {}{:.3g}"))
    else:
        inset, sides = 0.01 * span.width, (("left", "◄ {}{:.4g}"), ("right", "{}{:.4g} ►"))
    beyond = (values < span.low, span.low + inset), (values > span.high, span.high - inset)
    for (side, words), (here, edge) in zip(sides, beyond, strict=True):
        here &= np.isfinite(values)
        texts = [words.format(name, value) for value in values[here]]
        x, y = (places[here], edge) if upright else (edge, places[here])
        align = "left" if upright else side
        panel.texts("beyond", x, y, texts, part=side, horizontal_align=align, **style)
