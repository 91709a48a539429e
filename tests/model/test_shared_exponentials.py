"""A dear logistic density shares its exponentials: the same values and slopes everywhere."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, log_expit

from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.path import compile_path
from pymc_tempering.model.shared_exponentials import with_shared_exponentials

N = 400
SIDES = np.random.default_rng(5).choice([-1.0, 1.0], size=N)
TABLE = SIDES[:, None] * np.linspace(0.1, 1.0, N)[:, None]
Y = np.random.default_rng(4).integers(0, 2, N)


def path_of(family, n=N):
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 30.0, shape=1)
        eta, y = TABLE[:n] @ x, Y[:n]
        if family == "bernoulli":
            pm.Bernoulli("y", logit_p=eta, observed=y)
        else:
            pm.Binomial("y", 3, logit_p=eta, observed=2 * y)
    return compile_path(model)


def ratio_and_slope(path, x):
    point = new_point(1)
    path.density(np.array([x]), point.values, point.grads)
    return point.values[1], point.grads[1, 0]


@pytest.fixture
def calls(monkeypatch):
    """Graphs that were rewritten."""
    seen = []

    def counted(outputs):
        seen.append(len(outputs))
        return with_shared_exponentials(outputs)

    monkeypatch.setattr("pymc_tempering.model.path.with_shared_exponentials", counted)
    return seen


@pytest.mark.parametrize("family", ["bernoulli", "binomial"])
@pytest.mark.parametrize("x", [0.0, 1e-12, 0.3, -2.0, 40.0, -700.0, 1e5, -1e30])
def test_values_and_slopes(family, x, calls):
    """At 0 the slope of |x| must not count: the planted sign of one there is seen."""
    path = path_of(family)
    assert path.dear
    assert calls
    value, slope = ratio_and_slope(path, x)
    eta = TABLE[:, 0] * x
    ones, n = (Y, 1) if family == "bernoulli" else (2 * Y, 3)
    constant = 0.0 if family == "bernoulli" else np.log(3.0) * Y.sum()
    expected = constant + np.sum(ones * log_expit(eta) + (n - ones) * log_expit(-eta))
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    expected = np.sum((ones - n * expit(eta)) * TABLE[:, 0])
    np.testing.assert_allclose(slope, expected, rtol=1e-11, atol=1e-11)


def test_no_number_is_no_likelihood():
    """As PyMC's own check of the probability has it."""
    assert ratio_and_slope(path_of("bernoulli"), np.nan)[0] == -np.inf


def test_cheap_densities_keep_their_bits(calls):
    assert not path_of("bernoulli", 20).dear
    assert not calls
