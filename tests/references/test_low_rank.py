"""Scale matrices that are diagonal plus low rank: their algebra, their density, and their fit."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from pymc_tempering import testsystems
from pymc_tempering.model.compiled import new_point
from pymc_tempering.references import mixture_fit
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.compiled_mixture import evaluate
from pymc_tempering.references.mixture import FullScales, LowRankScales, Mixture
from pymc_tempering.references.mixture_fit import FULL_DIM, fit_mixture, low_rank_mixture
from pymc_tempering.references.prior import Fitted, evaluate_draws

DIM, RANK = 6, 2
_rng = np.random.default_rng(0)
SCALES = LowRankScales(
    sds=0.3 + _rng.random((2, DIM)),
    loadings=np.array([[[1.0]], [[0.4]]]) * _rng.normal(size=(2, DIM, RANK)),
)
DENSE = np.array(
    [
        np.diag(sd**2) + loading @ loading.T
        for sd, loading in zip(SCALES.sds, SCALES.loadings, strict=True)
    ]
)
MIXTURE = Mixture(
    weights=np.array([0.6, 0.4]),
    means=np.vstack([np.zeros(DIM), np.linspace(-2, 2, DIM)]),
    scales=SCALES,
    dofs=np.array([4.0, 9.0]),
    prior_share=0.1,
)


def density(mixture, dense, xs):
    """Weighted t components by SciPy, shape (J, n)."""
    parts = zip(mixture.weights, mixture.means, dense, mixture.dofs, strict=True)
    return np.array(
        [
            np.log(w) + stats.multivariate_t.logpdf(xs, mean, matrix, df=dof)
            for w, mean, matrix, dof in parts
        ]
    )


def z_of_mean(values, expected):
    return (values.mean() - expected) / (values.std() / np.sqrt(values.size))


@pytest.fixture(scope="module")
def fitted():
    return Fitted(compile_model(testsystems.gaussian_posterior(DIM).model), MIXTURE)


@pytest.mark.parametrize("scales", [SCALES, FullScales(np.linalg.cholesky(DENSE))])
def test_scales_do_what_the_dense_matrices_do(scales):
    ys = np.random.default_rng(1).standard_normal((5, DIM))
    for j, matrix in enumerate(DENSE):
        squares = (scales.whiten(j, ys) ** 2).sum(axis=1)
        np.testing.assert_allclose(squares, (ys @ np.linalg.inv(matrix) * ys).sum(axis=1))
        assert scales.log_roots[j] == pytest.approx(0.5 * np.linalg.slogdet(matrix)[1])
    factors = np.linspace(0.5, 3.0, DIM)
    changed = scales.scaled(np.outer(np.sqrt([1.0, 2.0]), factors))
    inverse = np.linalg.inv(2.0 * np.outer(factors, factors) * DENSE[1])
    squares = (changed.whiten(1, ys) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, (ys @ inverse * ys).sum(axis=1))


@pytest.mark.parametrize("scales", [SCALES, FullScales(np.linalg.cholesky(DENSE))])
def test_hull_has_the_moments_of_the_whole(scales):
    """The diagonal, where the scale matrix of the hull has low rank."""
    with_hull = Mixture(MIXTURE.weights, MIXTURE.means, scales, MIXTURE.dofs, 0.1).with_hull(0.1, 3)
    center = MIXTURE.weights @ MIXTURE.means
    offsets = MIXTURE.means - center
    whole = np.einsum("j,jik->ik", MIXTURE.weights, DENSE)
    whole += np.einsum("j,ji,jk->ik", MIXTURE.weights, offsets, offsets)
    if isinstance(scales, LowRankScales):
        whole = np.diag(np.diag(whole))
    ys = np.eye(DIM)
    squares = (with_hull.scales.whiten(2, ys) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, np.diag(np.linalg.inv(whole)))
    np.testing.assert_allclose(with_hull.means[2], center)
    np.testing.assert_allclose(with_hull.weights, [0.54, 0.36, 0.1])
    np.testing.assert_allclose(with_hull.modes.weights, MIXTURE.weights)
    np.testing.assert_allclose(with_hull.modes.log_t(ys), with_hull.log_t(ys)[:, :2] - np.log(0.9))


@pytest.mark.slow("compiles models of its own")
def test_density_and_gradient_agree_with_an_independent_formula(fitted):
    xs = 2 * np.random.default_rng(2).standard_normal((40, DIM))
    log_prior, log_likelihood = evaluate_draws(fitted.path, xs)
    terms = density(MIXTURE, DENSE, xs)
    np.testing.assert_allclose(MIXTURE.log_t(xs), terms.T, rtol=1e-12)
    expected = logsumexp([*(np.log(0.9) + terms), np.log(0.1) + log_prior], axis=0)
    log_reference, log_ratio = evaluate_draws(fitted.path, xs, fitted.mixture)
    np.testing.assert_allclose(log_reference, expected, rtol=1e-12)
    np.testing.assert_allclose(log_ratio, log_prior + log_likelihood - expected, atol=1e-10)
    point = new_point(DIM, fitted.mixture)
    for x in xs[:5]:
        point.x[:] = x
        evaluate(fitted.path.density, point)
        steps = np.eye(DIM) * 1e-5
        up = np.array(evaluate_draws(fitted.path, x + steps, fitted.mixture))
        down = np.array(evaluate_draws(fitted.path, x - steps, fitted.mixture))
        np.testing.assert_allclose(point.grads, (up - down) / 2e-5, rtol=1e-4, atol=1e-6)


def test_reference_is_normalized_and_its_draws_have_its_density(fitted):
    """E_ref[p / ref] = 1: |z| < 4; a shifted density and draws without their factors are seen."""
    draws = fitted.draw(20_000, fitted.spawn(np.random.default_rng(3)))
    log_reference = evaluate_draws(fitted.path, draws, fitted.mixture)[0]
    inside = stats.multivariate_t.logpdf(draws, np.full(DIM, 0.1), 0.6 * DENSE[0], df=6)
    ratio = np.exp(inside - log_reference)
    assert abs(z_of_mean(ratio, 1.0)) < 4
    assert abs(z_of_mean(ratio * np.exp(-0.1), 1.0)) > 4

    # Along a direction of the first component's factors each component is a t in one dimension.
    along = SCALES.loadings[0, :, 0] / np.linalg.norm(SCALES.loadings[0, :, 0])

    def distance(draws):
        def cdf(value):
            parts = zip(MIXTURE.weights, MIXTURE.means, DENSE, MIXTURE.dofs, strict=True)
            return sum(
                w * stats.t.cdf((value - mean @ along) / np.sqrt(along @ matrix @ along), dof)
                for w, mean, matrix, dof in parts
            )

        return stats.kstest(draws @ along, cdf).pvalue

    assert distance(MIXTURE.draw(4000, np.random.default_rng(4))) > 1e-4
    bare = LowRankScales(SCALES.sds, 0.8 * SCALES.loadings)
    planted = Mixture(MIXTURE.weights, MIXTURE.means, bare, MIXTURE.dofs, 0.1)
    assert distance(planted.draw(4000, np.random.default_rng(4))) < 1e-4


def factor_draws(n, dim, rng):
    """Draws with unit noise and three factors, and their covariance."""
    loadings = np.zeros((dim, 3))
    for k in range(3):
        loadings[k * dim // 3 : (k + 1) * dim // 3, k] = 0.7 + 0.6 * k
    covariance = np.eye(dim) + loadings @ loadings.T
    return rng.standard_normal((n, dim)) + rng.standard_normal((n, 3)) @ loadings.T, covariance


@pytest.mark.parametrize(("n", "most"), [(150, 40.0), (1500, 3.0)])
def test_fit_finds_the_factors(n, most):
    """Divergence from the true normal (nats); fewer draws than dimensions are enough."""
    dim = FULL_DIM + 10
    rng = np.random.default_rng(5)
    draws, covariance = factor_draws(n, dim, rng)
    mixture = fit_mixture(draws, rng)
    fresh, _ = factor_draws(500, dim, rng)
    log_p = stats.multivariate_normal.logpdf(fresh, np.zeros(dim), covariance)
    assert (log_p - mixture.log_t(fresh)[:, 0]).mean() < most
    assert isinstance(mixture.scales, LowRankScales)
    assert mixture.n_components == 1
    assert 3 <= mixture.scales.loadings.shape[2] <= 4
    # Without the factors it would be as far as this.
    diagonal = stats.multivariate_normal.logpdf(fresh, np.zeros(dim), np.diag(np.diag(covariance)))
    assert (log_p - diagonal).mean() > 80


def test_fit_tells_two_modes_apart():
    dim = FULL_DIM + 10
    rng = np.random.default_rng(6)
    draws, _ = factor_draws(600, dim, rng)
    second = rng.random(600) < 0.3
    draws[second] += 4.0 * np.sign(rng.standard_normal(dim))
    mixture = fit_mixture(draws, rng)
    assert mixture.hull
    weights = mixture.modes.weights
    assert np.sort(weights) == pytest.approx([second.mean(), 1 - second.mean()], abs=1e-9)


def test_two_clusters_that_look_like_one_of_a_higher_rank_are_two(monkeypatch):
    """Opposite signs of a factor: one cluster of rank 4, or two of rank 2. Planted: one rank."""
    rng = np.random.default_rng(0)
    side, place = rng.choice([-0.6, 0.6], size=400), rng.normal(size=250)
    xs = 0.5 * rng.normal(size=(400, 250)) + side[:, None] * place
    xs += 0.5 * rng.normal(size=(400, 2)) @ rng.normal(size=(2, 250))
    xs = (xs - np.median(xs, axis=0)) / xs.std(axis=0)
    weights, means, scales = low_rank_mixture(xs, np.random.default_rng(1))
    assert (weights.size, scales.loadings.shape[2]) == (2, 2)
    assert means[0] @ means[1] < 0.0
    monkeypatch.setattr(mixture_fit, "RANKS", (4,))
    assert low_rank_mixture(xs, np.random.default_rng(1))[0].size == 1
