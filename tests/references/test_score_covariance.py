"""Mean and covariance from draws and gradients: exact for normals, elsewhere as good as draws."""

import numpy as np
import pytest
from scipy import stats

from pymc_tempering.references import score_covariance
from pymc_tempering.references.mixture_fit import fit_mixture
from pymc_tempering.references.score_covariance import (
    ScoredDraws,
    distinct_rows,
    geometric_mean,
    normal_by_scores,
    refine_normals,
)


def correlated(dim, seed=0):
    """A normal law with condition number in the thousands: mean and covariance."""
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    scale = np.exp(rng.normal(size=dim))
    shape = (turned * np.geomspace(1e-3, 2.0, dim)) @ turned.T
    return 3.0 * rng.normal(size=dim), shape * np.outer(scale, scale)


def scored(xs, scores):
    n = len(xs)
    return ScoredDraws(xs, np.ones(n), np.arange(n), scores)


def divergence(mean, covariance, found):
    """Kullback-Leibler divergence (nats) of a normal law from the one that was found."""
    own, other = np.linalg.inv(found[1]), covariance
    gap = found[0] - mean
    return 0.5 * (
        np.trace(own @ other) - len(mean) + gap @ own @ gap
        - np.linalg.slogdet(own @ other)[1]
    )  # fmt: skip


def test_the_geometric_mean_solves_its_equation():
    rng = np.random.default_rng(1)
    for dim in (1, 3, 20):
        a, b = (each @ each.T for each in rng.normal(size=(2, dim, 2 * dim)))
        scale = np.exp(5.0 * rng.normal(size=dim))
        a = a * np.outer(scale, scale)
        mean = geometric_mean(a, b)
        np.testing.assert_allclose(mean @ b @ mean, a, rtol=1e-6, atol=1e-9 * np.diag(a).max())
        np.testing.assert_allclose(mean, mean.T)
        assert (np.linalg.eigvalsh(mean) > 0).all()
    with pytest.raises(np.linalg.LinAlgError):
        geometric_mean(np.zeros((2, 2)), np.eye(2))


@pytest.mark.parametrize("dim", [2, 40, 120])
def test_a_normal_law_is_found_exactly_from_few_draws(dim, monkeypatch):
    mean, covariance = correlated(dim)
    rng = np.random.default_rng(2)
    xs = rng.multivariate_normal(mean, covariance, size=3 * dim + 30, method="cholesky")
    draws = scored(xs, -np.linalg.solve(covariance, (xs - mean).T).T)
    assert divergence(mean, covariance, normal_by_scores(draws)) < 1e-5
    # From the draws alone: d (d + 3) / (4 n) nats, or more.
    monkeypatch.setattr(score_covariance, "TARGETS", (score_covariance._diagonal,))
    lost = divergence(mean, covariance, normal_by_scores(draws))
    assert dim == 2 or lost > 0.5 * dim * (dim + 3) / (4 * len(xs))


def test_without_correlation_the_diagonal_is_found():
    dim, rng = 60, np.random.default_rng(3)
    xs = rng.standard_t(4, size=(200, dim))  # scores of a t mislead
    found = normal_by_scores(scored(xs, -5.0 * xs / (4.0 + xs**2)))
    right = np.zeros(dim), 2.0 * np.eye(dim)
    shrunk = 0.7 * np.cov(xs.T) + 0.3 * np.diag(xs.var(axis=0))
    assert divergence(*right, found) < 0.35 * divergence(*right, (xs.mean(axis=0), shrunk))


def test_scores_that_mislead_are_not_followed():
    """Two modes as one normal: the scores know only the width of each mode."""
    dim, n, rng = 3, 1000, np.random.default_rng(4)
    centers = 6.0 * (rng.random(n) < 0.5)[:, None] * np.ones(dim)
    xs = centers + rng.normal(size=(n, dim))
    logs = np.array([stats.norm.logpdf(xs, c).sum(axis=1) for c in (0.0, 6.0)])
    share = 1.0 / (1.0 + np.exp(logs[0] - logs[1]))[:, None]
    mean, covariance = normal_by_scores(scored(xs, -(xs - 6.0 * share)))
    np.testing.assert_allclose(covariance, np.cov(xs.T), atol=0.8)
    np.testing.assert_allclose(mean, 3.0, atol=0.5)


