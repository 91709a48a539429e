"""Scouts climb, find the region that leads into a narrow mode, and say what they cost."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from support.compiled_systems import prior, system

from pymc_tempering import testsystems
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import evaluate_draws
from pymc_tempering.sampling import gradients, scouts
from pymc_tempering.sampling.scouts import ascend

N_SCOUTS, SEEDS, NEEDLE_SD = 3000, range(10), 1 / 30


def nowhere(states):
    return np.zeros(states.n, dtype=bool)


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
    found = ascend(of.path, draws(of, 500, 1), draws(of, 500, 2).std(axis=0), home)
    assert found.ends.n == 0
    assert 500 <= found.n_evaluations < 8 * 500


def test_with_more_steps_they_end_at_the_top():
    of = prior("gaussian")
    [(mean, variance)] = system("gaussian").moments(1.0).values()
    found = ascend(of.path, draws(of, 50, 1), np.ones(2), nowhere, 60)
    assert found.ends.n == 50
    assert (np.abs(found.ends.xs - mean) / np.sqrt(variance)).max() < 1e-3


def scouts_at_the_needle(seed, max_steps=scouts.MAX_STEPS):
    """Number of scouts that end within three standard deviations of the needle."""
    made, of = needle()
    broad, narrow = made.mode_centers
    starts = draws(of, N_SCOUTS, seed)
    found = ascend(of.path, starts, starts.std(axis=0), near(broad, 3.5), max_steps)
    return int(near(narrow, 3 * NEEDLE_SD)(found.ends).sum())


def test_some_of_three_thousand_scouts_end_at_the_needle():
    assert sum(scouts_at_the_needle(seed) > 0 for seed in SEEDS) >= 9


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
    def blind(path, climbers, at, scale):
        new = scouts._place(path, climbers.xs[at] + 2.0 * climbers.grads[at] * scale, scale)
        climbers.xs[at], climbers.values[at], climbers.grads[at] = new.xs, new.values, new.grads
        return np.ones(len(at), dtype=bool)

    monkeypatch.setattr(scouts, "_step", blind)
    _made, of = needle()
    starts = draws(of, 500, 3)
    monkeypatch.setattr(scouts, "MAX_STEPS", 1)
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
    rows, original = [], gradients.evaluate_rows

    def spy(density, xs, *rest):
        rows.append(len(xs))
        original(density, xs, *rest)

    monkeypatch.setattr(gradients, "evaluate_rows", spy)
    made, of = needle()
    starts = np.vstack([draws(of, 300, 5), np.full((2, 2), np.nan)])
    found = ascend(of.path, starts, np.ones(2), near(made.mode_centers[0], 3.5))
    assert found.n_evaluations == sum(rows)
    assert rows[0] == 300
    assert 4 < len(rows) <= 1 + scouts.MAX_STEPS
    assert rows == sorted(rows, reverse=True)  # those that are home do not go on
    assert rows[-1] < rows[1]
