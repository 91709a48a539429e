"""Products of more experts than dimensions: slopes, the chains' law, log Z, and filters found."""

import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import pymc_tempering as pmt

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from image_chains import hamiltonian, learn
from image_experts import Experts
from image_overcomplete import gibbs

KINDS = ["laplace", "student_t"]


def three(kind):
    """Three experts of the plane."""
    angles = np.array([0.1, 1.2, 2.2])
    lengths = np.array([2.0, 1.0, 1.5])[:, None]
    filters = lengths * np.column_stack([np.cos(angles), np.sin(angles)])
    return Experts(kind, filters, np.ones(3) if kind == "laplace" else np.array([1.5, 2.0, 2.5]))


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_those_of_the_energy(kind):
    experts, x = three(kind), np.array([[0.7, -0.4], [-1.3, 2.0]])
    for row, slope in zip(x, experts.slope_by_states(x), strict=True):
        found = approx_fprime(row, lambda y: float(experts.energy(y[None])[0]), 1e-7)
        np.testing.assert_allclose(slope, found, atol=1e-5)
    packed = experts.packed()
    found = approx_fprime(packed, lambda p: float(experts.unpacked(p).energy(x).mean()), 1e-7)
    np.testing.assert_allclose(experts.mean_slope(x), found, atol=1e-5)


SIDE = np.sinh(np.linspace(-7.0, 7.0, 601))
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)
AREA = np.outer(np.hypot(SIDE, 1.0), np.hypot(SIDE, 1.0)).ravel() * (14.0 / 600) ** 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("move", [gibbs, hamiltonian])
def test_chains_leave_the_law_as_it_is(kind, move):
    # Mean energy of 300 chains, 200 states of each, against a grid's: |z| < 4, false alarm 6e-5
    experts, rng = three(kind), np.random.default_rng(1)
    energy = experts.energy(GRID)
    weight = np.exp(-energy) * AREA
    exact = float(weight @ np.minimum(energy, 12.0) / weight.sum())
    x, means = rng.normal(size=(300, 2)), []
    for t in range(260):
        x, _ = move(experts, x, 0.6, rng)
        if t >= 60:
            means.append(np.minimum(experts.energy(x), 12.0))
    by_chain = np.mean(means, axis=0)
    error = by_chain.std(ddof=1) / np.sqrt(by_chain.size)
    assert abs(by_chain.mean() - exact) < 4.0 * error


def by_grid(experts):
    return float(np.log(np.exp(-experts.energy(GRID)) @ AREA))


@pytest.mark.parametrize("which", [*KINDS, "matched"])
def test_log_z_of_hais(which):
    # |z| < 4, false alarm 6e-5: three experts from a normal, two of wide tails from their own
    if which == "matched":
        two = three("student_t")
        experts = Experts("student_t", two.filters[:2], np.array([0.75, 1.3]))
        model, exact = experts.matched(), experts.log_z()
    else:
        experts = three(which)
        model, exact = experts.model(1.5), by_grid(experts)
    found = pmt.annealed.hais(
        model, n_particles=400, betas=50, random_seed=1, quiet=True, progressbar=False
    )
    assert found.mcse < 0.1
    assert abs(found.log_z - exact) < 4.0 * found.mcse


def likelihood(experts, x):
    """Mean log likelihood of data, with log Z by the grid."""
    return float(-experts.energy(x).mean() - by_grid(experts))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_learned_is_as_likely_as_what_was_planted(kind):
    experts, rng = three(kind), np.random.default_rng(2)
    x = rng.normal(size=(4000, 2))
    for _ in range(40):
        x, _ = gibbs(experts, x, 1.0, rng)
    shape = np.ones(3) if kind == "laplace" else np.full(3, 1.0)
    first = Experts(kind, np.random.default_rng(3).normal(size=(3, 2)), shape)
    found = learn(first, x, np.random.default_rng(4), 1500, gibbs)
    planted = likelihood(experts, x)
    assert likelihood(found, x) > planted - 0.01
    assert likelihood(first, x) < planted - 0.02
    if kind == "laplace":  # Student-t filters of other directions are as likely, to 0.0005 nats
        assert (
            farthest(found.filters, experts.filters)
            < 0.1
            < farthest(first.filters, experts.filters)
        )


def farthest(found, planted):
    """Largest distance of a filter from the planted one, over its length, in the best order."""
    of_pairs = np.minimum(
        np.linalg.norm(found[:, None] - planted, axis=2),
        np.linalg.norm(found[:, None] + planted, axis=2),  # the sign of a filter is free
    ) / np.linalg.norm(planted, axis=1)
    every = range(len(planted))
    return min(of_pairs[list(order), every].max() for order in permutations(every))
