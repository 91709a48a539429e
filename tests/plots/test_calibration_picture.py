"""The picture of a calibration holds the numbers of its tables; its band is that of the test."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support.drawn import drawn, ends_of_segments, points
from support.picture_runs import calibration

import pymc_tempering as pmt


def test_bars_and_dots_are_those_of_the_curve():
    found = calibration()
    for model in (None, "a"):
        pc, curve = pmt.plot_calibration(found, model, backend="none"), found.curve(model)
        x, y = points(drawn(pc, "share", "curve"))
        np.testing.assert_allclose(x, curve["probability"])
        np.testing.assert_allclose(y, curve["share"])
        _, bars = ends_of_segments(drawn(pc, "bars", "curve"))
        np.testing.assert_allclose(bars, [curve["low"], curve["high"]])
    with pytest.raises(ValueError, match="model must be one of 'a', 'b'"):
        pmt.plot_calibration(found, "c", backend="none")


def test_a_line_leaves_the_band_where_its_test_says_so():
    """Up to the grid of the line, and to the limit law that the band is of."""
    found = calibration()
    pc = pmt.plot_calibration(found, backend="none")
    _, y = points(drawn(pc, "ranks", "ranks"))
    lines = y.reshape(len(found.ranks), -1)
    half = float(np.ravel(drawn(pc, "band", "ranks")["y_top"])[0])
    for line, u in zip(lines, found.ranks.values(), strict=True):
        exact = np.sqrt(len(u)) * stats.kstest(u, "uniform").statistic
        assert abs(np.nanmax(abs(line)) - exact) < 0.1
        if abs(exact - half) > 0.1:
            p = len(found.ranks) * stats.kstest(u, "uniform").pvalue
            assert (np.nanmax(abs(line)) > half) == (p < 0.01)
    assert np.sum(np.nanmax(abs(lines), axis=1) > half) == 1


def test_without_ranks_it_says_so():
    pc = pmt.plot_calibration(replace(calibration(), ranks={}), backend="none")
    assert "no_ranks" in pc.viz.children
    assert "band" not in pc.viz.children
