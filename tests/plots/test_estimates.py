"""The forest of estimates: order, errors, bounds, values beyond the axis; and Bayes factors."""

import numpy as np
import pandas as pd
import pytest
from support import picture_runs
from support.drawn import drawn, ends_of_segments, points
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering.crosscheck.judge import Entry
from pymc_tempering.crosscheck.result import assemble
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN
from pymc_tempering.plots.estimates import MODELS

HALF = 1.959964


@pytest.fixture(scope="module")
def run():
    return gaussian_run(150, 3, random_seed=1)


def texts(pc, visual, panel, *tags):
    """Return places and words of texts by tag."""
    found = {}
    for tag in tags:
        name = f"{visual}_{tag}"
        if name in pc.viz.children:
            d = drawn(pc, name, panel)
            found[tag] = dict(zip(np.atleast_1d(d["y"]).tolist(), d["string"], strict=True))
    return found


def ticks(pc, panel="forest"):
    """Return the labels of the rows, from the top."""
    calls = [c for c in pc.viz["plot"].sel(panel=panel).item() if c["function"] == "yticks"]
    return list(calls[-1]["labels"])


def limits(pc, panel="forest"):
    return next(c for c in pc.viz["plot"].sel(panel=panel).item() if c["function"] == "xlim")[
        "lims"
    ]


def test_forest_holds_values_errors_bounds_and_the_exact_value():
    check = picture_runs.estimates()
    pc = pmt.plot_evidence(check, exact=-5.01, backend="none")
    names = ticks(pc)
    assert names[:4] == ["ais", "elbo", "upper", "smc"]  # independent ones stand first
    assert set(names) == set(check.table.index)
    place = {name: len(names) - 1.0 - k for k, name in enumerate(names)}
    for kind, mine in ((RUN, ["rts", "ti_riemann"]), (POSTERIOR, ["bridge"]), (OWN, ["ais"])):
        rows = check.table.loc[sorted(mine, key=place.get, reverse=True)]
        x, y = points(drawn(pc, "estimate", "forest", part=kind))
        np.testing.assert_array_equal(x, rows["log_z"])
        assert y.tolist() == [place[name] for name in rows.index]
        low, high = limits(pc)
        ends, _ = ends_of_segments(drawn(pc, "interval", "forest", part=kind))
        half = HALF * rows["mcse"].to_numpy()
        wanted = np.clip([rows["log_z"] - half, rows["log_z"] + half], low, high)
        np.testing.assert_allclose(ends, wanted, rtol=1e-6)
    hollow = drawn(pc, "no_error", "forest", part=POSTERIOR)
    assert points(hollow)[0].tolist() == [-5.2]
    assert hollow["facecolor"] == "B0" != hollow["edgecolor"]
    assert points(drawn(pc, "disagrees", "forest"))[0].tolist() == [-5.43]
    assert points(drawn(pc, "exact", "forest"))[0].tolist() == [-5.01, -5.01]
    nothing = drawn(pc, "no_value", "forest")
    assert (nothing["y"].tolist(), nothing["string"]) == ([place["smc"]], ["no value"])


def test_no_line_strikes_through_the_label_of_a_value_beyond_the_axis():
    pc = pmt.plot_evidence(picture_runs.estimates(), exact=-8.0, backend="none")
    low, high = limits(pc)
    assert texts(pc, "beyond", "forest", "left")["left"]
    assert -8.0 - low > 0.13 * (high - low)
    models = {"a": -1.0, "b": -6.1, "c": -60.0}
    runs = {name: Evidence(z, 0.05, "rts", "ok") for name, z in models.items()}
    pc = pmt.plot_bayes_factors(runs, backend="none")
    low, high = limits(pc, "log_bf")
    assert -5.0 - low > 0.13 * (high - low)


def test_the_interval_of_a_bound_nearby_is_on_the_axis():
    pc = pmt.plot_evidence(picture_runs.estimates(), backend="none")
    assert limits(pc)[1] > -4.8 + HALF * 0.06


def test_bounds_point_to_where_log_z_lies():
    pc = pmt.plot_evidence(picture_runs.estimates(), backend="none")
    for part, sign, head in ((OWN, 1.0, "►"), (RUN, -1.0, "◄")):
        words = drawn(pc, "bound", "forest", part=f"{part}_head")
        assert set(words["string"]) == {head}
        value = {1.0: -5.05, -1.0: -4.8}[sign]
        assert np.all(sign * (np.asarray(words["x"]) - value) > 0.0)


def test_values_beyond_the_axis_are_arrows_and_nothing_crosses_them():
    pc = pmt.plot_evidence(picture_runs.estimates(), backend="none")
    names = ticks(pc)
    place = {name: len(names) - 1.0 - k for k, name in enumerate(names)}
    low, high = limits(pc)
    assert -6.0 < low < -5.4 < -4.8 < high < -4.0
    assert texts(pc, "beyond", "forest", "left", "right") == {
        "left": {place["elbo"]: "◄ -31.5"}, "right": {place["upper"]: "12 ►"},
    }  # fmt: skip
    for visual in pc.viz.children:
        picture = pc.viz[visual].to_dataset().get("picture")
        if picture is None or not visual.startswith(("interval", "estimate", "no_error")):
            continue
        rows = np.asarray(picture.sel(panel="forest").item()["y"], dtype=float)
        assert not {place["elbo"], place["upper"]} & set(rows.tolist())


