"""The table of `sample_many` where models are compared, and probabilities of their terms."""

from itertools import combinations

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats

import pymc_tempering as pmt
from pymc_tempering.evidence import Evidence
from pymc_tempering.exceptions import ArgumentError, DataMismatchError

NAMES = ("age", "bmi", "size")
SUBSETS = [c for k in range(4) for c in combinations(range(3), k)]
RNG = np.random.default_rng(4)
X = RNG.normal(size=(25, 3))
Y = X @ [0.6, 0.25, 0.0] + RNG.normal(size=25)


def name_of(columns):
    return " + ".join(NAMES[i] for i in columns) or "1"


def regression(columns, y=Y):
    def build():
        with pm.Model() as model:
            a = pm.Normal("a", 0.0, 1.0)
            b = pm.Normal("b", 0.0, 1.0, shape=len(columns)) if columns else np.zeros(0)
            pm.Normal("y", a + pm.math.dot(X[:, list(columns)], b), 1.0, observed=y)
        return model

    return build


def exact_log_z(columns):
    cov = np.eye(25) + 1.0 + X[:, list(columns)] @ X[:, list(columns)].T
    return stats.multivariate_normal(np.zeros(25), cov).logpdf(Y)


EXACT = np.array([exact_log_z(columns) for columns in SUBSETS])
HAS = np.array([[i in columns for columns in SUBSETS] for i in range(3)])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    models = {name_of(columns): regression(columns) for columns in SUBSETS}
    path = tmp_path_factory.mktemp("many") / "runs"
    return pmt.sample_many(models, path=path, draws=200, chains=4, random_seed=1, quiet=True)


@pytest.mark.slow("compiles models of its own")
def test_all_subsets_from_one_table_agree_with_the_exact_answer(table):
    """|z| < 4 for 8 evidences and 3 terms: false alarm 7e-4."""
    compared = pmt.compare(table)
    z = (compared["log_z"] - pd.Series(EXACT, map(name_of, SUBSETS))) / compared["mcse"]
    assert np.all(np.abs(z) < 4.0)
    p = np.exp(EXACT - np.logaddexp.reduce(EXACT))
    found = pmt.inclusion_probabilities(table).loc[list(NAMES)]
    exact = HAS @ p
    assert np.all(np.abs(found["probability"] - exact) < 4.0 * found["p_mcse"])
    log_bf = np.log(exact / (1.0 - exact))  # the prior odds are even
    assert np.all(np.abs(found["log_bf"] - log_bf) < 4.0 * found["mcse"])
    assert found["p_mcse"].max() < 0.01
    assert found["n_models"].tolist() == [4, 4, 4]


@pytest.mark.slow("repeats")
def test_errors_are_the_scatter_over_repeated_evidences():
    """The sd of 4,000 draws has an error of 1.1 %: 5 % is 4.5 of them, false alarm 4e-5."""
    rng, mcse = np.random.default_rng(2), np.linspace(0.02, 0.09, 8)
    prior = np.linspace(1.0, 2.0, 8) / 12.0

    def inclusion(log_z):
        p = prior * np.exp(log_z - log_z.max(axis=-1, keepdims=True))
        return (p / p.sum(axis=-1, keepdims=True)) @ HAS.T

    share = inclusion(EXACT + mcse * rng.normal(size=(4000, 8)))
    runs = {
        name_of(c): Evidence(z, e, "rts", "ok")
        for c, z, e in zip(SUBSETS, EXACT, mcse, strict=True)
    }
    weights = dict(zip(map(name_of, SUBSETS), prior, strict=True))
    found = pmt.inclusion_probabilities(runs, prior=weights).loc[list(NAMES)]
    np.testing.assert_allclose(found["probability"], inclusion(EXACT), rtol=1e-12)
    np.testing.assert_allclose(found["prior"], HAS @ prior)
    np.testing.assert_allclose(found["p_mcse"], share.std(axis=0), rtol=0.05)
    odds = np.log(share / (1.0 - share))
    np.testing.assert_allclose(found["mcse"], odds.std(axis=0), rtol=0.05)
    again = pmt.inclusion_probabilities(pmt.compare(runs, prior=weights))  # with its own prior
    pd.testing.assert_frame_equal(again.loc[list(NAMES)], found)


