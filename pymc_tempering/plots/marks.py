"""Colors, error widths, and the ticks of axes that hold rungs or betas."""

from typing import Any

import numpy as np

from pymc_tempering.core.cycles import FloatArray

# Okabe & Ito's colors, which can be told apart with every kind of color vision.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"

HALF_WIDTH = 1.959963984540054
"""Standard errors in half of a 95 % interval."""
MOST_TICKS = 8


def spread_over(n: int, most: int = MOST_TICKS) -> list[int]:
    """Return at most so many whole numbers from 0 to n - 1, both ends and equal steps between.

    The last step may be longer than the others, never shorter.
    """
    step = max(1, -(-(n - 1) // max(most - 1, 1)))
    inner = [k for k in range(0, n - 1, step) if n - 1 - k >= step]
    return [*inner, n - 1] if n > 1 else [0]


def beta_text(beta: float) -> str:
    """Write an inverse temperature shortly."""
    text = f"{beta:.2g}" if beta >= 1e-3 or beta == 0.0 else f"{beta:.0e}"
    return text.replace("e-0", "e-")


def rung_ticks(betas: FloatArray, most: int = MOST_TICKS) -> tuple[list[int], list[str]]:
    """Return places and texts of some rungs, where rungs are evenly spaced."""
    shown = spread_over(betas.size, most)
    return shown, [beta_text(betas[k]) for k in shown]


def along_path(beta: Any, first: float) -> FloatArray:
    """Return the place of each beta on an axis that is linear up to ``first`` and then a log.

    The two parts meet with one slope, so that a density along beta stays continuous on the axis.
    With ``first`` = 1 it is beta itself.
    """
    beta = np.asarray(beta, dtype=float)
    return np.where(beta <= first, beta / first, 1.0 + np.log(np.maximum(beta, first) / first))


def path_ticks(first: float) -> tuple[list[float], list[str]]:
    """Return places and texts of betas along :func:`along_path`."""
    if first == 1.0:
        betas = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    else:
        decades = np.arange(np.ceil(np.log10(first) - 1e-9), 1.0)
        betas = [0.0, *10.0 ** decades[:: -int(-(-decades.size // 6))][::-1]]
    return along_path(betas, first).tolist(), [beta_text(beta) for beta in betas]


def round_ticks(high: float, most: int = 6) -> tuple[list[float], list[str]]:
    """Return places and texts of at most so many round steps from 0 to ``high``."""
    power = 10.0 ** np.floor(np.log10(high / most))
    step = next(power * m for m in (1.0, 2.0, 5.0, 10.0) if high / (power * m) <= most)
    places = [step * k for k in range(int(high / step + 1e-9) + 1)]
    return places, [f"{place:.6g}" for place in places]


def whole_ticks(high: float, most: int = 6) -> list[int]:
    """Return about so many round whole numbers from 0 to ``high``."""
    step = 1
    while high / step > most:
        step = step * 2 if str(step)[0] in "15" else step * 5 // 2
    return list(range(0, int(high) + 1, step))