def test_forest_is_not_stretched_by_a_far_or_wide_one():
    entries = [
        Entry("rts", Evidence(-5.0, 0.05, "rts", "ok"), RUN),
        Entry("ais", Evidence(-5.1, 0.05, "ais", "ok")),
        Entry("ti", Evidence(-90.0, 1.0, "ti", "ok", bias_direction="below"), RUN),
        Entry("smc", Evidence(7.0, np.inf, "smc", "unchecked")),
        Entry("wide", Evidence(40.0, 1000.0, "wide", "ok")),
    ]
    pc = pmt.plot_evidence(assemble(entries), backend="none")
    low, high = limits(pc)
    assert -6.0 < low < -5.2 < -4.9 < high < -4.0
    words = texts(pc, "beyond", "forest", "left", "right")
    assert set(words["left"].values()) == {"◄ -90"}
    assert set(words["right"].values()) == {"7 ►", "40 ►"}


def test_forest_takes_runs_and_estimates_by_name(run):
    value = pmt.log_marginal_likelihood(run)
    for thing, names in (
        (run, ["rts"]),
        ({"mine": run}, ["mine"]),
        ({"a": run, "b": value}, ["a", "b"]),
        (value, ["rts"]),
    ):
        pc = pmt.plot_evidence(thing, one_model=True, backend="none")
        assert ticks(pc) == names
        x, _ = points(drawn(pc, "estimate", "forest", part=RUN))
        assert set(x) == {value.log_z}
    idata = run.copy()
    with pytest.warns(pmt.TemperingWarning, match="nothing confirms it"):
        pmt.cross_check(idata, methods=["rts"], extend_inferencedata=True)
    assert ticks(pmt.plot_evidence(idata, backend="none")) == ["rts"]
    with pytest.raises(ValueError, match="at least one"):
        pmt.plot_evidence({})


def test_several_by_name_are_models_that_are_not_held_against_each_other():
    """Of whatever kind they are, as in compare."""
    runs = {str(sigma): gaussian_run(400, toy=GaussianToy(2.0, sigma)) for sigma in (0.5, 2.0)}
    found = {name: pmt.log_marginal_likelihood(run) for name, run in runs.items()}
    checks = {name: assemble([Entry("a", e), Entry("b", e)]) for name, e in found.items()}
    mixed = {"0.5": runs["0.5"], "2.0": found["2.0"]}
    for things in (runs, found, checks, mixed):
        pc = pmt.plot_evidence(things, backend="none")
        assert ticks(pc) == list(runs)
        assert points(drawn(pc, "estimate", "forest", part=MODELS))[0].size == 2
        assert not {"disagrees", "believed"} & set(pc.viz.children)
    for said in ({"exact": -2.6}, {"one_model": True}):
        of_one = pmt.plot_evidence(runs, **said, backend="none")
        assert "disagrees" in of_one.viz.children


def test_bayes_factors_and_probabilities_have_the_errors_of_the_table():
    table = pmt.compare(picture_runs.models())
    for given in (table, picture_runs.models()):
        pc = pmt.plot_bayes_factors(given, backend="none")
        x, y = points(drawn(pc, "estimate", "log_bf"))
        near = table.iloc[:-1]
        np.testing.assert_allclose(x, near["log_bf"])
        assert y.tolist() == [4.0, 3.0, 2.0, 1.0]
        ends, _ = ends_of_segments(drawn(pc, "interval", "log_bf"))
        error = np.hypot(near["mcse"], table["mcse"].iloc[0]).to_numpy(copy=True)
        error[0] = 0.0  # the best against itself
        np.testing.assert_allclose(np.ptp(ends, axis=0), 2 * HALF * error, rtol=1e-6)
        assert texts(pc, "beyond", "log_bf", "left") == {"left": {0.0: "◄ -51"}}
        x, _ = points(drawn(pc, "estimate", "probability"))
        np.testing.assert_allclose(x, table["probability"])
        ends, _ = ends_of_segments(drawn(pc, "interval", "probability"))
        half = HALF * table["p_mcse"]
        np.testing.assert_allclose(ends[1], np.minimum(table["probability"] + half, 1.0))
        assert ends.min() >= 0.0


def test_a_model_without_an_error_is_hollow():
    models = picture_runs.models() | {"short": Evidence(-10.1, np.inf, "rts", "unchecked")}
    pc = pmt.plot_bayes_factors(models, backend="none")
    x, _ = points(drawn(pc, "no_error", "log_bf"))
    np.testing.assert_allclose(x, [-0.1])
    assert "estimate" in pc.viz.children
    # One unknown error leaves every probability without one.
    assert points(drawn(pc, "no_error", "probability"))[0].size == 6


def test_bayes_factors_of_what_is_no_table():
    with pytest.raises(ValueError, match="lacks"):
        pmt.plot_bayes_factors(pd.DataFrame({"log_z": [1.0]}))
    with pytest.raises(ValueError, match="takes runs by name"):
        pmt.plot_bayes_factors(1)
    nothing = pd.DataFrame(columns=["log_z", "mcse", "probability", "p_mcse"])
    with pytest.raises(ValueError, match="plot_bayes_factors needs at least one model"):
        pmt.plot_bayes_factors(nothing)
    with pytest.raises(ValueError, match="at least one"):
        pmt.plot_bayes_factors({})
