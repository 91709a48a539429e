"""Legends above the panels of a picture, in each backend's own way."""

from collections.abc import Callable
from typing import Any

NAN = float("nan")
ROW = 19.0
"""Dots from one row of Plotly's entries to the next."""
GAP = 8.0
"""Dots that Plotly leaves between entries, beyond their width."""


def show_legends(sheet: Any) -> None:
    """Put a legend above each panel that has entries."""
    show = SHOW.get(sheet.backend)
    if show is None:
        return
    for number, (panel, entries) in enumerate(sheet.entries.items(), start=1):
        for label, settings in entries:
            _sample(sheet, panel, settings, _named(sheet.backend, label, number))
        show(sheet.target(panel), number, _neighbors(sheet, panel) > 0)


def _neighbors(sheet: Any, panel: str) -> int:
    """Count the panels right of one that have legends too, into which a long one would run."""
    rows, columns = (sheet.collection.viz[name] for name in ("row_index", "col_index"))
    own = {"panel": panel}
    right = (rows == rows.sel(own).item()) & (columns > columns.sel(own).item())
    return len({str(name) for name in rows["panel"].values[right.values]} & set(sheet.entries))


def _sample(sheet: Any, panel: str, settings: dict[str, Any], named: dict[str, Any]) -> None:
    """Draw an entry's line or marker at no place, so that it stands in the legend alone."""
    kind = "scatter" if settings["kind"] == "scatter" else "line"
    kept = {"color", "alpha", "marker", "facecolor", "edgecolor", "size", "width"}
    if kind == "line":
        kept = {"color", "alpha", "linestyle", "width"}
        if settings["kind"] in ("fill_between_y", "hist"):
            settings = settings | {"width": 6}
    own = {name: value for name, value in settings.items() if name in kept}
    getattr(sheet.drawer, kind)([NAN], [NAN], sheet.target(panel), **own, **named)


def _named(backend: str, label: str, number: int) -> dict[str, Any]:
    if backend == "plotly":
        return {"name": label, "showlegend": True, "legend": _plotlys(number)}
    return {"label" if backend == "matplotlib" else "legend_label": label}


def _matplotlib(axes: Any, number: int, crowded: bool) -> None:
    place = axes.get_subplotspec()
    ratios = place.get_gridspec().get_width_ratios()
    share = ratios[place.colspan.start] / sum(ratios)
    _, names = axes.get_legend_handles_labels()
    room = axes.get_figure().get_figwidth() * 100.0 * share - 60.0
    # More would run over the panel's right edge, and the layout would make the panel narrower.
    ncols = max(1, int(room // max(_width(name) for name in names)))
    axes.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=min(ncols, len(names)),
        fontsize="small", borderaxespad=0.1, columnspacing=1.2, handlelength=1.6,
    )  # fmt: skip


def _bokeh(figure: Any, number: int, crowded: bool) -> None:
    legend = figure.legend[0]
    room = (figure.width or 600) - 60
    widest = max(_width(item.label.value) for item in legend.items)
    legend.update(
        orientation="horizontal", location="top_left", ncols=max(1, int(room // widest)),
        border_line_color=None, background_fill_alpha=0.0, padding=0, margin=4, spacing=8,
        label_text_font_size="11px", glyph_width=22, glyph_height=14, label_height=14,
    )  # fmt: skip
    figure.add_layout(legend, "above")


def _plotly(cell: Any, number: int, crowded: bool) -> None:
    """Put one legend a row of entries: Plotly breaks rows at the figure's edge, not the panel's."""
    figure = cell.figure
    panel = figure.get_subplot(cell.row, cell.col)
    left, right = panel.xaxis.domain
    traces = [t for t in figure.data if t.showlegend and t.legend == _plotlys(number)]
    end = right if crowded else 1.0
    rows = _rows([t.name for t in traces], (end - left) * ((figure.layout.width or 700) - 95))
    for row in set(rows):
        name = _plotlys(100 * row + number)
        for trace in (t for t, own in zip(traces, rows, strict=True) if own == row):
            trace.legend = name
        above = ROW * (max(rows) - row) / ((figure.layout.height or 450) - 145)
        figure.update_layout({name: {
            "x": left, "xanchor": "left", "y": panel.yaxis.domain[1] + above, "yanchor": "bottom",
            "orientation": "h", "bgcolor": "rgba(255, 255, 255, 0.5)", "font": {"size": 11},
            "traceorder": "normal",
        }})  # fmt: skip


def room_above(figure: Any, title: bool, legends: bool) -> None:
    """Leave room above Plotly's panels for its buttons, the title and all rows of a legend."""
    names = [trace.legend or "legend" for trace in figure.data if trace.showlegend]
    rows = max((int(name.removeprefix("legend") or 1) // 100 for name in names), default=0)
    top = 90 if title else 62 if legends else 45
    figure.update_layout(
        margin={"t": top + ROW * rows, "b": 55, "l": 70, "r": 25},
        height=(figure.layout.height or 450) + ROW * rows,
    )


def _plotlys(number: int) -> str:
    """Name of a legend, as Plotly counts them."""
    return "legend" if number == 1 else f"legend{number}"


def _rows(texts: list[str], room: float) -> list[int]:
    """Row of each entry, where a row holds what has room in it."""
    rows, used = [0], _width(texts[0]) + GAP
    for text in texts[1:]:
        used += _width(text) + GAP
        fits = used < room
        rows.append(rows[-1] + (not fits))
        used = used if fits else _width(text) + GAP
    return rows


def _width(text: str) -> float:
    """Dots that an entry takes, about."""
    return 6.0 * len(text) + 30.0


SHOW: dict[str, Callable[[Any, int, bool], None]] = {
    "matplotlib": _matplotlib,
    "bokeh": _bokeh,
    "plotly": _plotly,
}
"""How each backend shows the legend of one panel."""
