"""Shared by all pictures: colors, axes, and Matplotlib, imported when it is needed."""

from typing import Any

# Okabe & Ito's colors, which can be told apart with every kind of color vision.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"


HALF_WIDTH = 1.959963984540054
"""Standard errors in half of a 95 % interval."""


def new_axes(figsize: tuple[float, float], backend_kwargs: dict[str, Any] | None) -> Any:
    """Return the axes of a new figure."""
    settings = {"figsize": figsize, "layout": "constrained"}
    _, ax = pyplot().subplots(**(settings | (backend_kwargs or {})))
    return ax


def tidy(ax: Any, rungs_on: str = "x") -> None:
    """Remove the frame, and put whole numbers on the axis of the rungs."""
    from matplotlib.ticker import MaxNLocator

    axis = ax.xaxis if rungs_on == "x" else ax.yaxis
    axis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)


def pyplot() -> Any:
    """Import Matplotlib, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need Matplotlib: pip install 'pymc-tempering[plots]'") from error
    return plt
