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
            if name != "looks" or "fitted" in kind:
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
