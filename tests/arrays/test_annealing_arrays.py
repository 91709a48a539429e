"""AIS, reverse AIS, the sandwich and RAISE over arrays against exact answers, and planted bugs."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import pymc_tempering as pmt
from pymc_tempering.arrays import ArrayDensity, annealing, temper

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from rbm_density import RBM

# A |z| above 5 comes by chance in one of two million tests of a right estimate.
MAX_Z = 5.0
RNG = np.random.default_rng(3)
MACHINE = RBM(RNG.normal(0, 1.2, (6, 4)), RNG.normal(0, 1.0, 6), RNG.normal(0, 1.0, 4))
LOG_Z = MACHINE.exact_log_z()
BITS = (np.arange(2**10)[:, None] >> np.arange(10) & 1).astype(np.float32)
DATA = BITS[[5, 40, 63], :6]
FEW = [0.0, 0.3, 0.7, 1.0]  # few rungs: the weights are uneven, and wrong moves show
MORE = np.linspace(0.0, 1.0, 12)


def exact_draws(n, seed=1):
    """Independent draws of the machine by enumeration."""
    p = np.exp(MACHINE.log_joint(BITS).astype(float) - LOG_Z)
    return BITS[np.random.default_rng(seed).choice(len(BITS), size=n, p=p / p.sum())]


def reverse_z(density, n=4000):
    found = annealing(density, MORE).reverse_ais(exact_draws(n), random_seed=1)
    return (found.log_z - LOG_Z) / found.mcse


def test_up_and_down_are_unbiased_with_few_rungs():
    density = MACHINE.density()
    up = annealing(density, FEW).ais(4000, random_seed=1)
    assert abs(up.log_z - LOG_Z) < MAX_Z * up.mcse
    assert up.bias_direction == "below"
    assert up.log_z_curve[-1] == pytest.approx(up.log_z)
    assert abs(reverse_z(density)) < MAX_Z


def test_down_by_the_move_itself_is_unbiased_too():
    """Any moves that keep the densities on the path will do; RAISE alone needs the reversal."""
    path = MACHINE.density()
    assert abs(reverse_z(ArrayDensity(path.reference_draw, path.log_ratio, path.move))) < MAX_Z


def test_a_move_that_ignores_beta_is_seen():
    path = MACHINE.density()
    bad = ArrayDensity(
        path.reference_draw, path.log_ratio, lambda x, beta, rng: path.move(x, 0 * beta + 1, rng)
    )
    found = annealing(bad, FEW).ais(4000, random_seed=1)
    assert abs(found.log_z - LOG_Z) > MAX_Z * found.mcse


def test_the_sandwich_holds_log_z_between():
    density = MACHINE.density()
    run = temper(density, 200, chains=50, random_seed=1)
    both = annealing(density, 60, random_seed=1).sandwich(*run.cold_states(), random_seed=1)
    assert both.verdict == "ok"
    assert both.lower.log_z - MAX_Z * both.lower.mcse < LOG_Z
    assert both.upper.log_z + MAX_Z * both.upper.mcse > LOG_Z


@pytest.fixture(scope="module")
def shares():
    """Shares of three data among a million runs of annealing up, with their relative errors."""
    density, rng, n = MACHINE.density(), np.random.default_rng(2), 1_000_000
    states = density.reference_draw(n, rng)
    for beta in FEW[1:]:
        states = density.move(states, np.full(n, beta, np.float32), rng)[0]
    share = (states[:, None, :6] == DATA).all(axis=2).mean(axis=0)
    return share, np.sqrt((1 - share) / (share * n))


def raise_surprise(density, shares):
    """Sum of three squared z of RAISE against the shares; above 35 with a chance of 1e-7."""
    found = annealing(density, FEW).raise_(DATA, MACHINE.complete, 4000, random_seed=1)
    share, error = shares
    z = (found.log_likelihood - np.log(share)) / np.hypot(error, found.mcse)
    return np.sum(z**2)


def test_raise_of_a_batch_is_the_likelihood_under_annealing(shares):
    assert raise_surprise(MACHINE.density(), shares) < 35.0
    # With three rungs that law is well away from the machine's.
    exact = MACHINE.log_marginal(DATA) - LOG_Z
    assert np.abs((np.log(shares[0]) - exact) / shares[1]).max() > MAX_Z


def test_a_reversal_in_the_wrong_order_is_seen(shares):
    path = MACHINE.density()
    bad = ArrayDensity(path.reference_draw, path.log_ratio, path.move, path.move)
    assert raise_surprise(bad, shares) > 35.0


def test_raise_comes_to_the_likelihood_with_more_rungs():
    found = annealing(MACHINE.density(), 200, random_seed=1).raise_(
        DATA, MACHINE.complete, 200, random_seed=1
    )
    exact = MACHINE.log_marginal(DATA) - LOG_Z
    assert np.all(np.abs(found.log_likelihood - exact) < 0.1)
    assert np.sqrt(np.mean(found.mcse**2) / found.mcse.size) < 0.05


def test_errors_of_draws_that_depend_on_each_other_are_larger():
    """Each draw stands 100 times in a chain: its batches of 44 are 20 draws in all."""
    states = np.repeat(exact_draws(20), 100, axis=0)
    ways = annealing(MACHINE.density(), [0.0, 0.5, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)  # so few draws, so few rungs
        alone = ways.reverse_ais(states, random_seed=1)
        chain = ways.reverse_ais(states, np.zeros(2000, int), random_seed=1)
    assert chain.log_z == alone.log_z
    assert chain.mcse > 1.3 * alone.mcse


def test_a_density_without_a_reversal_is_refused():
    path = MACHINE.density()
    forward = ArrayDensity(path.reference_draw, path.log_ratio, path.move)
    with pytest.raises(pmt.exceptions.KernelError, match="no reverse_move"):
        annealing(forward, FEW).raise_(DATA, MACHINE.complete)
