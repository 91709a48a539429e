"""The picture of a prior sensitivity holds its numbers, marks the default, and reads in gray."""

import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

import pymc_tempering as pmt
from pymc_tempering.evidence.prior_curves import PriorSensitivity
from pymc_tempering.evidence.sensitivity_curve import SensitivityCurve
from pymc_tempering.plots import BLUE, ORANGE

N = 9


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def sensitivity(against=(-11.0, 0.3), **changes):
    values = {
        "name": "b",
        "kind": "scale",
        "values": np.geomspace(5.0, 0.2, N),  # in no order that the axis has
        "default": np.array(1.0),
        "log_z": -10.0 - np.linspace(-1.0, 1.5, N) ** 2,
        "mcse": np.linspace(0.05, 0.2, N),
        "log_bf": -(np.linspace(-1.0, 1.5, N) ** 2),
        "log_bf_mcse": np.linspace(0.04, 0.3, N),
        "ess": np.full(N, 900.0),
        "khat": np.linspace(0.1, 0.9, N),
        "khat_limit": 0.7,
        "source": ("reweighted",) * 7 + ("rerun",) * 2,
    }
    curve = SensitivityCurve(**(values | changes))
    return PriorSensitivity(-10.0, 0.05, "ok", (curve, replace(curve, name="c")), against)


def numbers(ax):
    """Values of the line, and the ends of its band, in the order of the axis."""
    [band] = [c for c in ax.collections if c.get_label() == "95 % interval"]
    x, y = ax.lines[0].get_data()
    ends = band.get_paths()[0].vertices
    return np.asarray(x), np.asarray(y), ends


@pytest.mark.parametrize(
    ("show", "value", "error"),
    [
        ("log_z", "log_z", "mcse"),
        ("default", "log_bf", "log_bf_mcse"),
    ],
)
def test_line_and_band_hold_the_numbers(show, value, error):
    found = sensitivity()
    ax = pmt.plot_prior_sensitivity(found, show=show)
    x, y, ends = numbers(ax)
    curve = found["b"]
    np.testing.assert_allclose(x, curve.values[::-1])
    np.testing.assert_allclose(y, getattr(curve, value)[::-1])
    top = getattr(curve, value) + 1.959964 * getattr(curve, error)
    assert ends[:, 1].max() == pytest.approx(top.max())
    assert ax.get_xscale() == "log"
    ax.figure.canvas.draw()


def test_the_other_model_is_shown_where_there_is_one():
    _, y, _ = numbers(pmt.plot_prior_sensitivity(sensitivity(), "c"))
    np.testing.assert_allclose(y, sensitivity()["c"].log_z[::-1] + 11.0)
    ax = pmt.plot_prior_sensitivity(sensitivity(against=None))
    assert ax.get_ylabel() == "log Bayes factor over the default (nats)"
    with pytest.raises(ValueError, match="no other model"):
        pmt.plot_prior_sensitivity(sensitivity(against=None), show="against")
    with pytest.raises(ValueError, match="show must be one of"):
        pmt.plot_prior_sensitivity(sensitivity(), show="bf")
    with pytest.raises(KeyError, match="'d'"):
        pmt.plot_prior_sensitivity(sensitivity(), "d")


def gray(color):
    return float(np.dot(to_rgb(color), (0.299, 0.587, 0.114)))


def test_default_and_fresh_runs_differ_by_more_than_color():
    ax = pmt.plot_prior_sensitivity(sensitivity(), show="log_z")
    labels = [text.get_text() for text in ax.get_legend().texts]
    assert {"95 % interval", "reweighted", "fresh run", "default"} <= set(labels)
    [mark] = [line for line in ax.lines if line.get_label() == "default"]
    assert list(mark.get_xdata()) == [1.0, 1.0]
    assert mark.get_linestyle() == "--" != ax.lines[0].get_linestyle()
    shapes = {bars.lines[0].get_marker() for bars in ax.containers}
    assert shapes == {"o", "s"}
    assert abs(gray(BLUE) - gray(ORANGE)) > 0.05


def test_values_without_error_leave_a_gap_that_is_named():
    mcse = np.linspace(0.05, 0.2, N)
    mcse[3] = np.inf
    ax = pmt.plot_prior_sensitivity(sensitivity(mcse=mcse), show="log_z")
    assert np.isnan(numbers(ax)[1]).sum() == 1
    assert "gap: no error can be stated" in [t.get_text() for t in ax.get_legend().texts]
    ax.figure.canvas.draw()


def test_arrays_stand_by_their_number_and_without_a_default():
    found = sensitivity(kind="data", values=np.ones((N, 2)), default=np.ones(2))
    ax = pmt.plot_prior_sensitivity(found, show="log_z", figsize=(4, 2))
    assert ax.get_xlabel() == "b, number of the value"
    assert ax.get_xscale() == "linear"
    assert "default" not in [t.get_text() for t in ax.get_legend().texts]
    assert tuple(ax.figure.get_size_inches()) == (4, 2)
    assert pmt.plot_prior_sensitivity(found, ax=ax) is ax


def test_missing_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'pymc-tempering\[plots\]'"):
        pmt.plot_prior_sensitivity(sensitivity())
