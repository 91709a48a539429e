"""The mean and covariance RBM of benchmarks: energy, slopes, exact log Z, and a planted one."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import approx_fprime

import pymc_tempering as pmt

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from image_chains import hamiltonian, learn
from image_mcrbm import McRBM, start


def small(dim=2, seed=0):
    """A machine of the plane whose units all matter."""
    rng = np.random.default_rng(seed)
    return McRBM(
        -2.0 * rng.uniform(size=(4, 3)), 2.0 * rng.normal(size=(4, dim)), np.array([2.0, 1.0, 3.0]),
        rng.normal(size=(2, dim)), np.array([-0.5, 0.3]), 0.4 * rng.normal(size=dim),
        np.array([0.2]),
    )  # fmt: skip


def slow_energy(machine, x):
    """Equation (40), unit by unit."""
    total, length = 0.0, sum(v * v for v in x) + 0.5
    for k, bias in enumerate(machine.covariance_bias):
        inside = bias
        for row, pool in zip(machine.filters, machine.pooling[:, k], strict=True):
            inside += 0.5 * pool * sum(a * b for a, b in zip(row, x, strict=True)) ** 2 / length
        total -= np.log(1.0 + np.exp(inside))
    for row, bias in zip(machine.means, machine.mean_bias, strict=True):
        total -= np.log(1.0 + np.exp(sum(a * b for a, b in zip(row, x, strict=True)) + bias))
    total -= sum(a * b for a, b in zip(machine.visible_bias, x, strict=True))
    return total + sum(v * v for v in x) / (2.0 * np.exp(machine.log_sd[0]) ** 2)


def test_energy_is_the_slow_one_and_the_model_has_it():
    machine, x = small(3), np.random.default_rng(1).normal(size=(5, 3))
    slow = [slow_energy(machine, row) for row in x]
    np.testing.assert_allclose(machine.energy(x), slow)
    t = 0.3
    value = machine.model().compile_logp(mode="FAST_COMPILE")({"z": x[0] / np.exp(t), "t": t})
    of_t = stats.norm.logpdf(t, np.log(np.sqrt(np.mean(x[0] ** 2))), np.sqrt(0.5 / 3))
    assert value == pytest.approx(-slow[0] + of_t + 3 * t)


def test_slopes_are_those_of_the_energy():
    machine, x = small(3), np.random.default_rng(2).normal(size=(6, 3))
    for row, slope in zip(x, machine.slope_by_states(x), strict=True):
        found = approx_fprime(row, lambda y: float(machine.energy(y[None])[0]), 1e-7)
        np.testing.assert_allclose(slope, found, atol=1e-5)
    found = approx_fprime(
        machine.packed(), lambda p: float(machine.unpacked(p).energy(x).mean()), 1e-7
    )
    np.testing.assert_allclose(machine.mean_slope(x), found, atol=1e-5)


SIDE = np.linspace(-10.0, 10.0, 801)
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)


def by_grid(machine):
    return float(np.log(np.exp(-machine.energy(GRID)).sum() * (SIDE[1] - SIDE[0]) ** 2))


def of_hais(machine, **options):
    found = pmt.annealed.hais(
        machine.model(), random_seed=1, quiet=True, progressbar=False, **options
    )
    return found.log_z, found.mcse


def test_exact_log_z_without_pooling_is_the_grids():
    machine = replace(small(), pooling=np.zeros((4, 3)))
    assert machine.log_z_without_pooling() == pytest.approx(by_grid(machine), abs=1e-6)


@pytest.mark.parametrize("pooled", [True, False])
def test_log_z_of_hais(pooled):
    # |z| < 4, false alarm 6e-5: by quadrature in the plane, by a sum of normals in 10 dimensions
    machine = small() if pooled else replace(small(10), pooling=np.zeros((4, 3)))
    exact = by_grid(machine) if pooled else machine.log_z_without_pooling()
    log_z, mcse = of_hais(machine, n_particles=400, betas=200)
    assert mcse < 0.1
    assert abs(log_z - exact) < 4.0 * mcse


def test_log_z_with_a_peak_that_a_wide_normal_misses():
    # The peak holds nearly all; its mass by a sum over shells of 12 dimensions: |z| < 4
    machine = McRBM(
        np.full((1, 200), -2.0), np.zeros((1, 12)), np.full(200, 1.0), np.zeros((1, 12)),
        np.zeros(1), np.zeros(12), np.array([0.5]),
    )  # fmt: skip
    # filters that cover all directions evenly: squares are |x|^2 / (|x|^2 + 1/2) each
    machine = replace(machine, filters=6.0 * np.eye(12), pooling=np.full((12, 200), -0.5))
    radius = np.exp(np.linspace(-8.0, 3.0, 20_001))
    points = np.outer(radius, np.eye(12)[0])  # the energy is that of the length alone
    area = 12 * radius**11 * np.exp(special.gammaln(0.5) * 12 - special.gammaln(7.0))
    log_f = -machine.energy(points)
    exact = np.log(np.trapezoid(np.exp(log_f - log_f.max()) * area, radius)) + log_f.max()
    log_z, mcse = of_hais(machine, n_particles=400, betas=200)
    assert mcse < 0.3
    assert abs(log_z - exact) < 4.0 * mcse


def test_what_is_learned_is_as_likely_as_what_was_planted():
    machine, rng = small(), np.random.default_rng(3)
    weight = np.exp(-machine.energy(GRID))
    x = GRID[rng.choice(len(GRID), size=4000, p=weight / weight.sum())]
    first = start(2, (4, 3, 2), np.random.default_rng(4))
    found = learn(first, x, np.random.default_rng(5), 1500, hamiltonian)

    def likelihood(machine):
        return float(-machine.energy(x).mean() - by_grid(machine))

    assert likelihood(found) > likelihood(machine) - 0.02
    assert likelihood(first) < likelihood(machine) - 0.1
