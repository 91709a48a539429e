"""Metrics from particles and references: exact for normals, and dense only where that pays."""

from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_tempering.chain.particles import place, sweep
from pymc_tempering.chain.plan import Tuning
from pymc_tempering.kernels import HMC, Block, Compound, RandomWalkMetropolis, Slice, on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.mixture import FullScales, Mixture
from pymc_tempering.references.prior import Fitted
from pymc_tempering.warmup.annealed_pass import kernel_for, metric_of

DIM = 8


@cache
def regression():
    """Eight coefficients of covariates that are nearly alike: the model, and its exact law."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)) + 0.05 * rng.normal(size=(60, DIM))
    y = x.sum(axis=1) + 0.3 * rng.normal(size=60)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 2.0, shape=DIM)
        pm.Normal("y", x @ b, 0.3, observed=y)
    covariance = np.linalg.inv(x.T @ x / 0.09 + np.eye(DIM) / 4.0)
    return compile_model(model), covariance @ x.T @ y / 0.09, covariance


def particles(kernel, n=256, seed=1):
    prior, mean, covariance = regression()
    rng = np.random.default_rng(seed)
    xs = rng.multivariate_normal(mean, covariance, size=n, method="cholesky")
    return place(prior, on_all(kernel, DIM), xs, rng)


@pytest.mark.slow("compiles models of its own")
def test_the_metric_of_a_normal_posterior_is_exact():
    prior, _, covariance = regression()
    scale, (cov,) = metric_of(prior, particles(HMC()), 1.0, np.ones(DIM))
    np.testing.assert_allclose(cov, covariance, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(scale**2, np.diag(covariance), rtol=0.4)
    # Without gradients it is that of 256 particles, shrunk to the diagonal: far off.
    _, (cov,) = metric_of(prior, particles(RandomWalkMetropolis()), 1.0, np.ones(DIM))
    assert np.abs(np.linalg.eigvalsh(np.linalg.solve(covariance, cov))).max() > 3.0


@pytest.mark.parametrize("kernel", [HMC(metric="diag"), Slice()])
def test_kernels_with_a_diagonal_metric_get_no_covariance(kernel):
    assert metric_of(regression()[0], particles(kernel), 1.0, np.ones(DIM))[1] == (None,)


def test_few_particles_give_a_diagonal():
    _, (cov,) = metric_of(regression()[0], particles(HMC(), n=20), 1.0, np.ones(DIM))
    np.testing.assert_array_equal(cov, np.diag(np.diag(cov)))


def test_a_dense_metric_saves_most_of_the_gradients():
    """Trajectories of one length at one acceptance, in the exact metric and along the axes."""
    spent = {}
    for name in ("diag", "dense"):
        moved = particles(HMC(metric=name), seed=2)
        scale, covs = metric_of(regression()[0], moved, 1.0, np.ones(DIM))
        low, high = -8.0, 2.0
        for _ in range(12):  # the step size with an acceptance of .8
            middle = 0.5 * (low + high)
            tried = particles(HMC(metric=name), seed=3)
            lengths = tried.kernel.options[0]
            sweep(tried, 1.0, tried.kernel.pack(np.exp([middle]), scale, covs, lengths))
            low, high = (middle, high) if tried.accepted[0] / tried.n > 0.8 else (low, middle)
        spent[name] = tried.n_evaluations / tried.n
    assert spent["dense"] < 0.2 * spent["diag"]


def reference(correlation, dim=40):
    cov = correlation * np.ones((dim, dim)) + (1 - correlation) * np.eye(dim)
    scales = FullScales(np.linalg.cholesky(cov)[None])
    mixture = Mixture(np.ones(1), np.zeros((1, dim)), scales, np.array([4.0]), 0.05)
    return Fitted(regression()[0], mixture), cov


def test_the_covariance_of_a_reference_is_that_of_its_draws():
    fitted, cov = reference(0.5)
    np.testing.assert_allclose(fitted.covariance, 2.0 * cov)  # of a t with 4 degrees of freedom
    draws = fitted.components.draw(200_000, np.random.default_rng(1))[:, :3]
    np.testing.assert_allclose(np.cov(draws.T), 2.0 * cov[:3, :3], rtol=0.1)


@pytest.mark.parametrize(("correlation", "dense"), [(0.05, False), (0.9, True)])
def test_many_variables_get_a_dense_metric_where_they_are_correlated(correlation, dense):
    kernel = on_all(HMC(), 40)
    assert not any(kernel.dense_blocks)
    assert kernel_for(reference(correlation)[0], kernel).dense_blocks == (dense,)
    along_axes = kernel_for(reference(correlation)[0], on_all(HMC(metric="diag"), 40))
    assert along_axes.dense_blocks == (False,)
    assert on_all(HMC(), 30).dense_blocks == (True,)


def block(*indices):
    """Block of these real coordinates."""
    return replace(Block.real(len(indices)), indices=np.array(indices))


def test_covariances_stay_with_their_blocks():
    """In a compound of two kernels, in its reversal, and in one with other kernels."""
    walk, along_axes = RandomWalkMetropolis(), HMC(metric="diag")
    blocks = block(3, 1), block(0, 2)
    both = Compound((walk, walk), blocks)
    first, second = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[3.0, -1.0], [-1.0, 5.0]])
    tuning = Tuning(
        np.array([0.0, 1.0]), np.array([[0.7, 0.9]] * 2), np.ones((2, 4)),
        (np.array([first, 4 * first]), np.array([second, 9 * second])), np.full((2, 2), np.nan),
    )  # fmt: skip
    rows, size = tuning.pack(both), walk.pack(1.0, np.eye(2), blocks[0]).size
    for row, a, b in zip(rows, (1.0, 2.0), (1.0, 3.0), strict=True):
        np.testing.assert_allclose(
            row[:size], walk.pack(0.7, a * np.linalg.cholesky(first), blocks[0])
        )
        np.testing.assert_allclose(
            row[size:], walk.pack(0.9, b * np.linalg.cholesky(second), blocks[1])
        )
    backward = tuning.reversed().pack(both.reversed())
    np.testing.assert_array_equal(backward, np.roll(rows, size, axis=1))
    lent = both.lend((first, second), Compound((along_axes, walk), (blocks[1], blocks[0])))
    assert lent[0] is second
    assert lent[1] is first
    assert both.lend((first, second), on_all(walk, 4)) == (None,)


def test_a_kernel_along_the_axes_gets_no_matrix_beside_one_that_wants_it():
    """Such a matrix has 800 MB in 10,000 dimensions, at each stage."""
    few, many = block(0, 1, 2), block(*range(3, DIM))
    kernel = Compound((HMC(metric="dense"), HMC(metric="diag")), (few, many))
    moved = particles(HMC(), seed=2).moved_by(kernel)
    _, covs = metric_of(regression()[0], moved, 1.0, np.ones(DIM))
    assert covs[0].shape == (3, 3)
    assert covs[1] is None
