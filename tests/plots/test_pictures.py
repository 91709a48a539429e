"""The pictures hold the numbers of the diagnosis and mark the tours; looked at by eye besides."""

import sys
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import pymc_tempering as pmt
from pymc_tempering.crosscheck import Entry
from pymc_tempering.crosscheck.assemble import assemble
from pymc_tempering.crosscheck.judge import OWN, POSTERIOR, RUN
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.synthetic import GaussianToy, gaussian_run
from pymc_tempering.plots import BLUE, ORANGE


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


@pytest.mark.parametrize(
    "plot", [pmt.plot_ladder, pmt.plot_temperature_trace, pmt.plot_log_z, lambda run: forest(run)]
)
def test_missing_matplotlib_says_what_to_install(run, monkeypatch, plot):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'pymc-tempering\[plots\]'"):
        plot(run)


def forest(run):
    return pmt.plot_evidence({"rts": pmt.log_marginal_likelihood(run)})


def estimates():
    """A cross-check with every kind of row: bounds, no error, no value, a disagreement."""
    rows = [
        ("rts", -5.0, 0.05, RUN, ""),
        ("riemann", -4.8, 0.06, RUN, "above"),
        ("bridge", -5.43, 0.004, POSTERIOR, ""),
        ("importance", -5.2, np.inf, POSTERIOR, ""),
        ("ais", -5.05, 0.03, OWN, "below"),
        ("smc", -np.inf, np.inf, OWN, ""),
    ]
    entries = [
        Entry(name, Evidence(z, e, name, "ok", bias_direction=side), draws)
        for name, z, e, draws, side in rows
    ]
    return assemble(entries, [0.1] * len(entries), {})


def test_forest_holds_values_errors_bounds_and_the_exact_value():
    check = estimates()
    ax = pmt.plot_evidence(check, exact=-5.01)
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.get_yticklabels()] == list(check.table.index)
    dots = [line for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata())]
    drawn = check.table[np.isfinite(check.table["log_z"])]
    np.testing.assert_array_equal([d.get_xdata()[0] for d in dots], drawn["log_z"])
    hollow = [to_hex(d.get_markerfacecolor()) == "#ffffff" for d in dots]
    assert hollow == list(~np.isfinite(drawn["mcse"]))
    assert sum(hollow) == 1
    bars = [np.ptp(line.get_xdata()) for line in ax.lines if line.get_linewidth() == 2.0]
    errors = drawn["mcse"][np.isfinite(drawn["mcse"])]
    np.testing.assert_allclose(bars, 2 * 1.96 * errors, rtol=1e-3)
    crossed = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "x"]
    assert crossed == [-5.43]
    arrows = [text for text in ax.texts if text.arrow_patch is not None]
    sides = {"below": 1.0, "above": -1.0}
    wanted = [sides[side] for side in drawn["bias_direction"] if side]
    assert [np.sign(a.xy[0] - a.xyann[0]) for a in arrows] == wanted
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"] == [-5.01]
    assert "no value" in [text.get_text() for text in ax.texts]


def test_forest_is_not_stretched_by_a_far_bound():
    entries = [
        Entry("rts", Evidence(-5.0, 0.05, "rts", "ok"), RUN),
        Entry("ais", Evidence(-5.1, 0.05, "ais", "ok")),
        Entry("ti", Evidence(-90.0, 1.0, "ti", "ok", bias_direction="below"), RUN),
        Entry("smc", Evidence(7.0, np.inf, "smc", "unchecked")),
        Entry("wide", Evidence(40.0, 1000.0, "wide", "ok")),
    ]
    ax = pmt.plot_evidence(assemble(entries, [0.1] * 5, {}))
    low, high = ax.get_xlim()
    assert -6.0 < low < -5.2 < -4.9 < high < -4.0
    assert {"\N{LEFTWARDS ARROW} -90", "7 \N{RIGHTWARDS ARROW}"} <= {t.get_text() for t in ax.texts}


def test_forest_reads_a_datatree_and_takes_estimates(run):
    idata = run.copy()
    alone = pmt.plot_evidence(idata)
    assert [text.get_text() for text in alone.get_yticklabels()] == ["rts"]
    with pytest.warns(pmt.TemperingWarning, match="nothing confirms it"):
        pmt.cross_check(idata, methods=["rts"])
    _, ax = plt.subplots()
    assert pmt.plot_evidence(idata, ax=ax) is ax
    same = pmt.plot_evidence({"rts": pmt.log_marginal_likelihood(run)}, figsize=(4, 2))
    value = pmt.log_marginal_likelihood(run).log_z
    assert {
        line.get_xdata()[0]
        for a in (ax, same)
        for line in a.lines
        if line.get_marker() == "o" and len(line.get_xdata())
    } == {value}
    with pytest.raises(ValueError, match="at least one"):
        pmt.plot_evidence({})


def test_curve_has_its_band_and_the_exact_one(run):
    toy = GaussianToy()
    ax = pmt.plot_log_z(run, exact=toy.log_z)
    evidence = pmt.log_marginal_likelihood(run)
    by_name = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_array_equal(by_name["rts"], evidence.log_z_curve)
    np.testing.assert_allclose(by_name["exact"], toy.log_z(evidence.betas))
    band = ax.collections[0].get_paths()[0].vertices
    half = 1.96 * evidence.log_z_curve_mcse[-1]
    at_top = band[band[:, 0] == evidence.betas.size - 1][:, 1]
    ends = [evidence.log_z - half, evidence.log_z + half]
    np.testing.assert_allclose([at_top.min(), at_top.max()], ends, rtol=1e-3)
    labels = [text.get_text() for text in ax.get_xticklabels()]
    assert (labels[0], labels[-1]) == ("0", "1")


def test_curve_without_error_says_so():
    short = gaussian_run(10, 1, random_seed=1)
    with pytest.warns(pmt.TemperingWarning):
        ax = pmt.plot_log_z(short)
    assert not ax.collections
    assert "no error can be stated" in [text.get_text() for text in ax.get_legend().texts]
    with pytest.raises(ValueError, match="'ais' has no curve"):
        pmt.plot_log_z(Evidence(0.0, 0.1, "ais", "ok"))
