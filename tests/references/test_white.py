"""A mixture with white coordinates behind those of its t's, in Python and in compiled code."""

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, multivariate_t

from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.mixture import FullScales, Mixture
from pymc_tempering.references.prior import Fitted

SCALE = np.array([[1.0, 0.3], [0.3, 0.5]])


@pytest.fixture(scope="module")
def fitted():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 2, shape=5)
        pm.Normal("y", x.sum(), 1, observed=0.7)
    scales = FullScales(np.linalg.cholesky(SCALE)[None])
    t = Mixture(np.ones(1), np.array([[0.5, -1.0]]), scales, np.array([4.0]), 0.05, n_white=3)
    return Fitted(compile_model(model), t)


def log_reference(xs):
    t = multivariate_t.logpdf(xs[:, :2], [0.5, -1.0], SCALE, df=4.0)
    white = multivariate_normal.logpdf(xs[:, 2:], cov=np.eye(3))
    prior = multivariate_normal.logpdf(xs, cov=4.0 * np.eye(5))
    return np.logaddexp(np.log(0.95) + t + white, np.log(0.05) + prior)


def compiled(fitted, xs):
    values, grads = np.empty((len(xs), 2)), np.empty((len(xs), 2, 5))
    evaluate_rows(fitted.path.density, xs, values, grads, fitted.mixture)
    return values, grads


@pytest.mark.slow("compiles models of its own")
def test_compiled_density_and_slope_are_those_of_the_product(fitted):
    xs = np.random.default_rng(1).normal(size=(20, 5)) * 2.0
    values, grads = compiled(fitted, xs)
    assert_allclose(values[:, 0], log_reference(xs), rtol=1e-8)  # PyMC's constants
    t = log_reference(xs) - np.logaddexp.reduce(fitted.components.log_t(xs), axis=1)
    assert (t >= np.log(0.95) - 1e-12).all()
    for i, step in enumerate(1e-6 * np.eye(5)):
        up, down = (compiled(fitted, xs + sign * step)[0] for sign in (1.0, -1.0))
        assert_allclose(grads[:, :, i], (up - down) / 2e-6, atol=1e-6)


def test_draws_have_that_law(fitted):
    xs = fitted.draw(200_000, fitted.spawn(np.random.default_rng(2)))
    weights = np.exp(multivariate_normal.logpdf(xs, cov=1.5 * np.eye(5)) - log_reference(xs))
    error = weights.std() / np.sqrt(len(xs))
    assert abs(weights.mean() - 1.0) < 4.5 * error
    assert error < 0.02
