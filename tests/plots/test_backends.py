"""Matplotlib, Bokeh and Plotly are given the same numbers, by every picture."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from support import gallery, picture_runs
from support.drawn import all_drawn, has_points, points


@pytest.fixture(scope="module")
def runs():
    return {
        "one chain, fitted": picture_runs.fitted_run(1),
        "16 chains, prior": picture_runs.prior_run(16, 60),
    }


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def cases():
    for name in gallery.OF_RUNS:
        for kind in ("one chain, fitted", "16 chains, prior"):
            if not name.startswith("looks") or "fitted" in kind:
                yield name, kind
    for name in gallery.OF_RESULTS:
        yield name, ""


@pytest.mark.parametrize("backend", ["matplotlib", "bokeh", "plotly"])
@pytest.mark.parametrize(("name", "kind"), list(cases()))
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_backends_get_the_numbers_of_the_description(runs, name, kind, backend):
    def picture(backend):
        if name in gallery.OF_RUNS:
            return gallery.OF_RUNS[name](runs[kind], backend=backend)
        return gallery.OF_RESULTS[name](backend=backend)

    described, found = all_drawn(picture("none")), all_drawn(picture(backend))
    compared = 0
    for place, description in described.items():
        if has_points(description):
            for a, b in zip(points(description), points(found[place]), strict=True):
                np.testing.assert_array_equal(a, b, err_msg=str(place))
            compared += 1
    assert compared >= 1
    # Matplotlib's texts are stored one by one; all else is the same.
    words = ("names", "half", "numbers", "beyond", "bound", "no_value")
    plain = [{p for p in d if not p[0].startswith(words)} for d in (described, found)]
    assert plain[0] == plain[1]


def test_a_long_legend_of_plotly_takes_rows_of_its_panel(runs):
    """The first panel of a summary has four entries, which are wider than the panel."""
    collection = gallery.OF_RUNS["summary"](runs["one chain, fitted"], backend="plotly")
    figure = collection.viz["figure"].item()
    names = {trace.legend or "legend" for trace in figure.data if trace.showlegend}
    places = {(figure.layout[name].x, figure.layout[name].y): [] for name in names}
    assert len(places) == len(names) == 9  # seven panels with a legend, two of them with two rows
    for trace in figure.data:
        if trace.showlegend:
            legend = figure.layout[trace.legend or "legend"]
            places[legend.x, legend.y].append(trace.name)
    assert ["looks from the prior"] in places.values()
    for place, entries in places.items():
        row_end = place[0] * 1005 + sum(6 * len(entry) + 30 for entry in entries)
        assert row_end < (1005 if place[0] > 0.5 else 0.55 * 1005), entries


def test_the_last_of_bokehs_traces_has_room_for_its_axis(runs):
    collection = gallery.OF_RUNS["temperature_trace"](runs["16 chains, prior"], backend="bokeh")
    panels = collection.data["panel"].values
    heights = [collection.get_target(None, {"panel": name}).height for name in panels]
    assert set(heights[:-1]) == {heights[0]}
    assert heights[-1] > heights[0] + 30


@pytest.mark.parametrize("backend", ["bokeh", "plotly"])
def test_no_grid_strikes_through_texts(backend):
    collection = gallery.OF_RESULTS["evidence"](backend=backend)
    for panel in ("forest", "numbers"):
        target = collection.get_target(None, {"panel": panel})
        if backend == "bokeh":
            assert not any(grid.visible for grid in target.grid)
        else:
            axes = target.figure.get_subplot(target.row, target.col)
            assert not any((axes.xaxis.showgrid, axes.yaxis.showgrid))


def test_plotly_has_room_for_the_rows_of_a_legend_below_its_buttons():
    """The legend of the evidence takes two rows, that of Bayes factors one."""
    made = [gallery.OF_RESULTS[n](backend="plotly") for n in ("evidence", "bayes_factors")]
    two, one = (collection.viz["figure"].item().layout.margin.t for collection in made)
    assert two == one + 19


def test_the_title_of_plotly_stands_left_of_its_buttons(runs):
    figure = gallery.OF_RUNS["log_z"](runs["one chain, fitted"], backend="plotly").viz["figure"]
    title = figure.item().layout.title
    assert (title.x, title.xanchor) == (0.0, "left")


def test_a_cross_of_plotly_does_not_hide_what_it_crosses():
    collection = gallery.OF_RESULTS["evidence"](backend="plotly")
    cross = collection.viz["disagrees"]["picture"].sel(panel="forest").item()
    assert cross.marker.symbol == "x-thin-open"


def test_bars_of_bokeh_have_no_edges_that_hide_them():
    """Where rungs are many, edges made of the barrier's area a comb."""
    collection = gallery.OF_RUNS["barrier"](picture_runs.prior_run(1, 60), backend="bokeh")
    bars = collection.viz["steps"]["picture"].sel(panel="barrier").item()
    assert bars.glyph.line_color is None
