"""Conditional autoregressions: draws and density are those of one normalized law."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix
from scipy.special import logsumexp
from scipy.stats import gamma, halfnorm, multivariate_normal

import pymc_tempering as pmt
from pymc_tempering.exceptions import ModelError, TemperingError
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import evaluate_draws

LINE = np.eye(3, k=1) + np.eye(3, k=-1)
BESIDE = np.kron(np.eye(3), LINE) + np.kron(LINE, np.eye(3))
MEAN = np.linspace(-1.0, 1.0, 9)
DATA = np.linspace(-0.5, 1.5, 9)


def covariance(alpha, tau):
    return np.linalg.inv(tau * (np.diag(BESIDE.sum(axis=0)) - alpha * BESIDE))


def build(tau=None, weights=BESIDE):
    with pm.Model() as model:
        tau = pm.Gamma("tau", 4, 4) if tau is None else tau
        x = pm.CAR("x", mu=MEAN, W=weights, alpha=0.9, tau=tau)
        pm.Normal("y", x, 0.5, observed=DATA)
    return model


@pytest.mark.parametrize("weights", [BESIDE, csr_matrix(BESIDE)], ids=["dense", "sparse"])
def test_draws_and_density_are_those_of_the_normal_law(weights):
    prior = compile_model(build(tau=2.0, weights=weights))
    assert prior.path.terms.wide == ()
    draws = prior.draw(20_000, prior.spawn(np.random.default_rng(1)))
    exact = multivariate_normal(MEAN, covariance(0.9, 2.0))
    # An element of the covariance is known to some .7 / sqrt(20,000) of its size: .02 are 5 errors.
    assert_allclose(np.cov(draws, rowvar=False), exact.cov, atol=0.02)
    assert_allclose(draws.mean(axis=0), MEAN, atol=0.03)
    log_prior, _ = evaluate_draws(prior.path, draws[:20])
    assert_allclose(log_prior, exact.logpdf(draws[:20]))


@pytest.mark.slow("compiles models of its own")
def test_evidence_beside_quadrature():
    nodes, weights = np.polynomial.legendre.leggauss(60)
    taus = gamma(4, scale=0.25).ppf(0.5 * (nodes + 1.0))
    noise = 0.25 * np.eye(9)
    terms = [multivariate_normal(MEAN, covariance(0.9, t) + noise).logpdf(DATA) for t in taus]
    exact = logsumexp(terms, b=0.5 * weights)
    found = pmt.log_marginal_likelihood(
        pmt.sample(model=build(), random_seed=1, progressbar=False, quiet=True)
    )
    assert found.verdict == "ok"
    assert abs(found.log_z - exact) < 4.0 * found.mcse < 0.05


def intrinsic(sigma=None, weights=BESIDE, **more):
    """Places that differ by a free scale, with a free scale of noise that may leave none."""
    with pm.Model(coords={"place": range(9)}) as model:
        sigma = pm.HalfNormal("sigma", 1) if sigma is None else sigma
        noise = pm.HalfNormal("noise", 0.5)
        x = pm.ICAR("x", W=weights.astype(int), sigma=sigma, dims="place", **more)
        pm.Normal("y", x, noise, observed=DATA - 0.5, dims="place")
    return model


def intrinsic_covariance(sigma, spread):
    laplacian = np.diag(BESIDE.sum(axis=0)) - BESIDE
    return np.linalg.inv(laplacian / sigma**2 + np.ones((9, 9)) / (9 * spread) ** 2)


@pytest.mark.slow("repeats")
def test_an_intrinsic_one_has_the_constant_and_the_draws_of_its_normal_law():
    with pm.Model() as model:
        sigma, spread = pm.HalfNormal("sigma"), pm.HalfNormal("spread", 0.1)
        pm.Normal("y", pm.ICAR("x", BESIDE.astype(int), sigma, spread), 1, observed=DATA)
    prior = compile_model(model)
    assert prior.path.terms.wide == ()
    draws = prior.draw(20, prior.spawn(np.random.default_rng(1)))
    log_prior, _ = evaluate_draws(prior.path, draws)
    of_scales = [halfnorm(scale=s).logpdf(np.exp(draws[:, i])) for i, s in enumerate([1.0, 0.1])]
    laws = [multivariate_normal(np.zeros(9), intrinsic_covariance(*np.exp(x[:2]))) for x in draws]
    expected = [law.logpdf(x[2:]) for law, x in zip(laws, draws, strict=True)]
    # Off by a power of the scale before: its draws have values apart by 10.
    assert np.ptp(8 * draws[:, 0]) > 10.0
    assert_allclose(log_prior, sum(of_scales) + draws[:, :2].sum(axis=1) + expected)


@pytest.mark.slow("compiles models of its own")
def test_draws_of_an_intrinsic_one_have_its_covariance():
    with pm.Model() as model:
        x = pm.ICAR("x", W=BESIDE.astype(int), sigma=0.7, zero_sum_stdev=0.2)
        pm.Normal("y", x, 1, observed=DATA)
    prior = compile_model(model)
    draws = prior.draw(20_000, prior.spawn(np.random.default_rng(1)))
    # Elements of it are known to some .002.
    assert_allclose(np.cov(draws, rowvar=False), intrinsic_covariance(0.7, 0.2), atol=0.01)


@pytest.mark.slow("compiles models of its own")
def test_evidence_with_a_free_scale_inside_beside_quadrature():
    nodes, weights = np.polynomial.legendre.leggauss(40)
    grid = [halfnorm(scale=s).ppf(0.5 * (nodes + 1.0)) for s in (1.0, 0.5)]
    terms = [
        [
            multivariate_normal(None, intrinsic_covariance(a, 0.001) + b**2 * np.eye(9)).logpdf(
                DATA - 0.5
            )
            for b in grid[1]
        ]
        for a in grid[0]
    ]
    exact = logsumexp(terms, b=0.25 * np.outer(weights, weights))
    idata = pmt.sample(model=intrinsic(), random_seed=1, progressbar=False, quiet=True)
    found = pmt.log_marginal_likelihood(idata)
    assert found.verdict == "ok"
    assert abs(found.log_z - exact) < 4.0 * found.mcse < 0.1


def test_an_intrinsic_one_without_a_known_constant_is_refused_by_name():
    apart = np.kron(np.eye(3), np.ones((3, 3)) - np.eye(3))
    with pytest.raises(ModelError, match=r"'x' is a pm\.ICAR whose density has no known constant"):
        compile_model(intrinsic(weights=apart))
    moved = intrinsic(transform=pm.distributions.transforms.log)
    with pytest.raises(ModelError, match="'x' is a conditional autoregression with a transform"):
        compile_model(moved)


def test_data_of_this_law_have_its_constant():
    with pm.Model() as model:
        pm.Normal("m")
        pm.CAR("y", mu=MEAN, W=BESIDE, alpha=0.9, tau=2.0, observed=DATA)
    prior = compile_model(model)
    _, log_likelihood = evaluate_draws(prior.path, np.zeros((1, 1)))
    exact = multivariate_normal(MEAN, covariance(0.9, 2.0)).logpdf(DATA)
    assert log_likelihood[0] == pytest.approx(exact)


@pytest.mark.slow("compiles models of its own")
def test_neighbors_that_may_change_have_a_wide_reference():
    with pm.Model() as model:
        weights = pm.Data("weights", BESIDE)
        pm.CAR("x", mu=MEAN, W=weights, alpha=0.9, tau=2.0)
        pm.Normal("y", model["x"], 0.5, observed=DATA)
    assert compile_model(model, check=False).path.terms.wide == ("x",)


@pytest.mark.slow("compiles models of its own")
def test_a_place_without_neighbors_is_left_to_the_check_of_the_model():
    with pytest.raises(TemperingError):
        compile_model(build(tau=2.0, weights=np.pad(BESIDE[:8, :8], (0, 1))))
