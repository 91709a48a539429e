"""Values beyond the ends of an axis: where the axis ends, and arrows with the value beside."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.plots.sheet import Sheet

ROOM = 0.08
"""Part of the axis that is left free at each end."""
LABEL = 0.14
"""Part of the axis that the label of a value beyond it takes."""


@dataclass(frozen=True, eq=False)
class Span:
    """Ends of an axis.

    Attributes
    ----------
    low, high : float
    """

    low: float
    high: float

    @property
    def width(self) -> float:
        """Length of the axis."""
        return self.high - self.low

    def holds(self, value: FloatArray) -> np.ndarray:
        """Whether each value is on the axis."""
        return np.asarray((value >= self.low) & (value <= self.high))


def span_of(ends: FloatArray, others: FloatArray, far: float = 0.5) -> Span:
    """Return an axis that holds ``ends``, and of ``others`` those that are not far beyond.

    Parameters
    ----------
    ends : ndarray, shape (n,)
        Must be on the axis.
    others : ndarray, shape (m,)
        Are, if they lie within ``far`` ranges of ``ends``.
    """
    ends = ends[np.isfinite(ends)]
    others = others[np.isfinite(others)]
    if not ends.size:
        ends = others if others.size else np.zeros(1)
    low, high = float(ends.min()), float(ends.max())
    reach = far * ((high - low) or max(abs(low), 1.0) * 0.1)
    near = others[(others >= low - reach) & (others <= high + reach)]
    low, high = min(low, *near, low), max(high, *near, high)
    pad = ROOM * ((high - low) or max(abs(low), 1.0) * 0.1)
    return Span(low - pad, high + pad)


def with_room(span: Span, values: FloatArray, lines: FloatArray) -> Span:
    """Widen an axis so that no line over all rows strikes through the label of a value beyond it.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Of the rows; those beyond an end have a label there.
    lines : ndarray, shape (m,)
        Places of lines over all rows.
    """
    low, high = span.low, span.high
    lines = lines[span.holds(lines)]
    room = LABEL * span.width
    if np.any(np.isfinite(values) & (values < low)):
        low = min([low, *(lines[lines < low + room] - room / (1.0 - LABEL))])
    if np.any(np.isfinite(values) & (values > high)):
        high = max([high, *(lines[lines > high - room] + room / (1.0 - LABEL))])
    return Span(low, high)


def draw_beyond(
    sheet: Sheet, panel: str, span: Span, values: FloatArray, places: FloatArray, **style: Any
) -> None:
    """Draw an arrow at the edge for each value beyond it, with the value beside the arrow."""
    for side, here in (
        ("left", np.isfinite(values) & (values < span.low)),
        ("right", np.isfinite(values) & (values > span.high)),
    ):
        if not np.any(here):
            continue
        texts = [f"◄ {v:.4g}" if side == "left" else f"{v:.4g} ►" for v in values[here]]
        edge = span.low + 0.01 * span.width if side == "left" else span.high - 0.01 * span.width
        sheet.texts("beyond", panel, [edge] * len(texts), places[here], texts,
                    tag=side, horizontal_align=side, **style)  # fmt: skip


def draw_above(
    sheet: Sheet, panel: str, span: Span, places: FloatArray, values: FloatArray, **style: Any
) -> None:
    """Draw an arrow at the lower or upper edge for each value beyond it, with the value beside."""
    for side, here, head, edge in (
        ("below", values < span.low, "▼", span.low + 0.05 * span.width),
        ("above", values > span.high, "▲", span.high - 0.05 * span.width),
    ):
        if np.any(here):
            texts = [f"{head} {value:.3g}" for value in values[here]]
            sheet.texts("beyond", panel, places[here], [edge] * len(texts), texts, tag=side,
                        horizontal_align="left", **style)  # fmt: skip
