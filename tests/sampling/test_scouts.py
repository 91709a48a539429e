"""Scouts climb, find the region that leads into a narrow mode, and say what they cost."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from support.compiled_systems import prior, system
from support.searches import fit_of, job_of, nowhere, region

from pymc_tempering import testsystems
from pymc_tempering.core.deadline import PAST
from pymc_tempering.model.path import CHEAP_WORK, compile_path
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import evaluate_draws
from pymc_tempering.sampling import climbs, evaluated
from pymc_tempering.sampling.climbs import scouting_of, send_scouts
from pymc_tempering.sampling.effort import SCOUTED_WORK, Effort

N_SCOUTS, SEEDS, NEEDLE_SD = 3000, range(10), 1 / 30


def ascend(*args, **kwargs):
    """Ends of ascents, and their evaluations."""
    ends, n_evaluations = climbs.ascend(*args, **kwargs)
    return SimpleNamespace(ends=ends, n_evaluations=n_evaluations)


def near(center, radius):
    return lambda states: ((states.xs - center) ** 2).sum(axis=1) < radius**2


def draws(of, n, seed):
    return of.draw(n, of.spawn(np.random.default_rng(seed)))


@cache
def needle():
    """A mode of half the mass and a thirtieth of the width, in two dimensions."""
    made = testsystems.gaussian_mixture(
        2, weights=(0.5, 0.5), scale=(1, NEEDLE_SD), positions=(-5, 5)
    )
    return made, compile_model(made.model)


@cache
def walled():
    """A standard normal times exp(-x^2), with zero density above 1."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("wall", pt.switch(x > 1.0, -np.inf, -(x**2)))
    return compile_path(model)


@pytest.mark.parametrize("name", ["gaussian", "long_path"])
def test_scouts_reach_a_normal_mode_in_few_evaluations(name):
    of = prior(name)
    [(mean, variance)] = system(name).moments(1.0).values()
    dim = np.size(mean)
    radius = dim + 5 * np.sqrt(2 * dim)
    home = lambda states: (((states.xs - mean) ** 2) / variance).sum(axis=1) < radius  # noqa: E731
    found = ascend(of.path, draws(of, 500, 1), draws(of, 500, 2).std(axis=0), region(home))
    assert found.ends.n == 0
    assert 500 <= found.n_evaluations < 8 * 500


def test_with_more_steps_they_end_at_the_top():
    of = prior("gaussian")
    [(mean, variance)] = system("gaussian").moments(1.0).values()
    found = ascend(of.path, draws(of, 50, 1), np.ones(2), nowhere, 60)
    assert found.ends.n == 50
    assert (np.abs(found.ends.xs - mean) / np.sqrt(variance)).max() < 1e-3


def scouts_at_the_needle(seed, max_steps=climbs.SCOUT_STEPS):
    """Number of scouts that end within three standard deviations of the needle."""
    made, of = needle()
    broad, narrow = made.mode_centers
    starts = draws(of, N_SCOUTS, seed)
    found = ascend(of.path, starts, starts.std(axis=0), region(near(broad, 3.5)), max_steps)
    return int(near(narrow, 3 * NEEDLE_SD)(found.ends).sum())


@pytest.mark.slow("compiles models of its own")
def test_some_of_three_thousand_scouts_end_at_the_needle():
    assert sum(scouts_at_the_needle(seed) > 0 for seed in SEEDS) >= 9


