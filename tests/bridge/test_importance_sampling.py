"""Importance sampling gives log Z with an honest error, and says where its weights explode."""

from importlib import import_module

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from support.compiled_systems import system
from support.exact_posteriors import (
    beta_draws,
    gaussian_draws,
    mode_draws,
    posterior_tree,
    target,
    two_modes,
)

import pymc_tempering as pmt
from pymc_tempering.bridge.importance_sampling import importance_states
from pymc_tempering.core.weighting import effective_number, log_mean, log_mean_error, pareto_khat

importance = import_module("pymc_tempering.bridge.importance_sampling")  # its function hides it

REPEATS = 300
SPREAD = 4.0 / np.sqrt(2 * REPEATS)


def test_weighted_mean_is_equations_18_44_and_18_46():
    log_w = np.random.default_rng(1).normal(size=50)
    w = np.exp(log_w)
    value, variance, ess = log_mean(log_w), log_mean_error(log_w) ** 2, effective_number(log_w)
    assert value == pytest.approx(np.log(w.mean()))
    # Z_0 = 1: var(Z) = sum (w - Z)^2 / K^2, relative to Z^2; here with K (K - 1)
    assert variance == pytest.approx(np.sum((w - w.mean()) ** 2) / (50 * 49) / w.mean() ** 2)
    assert ess == pytest.approx(w.sum() ** 2 / (w**2).sum())
    far = log_w + 1e5
    found = (log_mean(far), log_mean_error(far) ** 2, effective_number(far))
    assert found == pytest.approx((value + 1e5, variance, ess))
    none = np.full(5, -np.inf)
    found = (log_mean(none), log_mean_error(none), effective_number(none))
    assert found == (-np.inf, np.inf, 0.0)


@pytest.mark.parametrize("shape", [0.3, 0.9])
def test_khat_is_the_tail_of_the_weights(shape):
    w = stats.genpareto(shape).rvs(20_000, random_state=np.random.default_rng(2))
    assert pareto_khat(np.log(w)) == pytest.approx(shape, abs=0.15)
    padded = np.append(np.log(w), np.full(10, -np.inf))
    assert pareto_khat(padded) == pytest.approx(shape, abs=0.15)
    assert pareto_khat(np.zeros(100)) == -np.inf


CASES = {
    "normal": ("gaussian", "t", lambda rng: gaussian_draws("gaussian", rng, (4, 50))),
    "skewed": ("beta_binomial", "t", lambda rng: beta_draws(rng, (4, 50))),
    "mixture": ("gaussian", "mixture", lambda rng: gaussian_draws("gaussian", rng, (4, 100))),
}


def z_scores(case, repeats=REPEATS):
    name, proposal, draw = CASES[case]
    result = []
    for i in range(repeats):
        rng = np.random.default_rng([4, i])
        states = draw(rng)
        evidence = importance_states(target(name), states, rng=rng, proposal=proposal, draws=500)
        result.append((evidence.log_z - system(name).log_evidence) / evidence.mcse)
    return np.array(result)


@pytest.mark.parametrize("case", ["normal", "skewed"])
def test_the_stated_error_is_the_real_one(case):
    z = z_scores(case)
    assert abs(z.std() - 1.0) < SPREAD
    assert abs(z.mean()) < 4 / np.sqrt(REPEATS)


@pytest.mark.slow("repeats")
def test_the_stated_error_of_a_mixture_is_the_real_one():
    z = z_scores("mixture", 60)
    assert abs(z.std() - 1.0) < 4 / np.sqrt(120)
    assert abs(z.mean()) < 4 / np.sqrt(60)


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("bug", ["variance", "value"])
def test_calibration_sees_planted_bugs(bug, monkeypatch):
    if bug == "variance":
        monkeypatch.setattr(importance, "log_mean_error", lambda w: log_mean_error(w) / 2**0.5)
    else:
        monkeypatch.setattr(importance, "log_mean", lambda w: log_mean(w) + 0.01)
    z = z_scores("skewed")
    assert abs(z.std() - 1.0) > SPREAD or abs(z.mean()) > 4 / np.sqrt(REPEATS)


def test_weights_of_modes_among_the_draws_do_not_matter():
    two, found = two_modes()
    rng = np.random.default_rng(5)
    stuck = mode_draws(rng, np.repeat([[0], [1], [1], [1]], 300, axis=1))
    evidence = importance_states(found, stuck, rng=rng, proposal="mixture", draws=4000)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - two.log_evidence) < 4 * evidence.mcse < 0.1


@pytest.mark.slow("compiles models of its own")
def test_tails_that_the_proposal_misses_are_an_alarm():
    with pm.Model() as model:
        pm.StudentT("x", 2.5)
        pm.Potential("nothing", pm.math.constant(0.0))
    idata = posterior_tree(x=stats.t(2.5).rvs((4, 500), random_state=np.random.default_rng(6)))
    with pytest.warns(pmt.TemperingWarning, match=r"k-hat|effective draws"):
        evidence = pmt.importance_sampling(idata, model, proposal="normal", random_seed=1)
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert evidence.bias_direction == "below"
    safe = pmt.importance_sampling(idata, model, random_seed=1)
    assert abs(safe.log_z) < 4 * safe.mcse < 0.1


def test_weights_on_one_draw_are_an_alarm():
    rng = np.random.default_rng(7)
    states = gaussian_draws("gaussian", rng, (4, 50))
    evidence = importance_states(
        target("gaussian"), states + 40.0, rng=rng, proposal="normal", draws=500
    )
    assert evidence.mcse == np.inf
    assert "effective draws" in evidence.warnings[0]


def test_bad_arguments_are_refused_before_any_work():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=1.0)
    with pytest.raises(ValueError, match="one of"):
        pmt.importance_sampling(None, model, proposal="cauchy")
    with pytest.raises(ValueError, match="at least 20"):
        pmt.importance_sampling(None, model, draws=3)
    with pytest.raises(pmt.exceptions.DataMismatchError, match=r"lacks \['x'\]"):
        pmt.importance_sampling(posterior_tree(z=np.ones((4, 50))), model)
