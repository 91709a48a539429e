"""The forward estimate is unbiased for Z, the backward one for 1 / Z, and they bracket log Z."""

from functools import cache

import numpy as np
import pytest
from support.repeated_runs import GAUSSIAN_TOY, repeated_runs
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering import evidence as ev
from pymc_tempering.evidence.bracket import _shift
from pymc_tempering.exceptions import TemperingWarning


@cache
def short_runs():
    """log of Z-hat and of 1 / Z-hat from runs so short that Jensen's gap is seen."""
    runs = repeated_runs(300, "gauss", draws=40, chains=2, seed=9)
    forwards = [ev.forward(run, reference_visits=14).log_z for run in runs]
    # After 20 draws the chain watched at beta = 1 has forgotten its start.
    hot = [run.stats.rb_weight[:, 20:, 0].mean() for run in runs]
    return np.array(forwards), np.log(hot) - _shift(runs[0].stats)


def mean_z(log_ratio):
    """z-score of the mean of exp(log_ratio) against 1."""
    values = np.exp(log_ratio)
    return (values.mean() - 1.0) / (values.std() / np.sqrt(values.size))


def test_the_forward_estimate_is_unbiased_and_the_backward_one_for_the_inverse():
    """|z| < 4: false alarm 6e-5 each; 14 reference visits and 20 draws a chain."""
    exact = float(GAUSSIAN_TOY.log_z(1.0))
    forwards, backwards = short_runs()
    assert abs(mean_z(forwards - exact)) < 4.0
    assert abs(mean_z(backwards + exact)) < 4.0
    noise = forwards.std() / np.sqrt(forwards.size)
    assert forwards.mean() < exact - 2.0 * noise  # Jensen
    assert -backwards.mean() > exact


def test_a_number_of_visits_that_the_chain_chose_itself_is_biased():
    """The planted bug: all the visits that a chain made by its second draw."""
    exact, found = float(GAUSSIAN_TOY.log_z(1.0)), []
    for run in repeated_runs(300, "gauss", draws=40, chains=2, seed=9):
        cold = run.stats.rb_weight[:, :2, -1].sum()
        visits = run.stats.visits[:, :2, 0].sum()
        found.append(_shift(run.stats) + np.log(cold / visits))
    assert abs(mean_z(np.array(found) - exact)) > 4.0


def test_bracket_holds_the_exact_value_and_says_when_it_is_not_exact():
    found = pmt.bracket(gaussian_run(draws=600, random_seed=8))
    exact = float(GAUSSIAN_TOY.log_z(1.0))
    assert abs(found.lower.log_z - exact) < 4.0 * found.lower.mcse
    assert abs(found.upper.log_z - exact) < 4.0 * found.upper.mcse
    assert found.gap == found.upper.log_z - found.lower.log_z
    assert "gap" in repr(found)
    with pytest.warns(TemperingWarning, match="fewer visits to beta = 0"):
        pmt.bracket(gaussian_run(draws=600, random_seed=8), reference_visits=10**6)
    with pytest.warns(TemperingWarning, match="no other chain"):
        pmt.bracket(gaussian_run(draws=600, chains=1))
    with pytest.raises(ValueError, match="at least 2, got 1"):
        pmt.bracket(gaussian_run(draws=30), reference_visits=1)