@pytest.mark.slow("compiles models of its own")
def test_terms_may_be_told_and_one_of_all_models_has_no_bayes_factor():
    runs = {n: Evidence(z, 0.1, "rts", "ok") for n, z in {"a": -1.0, "b": -900.0}.items()}
    found = pmt.inclusion_probabilities(runs, {"a": ["x"], "b": ["x", "z"]})
    assert found.loc["x", "probability"] == 1.0
    assert found.loc["x", "p_mcse"] == 0.0
    assert np.isnan(found.loc["x", "log_bf"])
    assert found.loc["z", "log_bf"] == pytest.approx(
        -899.0
    )  # its probability is 0 in floating point
    assert found.loc["z", "mcse"] == pytest.approx(0.1 * 2**0.5)
    unknown = runs | {"b": Evidence(-2.0, np.inf, "rts", "unchecked")}
    found = pmt.inclusion_probabilities(unknown, {"a": ["x"], "b": ["z"]})
    assert np.isinf(found[["mcse", "p_mcse"]]).all(axis=None)
    for terms, words in (
        ({"a": ["x"]}, "with the terms of each model"),
        ({"a": "x", "b": ["z"]}, "must be a list of names"),
        ({"a": [], "b": []}, "no model has a term"),
    ):
        with pytest.raises(ValueError, match=words):
            pmt.inclusion_probabilities(runs, terms)


@pytest.mark.slow("compiles models of its own")
def test_files_are_read_where_draws_are_wanted(table):
    mean = pmt.average(table, random_seed=1)
    assert dict(zip(mean.attrs["models"], mean.attrs["weights"], strict=True)) == pytest.approx(
        pmt.compare(table)["probability"].to_dict()
    )
    assert set(mean["posterior"].data_vars) == {"a"}
    assert mean["observed_data"]["y"].shape == (25,)
    with pytest.raises(ArgumentError, match="give sample_many a path="):
        pmt.average(table.drop(columns="file"))


@pytest.mark.slow("compiles models of its own")
def test_rows_and_pictures_of_the_table(table):
    factor = pmt.bayes_factor(table.loc["age"], table.loc["1"])
    assert factor.log_bf == table.log_z["age"] - table.log_z["1"]
    assert pmt.log_marginal_likelihood(table.loc["age"]).mcse == table.mcse["age"]
    for plot in (pmt.plot_bayes_factors, pmt.plot_evidence, pmt.plot_inclusion):
        pc = plot(table, backend="none")
        assert "estimate" in " ".join(pc.viz.children)


@pytest.mark.slow("compiles models of its own")
def test_what_has_other_data_or_failed_is_not_compared(table):
    models = {"all": regression((0,)), "less": regression((0,), np.r_[Y[:-1], 0.0]), "bad": None}
    models["bad"] = lambda: 1 / 0
    with pytest.warns(pmt.TemperingWarning, match="1 of 3 runs failed"):
        other = pmt.sample_many(models, draws=200, random_seed=1, quiet=True)
    with pytest.raises(ValueError, match=r"1 of 3 runs failed, 'bad'.*compare\(table\[table"):
        pmt.compare(other)
    left = other[other.verdict != "failed"]
    for door in (pmt.compare, pmt.average, pmt.inclusion_probabilities):
        with pytest.raises(DataMismatchError, match="'all' and 1 others, 'less'"):
            door(left)
    assert len(pmt.compare(left, check_data=False)) == 2
    with pytest.raises(ValueError, match="names \\['age'\\] twice"):
        pmt.compare(pd.concat([table, table.loc[["age"]]]))
    with pytest.raises(ValueError, match="lacks"):
        pmt.compare(pd.DataFrame({"log_z": [1.0]}))
