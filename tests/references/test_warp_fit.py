"""Funnels are found where they are, nowhere else, and the fitted reference covers the posterior."""

from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp
from support.varying_intercepts import VaryingIntercepts

from pymc_tempering.references import mixture_fit, warp_fit
from pymc_tempering.references.mixture_fit import fit_mixture
from pymc_tempering.references.warp import FunnelWarp
from pymc_tempering.references.warp_fit import PriorDraws, fit_warp, prior_effects

N = 2000


@cache
def system(n_groups=3, centered=True, seed=0):
    return VaryingIntercepts(n_groups, centered, n=50 if n_groups < 20 else 100, seed=seed)


@pytest.mark.slow("compiles models of its own", quick=["2000-3"])
@pytest.mark.parametrize("n_groups", [3, 8])
@pytest.mark.parametrize("n", [500, N])
def test_effects_are_found_centered_or_not(n_groups, n):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        for centered in (True, False):
            own = system(n_groups, centered, seed)
            warp = fit_warp(PriorDraws(own.prior_draws(N, rng)), own.posterior_draws(n, rng))
            effects = np.isin(warp.index, np.arange(4, 4 + n_groups))
            assert effects.sum() == n_groups
            assert (warp.scale == 3).all()
            assert (warp.gamma == 1.0).all()
            assert (warp.centered[effects] == centered).all()
            assert (warp.falls[effects] != centered).all()
            if centered:
                assert np.abs(warp.log_sd[effects]).max() < 0.1
                assert not warp.prior_mean[effects].any()


def neal(rng, n):
    v = 3 * rng.normal(size=n)
    return np.column_stack([v, np.exp(v / 2)[:, None] * rng.normal(size=(n, 9))])


def precision(rng, n):
    log_precision = np.log(rng.gamma(2.0, size=n))
    effects = np.exp(-0.5 * log_precision)[:, None] * rng.normal(size=(n, 5))
    return np.column_stack([log_precision, effects])


def bounded(rng, n):
    """A scale that is uniform on (0, 10), by its logit."""
    share = rng.random(n)
    effects = 10 * share[:, None] * rng.normal(size=(n, 4))
    return np.column_stack([np.log(share) - np.log1p(-share), effects])


def walk(rng, n):
    log_sd = np.log(np.abs(rng.normal(size=n)))
    steps = np.exp(log_sd)[:, None] * rng.normal(size=(n, 8))
    return np.column_stack([log_sd, np.cumsum(steps, axis=1)])


@pytest.mark.parametrize(
    ("draw", "kind"),
    [(neal, (0.5, 0)), (precision, (-0.5, 0)), (bounded, (1.0, 1)), (walk, (1.0, 0))],
)
def test_kind_of_the_scale_is_read_from_the_prior(draw, kind):
    rng = np.random.default_rng(1)
    warp = fit_warp(PriorDraws(draw(rng, N)), draw(rng, N))
    assert (warp.centered == 1).all()
    assert (warp.scale == 0).all()
    assert set(zip(warp.gamma, warp.bounded, strict=True)) == {kind}
    if draw is walk:  # each step starts at the last one
        assert warp.regressors[1:, 0].tolist() == list(range(1, 8))
        assert (warp.prior_mean[1:, 1] == 1).all()


def correlated(rng, n):
    return rng.normal(size=(n, 6)) @ rng.normal(size=(6, 6))


def heavy(rng, n):
    return correlated(rng, n) / np.sqrt(rng.chisquare(3, size=(n, 1)) / 3)


def two_modes(rng, n):
    """Modes with different spreads, which look like a scale until a mixture is fitted."""
    left = rng.random(n) < 0.4
    return (
        np.where(left, 1.0, 0.3)[:, None] * rng.normal(size=(n, 3))
        + np.where(left, 5.0, -5.0)[:, None] * np.eye(3)[0]
    )


def regression(rng, n):
    """Posterior of four coefficients and log sigma under flat priors, from 20 observations."""
    design = np.column_stack([np.ones(20), rng.normal(size=(20, 3))])
    y = design.sum(axis=1) + rng.normal(size=20)
    covariance = np.linalg.inv(design.T @ design)
    mean = covariance @ design.T @ y
    sigma = np.sqrt(((y - design @ mean) ** 2).sum() / rng.chisquare(16, size=n))
    noise = rng.normal(size=(n, 4)) @ np.linalg.cholesky(covariance).T
    return np.column_stack([mean + sigma[:, None] * noise, np.log(sigma)])


@pytest.mark.slow("compiles models of its own", quick=["heavy"])
@pytest.mark.parametrize("draw", [correlated, heavy, regression])
def test_no_warp_without_a_funnel(draw):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        draws = draw(rng, 1000)
        prior = 5 * rng.normal(size=(N, draws.shape[1]))
        assert fit_warp(PriorDraws(prior), draws) is None


@pytest.mark.slow("compiles models of its own", quick=["correlated"])
@pytest.mark.parametrize("draw", [correlated, two_modes])
def test_without_a_warp_the_fit_is_that_without_prior_draws(draw):
    """To the last bit, and the generator is left in the same state."""
    for seed in range(5):
        draws = draw(np.random.default_rng(seed), 1000)
        prior = 5 * np.random.default_rng(seed + 100).normal(size=(N, draws.shape[1]))
        first, second = np.random.default_rng(1), np.random.default_rng(1)
        plain, fit = fit_mixture(draws, first), fit_mixture(draws, second, None, PriorDraws(prior))
        assert fit.warp is None
        np.testing.assert_array_equal(plain.pack(), fit.pack())
        assert first.random() == second.random()


