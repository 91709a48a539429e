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


@pytest.mark.slow("picture backends", every=12)
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
    assert set(described) == set(found)


@pytest.mark.parametrize("backend", ["matplotlib", "bokeh", "plotly"])
def test_every_backend_names_what_is_drawn(runs, backend):
    collection = gallery.OF_RUNS["ladder"](runs["one chain, fitted"], backend=backend)
    if backend == "plotly":
        traces = collection.viz["figure"].item().data
        names = [trace.name for trace in traces if trace.showlegend]
    else:
        targets = [collection.get_target(None, {"panel": p}) for p in ("rejection", "occupancy")]
        if backend == "bokeh":
            names = [item.label.value for target in targets for item in target.legend[0].items]
        else:
            names = [text.get_text() for ax in targets for text in ax.get_legend().get_texts()]
    assert names == ["0.7: a gap", "rejection", "target r", "occupancy c"]
