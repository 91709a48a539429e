"""Legends above the panels of a picture, in each backend's own way."""

from collections.abc import Callable
from typing import Any

NAN = float("nan")


def show_legends(sheet: Any) -> None:
    """Put a legend above each panel that has entries."""
    show = SHOW.get(sheet.backend)
    if show is None:
        return
    for number, (panel, entries) in enumerate(sheet.entries.items(), start=1):
        for label, settings in entries:
            _sample(sheet, panel, settings, _named(sheet.backend, label, number))
        show(sheet.target(panel), number)


def _sample(sheet: Any, panel: str, settings: dict[str, Any], named: dict[str, Any]) -> None:
    """Draw an entry's line or marker at no place, so that it stands in the legend alone."""
    kind = "scatter" if settings["kind"] == "scatter" else "line"
    kept = {"color", "alpha", "marker", "facecolor", "edgecolor", "size"}
    if kind == "line":
        kept = {"color", "alpha", "linestyle", "width"}
        if settings["kind"] in ("fill_between_y", "hist"):
            settings = settings | {"width": 6}
    own = {name: value for name, value in settings.items() if name in kept}
    getattr(sheet.drawer, kind)([NAN], [NAN], sheet.target(panel), **own, **named)


def _named(backend: str, label: str, number: int) -> dict[str, Any]:
    if backend == "plotly":
        place = {} if number == 1 else {"legend": f"legend{number}"}
        return {"name": label, "showlegend": True} | place
    return {"label" if backend == "matplotlib" else "legend_label": label}


def _matplotlib(axes: Any, number: int) -> None:
    axes.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, fontsize="small",
        borderaxespad=0.1, columnspacing=1.2, handlelength=1.6,
    )  # fmt: skip


def _bokeh(figure: Any, number: int) -> None:
    legend = figure.legend[0]
    legend.update(
        orientation="horizontal", border_line_color=None, background_fill_alpha=0.0,
        padding=0, margin=4, spacing=8, label_text_font_size="11px", glyph_width=14,
    )  # fmt: skip
    figure.add_layout(legend, "above")


def _plotly(cell: Any, number: int) -> None:
    panel = cell.figure.get_subplot(cell.row, cell.col)
    place = {
        "orientation": "h", "x": panel.xaxis.domain[0], "y": panel.yaxis.domain[1],
        "xanchor": "left", "yanchor": "bottom", "bgcolor": "rgba(0, 0, 0, 0)", "font": {"size": 11},
    }  # fmt: skip
    cell.figure.update_layout({"legend" if number == 1 else f"legend{number}": place})


SHOW: dict[str, Callable[[Any, int], None]] = {
    "matplotlib": _matplotlib,
    "bokeh": _bokeh,
    "plotly": _plotly,
}
"""How each backend shows the legend of one panel."""
