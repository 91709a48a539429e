"""Evidence of changed models from reweighted runs: values, errors and what they are made of.

200 synthetic runs of the Gaussian toy, whose prior's scale is multiplied. A standard deviation of
200 z-scores is within [0.8, 1.2] but for 1 in 10,000 seeds, their mean within 0.3.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from support.repeated_runs import GAUSSIAN_TOY as TOY, repeated_trees

from pymc_tempering.core.weighting import khat_limit
from pymc_tempering.evidence import reweight as module
from pymc_tempering.evidence.datatree import read_cycles, read_states
from pymc_tempering.evidence.reweight import (
    moments,
    posterior_draws,
    reweight,
    state_draws,
    unseen_tail,
)
from pymc_tempering.evidence.rts import rts

FACTORS = np.array([0.5, 0.7, 1.0, 2.0, 4.0])
EXACT = stats.norm.logpdf(TOY.y, 0.0, np.sqrt(FACTORS**2 + TOY.sigma**2))
DEFAULT = 2
N = 200


def weighted(tree, kind, cycles):
    """Draws of a run with their weights, and their values."""
    if kind == "draws":
        draws, keep = posterior_draws(cycles)
        return draws, tree["posterior"]["x"].values[keep]
    states = read_states(tree)
    values = states.variables["x"].transpose("chain", "state").values[states.keep]
    return state_draws(states), values


def change_of(x, factors=FACTORS):
    """Log ratio of the scaled prior to the standard normal."""
    return stats.norm.logpdf(x[:, None], 0.0, factors) - stats.norm.logpdf(x[:, None])


@cache
def runs(kind):
    read = [(tree, read_cycles(tree)) for tree in repeated_trees(N, rho=0.5)]
    return [(*weighted(tree, kind, cycles), rts(cycles)) for tree, cycles in read]


def z_scores(kind, error="joint"):
    """z-scores of log Z and of log BF, shape (runs, factors) each."""
    rows = []
    for draws, x, evidence in runs(kind):
        found = reweight(draws, change_of(x), evidence)
        mcse = found.mcse
        if error == "added":  # as if the two parts were independent
            mcse = np.hypot(evidence.mcse, found.log_ratio_mcse)
        off = evidence.log_z + found.log_ratio - EXACT
        with np.errstate(invalid="ignore"):
            bf = (found.log_ratio - (EXACT - EXACT[DEFAULT])) / found.log_ratio_mcse
        rows.append((off / mcse, bf))
    return (np.array(part) for part in zip(*rows, strict=True))


def sound(z):
    return np.all(np.abs(z.std(axis=0) - 1.0) < 0.2) and np.all(np.abs(z.mean(axis=0)) < 0.3)


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("kind", ["draws", "states"])
def test_values_are_right_and_errors_the_real_ones(kind):
    z, bf = z_scores(kind)
    assert sound(z)
    assert sound(np.delete(bf, DEFAULT, axis=1))


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("kind", ["draws", "states"])
def test_errors_that_forget_the_covariance_are_found(kind):
    """Planted: variances of log Z and of the ratio added, though both are of the same draws."""
    z, _ = z_scores(kind, error="added")
    assert not sound(z)
    assert z[:, 0].std() < (0.9 if kind == "draws" else 0.7)


@pytest.mark.slow("compiles models of its own")
def test_a_scale_the_wrong_way_round_is_found(monkeypatch):
    plain = change_of
    monkeypatch.setattr("test_reweight.change_of", lambda x: plain(x, 1.0 / FACTORS))
    z, _ = z_scores("draws")
    assert not sound(z)


@pytest.mark.slow("compiles models of its own")
def test_a_forgotten_normalizing_constant_is_found(monkeypatch):
    """Planted: the density of b / c without its 1 / c."""
    plain = change_of
    monkeypatch.setattr("test_reweight.change_of", lambda x: plain(x) + np.log(FACTORS))
    z, _ = z_scores("draws")
    assert not sound(z)


@pytest.mark.slow("compiles models of its own")
def test_states_without_weights_are_found(monkeypatch):
    rows = [(replace(d, weight=np.ones(d.weight.size)), x, e) for d, x, e in runs("states")]
    monkeypatch.setattr("test_reweight.runs", lambda kind: rows)
    z, _ = z_scores("states")
    assert not sound(z)


@pytest.mark.slow("compiles models of its own")
def test_all_states_are_worth_more_than_the_draws():
    at = [0, 1]
    errors = {
        kind: np.median(
            [reweight(d, change_of(x), e).log_ratio_mcse[at] for d, x, e in runs(kind)[:50]], axis=0
        )
        for kind in ("draws", "states")
    }
    assert np.all(errors["states"] < 0.8 * errors["draws"])


def test_the_default_is_the_evidence_itself():
    draws, x, evidence = runs("draws")[0]
    found = reweight(draws, change_of(x), evidence)
    assert (found.log_ratio[DEFAULT], found.log_ratio_mcse[DEFAULT]) == (0.0, 0.0)
    assert found.khat[DEFAULT] == -np.inf
    assert found.ess[DEFAULT] == pytest.approx(x.size)
    assert found.mcse[DEFAULT] == pytest.approx(evidence.mcse, rel=0.1)
    assert found.mcse[DEFAULT] >= evidence.mcse - 1e-12


def test_far_scales_have_a_large_khat_and_no_error():
    draws, x, evidence = runs("draws")[0]
    found = reweight(draws, change_of(x, np.array([0.05, 0.7])), evidence)
    assert draws.khat_limit == khat_limit(x.size)
    assert found.khat[0] > draws.khat_limit > found.khat[1]
    assert found.log_ratio_mcse[0] == found.mcse[0] == np.inf  # one tour holds the weight


def test_an_evidence_without_error_gives_none():
    draws, x, evidence = runs("draws")[0]
    found = reweight(draws, change_of(x), replace(evidence, mcse=np.inf, verdict="unchecked"))
    assert np.all(np.isinf(found.mcse))
    assert np.all(np.isinf(np.delete(found.log_ratio_mcse, DEFAULT)))


def test_what_the_evidence_adds_to_its_error_is_kept():
    draws, x, evidence = runs("draws")[0]
    plain = reweight(draws, change_of(x), evidence)
    wide = reweight(draws, change_of(x), replace(evidence, mcse=1.0, verdict="disagreed"))
    assert wide.mcse[DEFAULT] == pytest.approx(1.0, rel=0.01)
    assert np.all(wide.mcse > 0.9)
    assert np.all(wide.log_ratio_mcse >= plain.log_ratio_mcse)


def test_moments_are_those_of_the_changed_posterior():
    rows = []
    for draws, x, _ in runs("states"):
        mean, sd, mcse = moments(draws, change_of(x), np.column_stack([x, x**2]))
        precision = FACTORS**-2.0 + TOY.sigma**-2.0
        exact = TOY.y / TOY.sigma**2 / precision
        rows.append((mean[:, 0] - exact) / mcse[:, 0])
        np.testing.assert_allclose(sd[:, 0], precision**-0.5, rtol=0.5)
    assert sound(np.array(rows))


def test_draws_without_density_count_as_zero():
    draws, x, evidence = runs("draws")[0]
    cut = np.where(x[:, None] > 1.5, 0.0, -np.inf)
    found = reweight(draws, cut, evidence)
    assert found.log_ratio[0] == pytest.approx(np.log(np.mean(x > 1.5)))
    none = module.shares(draws.weight, np.full((x.size, 1), -np.inf))
    assert none[1][0] == -np.inf


def test_the_unseen_tail_is_that_of_a_pareto_law():
    """E[max(w - largest, 0)] of a Pareto law, by its quantiles, is largest k / (1 - k) / n."""
    k, n = 0.6, 1000
    largest = n**k  # the quantile 1 - 1 / n of the law with P(w > x) = x^(-1 / k)
    mean = 1.0 / (1.0 - k)
    beyond = largest / (1.0 / k - 1.0) / n  # the integral of the tail
    found = unseen_tail(np.array([largest / (n * mean)] * 3), np.array([k, -0.2, 1.2]))
    np.testing.assert_allclose(found, [beyond / mean, 0.0, np.inf])
