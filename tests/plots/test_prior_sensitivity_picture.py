"""The picture of a prior sensitivity holds its numbers, marks the default, and reads in gray."""

import numpy as np
import pytest
from support.drawn import drawn, ends_of_segments, points
from support.picture_runs import sensitivity

import pymc_tempering as pmt
from pymc_tempering.plots.axes import log_ticks
from pymc_tempering.plots.sheet import BLUE, ORANGE

N, PANEL = 9, "sensitivity"


def picture(found, *args, **settings):
    return pmt.plot_prior_sensitivity(found, *args, backend="none", **settings)


def calls(pc, function):
    return [c for c in pc.viz["plot"].sel(panel=PANEL).item() if c["function"] == function]


@pytest.mark.parametrize(
    ("show", "value", "error"), [("log_z", "log_z", "mcse"), ("default", "log_bf", "log_bf_mcse")]
)
def test_line_band_and_bars_hold_the_numbers(show, value, error):
    found = sensitivity()
    pc, curve = picture(found, show=show), found["b"]
    x, y = points(drawn(pc, "curve", PANEL))
    np.testing.assert_allclose(x, np.log10(curve.values[::-1]))
    np.testing.assert_allclose(y, getattr(curve, value)[::-1])
    half = 1.959964 * getattr(curve, error)[::-1]
    band = drawn(pc, "band", PANEL, part="0")
    for name, ends in (("y_top", y + half), ("y_bottom", y - half)):
        np.testing.assert_allclose(band[name], ends, rtol=1e-6)
    _, bars = ends_of_segments(drawn(pc, "bars", PANEL))
    np.testing.assert_allclose(bars, [y - half, y + half], rtol=1e-6)
    [ticks] = calls(pc, "xticks")
    assert list(ticks["labels"]) == ["0.2", "0.5", "1", "2", "5"]
    np.testing.assert_allclose(ticks["ticks"], np.log10([0.2, 0.5, 1, 2, 5]))


def test_the_other_model_is_shown_where_there_is_one():
    _, y = points(drawn(picture(sensitivity(), "c"), "curve", PANEL))
    np.testing.assert_allclose(y, sensitivity()["c"].log_z[::-1] + 11.0)
    pc = picture(sensitivity(against=None))
    [label] = calls(pc, "ylabel")
    assert label["string"] == "log Bayes factor over the default (nats)"
    with pytest.raises(ValueError, match="no other model"):
        picture(sensitivity(against=None), show="against")
    with pytest.raises(ValueError, match="show must be one of"):
        picture(sensitivity(), show="bf")
    with pytest.raises(KeyError, match="'d'"):
        picture(sensitivity(), "d")


def gray(color):
    rgb = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return float(np.dot(rgb, (0.299, 0.587, 0.114)))


def test_default_and_fresh_runs_differ_by_more_than_color():
    pc = picture(sensitivity(), show="log_z")
    default = drawn(pc, "default", PANEL)
    assert points(default)[0].tolist() == [0.0, 0.0]
    assert default["linestyle"] == "C1"
    assert "linestyle" not in drawn(pc, "curve", PANEL)
    old, fresh = drawn(pc, "reweighted", PANEL), drawn(pc, "rerun", PANEL)
    assert (points(old)[0].size, points(fresh)[0].size) == (7, 2)
    assert old["marker"] != fresh["marker"]
    assert old["facecolor"] != fresh["facecolor"]
    assert abs(gray(BLUE) - gray(ORANGE)) > 0.05


def test_values_without_error_leave_a_gap_that_is_named():
    mcse = np.linspace(0.05, 0.2, N)
    mcse[3] = np.inf
    pc = picture(sensitivity(mcse=mcse), show="log_z")
    assert np.isnan(points(drawn(pc, "curve", PANEL))[1]).sum() == 1
    sizes = [np.size(drawn(pc, "band", PANEL, part=part)["x"]) for part in "01"]
    assert sizes == [5, 3]  # no band across the gap
    assert "gap" in pc.viz.children
    assert "gap" not in picture(sensitivity(), show="log_z").viz.children


def test_arrays_stand_by_their_number_and_without_a_default():
    found = sensitivity(kind="data", values=np.ones((N, 2)), default=np.ones(2))
    pc = picture(found, show="log_z")
    assert calls(pc, "xlabel")[0]["string"] == "b, number of the value"
    assert not calls(pc, "xticks")
    assert "default" not in pc.viz.children
    np.testing.assert_array_equal(points(drawn(pc, "curve", PANEL))[0], np.arange(N))


@pytest.mark.parametrize(("low", "high"), [(0.2, 5.0), (1e-3, 1e6), (3.0, 17.0)])
def test_ticks_of_a_log_axis_are_few_and_round(low, high):
    places, texts = log_ticks(low, high)
    assert 2 <= len(texts) <= 8
    np.testing.assert_allclose([float(t) for t in texts], 10.0 ** np.array(places))
    assert np.all(
        (10.0 ** np.array(places) > 0.98 * low) & (10.0 ** np.array(places) < 1.02 * high)
    )