def test_equal_draws_stay_together_and_weigh_as_many():
    xs = np.array([[2.0], [1.0], [2.0], [0.0], [2.0]])
    rows, counts = distinct_rows(xs)
    assert rows.tolist() == [0, 1, 3]
    assert counts.tolist() == [3.0, 1.0, 1.0]
    # Many copies of few draws: held-out copies must not vouch for an overfit.
    dim, rng = 30, np.random.default_rng(5)
    few = rng.normal(size=(100, dim))
    copies = few[rng.integers(100, size=2000)]
    nothing = np.zeros(0, dtype=int), np.zeros((0, dim))
    means, covariances = refine_normals(
        copies, np.ones((2000, 1)), *nothing, np.zeros((1, dim)), np.eye(dim)[None]
    )
    assert divergence(np.zeros(dim), np.eye(dim), (means[0], covariances[0])) < 1.0
    assert divergence(np.zeros(dim), np.eye(dim), (copies.mean(axis=0), np.cov(copies.T))) > 4.0


def test_too_few_draws_and_bad_scores():
    rng = np.random.default_rng(6)
    xs = rng.normal(size=(200, 4))
    assert normal_by_scores(scored(xs[:12], -xs[:12])) is None
    scores = -xs
    scores[::7] = np.nan
    mean, covariance = normal_by_scores(scored(xs, scores))
    np.testing.assert_allclose(mean, 0.0, atol=1e-6)
    np.testing.assert_allclose(covariance, np.eye(4), atol=1e-6)
    found = normal_by_scores(scored(xs, np.full_like(xs, np.nan)))
    np.testing.assert_allclose(found[1], np.cov(xs.T), atol=0.2)


def test_components_without_draws_or_of_equal_draws_stay_as_they_are():
    rng = np.random.default_rng(9)
    xs = rng.normal(size=(300, 2))
    xs[:, 1] = xs[:, 0]  # singular
    none = np.zeros(300)
    early = np.where(np.arange(300) < 15, 1.0, 0.0)  # all in the blocks of one fold
    shares = np.column_stack([none, early, np.ones(300)])
    given = np.zeros((3, 2)), np.tile(np.eye(2), (3, 1, 1))
    means, covariances = refine_normals(xs, shares, np.arange(300), -xs, *given)
    np.testing.assert_array_equal(means[:2], given[0][:2])
    np.testing.assert_array_equal(covariances[:2], given[1][:2])
    assert np.isfinite(np.linalg.cholesky(covariances)).all()


def test_a_fit_with_scores_is_near_where_one_without_is_far():
    dim = 80
    mean, covariance = correlated(dim, seed=7)
    rng = np.random.default_rng(7)
    xs = rng.multivariate_normal(mean, covariance, size=2400, method="cholesky")

    def scores(states):
        return -np.linalg.solve(covariance, (states - mean).T).T

    law = stats.multivariate_normal(mean, covariance)
    spread = [
        np.std(law.logpdf(xs[400:]) - mixture.log_t(xs[400:])[:, 0])
        for mixture in (
            fit_mixture(xs[:400], np.random.default_rng(1)),
            fit_mixture(xs[:400], np.random.default_rng(1), scores=scores),
        )
    ]
    assert spread[1] < 0.5 < 2.0 < spread[0]


def test_rough_fits_keep_heavy_tails():
    rng = np.random.default_rng(8)
    xs = rng.normal(size=(3000, 20))
    assert fit_mixture(xs, rng).modes.dofs.min() > 32.0
    assert fit_mixture(xs, rng, rough=True).modes.dofs.max() <= 32.0
