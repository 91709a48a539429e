"""The alarm of one tour, or a few, that hold nearly all the weight."""

import numpy as np
import pytest
from scipy import stats

from pymc_tempering.evidence.alarms import MIN_LONE_PVALUE, lone_pvalue, lone_tour_warnings

N_TOURS, N_REPEATS = 300, 4000


def exponential(scale=1.0):
    rng = np.random.default_rng(3)
    return rng.exponential(scale, (N_REPEATS, N_TOURS))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.2])
def test_false_alarms_in_an_exponential_tail_of_any_scale_are_at_the_level(level, scale):
    """Eight tests whose p-values are independent: the least is below level / 8 this often."""
    found = sum(lone_pvalue(row) < level for row in exponential(scale))
    exact = 1.0 - (1.0 - level / 8) ** 8
    assert stats.binomtest(found, N_REPEATS, exact).pvalue > 1e-4


def test_a_slow_tail_of_its_own_scale_is_no_alarm():
    """A tenth of the tours have 30 times the scale, as a posterior with slow tails gives."""
    rng = np.random.default_rng(4)
    slow = np.where(rng.random((N_REPEATS, N_TOURS)) < 0.1, 30.0, 1.0) * exponential()
    largest = (slow / slow.mean(axis=1, keepdims=True)).max(axis=1)
    assert (largest > np.log(N_TOURS) + 7.0).mean() > 0.3
    assert np.mean([lone_pvalue(row) < MIN_LONE_PVALUE for row in slow]) < 0.003


@pytest.mark.parametrize("n_caught", [1, 2, 4, 6])
def test_tours_caught_in_one_region_do_not_hide_each_other(n_caught):
    """A test of the largest alone sees the first case only."""
    caught = exponential()[:200].copy()
    caught[:, :n_caught] += 100.0
    assert np.mean([lone_pvalue(row) < MIN_LONE_PVALUE for row in caught]) > 0.99


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0, 1.0], [-np.inf, 1.0, 1.0, 1.0]])
def test_equal_values_stand_out_nowhere(values):
    assert lone_pvalue(np.array(values)) == 1.0


def test_two_values_cannot_be_judged_so_the_alarm_stands():
    assert lone_pvalue(np.array([1.0, 5.0])) == 0.0


def test_the_warning_counts_the_weight_of_the_largest_tour():
    rng = np.random.default_rng(5)
    weight = rng.exponential(size=400)
    weight[:2] = 90.0 * weight.mean()
    start = np.ones((4, 100), bool)
    (message,) = lone_tour_warnings(weight, np.zeros((4, 100)), start)
    assert message.startswith(f"One tour holds {weight.max() / weight.mean():.0f} times the mean")
    assert lone_tour_warnings(rng.exponential(size=400), np.zeros((4, 100)), start) == []
