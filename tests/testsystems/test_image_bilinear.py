"""The bilinear model of benchmarks: joint density, slopes, likelihood, draws, and a planted one."""

import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import check_grad

import pymc_tempering as pmt

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from image_bilinear import (
    Bilinear,
    draw_coefficients,
    fit_without_noise,
    inverse_gaussian,
    log_widths,
    move_widths,
)
from image_generative import NOISE


def small(seed=0):
    rng = np.random.default_rng(seed)
    shapes = (4, 3), (3, 2), (3, 2)
    return Bilinear(*(rng.normal(size=shape) for shape in shapes))


def slow_log_joint(model, x, c, d):
    total = stats.laplace.logpdf(c).sum() + stats.expon.logpdf(d).sum()
    a = [(row @ c) * (other @ d) for row, other in zip(model.mix, model.scales, strict=True)]
    for value, row in zip(x, model.bases, strict=True):
        total += stats.norm.logpdf(value, sum(p * q for p, q in zip(row, a, strict=True)), NOISE)
    return total


def test_log_joint_is_the_slow_one_and_the_model_has_it():
    model, rng = small(), np.random.default_rng(1)
    x, c, d = rng.normal(size=(5, 4)), rng.normal(size=(5, 2)), rng.exponential(size=(5, 2))
    slow = [slow_log_joint(model, *row) for row in zip(x, c, d, strict=True)]
    np.testing.assert_allclose(model.log_joint(x, c, d), slow)
    value = model.model(x[0]).compile_logp(mode="FAST_COMPILE")(
        {"c": c[0], "d_log__": np.log(d[0])}
    )
    assert value == pytest.approx(slow[0] + np.log(d[0]).sum())


def test_slopes_by_differences():
    model, rng = small(), np.random.default_rng(2)
    x, at = rng.normal(size=(1, 4)), rng.normal(size=4)

    def value(p):
        return model.log_joint(x, p[None, :2], np.exp(p[None, 2:]))[0] + p[2:].sum()

    def slope(p):
        return np.concatenate(model.slope(x, p[None, :2], p[None, 2:]), axis=1)[0]

    assert check_grad(value, slope, at) < 1e-2 * np.linalg.norm(slope(at))


def test_likelihood_of_hais_by_quadrature_and_without_bases():
    # |z| < 4, false alarm 6e-5; without bases a patch is noise alone, equation (41)
    model, x = Bilinear(np.array([[0.8]]), np.eye(1), np.array([[1.0]])), np.array([0.7])
    options = {"random_seed": 1, "quiet": True, "progressbar": False}

    def density(c, t):
        return np.exp(model.log_joint(x[None], np.array([[c]]), np.exp([[t]]))[0] + t)

    exact = np.log(integrate.dblquad(density, -12.0, 4.0, -np.inf, np.inf, epsabs=1e-9)[0])
    for made in (model.model(x), model.from_noise(x)):
        found = pmt.annealed.hais(made, n_particles=1000, betas=100, **options)
        assert found.mcse < 0.1
        assert abs(found.log_z - exact) < 4.0 * found.mcse
    flat = Bilinear(np.zeros((1, 1)), np.eye(1), np.ones((1, 1)))
    found = pmt.annealed.hais(flat.model(x), n_particles=100, betas=5, **options)
    assert found.log_z == pytest.approx(stats.norm.logpdf(0.7, 0.0, NOISE))


def test_the_density_over_noise_is_that_over_coefficients():
    rng, shapes = np.random.default_rng(6), ((3, 3), (3, 3), (3, 2))
    model = Bilinear(*(rng.normal(size=shape) for shape in shapes))
    x, z, d = rng.normal(size=3), rng.normal(size=3), rng.exponential(size=2)
    a = np.linalg.solve(model.bases, x - NOISE * z)
    c = np.linalg.solve(model.mix, a / (model.scales @ d))
    by_c = np.linalg.inv(model.mix) @ np.diag(1.0 / (model.scales @ d))
    by_c = by_c @ np.linalg.inv(model.bases) * NOISE
    exact = model.log_joint(x[None], c[None], d[None])[0] + np.linalg.slogdet(by_c)[1]
    point = {"z": z, "d_log__": np.log(d)}
    value = model.from_noise(x).compile_logp(mode="FAST_COMPILE")(point)
    assert value == pytest.approx(exact + np.log(d).sum())


def test_inverse_gaussian_has_its_law():
    # Kolmogorov-Smirnov, p > 1e-4, for means from small to large
    rng = np.random.default_rng(3)
    for mean in (0.1, 1.0, 1e4):
        drawn = inverse_gaussian(np.full(20_000, mean), rng)
        assert stats.kstest(drawn, stats.invgauss(mean).cdf).pvalue > 1e-4


def test_draws_of_coefficients_and_widths_have_their_law():
    # Means of a^2 and of t in 4000 chains against a grid of one base and one width: |z| < 4
    rng, model = np.random.default_rng(4), Bilinear(np.array([[0.3]]), np.eye(1), np.ones((1, 1)))
    x, a, t = np.full((4000, 1), 0.2), np.full((4000, 1), 0.5), np.zeros((4000, 1))
    for _ in range(60):
        a = draw_coefficients(model, x, a, t, rng)
        t = move_widths(a, t, model.scales, rng)
    log_a, side_t = np.linspace(-20.0, 2.0, 1101), np.linspace(-14.0, 4.0, 601)
    side_a = np.r_[-np.exp(log_a), np.exp(log_a)]  # even in log |a|: narrow widths need it
    grid_a, grid_t = (g.reshape(-1, 1) for g in np.meshgrid(side_a, side_t))
    log_p = log_widths(grid_a, grid_t, model.scales) + np.log(np.abs(grid_a[:, 0]))
    log_p -= 0.5 * ((0.2 - 0.3 * grid_a[:, 0]) / NOISE) ** 2
    weight = np.exp(log_p - log_p.max())
    for drawn, grid in ((a**2, grid_a**2), (t, grid_t)):
        exact = weight @ grid[:, 0] / weight.sum()
        assert abs(drawn.mean() - exact) < 4.0 * drawn.std() / np.sqrt(len(drawn))


def test_planted_bases_and_scales_are_found_again():
    """Two groups of two bases, each with a width of its own; up to order, sign and length."""
    rng = np.random.default_rng(5)
    bases = np.array([[1.0, 0.4, 0.0, 0.2], [0.0, 1.0, -0.3, 0.0], [0.5, 0.0, 1.0, 0.3],
                      [0.0, 0.2, 0.1, 1.0]])  # fmt: skip
    scales = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    a = rng.laplace(size=(6000, 4)) * (rng.exponential(size=(6000, 2)) @ scales.T)
    found, _ = fit_without_noise(a @ bases.T, 2, rng, rounds=400)
    product = np.linalg.inv(bases) @ found.bases
    product = np.abs(product) / np.abs(product).max(axis=0)
    best = min(permutations(range(4)), key=lambda p: np.abs(product[:, p] - np.eye(4)).max())
    assert np.abs(product[:, best] - np.eye(4)).max() < 0.15
    share = (found.scales / found.scales.sum(axis=1, keepdims=True))[list(best)]
    assert abs(share[0] - share[1]).max() < 0.25
    assert abs(share[2] - share[3]).max() < 0.25
    assert abs(share[0] - share[2]).max() > 0.6
