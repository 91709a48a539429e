"""New panels for a picture, or those of a collection that was given."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_choice
from pymc_tempering.plots.legends import ROW
from pymc_tempering.plots.sheet import COMMON, Sheet, Visuals

BACKENDS = ("matplotlib", "bokeh", "plotly", "none")
"""What arviz-plots can draw with; "none" describes the picture and draws nothing."""
DOTS = 100
"""Dots in an inch of a picture's stated size."""
AXIS = 35
"""Dots that the ticks and the name of an x axis take, which Bokeh counts as a part of a panel."""


def open_sheet(
    panels: Sequence[str],
    *,
    size: tuple[float, float],
    columns: int = 1,
    tight: bool = False,
    known: Sequence[str] = (),
    chains: Sequence[Any] | None = None,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Sheet:
    """Return a sheet with new panels, or with those of a ``PlotCollection`` that was given.

    Parameters
    ----------
    panels : sequence of str
        Names, in the order of reading.
    size : tuple of float
        Inches of a new figure, unless ``figure_kwargs`` say another ``figsize``.
    columns : int, default 1
        Panels beside each other.
    tight : bool, default False
        Whether panels have neither legends nor names of the x axis between them.
    known : sequence of str
        Names of the visuals.
    chains : sequence, optional
        Chains of the picture, for aesthetics that are mapped to them.
    plot_collection, backend, visuals, **pc_kwargs
        Of the picture's call.

    Raises
    ------
    ImportError
        If the backend is not installed.
    ValueError
        If the backend or a visual is not known, or a panel is missing in ``plot_collection``.
    """
    collection_class, settings = _arviz_plots(backend, plot_collection)
    unknown = sorted(set(visuals or {}) - {*known, *COMMON})
    if unknown:
        raise ValueError(f"visuals has {unknown}, which this picture has not: {[*known, *COMMON]}")
    if plot_collection is not None:
        have = plot_collection.viz["plot"].coords.get("panel")
        missing = sorted(set(panels) - set([] if have is None else have.values.tolist()))
        if missing:
            raise ValueError(f"plot_collection needs panels {list(panels)}; it lacks {missing}")
        return Sheet(plot_collection, dict(visuals or {}))
    figure: dict[str, Any] = {"figsize": (size[0] * DOTS, size[1] * DOTS), "figsize_units": "dots"}
    figure |= _spacing(settings, len(panels), columns, size[1], tight)
    figure |= dict(pc_kwargs.pop("figure_kwargs", {}))
    if settings == "matplotlib" and figure["figsize_units"] == "dots":
        figure["figsize"] = tuple(length / DOTS for length in figure["figsize"])
        figure["figsize_units"] = "inches"
    coords = {"panel": list(panels)} | ({} if chains is None else {"chain": list(chains)})
    shape = [len(names) for names in coords.values()]
    data = xr.Dataset({"picture": (list(coords), np.zeros(shape))}, coords)
    collection = collection_class.wrap(
        data, cols=["panel"], col_wrap=columns, backend=settings, figure_kwargs=figure, **pc_kwargs
    )
    sheet = Sheet(collection, dict(visuals or {}))
    if settings == "bokeh" and "width_ratios" in figure:
        _widen(sheet, figure, columns)
    if settings == "bokeh" and tight:
        sheet.target(panels[-1]).height += AXIS
    return sheet


def _widen(sheet: Sheet, figure: Mapping[str, Any], columns: int) -> None:
    """Set the widths of Bokeh's panels, which arviz-plots gives to the panel on the right."""
    ratios = np.asarray(figure["width_ratios"], dtype=float)
    for k, panel in enumerate(sheet.collection.data["panel"].values):
        share = ratios[k % columns] / ratios.sum()
        sheet.target(str(panel)).width = int(share * figure["figsize"][0])


def _arviz_plots(backend: str | None, plot_collection: Any) -> tuple[Any, str]:
    """Import arviz-plots and a backend, or say how to get them."""
    try:
        from arviz_base import rcParams
        from arviz_plots import PlotCollection

        name = backend or getattr(plot_collection, "backend", None) or rcParams["plot.backend"]
        check_choice("backend", name, BACKENDS)
        if name == "matplotlib":
            import_module("matplotlib.pyplot")
        import_module(f"arviz_plots.backend.{name}")
    except ImportError as error:
        extra = f"'pymc-tempering[{'plots' if backend in (None, 'matplotlib') else backend}]'"
        raise ImportError(f"this picture needs a plotting library: pip install {extra}") from error
    return PlotCollection, str(name)


def _spacing(backend: str, n: int, columns: int, height: float, tight: bool) -> dict[str, Any]:
    """Room between panels, in the words of each backend."""
    if backend == "matplotlib":
        return {"layout": "constrained"}
    if backend == "plotly":
        rows = -(-n // columns)
        legends = 1 if columns == 1 else 2  # rows of entries above a panel
        room = (8.0 if tight else 66.0 + ROW * legends) / (height * DOTS - 110.0)
        spacing = {"vertical_spacing": min(room, 0.5 / rows)}
        return spacing | ({"plot_hspace": 0.1} if columns > 1 else {})
    return {}
