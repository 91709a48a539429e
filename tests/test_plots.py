"""The pictures hold the numbers of the diagnosis and mark the tours; looked at by eye besides."""

import sys
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import pymc_tempering as pmt
from pymc_tempering.datatree import read_cycles
from pymc_tempering.plots import BLUE, ORANGE
from pymc_tempering.synthetic import GaussianToy, gaussian_run


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def run():
    return gaussian_run(150, 3, random_seed=1)


@pytest.mark.parametrize("converted", [False, True])
def test_ladder_panels_hold_the_table(run, converted):
    table = pmt.diagnose(run).table
    figure = pmt.plot_ladder(pmt.convert(run) if converted else run)
    betas, rejection, occupancy, barrier = figure.axes
    np.testing.assert_array_equal(betas.lines[0].get_ydata(), table["beta"])
    heights = [bar.get_height() for bar in rejection.patches]
    np.testing.assert_allclose(heights, table["rejection"][:-1])
    # between the two rungs that the rejection belongs to
    centers = [bar.get_x() + bar.get_width() / 2 for bar in rejection.patches]
    np.testing.assert_allclose(centers, np.arange(4) + 0.5)
    shares = [bar.get_height() for bar in occupancy.patches[:5]]
    np.testing.assert_allclose(shares, table["occupancy"])
    np.testing.assert_allclose(barrier.lines[0].get_ydata(), table["barrier"])
    figure.canvas.draw()


def test_a_gap_has_another_color():
    idata = gaussian_run(100, betas=[0.0, 0.001, 1.0], toy=GaussianToy(2.0, 0.05))
    rejection = pmt.plot_ladder(idata).axes[1]
    assert [to_hex(bar.get_facecolor()).upper() for bar in rejection.patches] == [BLUE, ORANGE]


def test_ladder_is_drawn_into_given_axes(run):
    figure, axes = plt.subplots(2, 2)
    assert pmt.plot_ladder(run, axes=axes) is figure
    assert all(ax.get_ylabel() for ax in axes.ravel())
    with pytest.raises(ValueError, match="four panels"):
        pmt.plot_ladder(run, axes=axes[0])


@pytest.mark.parametrize("betas", [[0.0, 1.0], [0.0, 0.5, 1.0], [0.0, 1e-12, 1e-6, 1.0]])
def test_few_rungs_and_many_decades_are_drawn(betas):
    figure = pmt.plot_ladder(gaussian_run(50, 2, betas=betas))
    figure.canvas.draw()
    ticks = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert 2 <= len(ticks) <= 9
    assert "0" in ticks or "0.0" in ticks


def starts_and_line(ax):
    line, marks = ax.lines
    return np.asarray(marks.get_xdata()), np.asarray(line.get_ydata())


def test_trace_marks_the_starts_of_the_counted_tours(run):
    for chain, trips in enumerate(pmt.diagnose(run).round_trips):
        ax = pmt.plot_temperature_trace(run, chain=chain, max_iterations=10**6)
        starts, rung = starts_and_line(ax)
        assert starts.size == trips + 1
        assert set(rung[starts]) == {0}
        assert np.sum(rung == 4) == 150
        # between two marks the chain was at beta = 1
        assert all(4 in rung[a:b] for a, b in pairwise(starts))
        assert f"{trips} complete round trips" in ax.get_legend().texts[0].get_text()


def test_trace_is_cut_where_asked(run):
    _, rung = starts_and_line(pmt.plot_temperature_trace(run, chain=1, max_iterations=40))
    assert rung.tolist() == run["tempering_trace"]["rung"].values[1, :40].tolist()


def test_without_the_trace_the_hottest_rungs_are_drawn(run):
    bare = run.copy()
    del bare["tempering_trace"]
    stats = read_cycles(run)
    ax = pmt.plot_temperature_trace(bare, chain=2)
    starts, rung = starts_and_line(ax)
    np.testing.assert_allclose(stats.beta[rung], stats.beta_min[2])
    np.testing.assert_array_equal(starts, np.flatnonzero(stats.tour_start[2]))
    assert ax.get_xlabel() == "recorded draw"


def test_trace_is_drawn_into_given_axes_and_sizes(run):
    _, ax = plt.subplots()
    assert pmt.plot_temperature_trace(run, ax=ax) is ax
    figure = pmt.plot_temperature_trace(run, figsize=(4, 2), backend_kwargs={"dpi": 50}).figure
    assert (tuple(figure.get_size_inches()), figure.dpi) == ((4, 2), 50)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"chain": 3}, r"0\.\.2"), ({"max_iterations": 0}, "at least 1")]
)
def test_bad_arguments_are_refused(run, arguments, message):
    with pytest.raises(ValueError, match=message):
        pmt.plot_temperature_trace(run, **arguments)


@pytest.mark.parametrize("plot", [pmt.plot_ladder, pmt.plot_temperature_trace])
def test_missing_matplotlib_says_what_to_install(run, monkeypatch, plot):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'pymc-tempering\[plots\]'"):
        plot(run)
