"""Shares of looks beyond the quantiles of a run: rare false alarms, and what is missing shows."""

from unittest.mock import patch

import numpy as np
import pytest
from support.compiled_systems import system
from support.exact_posteriors import mode_draws, posterior_tree, two_modes

import pymc_tempering as pmt
from pymc_tempering.crosscheck import judge as draw_check
from pymc_tempering.crosscheck.judge import ALPHA_DRAWS, compare_draws

REPEATS = 250
ALPHA = 0.05
"""A level at which alarms can be counted."""


def compared(rng, missing=0.0, rho=0.0, noise=0.2, spread=0.8, groups=20, each=250, copies=2):
    """Draws of N(0, 1), and weighted looks of which a share lies where the draws never are.

    Looks of a group come in equal copies, and groups have a weight of their own.
    """
    own = rng.standard_normal((4, 500))
    if rho:
        for i in range(1, own.shape[1]):
            own[:, i] = rho * own[:, i - 1] + np.sqrt(1.0 - rho**2) * own[:, i]
    looks = np.repeat(rng.standard_normal((groups, each // copies)), copies, axis=1).ravel()
    away = np.repeat(rng.random((groups, each // copies)) < missing, copies, axis=1).ravel()
    log_w = np.repeat(noise * rng.standard_normal(groups), each)
    log_w += spread * rng.standard_normal(looks.size)
    group = np.repeat(np.arange(groups), each)
    return compare_draws(own, looks + 9.0 * away, log_w, group)


def share_of_alarms(level, repeats=REPEATS, **law):
    found = [compared(np.random.default_rng([8, i]), **law).pvalue for i in range(repeats)]
    return np.mean(np.array(found) < level)


@pytest.mark.parametrize(
    "law",
    [{}, {"rho": 0.7}, {"noise": 0.8, "spread": 1.5}, {"copies": 25}],
    ids=["plain", "correlated draws", "uneven looks", "copies"],
)
def test_false_alarms_are_at_most_as_many_as_stated(law):
    # 4 standard deviations of a share of 5 % in 250 repeats
    assert share_of_alarms(ALPHA, **law) <= ALPHA + 4 * np.sqrt(ALPHA * (1 - ALPHA) / REPEATS)


@pytest.mark.slow("repeats")
def test_too_many_false_alarms_are_seen():
    # The planted bugs: correlated draws taken for independent, looks of a group likewise.
    bound = ALPHA + 4 * np.sqrt(ALPHA * (1 - ALPHA) / REPEATS)
    with patch("arviz_stats.base.array_stats.ess", lambda values, **options: values.size):
        assert share_of_alarms(ALPHA, rho=0.95) > bound
    right = draw_check.compare_draws

    def blind(own, looks, log_w, group, **options):
        return right(own, looks, log_w, np.arange(looks.size), **options)

    with patch(f"{__name__}.compare_draws", blind):
        assert share_of_alarms(ALPHA, copies=25) > bound


@pytest.mark.parametrize(("missing", "power"), [(0.02, 0.8), (0.05, 0.99), (0.15, 0.99)])
def test_what_the_draws_lack_is_found_and_measured(missing, power):
    found = [compared(np.random.default_rng([9, i]), missing=missing) for i in range(100)]
    assert np.mean([one.verdict == "disagree" for one in found]) >= power
    alarmed = [one.missing for one in found if one.verdict == "disagree"]
    assert np.mean(alarmed) == pytest.approx(missing, rel=0.25)
    shortfall = [one.shortfall for one in found]
    np.testing.assert_allclose(shortfall, [-np.log1p(-one.missing) for one in found])


def test_few_groups_and_few_looks_are_no_alarm():
    rng = np.random.default_rng(1)
    assert compared(rng, missing=0.3, groups=5).verdict == "unchecked"
    assert compared(rng, missing=0.3, noise=6.0).verdict == "unchecked"
    # One look of large weight, far away, is nothing that a share can be made of.
    own, looks, log_w = rng.standard_normal((4, 500)), rng.standard_normal(1000), np.zeros(1000)
    looks[0], log_w[0] = 50.0, np.log(60.0)
    assert compare_draws(own, looks, log_w, np.arange(1000)).verdict == "agree"


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_mode_shows_in_a_cross_check(lost):
    model = two_modes()[0].model
    rng = np.random.default_rng(6)
    # 0.65 and 0.35 are the shares of the modes; the draws of one, or of both.
    which = np.zeros((4, 500), int) if lost else (rng.random((4, 500)) < 0.35).astype(int)
    run = posterior_tree(x=mode_draws(rng, which))
    options = {"methods": ["bridge_sampling", "smc"], "random_seed": 1, "progressbar": False}
    if lost:
        with pytest.warns(pmt.TemperingWarning, match="The draws lack a region"):
            found = pmt.cross_check(run, model, **options)
        assert found.draws.missing == pytest.approx(0.35, abs=4 * found.draws.mcse)
    else:
        found = pmt.cross_check(run, model, **options)
        assert found.draws.pvalue > ALPHA_DRAWS
    assert (found.draws.verdict == "disagree") == lost


def test_draws_that_cannot_be_compared_are_named():
    model = system("gaussian").model
    draws = np.random.default_rng(1).normal(size=(4, 20, system("gaussian").dim))
    run = posterior_tree(**{model.free_RVs[0].name: draws})
    with pytest.warns(pmt.TemperingWarning):
        check = pmt.cross_check(run, model, ["smc"], random_seed=1, progressbar=False)
    assert check.draws is None
    assert "20 draws a chain are too few" in check.left_out["draws"]
