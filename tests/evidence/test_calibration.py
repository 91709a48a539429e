"""What a calibration says of exact and of planted evidences, and how often it is wrong."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.conjugate_regressions import ROWS, SD, two_regressions

from pymc_tempering.evidence import calibration
from pymc_tempering.evidence.calibration import ALARM, Calibration

NAMES, EVEN = ("noise", "line"), np.array([0.5, 0.5])


def found(generated, log_z, prior=EVEN, ranks=None):
    return Calibration(NAMES, np.asarray(prior), generated, log_z, ranks or {})


def p_values(tables, change=lambda log_z: log_z, **settings):
    pairs = zip(*two_regressions(tables, 200, **settings), strict=True)
    return np.array([found(g, change(log_z)).p_value for g, log_z in pairs])


def test_the_closed_form_is_that_of_the_covariance():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3))
    rng.random(2)
    y = rng.normal(size=(2, ROWS))
    generated, log_z = two_regressions(1, 2, share=0.0)
    assert not generated.any()
    wide, narrow = np.eye(ROWS) + SD**2 * x @ x.T, np.eye(ROWS)
    exact = [stats.multivariate_normal(np.zeros(ROWS), c).logpdf(y) for c in (narrow, wide)]
    np.testing.assert_allclose(log_z[0, :, 1], exact[1] - exact[0])


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_the_mean_posterior_probability_is_the_prior(share):
    """Three standard errors: a false alarm in 370 seeds each."""
    prior = np.array([1.0 - share, share])
    generated, log_z = two_regressions(1, 500, share=share, seed=1)
    table = found(generated[0], log_z[0], prior).models()
    assert np.all(abs(table["mean"] - table["prior"]) < 3 * table["se"])
    assert table["se"].iloc[0] < 0.025
    # Planted: the prior odds are forgotten.
    if share != 0.5:
        wrong = found(generated[0], log_z[0]).models()
        assert np.all(abs(wrong["mean"] - prior) > 3 * wrong["se"])


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("sd", [0.2, 1.0])
def test_the_test_is_wrong_as_often_as_it_says(sd, monkeypatch):
    """Of 500 tables; beyond these bounds with a probability of 1e-4. At sd 1 most data decide."""
    monkeypatch.setattr(calibration, "SIMULATIONS", 999)
    p = p_values(500, sd=sd, seed=2)
    for level in (ALARM, 0.05, 0.5):
        low, high = stats.binom(500, level).ppf([5e-5, 1 - 5e-5])
        assert low <= np.sum(p < level) <= high


def test_a_doubled_prior_scale_is_seen_in_19_of_20():
    assert np.sum(p_values(20, doubled=True, seed=3) < ALARM) >= 19


PLANTED = {
    "a constant of one model": lambda log_z: log_z + np.array([0.0, 1.0]),
    "too sure": lambda log_z: 2.0 * log_z,
    "too timid": lambda log_z: 0.3 * log_z,
    "models mixed up": lambda log_z: log_z[:, ::-1],
}


@pytest.mark.slow("repeats", quick=["too sure"])
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_seen(fault):
    assert np.sum(p_values(10, PLANTED[fault], seed=4) < ALARM) == 10


@pytest.mark.slow("compiles models of its own")
def test_three_models_are_tested_as_two():
    rng = np.random.default_rng(5)
    sd, p = np.array([1.0, 2.0, 4.0]), []
    for _ in range(40):
        generated = rng.integers(3, size=200)
        y = rng.normal(size=(200, 3)) * sd[generated, None]
        log_z = -3 * np.log(sd) - 0.5 * np.sum(y**2, axis=1)[:, None] / sd**2
        known = Calibration(("a", "b", "c"), np.full(3, 1 / 3), generated, log_z)
        wrong = Calibration(("a", "b", "c"), np.full(3, 1 / 3), generated, log_z + np.eye(3)[2])
        p.append((known.p_value, wrong.p_value))
    right, planted = np.transpose(p)
    assert stats.kstest(right, "uniform").pvalue > 1e-4
    assert np.sum(planted < ALARM) >= 38
    assert len(known.factors()) == 6


def test_probabilities_that_are_all_sure():
    generated = np.arange(40) % 2
    log_z = np.where(generated[:, None] == [0, 1], 0.0, -800.0)
    assert found(generated, log_z).p_value == 1.0
    log_z[3] = log_z[3, ::-1]
    assert found(generated, log_z).p_value == 1e-4
    log_z[3, generated[3]] = -np.inf  # the model that generated it is impossible
    assert found(generated, log_z).p_value == 1e-4
    # One undecided data set does not hide it.
    log_z[8] = 0.0
    assert found(generated, log_z).p_value < 1e-3


def test_a_failed_run_is_counted_and_bounds_the_mean():
    generated, log_z = (table[0] for table in two_regressions(1, 50, seed=6))
    log_z[7, 1] = np.nan
    runs = pd.DataFrame({"verdict": ["ok"] * 98 + ["failed", "unchecked"]})
    ranks = {"line: b": np.linspace(0.01, 0.99, 25)}
    result = Calibration(NAMES, EVEN, generated, log_z, ranks, runs)
    table = result.models()
    assert result.verdict == "unchecked"
    assert "1 of 50 data sets have a failed run" in result.warnings[0]
    np.testing.assert_allclose(table["most"] - table["least"], 1 / 50)
    assert np.all((table["least"] < table["mean"]) & (table["mean"] < table["most"]))
    assert "50, 49 with all evidences" in repr(result)
    assert "98 ok, 1 failed, 1 unchecked" in repr(result)


def test_bayes_factors_over_the_generating_model():
    generated, log_z = (table[0] for table in two_regressions(1, 400, seed=7))
    table = found(generated, log_z).factors()
    factor = np.exp(log_z[generated == 0] @ [-1.0, 1.0])
    row = table.loc["line", "noise"]
    np.testing.assert_allclose(row["mean"], factor.mean())
    np.testing.assert_allclose(row["largest"], factor.max() / factor.sum())
    assert row["n"] == len(factor)
    assert 0.3 < row["k-hat"] < 1.5  # heavy: 1 - 1 / (1 + n sd^2) in the limit
    few = found(generated[:80], log_z[:80]).factors()
    assert few["k-hat"].isna().all()


def test_the_curve_counts_what_was_generated():
    generated, log_z = (table[0] for table in two_regressions(1, 300, seed=8))
    result = found(generated, log_z)
    curve, other = result.curve(), result.curve("noise")
    assert curve["n"].sum() == 300
    np.testing.assert_allclose((curve["share"] * curve["n"]).sum(), generated.sum())
    np.testing.assert_allclose(curve["probability"], 1 - other["probability"][::-1])
    # Exact intervals of 95 %: more than 3 of 10 miss in one of 1,000 seeds.
    missed = (curve["probability"] < curve["low"]) | (curve["probability"] > curve["high"])
    assert missed.sum() <= 3
    with pytest.raises(ValueError, match="model must be one of"):
        result.curve("spline")


def test_ranks_that_are_even_and_ranks_that_are_not():
    generated, log_z = (table[0] for table in two_regressions(1, 200, seed=9))
    rng = np.random.default_rng(1)
    even = {f"line: b[{i}]": rng.random(100) for i in range(5)}
    right = found(generated, log_z, ranks=even)
    assert right.verdict == "ok"
    assert not right.warnings
    for wrong in (rng.beta(2, 1, 100), rng.beta(0.4, 0.4, 100)):  # shifted; too narrow
        result = found(generated, log_z, ranks=even | {"line: s": wrong})
        assert result.verdict == "disagreed"
        assert "ranks" in result.warnings[0]
        assert result.rank_table().index[0] == "line: s"
    assert found(generated, log_z).verdict == "unchecked"
    assert found(generated, log_z + np.array([0.0, 3.0])).verdict == "disagreed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": ("a",)}, "needed are 2 names"),
        ({"log_z": np.zeros((3, 2))}, "shape \\(3, 2\\)"),
        ({"prior": np.array([0.5, 0.6])}, "sum to 1"),
        ({"prior": np.array([0.0, 1.0])}, "must be positive"),
        ({"generated": np.array([0, 2])}, "places of models, 0 to 1"),
    ],
)
def test_tables_that_do_not_fit_are_refused(change, words):
    good = {"names": NAMES, "prior": EVEN, "generated": np.array([0, 1]), "log_z": np.zeros((2, 2))}
    with pytest.raises(ValueError, match=words):
        Calibration(**good | change)
