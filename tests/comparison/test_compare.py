"""Bayes factors and model probabilities: the laws of probability, errors, and the data check."""

import numpy as np
import pytest
import xarray as xr
from support.repeated_runs import join_chains
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering.evidence import Evidence
from pymc_tempering.exceptions import DataMismatchError, NotTemperedError, TemperingWarning


def evidence(log_z, mcse=0.01, warnings=()):
    curve = np.array([0.0, log_z])
    return Evidence(
        log_z=log_z, mcse=mcse, method="rts", verdict="ok", n_tours=100, round_trips=(50, 50),
        ess=80.0, per_chain=np.array([log_z, log_z]), per_chain_mcse=np.array([mcse, mcse]),
        log_z_curve=curve, log_z_curve_mcse=np.array([0.0, mcse]), betas=np.array([0.0, 1.0]),
        halves=(log_z, log_z), warnings=warnings,
    )  # fmt: skip


def with_data(idata, **variables):
    result = idata.copy()
    data = {k: (tuple(f"{k}_{i}" for i in range(np.ndim(v))), v) for k, v in variables.items()}
    result["observed_data"] = xr.DataTree(xr.Dataset(data))
    return result


@pytest.fixture(scope="module")
def run():
    return gaussian_run(100, 4, random_seed=1)


def test_bayes_factor_of_runs_is_that_of_their_exact_evidence():
    toys = GaussianToy(3.0, 1.0), GaussianToy(3.0, 0.5)
    runs = [gaussian_run(400, toy=toy, random_seed=i) for i, toy in enumerate(toys)]
    bf, reverse = pmt.bayes_factor(*runs), pmt.bayes_factor(*runs[::-1])
    exact = toys[0].log_z(1.0) - toys[1].log_z(1.0)
    assert abs(bf.log_bf - exact) < 4.0 * bf.mcse < 0.4  # false alarm 6e-5
    a, b = (pmt.log_marginal_likelihood(r) for r in runs)
    assert bf.mcse == pytest.approx(np.hypot(a.mcse, b.mcse))
    assert reverse.log_bf == -bf.log_bf
    assert reverse.interval == pytest.approx((-bf.interval[1], -bf.interval[0]))
    assert pmt.bayes_factor(a, b).log_bf == bf.log_bf
    assert f"{bf.log_bf:.3f} ± {bf.mcse:.3f}" in repr(bf)
    assert bf.words in bf._repr_html_()


@pytest.mark.parametrize(
    ("twice_log_bf", "words"),
    [
        (1.9, "not worth more than a bare mention, in favor of the first model"),
        (-2.1, "positive evidence in favor of the second model"),
        (5.9, "positive evidence in favor of the first model"),
        (6.1, "strong evidence in favor of the first model"),
        (-9.9, "strong evidence in favor of the second model"),
        (10.1, "very strong evidence in favor of the first model"),
    ],
)
def test_words_are_those_of_kass_and_raftery(twice_log_bf, words):
    assert pmt.bayes_factor(evidence(0.5 * twice_log_bf, 1e-3), evidence(0.0, 0.0)).words == words


def test_words_say_what_the_error_leaves_open():
    wide = pmt.bayes_factor(evidence(2.5, 0.5), evidence(0.0, 0.0)).words
    assert "'positive' to 'strong'" in wide
    # an interval that holds zero reaches down to the lowest category
    both_sides = pmt.bayes_factor(evidence(-1.5, 3.0), evidence(0.0, 0.0)).words
    assert "'not worth more than a bare mention' to 'very strong'" in both_sides
    unknown = pmt.bayes_factor(evidence(5.0, np.inf), evidence(0.0))
    assert unknown.words.startswith("nothing can be said")
    assert unknown.interval == (-np.inf, np.inf)


def test_posterior_odds_are_prior_odds_times_bayes_factor():
    models = {"low": evidence(-3.0), "high": evidence(-1.0), "mid": evidence(-2.0)}
    table = pmt.compare(models, prior={"mid": 1.0, "low": 6.0, "high": 3.0})
    assert list(table.index) == ["high", "mid", "low"]
    assert table["prior"].to_dict() == pytest.approx({"high": 0.3, "mid": 0.1, "low": 0.6})
    assert table["probability"].sum() == pytest.approx(1.0)
    odds = table["probability"] / table["probability"]["high"]
    expected = table["prior"] / 0.3 * np.exp(table["log_bf"])
    np.testing.assert_allclose(odds, expected)
    assert table["log_bf"].tolist() == pytest.approx([0.0, -1.0, -2.0])


def test_error_of_a_probability_is_its_scatter():
    mcse = {"a": 0.02, "b": 0.05, "c": 0.01}
    log_z = {"a": 0.0, "b": -0.5, "c": -1.0}
    table = pmt.compare({name: evidence(log_z[name], mcse[name]) for name in mcse})
    rng = np.random.default_rng(8)
    noisy = [log_z[n] + mcse[n] * rng.standard_normal(20_000) for n in table.index]
    weight = np.exp(noisy)
    scatter = (weight / weight.sum(axis=0)).std(axis=1)
    # The sd of 20,000 numbers is known to 0.5 %; the rest is the delta method's second order.
    np.testing.assert_allclose(table["p_mcse"], scatter, rtol=0.03)


def test_an_unknown_error_makes_every_probability_unknown():
    table = pmt.compare({"a": evidence(0.0), "b": evidence(-300.0, np.inf)})
    assert np.isinf(table["p_mcse"]).all()
    assert table["probability"]["a"] == pytest.approx(1.0)


