"""A sheet: the named panels of a picture, drawn into in the same words for every backend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_choice
from pymc_tempering.plots.legends import show_legends

BACKENDS = ("matplotlib", "bokeh", "plotly", "none")
"""What arviz-plots can draw with; "none" describes the picture and draws nothing."""
DOTS = 100
"""Dots in an inch of a picture's stated size."""
SMALL = {"matplotlib": 9, "bokeh": 12, "plotly": 12}
"""Size of text inside a panel: points, or pixels."""
COMMON = ("xlabel", "ylabel", "legend", "title")
"""Visuals that every picture has."""

type Style = Mapping[str, Any] | bool
"""Properties of a visual; False leaves it out."""
type Visuals = Mapping[str, Style] | None


@dataclass(frozen=True, eq=False)
class Sheet:
    """Panels by name, and how a user wants the visuals in them.

    Attributes
    ----------
    collection : PlotCollection
        With a dimension ``panel``, and a dimension ``chain`` if the picture has chains.
    visuals : mapping of str to mapping or bool
        What the user changes of each visual.
    entries : dict of str to list
        For each panel the entries of its legend: name and properties.
    """

    collection: Any
    visuals: Mapping[str, Style] = field(default_factory=dict)
    entries: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return str(self.collection.backend)

    @property
    def drawer(self) -> Any:
        """The functions of the backend, by arviz-plots' common names."""
        return import_module(f"arviz_plots.backend.{self.backend}")

    def target(self, panel: str) -> Any:
        """Where the backend draws into: axes, a figure, or a cell of a grid."""
        return self.collection.get_target(None, {"panel": panel})

    def draw(
        self,
        visual: str,
        panel: str,
        kind: str,
        *values: Any,
        chain: Any = None,
        part: str = "",
        label: str = "",
        **properties: Any,
    ) -> None:
        """Draw one visual: a function of the backend, with the user's properties over ours.

        Parameters
        ----------
        visual, panel : str
            What is drawn, and where.
        kind : str
            Function of ``arviz_plots.backend``: "line", "scatter", "text" and so on.
        *values
            Its data.
        chain : optional
            Chain that it belongs to, whose aesthetics it gets.
        part : str, default ""
            Which of several parts it is; they are stored apart and share their style.
        label : str, default ""
            Name in the legend of the panel.
        **properties
            Color, alpha, width, linestyle, marker and others; ``size`` is a diameter in dots.
        """
        style = self.visuals.get(visual, True)
        if style is False:
            return
        own = {} if style is True else dict(style)
        if chain is not None and "chain" not in self.collection.data.dims:
            part, chain = str(chain), None
        if chain is not None:
            properties |= self.collection.get_aes_kwargs(
                sorted(self.collection.aes_set), None, {"chain": chain}
            )
        settings = properties | own
        if kind == "scatter":
            settings["size"] = _marker_size(settings.get("size", 7), self.backend)
        elif kind == "text":
            settings.setdefault("size", SMALL.get(self.backend, 9))
        artist = getattr(self.drawer, kind)(*values, self.target(panel), **settings)
        if label:
            self.entries.setdefault(panel, []).append((label, {"kind": kind} | settings))
        self._keep(f"{visual}_{part}" if part else visual, panel, artist, chain)

    def _keep(self, visual: str, panel: str, artist: Any, chain: Any) -> None:
        """Store what was drawn in the ``viz`` of the collection, by panel and chain."""
        tree = self.collection.viz
        place = {"panel": panel} | ({} if chain is None else {"chain": chain})
        if visual not in tree.children:
            data = self.collection.data
            coords = {name: data[name].values for name in place}
            cells = np.full([c.size for c in coords.values()], None, dtype=object)
            tree[visual] = xr.DataTree(xr.Dataset({"picture": (list(place), cells)}, coords))
        cell = np.empty((), dtype=object)
        cell[()] = artist
        tree[visual]["picture"].loc[place] = cell

    def segments(
        self, visual: str, panel: str, x: Sequence[Any], y: Sequence[Any], **properties: Any
    ) -> None:
        """Draw separate lines as one visual: ``x`` and ``y`` are their two ends, shape (2, n)."""
        ends = [np.asarray(np.broadcast_arrays(*pair), dtype=float) for pair in (x, y)]
        gap = np.full((1, ends[0].shape[1]), np.nan)
        flat = [np.concatenate([pair, gap]).T.ravel() for pair in ends]
        self.draw(visual, panel, "line", *flat, **properties)

    def texts(
        self,
        visual: str,
        panel: str,
        x: Any,
        y: Any,
        strings: Sequence[str],
        *,
        tag: str = "text",
        **properties: Any,
    ) -> None:
        """Write several texts, which Matplotlib takes one at a time, as one visual."""
        if self.backend != "matplotlib":
            places, heights = (np.asarray(v, dtype=float) for v in (x, y))
            self.draw(visual, panel, "text", places, heights, list(strings), part=tag, **properties)
            return
        for k, (place, height, text) in enumerate(zip(x, y, strings, strict=True)):
            at, name = (float(place), float(height)), f"{tag}_{k}"
            self.draw(visual, panel, "text", *at, text, part=name, **properties)

    def label(self, panel: str, x: str = "", y: str = "") -> None:
        """Name the axes of a panel."""
        for visual, text in (("xlabel", x), ("ylabel", y)):
            style = self.visuals.get(visual, True)
            if text and style is not False:
                own = {} if style is True else dict(style)
                getattr(self.drawer, visual)(text, self.target(panel), **own)

    def ticks(self, panel: str, axis: str, places: Any, texts: Any) -> None:
        """Put texts at places of an axis."""
        if axis == "y" and self.backend == "plotly":
            # Plotly else sets labels on the axis line.
            texts = [f"{text} " for text in texts]
        at = [float(place) for place in places]
        getattr(self.drawer, f"{axis}ticks")(at, [str(t) for t in texts], self.target(panel))

    def limit(self, panel: str, axis: str, low: float, high: float) -> None:
        """Set the ends of an axis."""
        getattr(self.drawer, f"{axis}lim")((float(low), float(high)), self.target(panel))

    def hide(self, panel: str) -> None:
        """Take both axes of a panel away: lines, ticks and their texts."""
        self.drawer.remove_axis(self.target(panel), axis="both")
        if self.backend == "matplotlib":
            self.target(panel).set_axis_off()

    def finish(self, title: str = "") -> Any:
        """Put up the legends and the title, and return the collection."""
        if self.visuals.get("legend", True) is not False:
            show_legends(self)
        for panel in self.collection.data["panel"].values:
            _tidy(self.target(str(panel)), self.backend)
        style = self.visuals.get("title", True)
        if self.backend == "plotly":
            self.collection.viz["figure"].item().update_layout(
                margin={"t": 90 if title else 45, "b": 55, "l": 70, "r": 25}
            )
        if title and style is not False:
            own = {} if style is True else dict(style)
            size = {"matplotlib": 11, "bokeh": "14px", "plotly": 15}
            place = {"y": 0.98, "yanchor": "top"} if self.backend == "plotly" else {}
            own = {"size": size.get(self.backend)} | place | own
            self.collection.add_title(title, **own)
        return self.collection


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
        room = (8.0 if tight else 85.0) / (height * DOTS - 110.0)
        spacing = {"vertical_spacing": min(room, 0.5 / rows)}
        return spacing | ({"plot_hspace": 0.1} if columns > 1 else {})
    return {}


def _marker_size(diameter: float, backend: str) -> float:
    """Size of a marker as the backend counts it."""
    if backend == "matplotlib":
        return float((0.72 * diameter) ** 2)  # points squared
    return float(diameter**2 if backend == "plotly" else diameter)


def _tidy(target: Any, backend: str) -> None:
    """Remove the frame of a panel, and lines at zero that mean nothing."""
    if backend == "matplotlib":
        target.spines[["top", "right"]].set_visible(False)
    elif backend == "plotly":
        target.update_xaxes(zeroline=False)
        target.update_yaxes(zeroline=False)
