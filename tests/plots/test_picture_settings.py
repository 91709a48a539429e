"""Panels, visuals, aesthetics and backends can be chosen in every picture, as in arviz-plots."""

import sys
from pathlib import Path

import pytest
from support import gallery, picture_runs
from support.drawn import drawn
from support.synthetic import gaussian_run

import pymc_tempering as pmt

PAGE = Path(__file__).parents[2] / "docs" / "gallery.md"


@pytest.fixture(scope="module")
def run():
    return gaussian_run(150, 3, random_seed=1)


@pytest.fixture(scope="module")
def fitted():
    return picture_runs.fitted_run(4)


@pytest.mark.parametrize("name", [*gallery.OF_RUNS, *gallery.OF_RESULTS])
def test_every_picture_draws_into_given_panels(name, fitted):
    def picture(**settings):
        if name in gallery.OF_RUNS:
            return gallery.OF_RUNS[name](fitted, **settings)
        return gallery.OF_RESULTS[name](**settings)

    pc = picture(backend="none")
    twin = picture(backend="none", visuals={"legend": False})
    before = len(twin.viz["plot"].values.flat[0])
    assert picture(plot_collection=twin) is twin
    assert len(twin.viz["plot"].values.flat[0]) == 2 * before > 0
    assert set(twin.viz.children) == set(pc.viz.children)
    other = pmt.plot_prior_sensitivity(picture_runs.sensitivity(), backend="none")
    if name != "prior_sensitivity":
        with pytest.raises(ValueError, match="plot_collection needs panels"):
            picture(plot_collection=other)
    with pytest.raises(ValueError, match=r"visuals has \['nonsense'\]"):
        picture(backend="none", visuals={"nonsense": {}})


def test_visuals_are_changed_and_left_out(run):
    pc = pmt.plot_ladder(
        run, backend="none", visuals={"target": False, "occupancy": {"color": "C3"}}
    )
    assert "target" not in pc.viz.children
    assert drawn(pc, "occupancy", "occupancy")["facecolor"] == "C3"


def test_aesthetics_of_chains_are_those_of_the_collection(run):
    pc = pmt.plot_round_trips(
        run, backend="none", aes={"color": ["chain"]}, color=["red", "green", "blue"]
    )
    colors = [drawn(pc, "trips", "round_trips", chain=c)["color"] for c in range(3)]
    assert colors == ["red", "green", "blue"]


def test_an_unknown_backend_is_refused(run):
    with pytest.raises(ValueError, match="backend must be one of"):
        pmt.plot_ladder(run, backend="gnuplot")


@pytest.mark.parametrize(
    ("backend", "module", "extra"),
    [
        ("matplotlib", "matplotlib.pyplot", "plots"),
        ("bokeh", "arviz_plots.backend.bokeh", "bokeh"),
        ("plotly", "arviz_plots.backend.plotly", "plotly"),
    ],
)
def test_a_missing_backend_says_what_to_install(run, monkeypatch, backend, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'pymc-tempering\[{extra}\]'"):
        pmt.plot_ladder(run, backend=backend)


def test_the_gallery_and_the_tests_have_every_picture():
    public = {name.removeprefix("plot_") for name in pmt.__all__ if name.startswith("plot_")}
    drawn = set(gallery.OF_RUNS) | set(gallery.OF_RESULTS)
    assert drawn - {"looks_of_variables"} == public
    page = PAGE.read_text(encoding="utf-8")
    assert not [name for name in public if f"pmt.plot_{name}(" not in page]
