"""The example that trains RBMs: gradients against enumeration, learning, and its log Z."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from rbm_density import RBM
from rbm_training import first_machine, gradient_of, train, train_tracked

RNG = np.random.default_rng(1)
DATA = np.repeat(RNG.integers(0, 2, size=(300, 2)), 4, axis=1).astype(np.float32)
START = first_machine(DATA, 6, RNG)
BITS = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(np.float32)


def likelihood(rbm):
    return rbm.log_likelihood(DATA, rbm.exact_log_z())


def test_gradients_are_those_of_the_exact_likelihood():
    """With all states as the model's, weighted by their probabilities: central differences."""
    rbm = RBM(RNG.normal(size=(8, 3)), RNG.normal(size=8), RNG.normal(size=3))
    p = np.exp(rbm.log_marginal(BITS) - rbm.exact_log_z())
    found = gradient_of(rbm, DATA, BITS, p)
    for name, slopes in zip(("weights", "visible_bias", "hidden_bias"), found, strict=True):
        for place in list(np.ndindex(slopes.shape))[:6]:
            ends = []
            for sign in (1.0, -1.0):
                values = getattr(rbm, name).copy()
                values[place] += sign * 0.01
                parts = {n: getattr(rbm, n) for n in ("weights", "visible_bias", "hidden_bias")}
                ends.append(likelihood(RBM(**parts | {name: values})))
            assert slopes[place] == pytest.approx((ends[0] - ends[1]) / 0.02, abs=2e-3)


@pytest.mark.parametrize(("method", "sweeps"), [("cd", 5), ("pcd", 1)])
def test_training_comes_near_the_entropy_of_the_data(method, sweeps):
    """Four kinds of rows: no machine is above -log 4 by more than their counts give."""
    rbm = train(START, DATA, 1500, method=method, sweeps=sweeps, rate=0.1, random_seed=1)
    assert -2.0 < likelihood(rbm) < -1.3
    assert likelihood(START) < -5.0


def test_log_z_is_followed_while_it_moves():
    """Errors at 54 checkpoints against enumeration; a log Z that stays as it was is far off."""
    steps = list(
        train_tracked(START, DATA, 300, validation=DATA[:50], n_rungs=10, chains=100, sweeps=5,
                      rate=0.2, random_seed=1)
    )  # fmt: skip
    late = steps[30::5]
    exact = np.array([step.rbm.exact_log_z() for step in late])
    off = np.array([step.log_z for step in late]) - exact
    assert np.abs(off).mean() < 0.2
    assert np.abs(steps[0].log_z - exact).mean() > 0.5
    last = steps[-1]
    assert last.train == pytest.approx(last.rbm.log_likelihood(DATA, last.log_z))
    assert last.train > steps[0].train + 1.0
    assert last.mcse < 0.5


def test_training_stops_by_the_validation_likelihood():
    other = 1.0 - np.repeat([[1.0, 0.0]], 4, axis=1).repeat(20, axis=0)
    steps = list(
        train_tracked(START, DATA, 400, validation=other, n_rungs=5, chains=50, sweeps=2,
                      rate=0.2, patience=15, random_seed=2)
    )  # fmt: skip
    best = int(np.argmax([step.validation for step in steps]))
    assert len(steps) < 400
    assert len(steps) - 1 - best == 15
