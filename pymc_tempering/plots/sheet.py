"""The panels of a picture, drawn into in the same words for every backend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partialmethod
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
    words : str
        What the panel shows of this run, below the name of its horizontal axis.
    """

    collection: Any
    visuals: Mapping[str, Style]
    name: str
    words: str = ""

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

    def curves(self, visual: str, x: Any, rows: Any, **more: Any) -> None:
        """Draw each of ``rows`` as a line of its own, but all as one visual."""
        pairs = np.array(np.broadcast_arrays(x, rows), dtype=float)
        gaps = np.pad(pairs, [(0, 0), (0, 0), (0, 1)], constant_values=np.nan)
        self.line(visual, *gaps.reshape(2, -1), **more)

    def segments(self, visual: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> None:
        """Draw separate lines as one visual, from the first of ``x`` and ``y`` to the second."""
        ends = np.array(np.broadcast_arrays(*x, *y)).reshape(4, -1)
        self.curves(visual, ends[:2].T, ends[2:].T, **more)

    def _draw(
        self,
        kind: str,
        visual: str,
        *values: Any,
        chain: Any = None,
        part: str = "",
        label: str = "",
        **properties: Any,
    ) -> None:
        """Draw by the backend's function `kind`, with the user's properties over ours.

        Numbers stand for all places. Where there are no values nothing is drawn.
        """
        own, backend = self.own(visual), self.backend
        if kind != "hline":  # which takes a number
            values = tuple(np.array(each, ndmin=1) for each in np.broadcast_arrays(*values))
        if own is None or not np.size(values[0]):
            return
        if chain is not None and "chain" not in self.collection.data.dims:
            part, chain = str(chain), None
        if chain is not None:
            aes, at = sorted(self.collection.aes_set), {"chain": chain}
            properties |= self.collection.get_aes_kwargs(aes, None, at)
        settings = properties | own
        if kind == "scatter":
            settings["size"] = _marker_size(settings.get("size", 7.0), backend)
        if backend == "matplotlib":
            # Edges hide narrow bars.
            small: dict[str, Any] = {"hist": {"edgecolor": "none"}, "text": {"size": 9}}
            settings = small.get(kind, {}) | settings
        if label and backend in LABEL and self.own("legend") is not None:
            settings[LABEL[backend]] = label
            settings |= {"showlegend": True} if backend == "plotly" else {}
        function = getattr(self.drawer, kind)
        if kind == "text" and backend == "matplotlib":
            artist = [function(*one, self.target, **settings) for one in zip(*values, strict=True)]
        else:
            artist = function(*values, self.target, **settings)
        self._keep(f"{visual}_{part}" if part else visual, artist, chain)

    # Each takes the visual and its values: x and y, then what is between two curves or a text.
    line = partialmethod(_draw, "line", color=BLUE, width=1.4)
    guide = partialmethod(_draw, "line", color="B1", width=1.2, linestyle="C1")
    level = partialmethod(_draw, "hline")
    dots = partialmethod(_draw, "scatter", color=BLUE)
    rings = partialmethod(_draw, "scatter", color=BLUE, facecolor="B0", width=1.4)
    band = partialmethod(_draw, "fill_between_y", color=BLUE, alpha=0.25)
    bars = partialmethod(_draw, "hist", color=GRAY)
    texts = partialmethod(_draw, "text")

    def _keep(self, visual: str, artist: Any, chain: Any) -> None:
        """Store what was drawn in the ``viz`` of the collection, by panel and chain."""
        collection, place = self.collection, {"panel": self.name}
        if chain is not None:
            place["chain"] = chain
        if visual not in collection.viz.children:
            cells = xr.broadcast(*(collection.data[name] for name in place))[0]
            collection.allocate_artist(visual, {"picture": cells}, list(place))
        cell = np.empty((), dtype=object)
        cell[()] = artist
        collection.viz[visual]["picture"].loc[place] = cell

    def axes(self, xlabel: str = "", ylabel: str = "", **places: Any) -> None:
        """Name axes; set their ends, ``x`` and ``y``; put texts at ``xticks`` and ``yticks``.

        Ends are two numbers, ticks are two sequences: places and texts there.
        """
        for axis, name in (("x", xlabel), ("y", ylabel)):
            own = self.own(f"{axis}label")
            if name and own is not None:
                end = "<br>" if self.backend == "plotly" else "\n"
                name += f"{end}{self.words}" if self.words and axis == "x" else ""
                getattr(self.drawer, f"{axis}label")(name, self.target, **own)
            if axis in places:
                low, high = map(float, places[axis])
                getattr(self.drawer, f"{axis}lim")((low, high), self.target)
            if f"{axis}ticks" in places:
                at, texts = places[f"{axis}ticks"]
                ticks = [float(place) for place in at], [str(text) for text in texts]
                getattr(self.drawer, f"{axis}ticks")(*ticks, self.target)


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
    given, visuals = more.pop("plot_collection", None), dict(more.pop("visuals", None) or {})
    collection_class, backend = _arviz_plots(more.pop("backend", None), given)
    unknown = sorted(set(visuals) - {*known, *COMMON})
    if unknown:
        raise ValueError(f"visuals has {unknown}, which this picture has not: {[*known, *COMMON]}")
    if given is not None:
        have = np.asarray(given.viz["plot"].coords.get("panel", []))
        missing = sorted(set(names) - set(have.tolist()))
        if missing:
            raise ValueError(f"plot_collection needs panels {list(names)}; it lacks {missing}")
        return [Panel(given, visuals, name) for name in names]
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
    cells = np.zeros([len(cells) for cells in coords.values()])
    data = xr.Dataset({"picture": (list(coords), cells)}, coords)
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
