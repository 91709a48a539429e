"""Posterior expectations from the states of all rungs, with the error that they state."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from support.repeated_runs import GAUSSIAN_TOY, repeated_trees
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering import evidence as ev
from pymc_tempering.evidence.datatree import probabilities_of
from pymc_tempering.exceptions import NotTemperedError, TemperingWarning


@cache
def expectations():
    functions = {"x": lambda d: d["x"], "square": lambda d: d["x"] ** 2}
    return [pmt.expectation(tree, functions) for tree in repeated_trees(150, draws=60, seed=4)]


def test_expectations_and_their_errors_are_the_real_ones():
    """150 runs: mean of z within 4 / sqrt(150) + 0.1, sd within 4 / sqrt(300)."""
    mean, sd = (float(v) for v in GAUSSIAN_TOY.moments(np.array(1.0)))
    for name, exact in (("x", mean), ("square", mean**2 + sd**2)):
        found = np.array([e[name].sel(metric=["mean", "mcse"]).values for e in expectations()])
        z = (found[:, 0] - exact) / found[:, 1]
        assert abs(z.mean()) < 4.0 / np.sqrt(150) + 0.1
        assert abs(z.std() - 1.0) < 4.0 / np.sqrt(300)


def test_states_of_all_rungs_are_worth_more_than_the_draws():
    """Geyer & Thompson: the draws at beta = 1 alone have a larger error."""
    mean = float(GAUSSIAN_TOY.moments(np.array(1.0))[0])
    ours = [float(e["x"].sel(metric="mean")) - mean for e in expectations()]
    trees = repeated_trees(150, draws=60, seed=4)
    draws = [float(tree["posterior"]["x"].mean()) - mean for tree in trees]
    assert np.std(ours) < 0.9 * np.std(draws)
    ess = np.mean([float(e["x"].sel(metric="ess")) for e in expectations()])
    sd = float(GAUSSIAN_TOY.moments(np.array(1.0))[1])
    assert ess == pytest.approx(sd**2 / np.var(ours), rel=0.5)


def test_unweighted_states_would_be_wrong():
    """The planted bug: hot states with the weight of cold ones."""
    idata = gaussian_run(draws=500)
    mean = float(GAUSSIAN_TOY.moments(np.array(1.0))[0])
    found = pmt.expectation(idata, var_names=["x"])["x"].sel(metric=["mean", "mcse"]).values
    assert abs(found[0] - mean) < 4.0 * found[1]
    assert abs(float(idata["tempering_states"]["x"].mean()) - mean) > 20.0 * found[1]


@pytest.mark.slow("repeats")
def test_thinned_states_give_the_same_expectation():
    """States of little weight kept with a known probability: no bias, 50 thinnings of one run."""
    idata = gaussian_run(draws=200, random_seed=5)
    full = float(pmt.expectation(idata)["x"].sel(metric="mean"))
    run = ev.read_run(idata)
    states = idata["tempering_states"].to_dataset()
    probability = np.full(states["x"].shape, np.nan)
    q = probabilities_of(run.stats, run.trace.log_ratio)[:, -1]
    valid = states["iteration"].values >= 0
    probability[valid] = np.minimum(1.0, q / 0.3)
    rng, found, biased = np.random.default_rng(2), [], []
    for _ in range(50):
        kept = valid & (rng.random(valid.shape) < probability)
        thin = idata.copy()
        iteration = np.where(kept, states["iteration"].values, -1)
        for bag, p in ((found, probability), (biased, np.ones(valid.shape))):
            thin["tempering_states"] = states.assign(
                iteration=(("chain", "state"), iteration),
                keep_probability=(("chain", "state"), p),
            )
            bag.append(float(pmt.expectation(thin)["x"].sel(metric="mean")))
    noise = np.std(found) / np.sqrt(50)
    assert abs(np.mean(found) - full) < 4.0 * noise
    assert abs(np.mean(biased) - full) > 10.0 * noise  # the planted bug: the factor forgotten


def test_bad_input_of_expectation_is_refused():
    idata = gaussian_run(draws=100)
    with pytest.raises(NotTemperedError, match='keep="states"'):
        pmt.expectation(pmt.convert(idata).drop_nodes("tempering_states"))
    fewer = idata.copy()
    fewer["tempering_states"] = idata["tempering_states"].to_dataset().isel(chain=[0])
    with pytest.raises(NotTemperedError, match="tempering_states has 1 chains and sample_stats"):
        pmt.expectation(fewer)
    with pytest.raises(ValueError, match="'nu' are not among the states' variables: x"):
        pmt.expectation(idata, var_names=["nu"])
    with pytest.raises(ValueError, match="must return a DataArray"):
        pmt.expectation(idata, lambda draws: draws["x"].mean())
    with pytest.raises(ValueError, match="not finite"):
        pmt.expectation(idata, {"bad": lambda draws: draws["x"] / 0.0})
    with pytest.warns(TemperingWarning, match="tours were completed"):
        few = pmt.expectation(gaussian_run(draws=4, chains=2))
    assert float(few["x"].sel(metric="mcse")) == np.inf


@pytest.fixture(scope="module")
def kept():
    """The same run with and without states."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Deterministic("product", scale * x[0])
        pm.Normal("y", x, 0.5, observed=np.array([1.0, -2.0]))
    settings = {"model": model, "random_seed": 7, "quiet": True, "progressbar": False, "cores": 1}
    settings["reference"] = "prior"
    return [pmt.sample(200, tune=10, keep=keep, **settings) for keep in ("log_ratio", "states")]


