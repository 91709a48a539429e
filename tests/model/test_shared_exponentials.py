"""A dear logistic density shares its exponentials: the same values and slopes everywhere."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import expit, log_expit

from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.path import compile_path
from pymc_tempering.model.shared_exponentials import with_shared_exponentials

OLD = tuple(map(int, pm.__version__.split(".")[:2])) < (6, 4)
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


@pytest.mark.slow("compiles models of its own", every=4)
@pytest.mark.parametrize("family", ["bernoulli", "binomial"])
@pytest.mark.parametrize("x", [0.0, 1e-12, 0.3, -2.0, 40.0, -700.0, 1e5, -1e30])
def test_values_and_slopes(family, x, calls):
    if family == "bernoulli" and abs(x) > 30 and OLD:
        pytest.skip("PyMC's own slope is not a number there before 6.4")
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


def test_far_out_and_at_zero():
    """At 0 the slope is a half, and at infinity nothing is undefined."""
    x = pt.dvector("x")
    outputs = with_shared_exponentials([pt.softplus(x), pt.softplus(-x)])
    slopes = [pytensor.grad(out.sum(), x) for out in outputs]
    values = np.array([-np.inf, -800.0, -1.0, 0.0, 1.0, 800.0, np.inf])
    up, down, rise, fall = pytensor.function([x], [*outputs, *slopes], mode="NUMBA")(values)
    np.testing.assert_allclose(up, -log_expit(-values), rtol=1e-14)
    np.testing.assert_allclose(down, -log_expit(values), rtol=1e-14)
    np.testing.assert_allclose(rise, expit(values), rtol=1e-14)
    np.testing.assert_allclose(fall, -expit(-values), rtol=1e-14)


def test_no_number_is_no_likelihood():
    """As PyMC's own check of the probability has it."""
    assert ratio_and_slope(path_of("bernoulli"), np.nan)[0] == -np.inf


@pytest.mark.slow("compiles models of its own")
def test_cheap_densities_keep_their_bits(calls):
    assert not path_of("bernoulli", 20).dear
    assert not calls