@cache
def beside_the_way(at=6.0, sd=0.3):
    """A broad mode at the origin, and a needle of as much mass beside the way to it."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 5.0, shape=2)
        center = at * np.array([0.8, 0.6])
        narrow = -((x - center) ** 2).sum() / (2 * sd**2) - 2 * np.log(sd)
        pm.Potential("modes", pt.logaddexp(-(x**2).sum() / 2, narrow))
    return compile_model(model), center, sd


def share_that_is_left(heading, monkeypatch):
    """Scouts at the needle where an ascent may end early, over those where none does."""
    of, center, sd = beside_the_way()
    monkeypatch.setattr(climbs, "HEADING", heading)
    squares = lambda states: (states.xs**2).sum(axis=1)  # noqa: E731
    counts = []
    for turns_back in (False, True):
        n = 0
        for seed in range(4):
            starts = draws(of, 4000, seed)
            known = region(lambda states: squares(states) < 12.0, squares)
            found = ascend(of.path, starts, starts.std(axis=0), known, turns_back=turns_back)
            n += near(center, 4 * sd)(found.ends).sum()
        counts.append(n)
    assert counts[0] > 500
    return counts[1] / counts[0]


@pytest.mark.slow("compiles models of its own")
def test_ascents_to_a_needle_beside_the_way_are_not_ended(monkeypatch):
    assert share_that_is_left(climbs.HEADING, monkeypatch) > 0.9


@pytest.mark.slow("compiles models of its own")
def test_ascents_that_end_after_one_step_toward_the_known_are_seen(monkeypatch):
    """Planted bug: half of what leads to the needle is left out."""
    assert share_that_is_left(1, monkeypatch) < 0.7


@cache
def valley():
    """A normal mode with scales from 1 to 100, which a dozen steps do not climb."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=8)
        pm.Potential("valley", -((x * np.geomspace(1.0, 100.0, 8)) ** 2).sum() / 2)
    return compile_model(model)


def test_ascents_on_their_way_to_what_is_known_end_early():
    """Fewer evaluations, and no ends that are only on their way; none where they lead away."""
    of, starts = valley(), draws(valley(), 500, 1)
    inside = lambda states: (states.xs**2).sum(axis=1) < 1e-4  # noqa: E731
    squares = lambda states: (states.xs**2).sum(axis=1)  # noqa: E731
    known = region(inside, squares)
    long = ascend(of.path, starts, np.ones(8), known)
    short = ascend(of.path, starts, np.ones(8), known, turns_back=True)
    assert short.n_evaluations < 0.9 * long.n_evaluations
    assert short.ends.n < 0.9 * long.ends.n
    known = region(inside, lambda states: 1 / squares(states))
    away = ascend(of.path, starts, np.ones(8), known, turns_back=True)
    assert away.n_evaluations == long.n_evaluations
    np.testing.assert_array_equal(away.ends.xs, long.ends.xs)


def test_without_steps_the_needle_is_seldom_met():
    assert sum(scouts_at_the_needle(seed, 0) > 0 for seed in SEEDS) <= 5


def gains():
    """Log target at the ends minus that at the starts."""
    _made, of = needle()
    starts = draws(of, 500, 3)
    found = ascend(of.path, starts, starts.std(axis=0), nowhere)
    assert found.ends.n == 500
    return found.ends.log_target - np.add(*evaluate_draws(of.path, starts))


def test_ascents_never_go_down():
    gained = gains()
    assert gained.min() >= 0.0
    assert np.median(gained) > 1.0


def test_a_step_that_is_never_taken_back_is_seen(monkeypatch):
    def blind(path, climbers, at, scale, longest, cores):
        new = climbs._place(
            path, climbers.xs[at] + 2.0 * climbers.grads[at] * scale, scale, 0, cores
        )
        climbers.xs[at], climbers.values[at], climbers.grads[at] = new.xs, new.values, new.grads
        return np.ones(len(at), dtype=bool)

    monkeypatch.setattr(climbs, "_step", blind)
    _made, of = needle()
    starts = draws(of, 500, 3)
    monkeypatch.setattr(climbs, "SCOUT_STEPS", 1)
    found = ascend(of.path, starts, starts.std(axis=0), nowhere, 1)
    assert (found.ends.log_target < np.add(*evaluate_draws(of.path, starts))[: found.ends.n]).any()


def test_the_terms_of_the_ends_are_those_of_the_model():
    of = prior("gaussian")
    found = ascend(of.path, draws(of, 40, 4), np.ones(2), nowhere)
    log_prior, log_likelihood = evaluate_draws(of.path, found.ends.xs)
    np.testing.assert_allclose(found.ends.log_prior, log_prior, rtol=1e-12)
    np.testing.assert_allclose(found.ends.log_likelihood, log_likelihood, rtol=1e-12)


def test_starts_without_a_density_are_dropped_and_no_scout_crosses_the_wall():
    starts = np.array([[np.nan], [np.inf], [2.0], [30.0], [0.99], [-3.0]])
    found = ascend(walled(), starts, np.ones(1), nowhere)
    assert found.ends.n == 2
    assert np.abs(found.ends.xs).max() < 1e-2
    assert np.isfinite(found.ends.log_target).all()
    none = ascend(walled(), starts[:4], np.ones(1), nowhere)
    assert none.ends.n == 0
    assert none.n_evaluations == 2  # the two finite states, once each