@pytest.mark.slow("compiles models of its own")
def test_states_do_not_change_the_draws_and_fit_to_the_trace(kept):
    plain, states = kept
    assert "tempering_states" not in plain.children
    for name in ("x", "scale", "product"):
        np.testing.assert_array_equal(plain["posterior"][name], states["posterior"][name])
    hot = states["tempering_states"].to_dataset()
    valid = hot["iteration"].values >= 0
    log_ratio = np.take_along_axis(
        states["tempering_trace"]["log_ratio"].values, np.maximum(hot["iteration"].values, 0), 1
    )
    off = np.array([1.0, -2.0]) - hot["x"].values
    exact = np.sum(-2.0 * off**2 - np.log(0.5) - 0.5 * np.log(2.0 * np.pi), axis=-1)
    np.testing.assert_allclose(log_ratio[valid], exact[valid], rtol=1e-7)
    np.testing.assert_allclose(hot["product"], hot["scale"] * hot["x"][..., 0])
    run = ev.read_run(states)
    cold = probabilities_of(run.stats, log_ratio[valid])[:, -1]
    probability = hot["keep_probability"].values[valid]
    np.testing.assert_allclose(probability, np.clip(cold / 0.01, 0.05, 1.0), rtol=1e-6)
    # Every draw at beta = 1 is among them, but for those with next to no weight.
    draws = states["posterior"]["x"].values[0, :, 0]
    assert np.isin(draws, hot["x"].values[0, ..., 0]).mean() > 0.99


@pytest.mark.slow("repeats")
def test_expectation_of_a_model_is_the_exact_one(kept):
    found = pmt.expectation(kept[1], var_names=["x", "scale"])
    exact = np.array([1.0, -2.0]) * 0.8
    mean, mcse = (found["x"].sel(metric=name).values for name in ("mean", "mcse"))
    assert np.all(np.abs(mean - exact) < 4.0 * mcse)
    assert found["x"].dims == ("metric", "x_dim_0")
    half = found["scale"].sel(metric=["mean", "sd", "mcse"]).values
    assert abs(half[0] - np.sqrt(2.0 / np.pi)) < 4.0 * half[2]
    assert half[1] == pytest.approx(np.sqrt(1.0 - 2.0 / np.pi), rel=0.1)
    with pytest.raises(ValueError, match="'states' or None"):
        pmt.sample(10, keep="everything")


@pytest.mark.slow("compiles models of its own")
def test_kept_states_show_the_reference_too(kept):
    """Without a floor of the probability none are kept where beta = 1 has next to no weight."""
    hot = kept[1]["tempering_states"].to_dataset()
    valid = hot["iteration"].values >= 0
    run = ev.read_run(kept[1])
    trace = kept[1]["tempering_trace"]["log_ratio"].values
    ratio = np.take_along_axis(trace, np.maximum(hot["iteration"].values, 0), 1)[valid]
    weight = probabilities_of(run.stats, ratio)[:, 0] / hot["keep_probability"].values[valid]
    above = hot["x"].values[valid][:, 1] > 0.0  # the data say -2: half of the prior, none after it
    share = np.sum(weight * above) / weight.sum()
    spread = np.sqrt(np.sum(weight**2 * (above - share) ** 2)) / weight.sum()
    assert spread < 0.06
    assert abs(share - 0.5) < 4.0 * spread