def largest_ratios(own, mixture, seed=9):
    """Posterior mean of posterior over reference, and the largest log of it in 20,000 draws."""
    xs = own.posterior_draws(20_000, np.random.default_rng(seed))
    log_prior, log_likelihood = own.log_parts(xs)
    log_t = logsumexp(mixture.log_t(xs), axis=1)
    log_reference = np.logaddexp(np.log(0.95) + log_t, np.log(0.05) + log_prior)
    logs = log_prior + log_likelihood - own.log_evidence - log_reference
    return np.exp(logs).mean(), logs.max()


@pytest.mark.slow("compiles models of its own", quick=["3-True-1"])
@pytest.mark.parametrize(
    ("n_groups", "centered", "seed"),
    [(3, True, 1), (3, False, 1), (5, False, 0), (8, True, 2), (20, True, 0), (20, False, 0)],
)
def test_reference_covers_the_posterior(n_groups, centered, seed):
    """Below 3 and 7 with the warp. Without it the mean is above 20 (the largest term decides)."""
    own, rng = system(n_groups, centered, seed), np.random.default_rng(1)
    draws, prior = own.posterior_draws(1500, rng), own.prior_draws(N, rng)
    mean, largest = largest_ratios(own, fit_mixture(draws, rng, None, PriorDraws(prior)))
    assert mean < 3
    assert largest < 7
    mean, largest = largest_ratios(own, fit_mixture(draws, rng))
    assert mean > 20
    assert largest > 10


def test_effects_that_do_not_fall_are_seen(monkeypatch):
    """Planted bug: f of non-centered effects is 0 in the warp."""

    def planted(*args):
        warp = fit_warp(*args)
        values = {name: getattr(warp, name) for name in warp.__dataclass_fields__}
        return FunnelWarp(**values | {"falls": np.zeros(len(warp.index))})

    monkeypatch.setattr(mixture_fit, "fit_warp", planted)
    own, rng = system(3, False, 1), np.random.default_rng(1)
    draws, prior = own.posterior_draws(1500, rng), own.prior_draws(N, rng)
    monkeypatch.setattr(mixture_fit, "MIN_GAIN", -np.inf)
    assert largest_ratios(own, fit_mixture(draws, rng, None, PriorDraws(prior)))[0] > 6


def test_fit_starts_from_an_earlier_one():
    own, rng = system(8, False), np.random.default_rng(2)
    draws, prior = own.posterior_draws(N, rng), own.prior_draws(N, rng)
    first = fit_mixture(draws[:500], rng, None, PriorDraws(prior))
    second = fit_mixture(draws, rng, first, PriorDraws(prior))
    assert second.warp.alike(first.warp)
    none = fit_mixture(rng.normal(size=(N, 12)), rng, first, PriorDraws(rng.normal(size=(N, 12))))
    assert none.warp is not None  # an earlier warp is kept


def test_degenerate_columns_are_survived():
    own, rng = system(3, True), np.random.default_rng(3)
    draws, prior = own.posterior_draws(500, rng), own.prior_draws(N, rng)
    double = lambda xs: np.column_stack([xs[:, :2], xs[:, :1], 0 * xs[:, :1], xs[:, 2:]])  # noqa: E731
    prior[7, 0] = np.nan
    warp = fit_warp(PriorDraws(double(prior)), double(draws))
    assert (warp.scale == 5).all()
    for name in ("log_sd", "log_v", "log_kappa", "prior_mean", "likelihood_mean"):
        assert np.isfinite(getattr(warp, name)).all()


def test_what_falls_may_be_the_mean_of_effects():
    """Planted: rows in the order in which they were, by f first: the draws had another law."""
    rng = np.random.default_rng(4)
    t, z = 0.5 * rng.normal(size=N), rng.normal(size=N)
    effects = z[:, None] + np.exp(t)[:, None] * rng.normal(size=(N, 3))
    prior = np.column_stack([t, z, effects])
    fallen = np.exp(-t) * (1.0 + 0.1 * rng.normal(size=N))
    near = fallen[:, None] + np.exp(t)[:, None] * rng.normal(size=(N, 3))
    draws = np.column_stack([t, fallen, near])
    warp = fit_warp(PriorDraws(prior), draws)
    assert warp.falls[warp.index == 1] == 1.0
    assert (warp.regressors[warp.index > 1] == 1).any(axis=1).all()
    np.testing.assert_allclose(warp.inverse(warp.forward(draws)[0]), draws, rtol=1e-9)


@pytest.mark.slow("compiles models of its own")
def test_all_effects_of_a_wide_prior_are_found(monkeypatch):
    """Planted: regressions on all coordinates, which leave hardly a degree of freedom."""
    rng, n = np.random.default_rng(5), 600
    logs = 0.8 * rng.normal(size=(2000, 2))
    effects = np.exp(logs)[:, [0] * n + [1] * n] * rng.normal(size=(2000, 2 * n))
    prior = np.column_stack([logs, effects])
    found = prior_effects(prior)
    assert [(row.index, row.scale, row.regressors) for row in found] == [
        (2 + i, 0 if i < n else 1, ()) for i in range(2 * n)
    ]
    monkeypatch.setattr(warp_fit, "WIDE_DIM", 10_000)
    few = prior[:, [0, 1, *range(502, 702)]][:210]
    right = {(row.index, row.scale) for row in prior_effects(few)}
    assert len(right & {(2 + i, 0 if i < 100 else 1) for i in range(200)}) < 100
