"""Warped references: a bijection, its density and gradient in compiled code, draws and law."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp
from support.varying_intercepts import VaryingIntercepts

from pymc_tempering.model.compiled import new_point
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.compiled_mixture import evaluate
from pymc_tempering.references.mixture import FullScales, LowRankScales, Mixture
from pymc_tempering.references.prior import Fitted, evaluate_draws
from pymc_tempering.references.warp import FunnelWarp

DIM = 7
# A row of each kind: a global whose spread follows the scale, a centered effect, one that falls.
WARP = FunnelWarp(
    index=np.array([0, 4, 5, 6]),
    scale=np.array([3, 3, 2, 3]),
    gamma=np.array([1.0, 1.0, -0.5, 1.0]),
    bounded=np.array([0.0, 0.0, 1.0, 0.0]),
    centered=np.array([0.0, 1.0, 1.0, 0.0]),
    falls=np.array([0.0, 0.0, 0.0, 1.0]),
    log_sd=np.array([1.5, 0.1, 0.0, 0.0]),
    log_v=np.array([-1.0, 0.3, -2.0, -1.5]),
    log_kappa=np.array([-0.5, -4.0, -1.0, 0.4]),
    regressors=np.array([[1, 3], [0, 1], [0, 4], [1, 5]]),
    prior_mean=np.array([[0.3, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.4, -0.3], [0.0, 0.1, 0.2]]),
    likelihood_mean=np.array([[0.5, 0.2, 0.0], [1.0, -0.9, 0.1], [-1, 0.2, 0.5], [2, -0.4, 0.3]]),
)


def random_roots(rng, n):
    """Lower Cholesky factors, shape (n, DIM, DIM)."""
    lower = np.tril(0.2 * rng.standard_normal((n, DIM, DIM)), -1)
    return lower + np.eye(DIM) * rng.uniform(0.5, 1.5, (n, 1, DIM))


@cache
def mixture(kind="full"):
    rng = np.random.default_rng(0)
    scales = {
        "full": FullScales(random_roots(rng, 2)),
        "low rank": LowRankScales(
            rng.uniform(0.5, 1.5, (2, DIM)), rng.standard_normal((2, DIM, 1))
        ),
    }[kind]
    means = 0.5 * rng.standard_normal((2, DIM))
    plain = Mixture(np.array([0.6, 0.4]), means, scales, np.array([5.0, 8.0]), 0.05, warp=WARP)
    return plain.with_hull(0.02, 3.0).with_stretched(WARP.scales, 0.05, 3.0)


@cache
def fitted(kind="full"):
    return Fitted(compile_model(VaryingIntercepts().model), mixture(kind))


def slopes(function, x, step):
    """Central differences of a function of states (n, d), at one state."""
    steps = step * np.eye(DIM)
    return (function(x + steps) - function(x - steps)) / (2 * step)


def test_inverse_undoes_the_warp_and_the_determinant_is_that_of_the_jacobian():
    xs = 1.5 * np.random.default_rng(1).standard_normal((200, DIM))
    us, log_det = WARP.forward(xs)
    np.testing.assert_allclose(WARP.inverse(us), xs, rtol=1e-11, atol=1e-11)
    for x, expected in zip(xs[:20], log_det[:20], strict=True):
        jacobian = slopes(lambda xs: WARP.forward(xs)[0], x, 1e-5)
        assert np.linalg.slogdet(jacobian)[1] == pytest.approx(expected, abs=1e-7)


def test_warped_effects_have_the_conditional_of_the_hierarchy():
    """Given the others, a normal prior and a normal likelihood multiply to N(m, 1 / P)."""
    x = np.random.default_rng(2).standard_normal((1, DIM))
    grid = np.linspace(-20, 20, 400_001)
    a, b, tau = 0.1 + 0.7 * x[0, 0] + 0.2 * x[0, 1], 1 - 0.9 * x[0, 0] + 0.1 * x[0, 1], x[0, 3]
    variance = np.exp(0.3) + np.exp(-4 + 2 * tau)
    density = np.exp(
        -0.5 * ((grid - a) / np.exp(0.1 + tau)) ** 2 - 0.5 * (grid - b) ** 2 / variance
    )
    mean = (density @ grid) / density.sum()
    sd = np.sqrt(density @ (grid - mean) ** 2 / density.sum())
    moments = WARP.moments(x)
    assert moments[0][0, 1] == pytest.approx(mean, rel=1e-8)
    assert WARP.spread(x)[0, 4] == pytest.approx(sd, rel=1e-8)
    assert WARP.spread(x)[0, 1] == 1.0


@pytest.mark.slow("compiles models of its own", quick=["low rank"])
@pytest.mark.parametrize("kind", ["full", "low rank"])
def test_compiled_density_and_gradient_agree_with_numpy(kind):
    reference = fitted(kind)
    rng = np.random.default_rng(3)
    xs = reference.draw(200, reference.spawn(rng))
    xs = xs[np.abs(xs).max(axis=1) < 50]
    log_prior, log_likelihood = evaluate_draws(reference.path, xs)
    t = logsumexp(reference.components.log_t(xs), axis=1)
    expected = np.logaddexp(np.log(0.95) + t, np.log(0.05) + log_prior)
    log_reference, log_ratio = evaluate_draws(reference.path, xs, reference.mixture)
    np.testing.assert_allclose(log_reference, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(log_ratio, log_prior + log_likelihood - expected, rtol=1e-8)

    point = new_point(DIM, reference.mixture)
    for x in xs[:40]:
        point.x[:] = x
        evaluate(reference.path.density, point)
        for part in range(2):
            numeric = slopes(
                lambda xs, part=part: evaluate_draws(reference.path, xs, reference.mixture)[part],
                x,
                1e-5,
            )
            error = np.abs(point.grads[part] - numeric)
            assert (error < 1e-5 * (1 + np.abs(numeric).max() + np.abs(log_ratio).max())).all()


@pytest.mark.parametrize("kind", ["full", "low rank"])
def test_squares_of_stretched_copies_are_those_of_their_own_matrices(kind):
    whole = mixture(kind)
    xs = 3 * np.random.default_rng(8).standard_normal((100, DIM))
    us, first = WARP.forward(xs)[0], whole.n_components
    own = [
        (whole.scales.whiten(j, us - whole.means[j]) ** 2).sum(axis=1)
        for j in range(first, first + whole.stretched)
    ]
    np.testing.assert_allclose(whole.squares(xs)[:, first:], np.array(own).T, rtol=1e-9)
    assert (np.abs(np.diff(own, axis=0)) > 0.1).any(axis=1).all()  # each copy has its own


def normalization(reference, lost=0.0):
    """z-score of `E_reference[p / reference] = 1` for the posterior p of known evidence.

    `lost` is the share of log |du / dx| that is left out of the t's.
    """
    system, mixture = VaryingIntercepts(), reference.components
    xs = reference.draw(20_000, reference.spawn(np.random.default_rng(4)))
    log_prior, log_likelihood = system.log_parts(xs)
    log_t = logsumexp(mixture.log_t(xs), axis=1) - lost * mixture.warp.forward(xs)[1]
    log_reference = np.logaddexp(np.log(0.95) + log_t, np.log(0.05) + log_prior)
    weights = np.exp(log_prior + log_likelihood - system.log_evidence - log_reference)
    return (weights.mean() - 1) / (weights.std() / np.sqrt(weights.size))


def near_posterior():
    """A warped mixture around the posterior of centered effects."""
    system = VaryingIntercepts()
    draws = system.posterior_draws(2000, np.random.default_rng(5))
    warp = replace(WARP, likelihood_mean=np.zeros((4, 3)), prior_mean=np.zeros((4, 3)))
    us, _ = warp.forward(draws)
    root = np.linalg.cholesky(1.3 * np.cov(us.T))
    one = Mixture(np.ones(1), us.mean(0)[None], FullScales(root[None]), np.array([5.0]), 0.05)
    return Fitted(fitted().prior, replace(one.with_stretched(warp.scales, 0.05, 3.0), warp=warp))


def test_reference_is_normalized_and_a_lost_determinant_is_seen():
    """|z| < 4 (false alarm 6e-5), and far beyond with log |du / dx| left out."""
    reference = near_posterior()
    assert abs(normalization(reference)) < 4
    assert abs(normalization(reference, lost=1.0)) > 10


def test_far_states_give_no_nan():
    reference = fitted()
    far = np.array([1e3, -1e3, 1e6, -1e6, 1e150, -1e150])
    xs = np.concatenate(
        [value * np.eye(DIM) for value in far] + [value * np.ones((1, DIM)) for value in far]
    )
    point = new_point(DIM, reference.mixture)
    log_t = logsumexp(reference.components.log_t(xs), axis=1)
    assert not np.isnan(log_t).any()
    for x in xs:
        point.x[:] = x
        evaluate(reference.path.density, point)
        assert not np.isnan(point.values[0])
        assert point.values[0] < np.inf
    us = 200 * np.random.default_rng(6).standard_t(2, size=(1000, DIM))
    assert np.isfinite(WARP.inverse(us)).all()
