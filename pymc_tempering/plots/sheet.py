"""The panels of a picture, drawn into in the same words for every backend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_choice

# Okabe & Ito's colors, which can be told apart with every kind of color vision.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"

BACKENDS = ("matplotlib", "bokeh", "plotly", "none")
"""What arviz-plots can draw with; "none" describes the picture and draws nothing."""
DOTS = 100
"""Dots in an inch of a picture's stated size."""
COMMON = ("xlabel", "ylabel", "legend", "title")
"""Visuals that every picture has."""
LABEL = {"matplotlib": "label", "bokeh": "legend_label", "plotly": "name"}
"""What a backend calls the name of something in the legend."""

type Style = Mapping[str, Any] | bool
"""Properties of a visual; False leaves it out."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One panel of a picture, and how a user wants the visuals in it.

    A visual is what a user can change or leave out: a line, dots, texts. Its properties are color,
    alpha, width, linestyle, marker and others; ``size`` is a diameter in dots, ``label`` its name
    in the legend. ``part`` tells several parts of one visual apart, which are stored apart and
    share their style.

    Attributes
    ----------
    collection : PlotCollection
        With a dimension ``panel``, and a dimension ``chain`` if the picture has chains.
    visuals : mapping of str to mapping or bool
        What the user changes of each visual.
    name : str
    """

    collection: Any
    visuals: Mapping[str, Style]
    name: str

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return str(self.collection.backend)

    @property
    def drawer(self) -> Any:
        """The functions of the backend, by arviz-plots' common names."""
        return import_module(f"arviz_plots.backend.{self.backend}")

    @property
    def target(self) -> Any:
        """Where the backend draws into: axes, a figure, or a cell of a grid."""
        return self.collection.get_target(None, {"panel": self.name})

    def own(self, visual: str) -> dict[str, Any] | None:
        """Properties that the user gave a visual; None to leave it out."""
        style = self.visuals.get(visual, True)
        return dict(style) if isinstance(style, Mapping) else {} if style else None

    def line(
        self, visual: str, x: Any, y: Any, *, color: str = BLUE, width: float = 1.4, **more: Any
    ) -> None:
        """Draw a line."""
        self._draw(visual, "line", x, y, color=color, width=width, **more)

    def guide(self, visual: str, x: Any, y: Any, *, color: str = "B1", **more: Any) -> None:
        """Draw a thin dashed line to hold others against."""
        style: dict[str, Any] = {"color": color, "width": 1.2, "linestyle": "C1"}
        self._draw(visual, "line", x, y, **(style | more))

    def level(self, visual: str, y: float, **more: Any) -> None:
        """Draw a line at one height, from end to end of the panel."""
        self._draw(visual, "hline", y, **more)

    def segments(self, visual: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> None:
        """Draw separate lines as one visual: ``x`` and ``y`` are their two ends, shape (2, n)."""
        ends = [np.asarray(np.broadcast_arrays(*pair), dtype=float) for pair in (x, y)]
        gap = np.full((1, ends[0].shape[1]), np.nan)
        self.line(visual, *(np.concatenate([pair, gap]).T.ravel() for pair in ends), **more)

    def dots(self, visual: str, x: Any, y: Any, *, color: str = BLUE, **more: Any) -> None:
        """Draw filled marks."""
        self._draw(visual, "scatter", x, y, color=color, **more)

    def rings(self, visual: str, x: Any, y: Any, *, color: str = BLUE, **more: Any) -> None:
        """Draw hollow marks."""
        style: dict[str, Any] = {"edgecolor": color, "facecolor": "B0", "width": 1.4}
        self._draw(visual, "scatter", x, y, **(style | more))

    def band(
        self, visual: str, x: Any, low: Any, high: Any, *, color: str = BLUE, **more: Any
    ) -> None:
        """Fill what is between two curves."""
        self._draw(visual, "fill_between_y", x, low, high, color=color, alpha=0.25, **more)

    def bars(self, visual: str, heights: Any, edges: Any, **more: Any) -> None:
        """Draw bars between edges."""
        self._draw(visual, "hist", heights, edges[:-1], edges[1:], color=GRAY, **more)

    def texts(self, visual: str, x: Any, y: Any, strings: Sequence[str], **more: Any) -> None:
        """Write several texts as one visual."""
        places = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        self._draw(visual, "text", *places, list(strings), **more)

    def _draw(
        self,
        visual: str,
        kind: str,
        *values: Any,
        chain: Any = None,
        part: str = "",
        label: str = "",
        **properties: Any,
    ) -> None:
        """Draw by the backend's function `kind`, with the user's properties over ours.

        Where there are no values nothing is drawn.
        """
        own = self.own(visual)
        if own is None or not np.size(values[0]):
            return
        if chain is not None and "chain" not in self.collection.data.dims:
            part, chain = str(chain), None
        if chain is not None:
            aes, at = sorted(self.collection.aes_set), {"chain": chain}
            properties |= self.collection.get_aes_kwargs(aes, None, at)
        settings = properties | own
        if kind == "scatter":
            settings["size"] = _marker_size(settings.get("size", 7.0), self.backend)
        if self.backend == "matplotlib":
            # Edges hide narrow bars.
            small: dict[str, Any] = {"hist": {"edgecolor": "none"}, "text": {"size": 9}}
            settings = small.get(kind, {}) | settings
        if label and self.backend in LABEL and self.own("legend") is not None:
            settings[LABEL[self.backend]] = label
            settings |= {"showlegend": True} if self.backend == "plotly" else {}
        function = getattr(self.drawer, kind)
        if kind == "text" and self.backend == "matplotlib":
            artist = [function(*one, self.target, **settings) for one in zip(*values, strict=True)]
        else:
            artist = function(*values, self.target, **settings)
        self._keep(f"{visual}_{part}" if part else visual, artist, chain)

    def _keep(self, visual: str, artist: Any, chain: Any) -> None:
        """Store what was drawn in the ``viz`` of the collection, by panel and chain."""
        tree = self.collection.viz
        place = {"panel": self.name} | ({} if chain is None else {"chain": chain})
        if visual not in tree.children:
            data = self.collection.data
            coords = {name: data[name].values for name in place}
            cells = np.full([c.size for c in coords.values()], None, dtype=object)
            tree[visual] = xr.DataTree(xr.Dataset({"picture": (list(place), cells)}, coords))
        cell = np.empty((), dtype=object)
        cell[()] = artist
        tree[visual]["picture"].loc[place] = cell

    def axes(
        self,
        xlabel: str = "",
        ylabel: str = "",
        *,
        x: tuple[float, float] | None = None,
        y: tuple[float, float] | None = None,
        xticks: tuple[Any, Any] | None = None,
        yticks: tuple[Any, Any] | None = None,
    ) -> None:
        """Name axes, set their ends, and put texts at places of them (two sequences)."""
        drawer, target = self.drawer, self.target
        for axis, name, ends, ticks in (("x", xlabel, x, xticks), ("y", ylabel, y, yticks)):
            own = self.own(f"{axis}label")
            if name and own is not None:
                getattr(drawer, f"{axis}label")(name, target, **own)
            if ends is not None:
                getattr(drawer, f"{axis}lim")((float(ends[0]), float(ends[1])), target)
            if ticks is not None:
                places, texts = [float(place) for place in ticks[0]], [str(t) for t in ticks[1]]
                getattr(drawer, f"{axis}ticks")(places, texts, target)


def open_panels(
    names: Sequence[str],
    size: tuple[float, float],
    known: Sequence[str],
    options: Mapping[str, Any],
    *,
    columns: int = 1,
    chains: Sequence[Any] | None = None,
    **figure: Any,
) -> list[Panel]:
    """Return new panels, or those of a ``PlotCollection`` that was given.

    Parameters
    ----------
    names : sequence of str
        Names of the panels, in the order of reading.
    size : tuple of float
        Inches of a new figure, unless ``figure_kwargs`` say another ``figsize``.
    known : sequence of str
        Names of the visuals.
    options : mapping
        What a user may give to every picture. ``plot_collection`` : new panels by default, or one
        with panels of these names along the dimension ``panel``. ``backend`` : "matplotlib",
        "bokeh" or "plotly"; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
        ``visuals`` : properties of the visuals by name, "xlabel", "ylabel", "legend" and "title"
        among them, or False to leave one out. All else goes to ``PlotCollection.wrap``, for
        instance ``figure_kwargs={"figsize": (900, 300)}`` in dots.
    columns : int, default 1
        Panels beside each other.
    chains : sequence, optional
        Chains of the picture, for aesthetics that are mapped to them.
    **figure
        Further ``figure_kwargs``, unless the user gives them.

    Raises
    ------
    ImportError
        If the backend is not installed.
    ValueError
        If the backend or a visual is not known, or a panel is missing in ``plot_collection``.
    """
    more = dict(options)
    plot_collection, visuals = (
        more.pop("plot_collection", None),
        dict(more.pop("visuals", None) or {}),
    )
    collection_class, backend = _arviz_plots(more.pop("backend", None), plot_collection)
    unknown = sorted(set(visuals) - {*known, *COMMON})
    if unknown:
        raise ValueError(f"visuals has {unknown}, which this picture has not: {[*known, *COMMON]}")
    if plot_collection is not None:
        have = plot_collection.viz["plot"].coords.get("panel")
        missing = sorted(set(names) - set([] if have is None else have.values.tolist()))
        if missing:
            raise ValueError(f"plot_collection needs panels {list(names)}; it lacks {missing}")
        return [Panel(plot_collection, visuals, name) for name in names]
    figure |= {"figsize": (size[0] * DOTS, size[1] * DOTS), "figsize_units": "dots"}
    if backend == "bokeh":
        figure.pop("width_ratios", None)  # arviz-plots gives them to the panels on the right
    elif backend == "matplotlib":
        figure["layout"] = "constrained"
    figure |= more.get("figure_kwargs", {})
    if backend == "matplotlib" and figure["figsize_units"] == "dots":
        figure["figsize"] = tuple(length / DOTS for length in figure["figsize"])
        figure["figsize_units"] = "inches"
    coords = {"panel": list(names)} | ({} if chains is None else {"chain": list(chains)})
    data = xr.Dataset(
        {"picture": (list(coords), np.zeros([len(c) for c in coords.values()]))}, coords
    )
    settings = {"cols": ["panel"], "col_wrap": columns, "backend": backend} | more
    collection = collection_class.wrap(data, **settings | {"figure_kwargs": figure})
    return [Panel(collection, visuals, name) for name in names]


def finished(panels: Sequence[Panel], title: str = "") -> Any:
    """Put up the legends and the title, and return the collection."""
    first = panels[0]
    for panel in panels:
        if panel.backend == "matplotlib":
            panel.target.spines[["top", "right"]].set_visible(False)
            panel.target.grid(visible=False)
            _legend_above(panel.target)
        elif panel.backend == "bokeh" and panel.target.legend:
            legend = panel.target.legend[0]
            legend.update(orientation="horizontal", ncols=2)
            panel.target.add_layout(legend, "above")
    own = first.own("title")
    if title and own is not None:
        size = {"size": 11} if first.backend == "matplotlib" else {}
        first.collection.add_title(title, **size | own)
    return first.collection


def _legend_above(axes: Any) -> None:
    """Put Matplotlib's legend above a panel, in as many columns as are not wider than it."""
    _, names = axes.get_legend_handles_labels()
    if names:
        room = 126.0 * axes.bbox.width / axes.get_figure().dpi
        widest = max(6.0 * len(name) + 30.0 for name in names)
        ncols = min(max(1, int(room // widest)), len(names))
        axes.legend(
            frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=ncols,
            fontsize="small", borderaxespad=0.1, columnspacing=1.2, handlelength=1.6,
        )  # fmt: skip


def _marker_size(diameter: float, backend: str) -> float:
    """Size of a marker as the backend counts it."""
    if backend == "matplotlib":
        return float((0.72 * diameter) ** 2)  # points squared
    return float(diameter**2 if backend == "plotly" else diameter)


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
