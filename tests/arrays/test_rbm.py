"""Energies of RBMs against slow NumPy, log Z against all states, and draws against their laws."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from rbm_density import RBM, BernoulliReference, RBMPath, data_marginals, draw_bits

RNG = np.random.default_rng(1)
MACHINE = RBM(RNG.normal(size=(4, 3)), RNG.normal(size=4), RNG.normal(size=3))
LAW = BernoulliReference(np.array([0.2, 0.4, 0.6, 0.7]))
STATES = np.array(list(product([0, 1], repeat=7)), dtype=np.float32)


def slow_energy(v, h):
    """v'a + v'W h + h'b, unit by unit."""
    w, a, b = (
        np.asarray(x, float) for x in (MACHINE.weights, MACHINE.visible_bias, MACHINE.hidden_bias)
    )
    total = sum(a[i] * v[i] for i in range(4)) + sum(b[j] * h[j] for j in range(3))
    return total + sum(v[i] * w[i, j] * h[j] for i in range(4) for j in range(3))


ENERGY = np.array([slow_energy(x[:4], x[4:]) for x in STATES])


def test_energies_are_those_of_slow_numpy():
    assert np.allclose(MACHINE.log_joint(STATES), ENERGY, atol=1e-5)
    v = np.unique(STATES[:, :4], axis=0)
    slow = [np.log(sum(np.exp(ENERGY[(STATES[:, :4] == row).all(axis=1)]))) for row in v]
    assert np.allclose(MACHINE.log_marginal(v), slow, atol=1e-5)
    p = np.array([0.2, 0.4, 0.6, 0.7])
    slow_law = [np.prod(np.where(x[:4] == 1, p, 1 - p)) / 8 for x in STATES]
    path = MACHINE.density(LAW)
    assert np.allclose(path.log_reference(STATES), np.log(slow_law), atol=1e-5)
    assert np.allclose(path.log_ratio(STATES), ENERGY - np.log(slow_law), atol=1e-5)


def test_exact_log_z_is_the_sum_over_all_states():
    exact = np.log(np.exp(ENERGY).sum())
    assert MACHINE.exact_log_z() == pytest.approx(exact, abs=1e-6)
    turned = RBM(MACHINE.weights.T, MACHINE.hidden_bias, MACHINE.visible_bias)
    assert turned.exact_log_z() == pytest.approx(exact, abs=1e-6)
    v = STATES[::8, :4]
    mean = np.mean(MACHINE.log_marginal(v)) - exact
    assert MACHINE.log_likelihood(v, exact) == pytest.approx(mean)


def test_enumeration_of_a_large_machine_is_refused():
    with pytest.raises(ValueError, match="at most 20 units"):
        RBM(np.zeros((21, 21)), np.zeros(21), np.zeros(21)).exact_log_z()


@pytest.mark.parametrize("name", ["move", "reverse_move"])
@pytest.mark.parametrize("beta", [0.4, 1.0])
def test_moves_leave_their_density_and_say_their_log_ratio(name, beta):
    """Draws at beta by enumeration, moved: counts of 128 states by chi-square, p > 1e-6."""
    path, n = MACHINE.density(LAW), 100_000
    log_p = path.log_reference(STATES).astype(float) + beta * path.log_ratio(STATES)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    rng = np.random.default_rng(2)
    starts = STATES[rng.choice(128, size=n, p=p)]
    states, ratio = getattr(path, name)(starts, np.full(n, beta, np.float32), rng)
    assert np.allclose(ratio, path.log_ratio(states), atol=1e-4)
    place = (states @ (2.0 ** np.arange(6, -1, -1))).astype(int)
    counts = np.bincount(place, minlength=128)
    assert np.sum((counts - n * p) ** 2 / (n * p)) < 215.0  # of chi-square with 127: p = 1e-6
    # The same bits are not kept: the law is not left by standing still.
    assert np.mean((states != starts).any(axis=1)) > 0.5


def test_the_two_moves_are_each_others_reversal():
    """pi(x) T(x, y) = pi(y) T~(y, x), by counts of pairs; a sweep is not its own reversal."""
    path, n, beta = MACHINE.density(LAW), 400_000, 0.7
    log_p = path.log_reference(STATES).astype(float) + beta * path.log_ratio(STATES)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    rng, powers = np.random.default_rng(3), 2.0 ** np.arange(6, -1, -1)
    code = rng.choice(128, size=n, p=p)

    def pairs(move):
        after = move(STATES[code], np.full(n, beta, np.float32), rng)[0] @ powers
        return np.bincount(code * 128 + after.astype(int), minlength=128**2).reshape(128, 128)

    def distance(there, back):
        both = there + back
        kept = both >= 10
        return np.sum((there - back)[kept] ** 2 / both[kept]) / kept.sum()

    up, down = pairs(path.move), pairs(path.reverse_move)
    assert distance(up, down.T) < 1.06  # mean of some 8,000 squares: 1 +- 0.016
    assert distance(up, pairs(path.move).T) > 1.5


def test_bits_have_their_probabilities():
    """400,000 bits a logit within five errors; beyond the range of exp they are sure."""
    logits = np.tile(np.float32([-2.0, -0.3, 0.0, 1.5]), (400_000, 1))
    mean = draw_bits(logits, np.random.default_rng(1)).mean(axis=0, dtype=float)
    p = 1 / (1 + np.exp([2.0, 0.3, 0.0, -1.5]))
    assert np.all(np.abs(mean - p) < 5 * np.sqrt(p * (1 - p) / 400_000))
    sure = draw_bits(np.float32([[-1e4, 1e4]] * 1000), np.random.default_rng(1))
    assert np.array_equal(np.unique(sure, axis=0), [[0.0, 1.0]])


def test_machines_that_are_none_are_refused():
    with pytest.raises(ValueError, match="two lengths"):
        RBM(np.zeros((3, 2)), np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        RBM(np.full((1, 1), np.nan), np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="4 bits, the machine 2"):
        RBM(np.zeros((2, 2)), np.zeros(2), np.zeros(2)).density(LAW)
    assert RBMPath(MACHINE, LAW).log_reference(STATES[:1]).shape == (1,)


@pytest.mark.parametrize("p", [[0.0, 0.5], [0.5, 1.0], [np.nan], [[0.5]]])
def test_bits_that_are_no_law_are_refused(p):
    with pytest.raises(ValueError, match="above 0 and below"):
        BernoulliReference(np.array(p))


def test_marginals_of_data_leave_nothing_out():
    law = data_marginals(np.array([[1.0, 0.0], [1.0, 0.5]]))
    assert np.allclose(law.probabilities, [2.5 / 3, 1.0 / 3])
    with pytest.raises(ValueError, match="numbers from 0 to 1"):
        data_marginals(np.array([[2.0]]))
    with pytest.raises(ValueError, match="smoothing"):
        data_marginals(np.zeros((2, 2)), smoothing=0.0)