def test_warnings_name_the_model(run):
    short = gaussian_run(5, 2)
    with pytest.warns(TemperingWarning, match="^Model 'short': Only") as record:
        table = pmt.compare({"long": run, "short": short})
    assert record[0].filename == __file__
    assert table["verdict"].to_dict() == {"long": "ok", "short": "unchecked"}
    with pytest.warns(TemperingWarning, match="^The second model: Only"):
        bf = pmt.bayes_factor(run, short)
    assert bf.warnings[0].startswith("Second model: Only")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"y": [1.0, 2.0, 3.0]}, {"y": [1.0, 2.0, 3.0]}),
        ({"y": [1.0, 2.0, 3.0]}, {"obs": [1.0, 2.0, 3.0]}),
        ({"y": [[1.0, 2.0], [3.0, 4.0]]}, {"y": [1.0, 2.0, 3.0, 4.0]}),
        ({"y": [1, 2, 3]}, {"y": [1.0, 2.0, 3.0]}),
        ({"y": [1.0, np.nan]}, {"y": [1.0, np.nan]}),
        ({"y": [0.1 + 0.2, 5.0]}, {"y": [0.3, 5.0]}),
        ({"y": [1.0], "w": [2.0]}, {"w": [2.0], "z": [1.0]}),
    ],
)
def test_same_data_are_compared(run, first, second):
    a, b = with_data(run, **first), with_data(run, **second)
    assert pmt.bayes_factor(a, b).log_bf == 0.0


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({"y": [1.0, 2.0]}, {"y": [1.0, 2.5]}, "y"),
        ({"y": [1.0, 2.0]}, {"y": [2.0, 1.0]}, "y"),
        ({"y": [1.0, 2.0]}, {"y": [1.0, 2.0, 3.0]}, "y"),
        ({"y": [1.0, 2.0]}, {"y": [1.0, np.nan]}, "y"),
        ({"y": [1.0, 2.0], "w": [3.0]}, {"y": [1.0, 2.0]}, "w"),
        ({"y": [1.0, 2.0]}, {"y": [1.0], "w": [2.0]}, "w"),
        ({"y": [1.0], "w": [2.0]}, {"y": [2.0], "w": [1.0]}, "w"),
        ({"y": [1.0, 2.0]}, {}, "y"),
    ],
)
def test_other_data_are_refused_by_name_unless_overridden(run, first, second, named):
    models = {"a": with_data(run, **first), "b": with_data(run, **second)}
    with pytest.raises(DataMismatchError, match=f"'{named}'.*check_data=False"):
        pmt.compare(models)
    with pytest.raises(DataMismatchError, match=f"'{named}'"):
        pmt.bayes_factor(models["b"], models["a"])
    assert pmt.compare(models, check_data=False)["log_bf"].tolist() == [0.0, 0.0]


def test_models_without_observed_data_are_compared(run):
    bare = run.copy()
    del bare["observed_data"]
    assert pmt.bayes_factor(bare, bare).log_bf == 0.0
    with pytest.raises(DataMismatchError):
        pmt.bayes_factor(run, bare)


def test_joined_chains_are_one_run():
    """The evidence of two runs side by side lies between theirs and has a smaller error."""
    parts = [gaussian_run(200, 2, random_seed=seed) for seed in (1, 2)]
    a, b = (pmt.log_marginal_likelihood(part) for part in parts)
    both = pmt.log_marginal_likelihood(join_chains(*parts))
    assert min(a.log_z, b.log_z) < both.log_z < max(a.log_z, b.log_z)
    assert both.mcse < min(a.mcse, b.mcse)
    np.testing.assert_allclose(both.per_chain, [*a.per_chain, *b.per_chain])


@pytest.mark.parametrize(
    "prior", [{"a": 1.0}, {"a": -1.0, "b": 2.0}, {"a": 0.0, "b": 0.0}, {"a": np.nan, "b": 1.0}]
)
def test_bad_priors_are_refused(prior):
    with pytest.raises(ValueError, match="prior"):
        pmt.compare({"a": evidence(0.0), "b": evidence(1.0)}, prior=prior)


def test_no_models_and_no_tempering_are_refused(run):
    with pytest.raises(ValueError, match="at least one"):
        pmt.compare({})
    plain = run.copy()
    del plain["sample_stats"]
    with pytest.raises(NotTemperedError, match=r"model=.*bridge_sampling") as error:
        pmt.bayes_factor(run, plain)
    assert error.value.__notes__ == ["This was the second model."]


def test_an_estimator_without_tours_shows_the_rows_that_apply():
    plain = Evidence(log_z=-1.5, mcse=0.01, method="bridge", verdict="ok")
    assert repr(plain).count("\n") == 2
    assert "-1.500 ± 0.010" in repr(plain)
    told = Evidence(
        log_z=-1.5, mcse=0.01, method="ais", verdict="ok", ess=71.25, n_evaluations=12_345,
        bias_direction="below", seconds=0.5,
    )  # fmt: skip
    rows = {line[2:27].strip(): line[27:].strip() for line in repr(told).splitlines()[1:]}
    assert rows["effective draws"] == "71.2"
    assert rows["in expectation"] == "below log Z"
    assert rows["density evaluations"] == "12,345"
    assert "tours" not in rows
    assert "12,345" in told._repr_html_()
    table = pmt.compare({"a": told, "b": plain})
    assert table["n_tours"].isna().all()
