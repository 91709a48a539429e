"""Arrivals: which looks count, how others are moved on, and where all of that ends."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from support.compiled_systems import system
from support.counted_deadline import CountedDeadline
from support.searches import annealed, fit_of, job_of, no_scouts, nowhere

import pymc_tempering as pmt
from pymc_tempering.evidence import reference_check
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.reference_check import MIN_ARRIVALS
from pymc_tempering.sampling import search as searching
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states
from pymc_tempering.sampling.fit_reference import Passes, ReferenceFit
from pymc_tempering.sampling.search import (
    Away,
    Looks,
    arrived_at,
    bring_home,
    has_arrived,
    is_above,
    way_home,
)


def at_heights(log_likelihood, log_target):
    """States with these log-likelihoods and log densities."""
    likely, dense = np.array(log_likelihood, dtype=float), np.array(log_target, dtype=float)
    return Evaluated(np.zeros((likely.size, 1)), dense - likely, likely)


def who_arrived():
    """Against draws whose log-likelihood is 0 to 999, and whose log density is 1000 higher."""
    draws = at_heights(np.arange(1000), 1000 + np.arange(1000))
    states = at_heights([9, 10, 500, 500, 9, 5000, -np.inf], [1500, 1500, 1009, 1010, 1e9, 1e4, 0])
    return has_arrived(states, draws).tolist()


ARRIVED = [False, True, False, True, False, True, False]


def test_a_look_has_arrived_if_both_heights_are_those_of_draws():
    """Log-likelihood and log density above the quantiles of 1 % (9.99 and 1009.99)."""
    assert who_arrived() == ARRIVED
    draws = fit_of("gaussian").draws
    assert 0.97 < has_arrived(draws, draws).mean() < 0.995
    of = job_of("gaussian").prior
    prior_draws = evaluate_states(of, of.draw(1000, of.spawn(np.random.default_rng(1))))
    assert has_arrived(prior_draws, draws).mean() < 0.5


@pytest.mark.parametrize("quantile", [0.0, 0.009, 0.011, 0.5])
def test_another_quantile_is_seen(monkeypatch, quantile):
    monkeypatch.setattr(searching, "ARRIVAL_QUANTILE", quantile)
    assert who_arrived() != ARRIVED


def test_a_state_is_above_all_draws_if_both_heights_are():
    draws = at_heights([0, 7, 3], [10, 12, 15])
    states = at_heights([7, 8, 8, 6, 8], [16, 15, 16, 99, -np.inf])
    assert is_above(states, draws).tolist() == [False, False, True, False, False]
    assert not is_above(draws, draws).any()


def test_a_look_that_the_fit_hardly_covers_has_not_arrived(monkeypatch):
    """Planted: height alone, by which a look in a mode that nobody knows arrives."""
    fit, shifted = fit_of("gaussian"), fit_of("gaussian").draws
    assert arrived_at(shifted, fit).mean() > 0.95
    monkeypatch.setattr(ReferenceFit, "suspects", lambda fit, states: np.arange(states.n) % 2 == 0)
    assert not arrived_at(shifted, fit)[::2].any()
    assert has_arrived(shifted, fit.draws)[::2].mean() > 0.95


def test_arrivals_at_one_mode_speak_for_no_other():
    """Two modes with .65 and .35 of the draws. Planted: all that arrives counts for all."""
    fit = fit_of("two_modes")
    off = fit.draws.xs[:, None] - system("two_modes").mode_centers
    first = (off**2).sum(axis=2).argmin(axis=1) == 0
    assert fit.share_near(fit.draws) == 1.0
    for mode in (first, ~first):
        assert fit.share_near(fit.draws.at(mode)) == pytest.approx(mode.mean(), abs=0.01)
    assert 0.5 < first.mean() < 0.8
    assert fit.share_near(fit.draws.at(first[:0].nonzero()[0])) == 0.0


def move(monkeypatch, n=60, bound=10**9, most=10**9, **how):
    """Move states none of which ever comes home; returns the ways and how many moved at a time."""
    sweeps, original = [], searching.sweep

    def spy(particles, beta, params, n=1, part=slice(None)):
        sweeps.append(len(particles.xs[part]))
        return original(particles, beta, params, n, part)

    job = job_of("gaussian", deadline=CountedDeadline(most=most))
    passes = Passes((replace(annealed("gaussian"), n_evaluations=0),))
    xs = job.prior.draw(n, job.prior.spawn(job.rng))
    with monkeypatch.context() as patch:
        patch.setattr(ReferenceFit, "home", lambda known, states: nowhere(states)[0])
        patch.setattr(searching, "sweep", spy)
        patch.setattr(searching, "MIN_HOME_COST", bound)
        away = way_home(job, passes, fit_of("gaussian"), xs, **how)
    assert away.ends.n == away.at.size
    found = SimpleNamespace(away=away.at, ended=away.ended, n_evaluations=job.tally.work["looks"])
    return found, sweeps


WHOLE = len(searching.HOME_STAGES) * searching.HOME_SWEEPS
"""Transitions of a round in which none comes home; there is one for each factor of the steps."""


@pytest.mark.parametrize("patient", [True, False])
def test_states_that_stay_away_are_given_up_after_a_round(monkeypatch, patient):
    ways, sweeps = move(monkeypatch, patient=patient)
    rounds = len(searching.HOME_STEPS) if patient else 1
    assert sum(sweeps) == rounds * WHOLE * 60
    assert max(sweeps) == searching.PART
    assert (ways.away.tolist(), ways.ended) == (list(range(60)), False)
    assert ways.n_evaluations > sum(sweeps) + 60


@pytest.mark.parametrize("most", [1, 7, 100])
def test_the_way_home_ends_at_the_deadline(monkeypatch, most):
    """Asked before each part of the states, so that none moves once it is over."""
    ways, sweeps = move(monkeypatch, most=most)
    assert len(sweeps) <= most
    assert len(sweeps) >= 0.9 * (most - 2)
    assert (ways.away.size, ways.ended) == (60, True)


def over_bound(monkeypatch, bound, told):
    """Evaluations beyond a bound, in what one stage takes; another bound may be told."""
    ways, sweeps = move(monkeypatch, bound=told)
    stage = ways.n_evaluations / (sum(sweeps) / 60) * searching.HOME_SWEEPS
    return (ways.n_evaluations - bound) / stage, ways.ended


@pytest.mark.slow("compiles models of its own", quick=["0"])
@pytest.mark.parametrize("bound", [0, 5000, 20_000])
def test_the_way_home_ends_at_its_bound(monkeypatch, bound):
    """With the stage in which it was met; planted: without the bound it goes on for far longer."""
    over, ended = over_bound(monkeypatch, bound, bound)
    assert -0.01 < over < 1.7  # stages differ in what they take
    assert ended
    over, ended = over_bound(monkeypatch, bound, 10**9)
    assert over > 4.0
    assert not ended


def test_states_of_the_posterior_are_home_and_cost_one_sweep():
    job, xs = job_of("gaussian"), fit_of("gaussian").draws.xs[:40]
    away = way_home(job, Passes((annealed("gaussian"),)), fit_of("gaussian"), xs)
    assert away.at.size <= 1
    assert not away.ended


def all_stay(job, passes, fit, xs, **how):
    """No state comes home."""
    job.tally.work["looks"] += 10 * len(xs)
    return Away(np.arange(len(xs)), evaluate_states(job.prior, xs), ended=False)


def mixed(n, n_arrived):
    """Of n states the first so many are posterior draws, and the others lie far away."""
    draws = fit_of("gaussian").draws
    xs = draws.xs[has_arrived(draws, draws)][:n]
    xs[n_arrived:] = 40.0 + np.arange(n - n_arrived)[:, None]
    return evaluate_states(job_of("gaussian").prior, xs)


def searched(monkeypatch, shares, cost=0.001, ways=all_stay):
    """Search with looks of which so many in 50 arrive by themselves, the last number in all others.

    A look costs a part of what the annealed passes took. Returns the search and the calls.
    """
    job, calls = job_of("gaussian"), []
    passes = Passes((annealed("gaussian"),) * 3)

    def take(job, annealed, n, finer=1):
        share = shares[min(len(calls), len(shares) - 1)]
        calls.append((n, finer))
        n_evaluations = int(cost * n * passes.n_evaluations)
        return Looks(mixed(n, share * n // 50), np.zeros(n), n_evaluations)

    with monkeypatch.context() as patch:
        patch.setattr(searching, "take_looks", take)
        patch.setattr(searching, "send_scouts", no_scouts)
        patch.setattr(searching, "way_home", ways)
        return searching.search(job, passes, fit_of("gaussian")), calls


def test_where_looks_arrive_there_are_no_further_ones(monkeypatch):
    found, calls = searched(monkeypatch, [25])
    assert calls == [(100, 1)]
    assert found.last.arrived.sum() == 50
    assert not found.last.strange.any()


def test_further_looks_go_slower_and_are_taken_until_twenty_have_arrived(monkeypatch):
    """Four of the first hundred, and then five of each fifty: four times."""
    found, calls = searched(monkeypatch, [2, 5], cost=1e-5)
    assert calls == [(100, 1), *[(50, searching.FINER)] * 4]
    assert found.last.arrived.tolist() == (
        [True] * 4 + [False] * 96 + ([True] * 5 + [False] * 45) * 4
    )
    assert found.last.looks.n == found.last.strange.size == 300


def spent_on_looks(monkeypatch):
    """Evaluations of looks none of which arrives, over those of the annealed passes."""
    found, _calls = searched(monkeypatch, [0], cost=0.0005)
    assert found.settled
    assert found.last.arrived.sum() == 0
    return found.last.looks.n_evaluations / Passes((annealed("gaussian"),) * 3).n_evaluations


def test_looks_that_never_arrive_are_given_up_after_a_counted_bound(monkeypatch):
    """That of 100 looks, and the batch in which it was met."""
    patience = 100 * searching.LOOKING[0]
    batch = 0.0005 * searching.LOOK_BATCH[0]
    assert patience < spent_on_looks(monkeypatch) <= patience + batch + 1e-3
    monkeypatch.setattr(searching, "LOOKING", (3.0 * searching.LOOKING[0], 0.0))
    assert spent_on_looks(monkeypatch) > patience + batch + 1e-3  # planted: another bound


def test_looks_that_would_need_too_many_evaluations_are_given_up(monkeypatch):
    """One in a hundred arrives: twenty of them would take more than the bound, so none is waited
    for; where the same looks are cheap they all are."""
    dear, _ = searched(monkeypatch, [1], cost=0.01)
    assert dear.last.arrived.sum() < MIN_ARRIVALS
    cheap, _ = searched(monkeypatch, [1], cost=1e-6)
    assert cheap.last.arrived.sum() == MIN_ARRIVALS


def test_looks_are_moved_on_as_long_as_a_block_brings_some_home(monkeypatch):
    """Of blocks of 25 all but five come home, then none."""
    blocks, passes = [], Passes((annealed("gaussian"),))

    def ways(job, passes, fit, xs, *, patient):
        assert not patient
        blocks.append(len(xs))
        away = np.arange(20 if len(blocks) == 1 else 0, len(xs))
        job.tally.work["looks"] += 7
        return Away(away, evaluate_states(job.prior, xs[away] + 0.5), ended=False)

    monkeypatch.setattr(searching, "way_home", ways)
    fit = fit_of("gaussian")
    job = job_of("gaussian")
    looks = mixed(100, 0)
    arrived, away = bring_home(job, passes, fit, looks)
    assert (blocks, job.tally.work["looks"], arrived.sum()) == ([25], 7, 20)
    assert arrived[:20].all()
    assert away.at.tolist() == list(range(20, 25))
    assert (away.ends.xs == looks.xs[20:25] + 0.5).all()
    blocks[:] = [1]
    job = job_of("gaussian")
    arrived, _ = bring_home(job, passes, fit, mixed(100, 3))
    assert (blocks[1:], job.tally.work["looks"], arrived.sum()) == ([25], 7, 3)
    blocks.clear()
    job = job_of("gaussian")
    arrived, _ = bring_home(job, passes, fit, mixed(100, 30))
    assert (blocks, job.tally.work["looks"], arrived.sum()) == ([], 0, 30)


@cache
def far_posterior():
    """Heavy tails about a point: from afar there is hardly a slope, and the mass is a thousandth of
    the prior's width."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=4)
        pm.Potential("peak", -8.0 * pt.log1p(((x - 1.0) ** 2).sum() / 1e-6))
    return model


def sampled():
    idata = pmt.sample(300, model=far_posterior(), random_seed=1, cores=1, quiet=True)
    return estimate_quietly(idata)


def stay_at_the_prior(job, annealed, n, finer=1):
    """Looks that are fresh prior draws, with their weights."""
    ends = evaluate_states(job.prior, job.prior.draw(n, job.prior.spawn(job.rng)))
    return Looks(ends, ends.log_likelihood, 100_000)


@pytest.mark.slow("compiles models of its own")
def test_looks_that_stay_at_the_prior_never_agree(monkeypatch):
    """Planted: by the old rule, to which every look counted, the same looks agreed."""
    assert sampled().verdict == "ok"
    monkeypatch.setattr(searching, "take_looks", stay_at_the_prior)
    evidence = sampled()
    assert (evidence.verdict, evidence.check.verdict) == ("unchecked", "unchecked")
    assert evidence.check.n_arrived == 0
    assert evidence.check.n_looks >= evidence.check.needed
    assert "looks from the prior came to where the posterior is" in evidence.warnings[0]
    monkeypatch.setattr(reference_check, "MIN_ARRIVALS", 0)
    assert sampled().check.verdict == "agreed"