def test_the_evaluations_are_counted(monkeypatch):
    rows, original = [], evaluated.evaluate_terms

    def spy(path, xs, *rest):
        rows.append(len(xs))
        return original(path, xs, *rest)

    monkeypatch.setattr(evaluated, "evaluate_terms", spy)
    made, of = needle()
    starts = np.vstack([draws(of, 300, 5), np.full((2, 2), np.nan)])
    found = ascend(of.path, starts, np.ones(2), region(near(made.mode_centers[0], 3.5)))
    assert found.n_evaluations == sum(rows)
    assert rows[0] == 300
    assert 4 < len(rows) <= 1 + climbs.SCOUT_STEPS
    assert rows == sorted(rows, reverse=True)  # those that are home do not go on
    assert rows[-1] < rows[1]


def batches(monkeypatch, most, deadline=None):
    """Evaluations of each batch of scouts, and how many scouts it had; `most` may be spent."""
    rows, original = [], climbs.ascend

    def spy(path, starts, *args, **kwargs):
        found = original(path, starts, *args, **kwargs)
        rows.append((found[1], len(starts)))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(climbs, "ascend", spy)
        patch.setattr(climbs, "scouting_of", lambda job: most)
        job = job_of("gaussian", **({} if deadline is None else {"deadline": deadline}))
        ends = send_scouts(job, fit_of("gaussian"), np.ones(2))
    costs, sizes = np.array(rows).T
    assert job.tally.work["scouts"] == costs.sum()
    assert not fit_of("gaussian").home(ends).any()
    return costs, sizes


@pytest.mark.parametrize("most", [1, 5000, 100_000])
def test_scouts_stop_after_the_batch_that_has_met_their_bound(monkeypatch, most):
    """No batch begins once that is spent, and each is at most twice the one before."""
    costs, sizes = batches(monkeypatch, most)
    assert costs[:-1].sum() < most <= costs.sum()
    assert costs.sum() < 2.5 * most + (1 + climbs.SCOUT_STEPS) * climbs.SCOUT_BATCH
    doubled = climbs.SCOUT_BATCH * 2 ** np.arange(sizes.size)
    np.testing.assert_array_equal(sizes, np.minimum(doubled, climbs.MAX_SCOUT_BATCH))


def test_batches_without_a_bound_would_cost_more(monkeypatch):
    """Planted bug: the bound is ten times as far off."""
    costs, _ = batches(monkeypatch, 50_000)
    assert costs.sum() > 2.5 * 5000 + (1 + climbs.SCOUT_STEPS) * climbs.SCOUT_BATCH


def test_fewer_scouts_of_a_dear_density_are_no_more_than_are_needed(monkeypatch):
    whole, _ = batches(monkeypatch, 5000)
    monkeypatch.setattr(climbs, "SCOUTED_WORK", 0)
    costs, sizes = batches(monkeypatch, 5000)
    assert sizes[-1] < 2 * sizes[-2]
    assert 5000 <= costs.sum() < 5500 < whole.sum()


def test_after_the_deadline_there_is_one_batch(monkeypatch):
    costs, sizes = batches(monkeypatch, 100_000, deadline=PAST)
    assert (costs.tolist(), sizes.tolist()) == ([500], [500])


def test_scouts_are_as_many_as_their_work_allows():
    """Bounds in evaluations, and between them a number of elements."""
    job = job_of("gaussian")

    def bound(work):
        path = replace(job.prior.path, work=work)
        return scouting_of(replace(job, prior=replace(job.prior, path=path)))

    assert bound(1) == climbs.MOST_SCOUTING
    assert bound(CHEAP_WORK) == bound(SCOUTED_WORK) == Effort().scouting
    assert bound(2 * SCOUTED_WORK) == Effort().scouting // 2
    assert bound(10**9) == 2000
    between = [bound(work) for work in (500, 1000, 2000, 4000)]
    np.testing.assert_allclose(np.array(between) * [500, 1000, 2000, 4000], climbs.SCOUT_WORK)
    assert scouting_of(job) == bound(job.prior.path.work)
