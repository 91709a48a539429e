"""The image models of benchmarks: energies, slopes, exact normalizers, and filters found again."""

import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import check_grad

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import image_generative
from image_experts import Experts, cost, fit, start
from image_patches import SIDE, STRIPE, patches

KINDS = ["laplace", "student_t"]


def some(kind, dim, seed=0):
    rng = np.random.default_rng(seed)
    shape = np.ones(dim) if kind == "laplace" else rng.uniform(1.2, 2.5, dim)
    return Experts(kind, rng.normal(size=(dim, dim)), shape)


def slow_energy(experts, x):
    total = 0.0
    for row, shape in zip(experts.filters, experts.shape, strict=True):
        u = sum(float(a) * float(b) for a, b in zip(row, x, strict=True))
        total += abs(u) if experts.kind == "laplace" else shape * np.log(1.0 + u * u)
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_energy_is_the_slow_one(kind):
    experts, x = some(kind, 4), np.random.default_rng(1).normal(size=(5, 4))
    np.testing.assert_allclose(experts.energy(x), [slow_energy(experts, row) for row in x])


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_has_this_energy_less_the_reference(kind):
    experts, x = some(kind, 3), np.random.default_rng(1).normal(size=3)
    value = experts.model().compile_logp(mode="FAST_COMPILE")({"x": x})
    assert value == pytest.approx(-slow_energy(experts, x))


@pytest.mark.parametrize("kind", KINDS)
def test_log_z_by_quadrature(kind):
    experts = some(kind, 2)
    inverse = np.linalg.inv(experts.filters)

    def density(v, u):  # in the coordinates u = filters x, in which the tails are straight
        return np.exp(-slow_energy(experts, inverse @ [u, v]))

    found = integrate.dblquad(density, -np.inf, np.inf, -np.inf, np.inf, epsabs=1e-7)[0]
    jacobian = abs(np.linalg.det(inverse))
    assert np.log(found * jacobian) == pytest.approx(experts.log_z(), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_by_differences(kind):
    dim, x = 3, np.random.default_rng(2).normal(size=(20, 3))

    def unpacked(packed):
        shape = np.exp(packed[9:]) if kind == "student_t" else np.ones(dim)
        return Experts(kind, packed[:9].reshape(3, 3), shape)

    first = some(kind, dim)
    packed = np.r_[first.filters.ravel(), np.log(first.shape)]
    error = check_grad(lambda p: cost(unpacked(p), x)[0], lambda p: cost(unpacked(p), x)[1], packed)
    assert error < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_planted_filters_are_found_again(kind):
    """Up to order and sign; and their likelihood is no better than that of those found."""
    rng, n, dim = np.random.default_rng(3), 20_000, 3
    planted = some(kind, dim, seed=4)
    if kind == "laplace":
        u = rng.laplace(size=(n, dim))
    else:
        freedom = 2.0 * planted.shape - 1.0  # (1 + u^2)^-lambda is a t with its scale
        u = rng.standard_t(freedom, size=(n, dim)) / np.sqrt(freedom)
    x = u @ np.linalg.inv(planted.filters).T
    found = fit(start(kind, dim, rng), x)
    product = np.abs(found.filters @ np.linalg.inv(planted.filters))
    best = min(np.abs(product[list(p)] - np.eye(dim)).max() for p in permutations(range(dim)))
    assert best < 0.1
    assert cost(found, x)[0] <= cost(planted, x)[0]


def test_patches_are_white_and_the_test_is_apart():
    cut = patches(10)
    np.testing.assert_allclose(np.cov(cut.train.T, bias=True), np.eye(10), atol=1e-8)
    assert cut.test.shape == (100, 10)
    assert STRIPE >= SIDE


def generative(prior, n=3, dim=4, seed=5):
    bases = np.random.default_rng(seed).normal(size=(dim, n))
    return image_generative.Generative(prior, bases)


PRIORS = ["normal", "laplace"]


@pytest.mark.parametrize("prior", PRIORS)
def test_log_joint_is_that_of_scipy_and_of_the_model(prior):
    model, rng = generative(prior), np.random.default_rng(6)
    x, a = rng.normal(size=(5, 4)), rng.normal(size=(5, 3))
    of_a = (stats.norm if prior == "normal" else stats.laplace).logpdf(a).sum(axis=1)
    slow = of_a + stats.norm.logpdf(x, a @ model.bases.T, image_generative.NOISE).sum(axis=1)
    np.testing.assert_allclose(model.log_joint(x, a), slow)
    value = model.model(x[0]).compile_logp(mode="FAST_COMPILE")({"a": a[0]})
    assert value == pytest.approx(slow[0])


@pytest.mark.parametrize("prior", PRIORS)
def test_the_density_over_noise_is_that_over_coefficients(prior):
    model, rng = generative(prior, n=4), np.random.default_rng(6)
    x, z = rng.normal(size=(1, 4)), rng.normal(size=(1, 4))
    a = np.linalg.solve(model.bases, (x - image_generative.NOISE * z).T).T
    jacobian = 4 * np.log(image_generative.NOISE) - np.linalg.slogdet(model.bases)[1]
    value = model.from_noise(x[0]).compile_logp(mode="FAST_COMPILE")({"z": z[0]})
    assert value == pytest.approx(model.log_joint(x, a)[0] + jacobian)


@pytest.mark.parametrize("prior", PRIORS)
def test_slope_of_log_joint_by_differences(prior):
    model, rng = generative(prior), np.random.default_rng(7)
    x, a = rng.normal(size=(1, 4)), rng.normal(size=(1, 3))
    error = check_grad(
        lambda p: model.log_joint(x, p[None])[0], lambda p: model.slope(x, p[None])[0], a[0]
    )
    assert error < 1e-3


def test_exact_likelihood_by_quadrature():
    model, x = generative("normal", n=1, dim=2), np.array([[0.4, -0.3]])
    grid = np.linspace(-4.0, 4.0, 200_001)[:, None]
    values = np.exp(model.log_joint(np.repeat(x, len(grid), axis=0), grid))
    found = np.log(integrate.simpson(values, x=grid[:, 0]))
    assert model.log_likelihood(x)[0] == pytest.approx(found, abs=1e-6)


def test_best_normal_has_a_slope_of_zero():
    x = np.random.default_rng(8).normal(size=(500, 3)) @ np.diag([2.0, 1.0, 0.5])
    best = image_generative.best_normal(x, 2)
    top = best.log_likelihood(x).mean()
    for shift in np.random.default_rng(9).normal(size=(20, 3, 2)):
        near = image_generative.Generative("normal", best.bases + 1e-3 * shift)
        assert near.log_likelihood(x).mean() < top + 1e-9


def test_planted_bases_are_found_again():
    """With the Laplace prior, up to order and sign; a normal prior cannot tell them apart."""
    rng = np.random.default_rng(10)
    planted = np.array([[1.0, 0.4, 0.0], [0.0, 1.0, -0.3], [0.5, 0.0, 1.0]])
    x = rng.laplace(size=(4000, 3)) @ planted.T
    x += image_generative.NOISE * rng.normal(size=x.shape)
    found = image_generative.fit_laplace(x, rng)
    product = np.abs(np.linalg.inv(planted) @ found.bases)
    best = min(np.abs(product[:, list(p)] - np.eye(3)).max() for p in permutations(range(3)))
    assert best < 0.1
