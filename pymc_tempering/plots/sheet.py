"""A sheet: the named panels of a picture, drawn into in the same words for every backend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.plots.legends import room_above, show_legends

SMALL = {"matplotlib": 9, "bokeh": 12, "plotly": 12}
"""Size of text inside a panel: points, or pixels."""
EDGES = {"matplotlib": "none", "bokeh": None}
"""What draws no edges of bars, which hide narrow ones; Plotly needs some of the bars' color."""
THIN_CROSS = "x-thin-open"
"""Plotly's own cross is filled, and would hide the mark below it."""
COMMON = ("xlabel", "ylabel", "legend", "title")
"""Visuals that every picture has."""

PLOTLY_TITLE = {"y": 0.98, "yanchor": "top", "x": 0.0, "xref": "paper", "xanchor": "left"}
"""At the left, since Plotly's buttons are at the right."""

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
            if self.backend == "plotly" and settings.get("marker") == "C3":
                settings["marker"] = THIN_CROSS
        elif kind == "hist":
            settings = {"edgecolor": EDGES.get(self.backend, settings.get("color"))} | settings
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
            room_above(self.collection.viz["figure"].item(), bool(title), bool(self.entries))
        if title and style is not False:
            own = {} if style is True else dict(style)
            size = {"matplotlib": 11, "bokeh": "14px", "plotly": 15}
            place = PLOTLY_TITLE if self.backend == "plotly" else {}
            own = {"size": size.get(self.backend)} | place | own
            self.collection.add_title(title, **own)
        return self.collection


def _marker_size(diameter: float, backend: str) -> float:
    """Size of a marker as the backend counts it."""
    if backend == "matplotlib":
        return float((0.72 * diameter) ** 2)  # points squared
    return float(diameter**2 if backend == "plotly" else diameter)


def _tidy(target: Any, backend: str) -> None:
    """Remove the frame of a panel, and the lines of a grid, which strike through texts."""
    if backend == "matplotlib":
        target.spines[["top", "right"]].set_visible(False)
        target.grid(visible=False)
    elif backend == "bokeh":
        target.grid.visible = False
        target.outline_line_color = None
    elif backend == "plotly":
        target.update_xaxes(zeroline=False, showgrid=False)
        target.update_yaxes(zeroline=False, showgrid=False)
