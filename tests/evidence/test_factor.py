"""A Bayes factor as it is reported: words of two scales, the number, odds, and overflow."""

import dataclasses

import numpy as np
import pytest
from scipy.special import expit

import pymc_tempering as pmt
from pymc_tempering.exceptions import TemperingWarning


@pytest.mark.parametrize(
    ("log10_bf", "words"),
    [
        (0.49, "not worth more than a bare mention, in favor of the first model"),
        (-0.51, "substantial evidence in favor of the second model"),
        (0.99, "substantial evidence in favor of the first model"),
        (-1.01, "strong evidence in favor of the second model"),
        (1.51, "very strong evidence in favor of the first model"),
        (-1.99, "very strong evidence in favor of the second model"),
        (2.01, "decisive evidence in favor of the first model"),
    ],
)
def test_jeffreys_grades_are_on_log10(log10_bf, words):
    factor = pmt.BayesFactor(log10_bf * np.log(10.0), 1e-3, scale="jeffreys")
    assert factor.words == factor.in_words("jeffreys") == words
    assert factor.log10_bf == pytest.approx(log10_bf)
    assert factor.bf == pytest.approx(10.0**log10_bf)


def test_a_scale_of_words_can_be_chosen_at_the_front():
    one, other = (pmt.Evidence(z, 1e-3, "rts", "ok") for z in (5.2, 0.0))
    assert pmt.bayes_factor(one, other).words.startswith("very strong")
    assert pmt.bayes_factor(one, other, scale="jeffreys").words.startswith("decisive")
    with pytest.raises(ValueError, match="scale must be one of 'kass_raftery', 'jeffreys'"):
        pmt.bayes_factor(one, other, scale="Jeffreys")
    with pytest.raises(ValueError, match="scale"):
        pmt.bayes_factor(one, other).in_words("lee")


def test_a_factor_that_no_number_holds_is_said():
    factor = pmt.BayesFactor(800.0, 0.1)
    with pytest.warns(TemperingWarning, match=r"exp\(800\).*given as inf: report log_bf or log10"):
        assert factor.bf == np.inf
    with pytest.warns(TemperingWarning, match="given as 0") as record:
        assert factor.reverse().bf == 0.0
    assert record[0].filename == __file__
    with pytest.warns(TemperingWarning, match="interval"):
        assert factor.bf_interval == (np.inf, np.inf)
    assert factor.log10_bf == pytest.approx(347.4356)
    assert "2.73e+347" in repr(factor)  # 10**0.4356 = 2.7264
    assert factor.posterior_odds(1e-10).probability == 1.0
    zero = pmt.BayesFactor(-np.inf, 0.1)  # a likelihood of zero: no overflow, so no warning
    assert zero.bf == 0.0


def test_posterior_odds_are_prior_odds_times_factor():
    factor = pmt.BayesFactor(np.log(6.0), 0.2)
    assert factor.bf == pytest.approx(6.0)
    assert factor.bf_interval == pytest.approx((6.0 * np.exp(-0.391993), 6.0 * np.exp(0.391993)))
    odds = factor.posterior_odds(prior_odds=0.25)
    assert odds.odds == pytest.approx(1.5)
    assert odds.probability == pytest.approx(0.6)
    half = 1.959963984540054 * 0.2
    assert odds.probability_interval == pytest.approx(
        (expit(np.log(1.5) - half), expit(np.log(1.5) + half))
    )
    assert odds.mcse == 0.2
    # what compare says of the same two models
    evidence = [pmt.Evidence(z, 0.0, "rts", "ok") for z in (np.log(6.0), 0.0)]
    table = pmt.compare(dict(zip("ab", evidence, strict=True)), prior={"a": 0.2, "b": 0.8})
    assert table["probability"]["a"] == pytest.approx(odds.probability)
    unknown = pmt.BayesFactor(3.0, np.inf).posterior_odds()
    assert unknown.probability_interval == (0.0, 1.0)
    assert "0.6 " in repr(odds)
    assert "prior odds" in odds._repr_html_()


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, "even", None])
def test_prior_odds_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="prior_odds must be a finite number above 0"):
        pmt.BayesFactor(1.0, 0.1).posterior_odds(bad)


def test_the_reverse_factor_favors_the_same_model():
    factor = pmt.BayesFactor(
        3.5, 0.1, ("A warning.",), scale="jeffreys", sides=("the model", "the null")
    )
    back = factor.reverse()
    assert back.log_bf == -3.5
    assert back.words == factor.words
    assert "in favor of the model (95 % interval" in back.words
    assert back.warnings == ("A warning.",)
    assert back.reverse() == factor


def test_a_factor_checks_itself():
    factor = pmt.BayesFactor(1.0, 0.1)
    with pytest.raises(ValueError, match="mcse"):
        dataclasses.replace(factor, mcse=-0.1)
    with pytest.raises(ValueError, match="scale"):
        dataclasses.replace(factor, scale="other")
