"""The likelihood part of a warped coordinate: its density, its slopes, and its maximum."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import norm

from pymc_tempering.references.conditional_scoring import (
    RIDGE,
    Conditionals,
    evaluate,
    fit_conditionals,
)

N = 300


def conditionals(falls: float, seed: int) -> Conditionals:
    """Draw one coordinate from its own law: v = .5, kappa = .2, B = 1 + 2 z."""
    rng = np.random.default_rng(seed)
    s, z = rng.normal(0.0, 0.8, N), rng.normal(size=N)
    prior, a = np.exp(-2.0 * (0.3 + s)), 0.5 * z
    likelihood = np.exp(2.0 * falls * s) / (0.5 + 0.2 * np.exp(2.0 * s))
    mean = prior * a + likelihood * np.exp(-falls * s) * (1.0 + 2.0 * z)
    precision = prior + likelihood
    x = mean / precision + rng.normal(size=N) / np.sqrt(precision)
    design = np.column_stack([np.ones(N), z])
    return Conditionals(x[None], s[None], prior[None], a[None], design[None], np.array([falls]))


def log_density(known: Conditionals, parameters: np.ndarray) -> float:
    """Log likelihood by SciPy's normal density, without its constant and without the ridge."""
    v, kappa, s = *np.exp(parameters[:2]), known.s[0]
    likelihood = np.exp(2.0 * known.falls[0] * s) / (v + kappa * np.exp(2.0 * s))
    precision = known.prior[0] + likelihood
    b = np.exp(-known.falls[0] * s) * (known.design[0] @ parameters[2:])
    mean = (known.prior[0] * known.a[0] + likelihood * b) / precision
    log_pdf = norm(mean, 1.0 / np.sqrt(precision)).logpdf(known.x[0])
    return float(log_pdf.sum() + 0.5 * N * np.log(2.0 * np.pi))


def evaluated(known: Conditionals, parameters: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Value, gradient and information of the compiled function, with the ridge around zero."""
    scale = np.exp(known.s[0])
    rows = np.array([
        known.x[0], known.s[0], known.prior[0], known.a[0], scale, scale ** -known.falls[0],
    ])  # fmt: skip
    size = parameters.size
    gradient, information = np.empty(size), np.empty((size, size))
    value = evaluate(
        rows, known.design[0], np.zeros(2), parameters, np.empty(size), gradient, information
    )
    return value, gradient, information


@pytest.mark.parametrize("falls", [0.0, 1.0])
def test_value_and_gradient_are_those_of_the_conditional_law(falls: float) -> None:
    known, parameters = conditionals(falls, 1), np.array([-0.3, -1.0, 0.7, 1.5])
    value, gradient, _ = evaluated(known, parameters)
    ridge = RIDGE * (parameters[:2] ** 2).sum()
    assert value == pytest.approx(log_density(known, parameters) - ridge, rel=1e-10)
    numeric = approx_fprime(parameters, lambda p: evaluated(known, p)[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("falls", [0.0, 1.0])
def test_information_is_the_covariance_of_the_gradient(falls: float) -> None:
    """At the true numbers, over 400 data sets: entries within 6 of their standard errors."""
    truth = np.array([np.log(0.5), np.log(0.2), 1.0, 2.0])
    repeats = 400
    found = [evaluated(conditionals(falls, 1000 + k), truth) for k in range(repeats)]
    slopes = np.array([gradient for _, gradient, _ in found])
    slopes[:, :2] += 2.0 * RIDGE * truth[:2]
    information = np.mean([each for _, _, each in found], axis=0)
    information[[0, 1], [0, 1]] -= 2.0 * RIDGE
    products = slopes[:, :, None] * slopes[:, None, :]
    error = products.std(axis=0) / np.sqrt(repeats)
    assert (np.abs(products.mean(axis=0) - information) < 6.0 * error).all()


@pytest.mark.parametrize("falls", [0.0, 1.0])
def test_the_maximum_is_that_of_a_general_optimizer(falls: float) -> None:
    known = conditionals(falls, 2)
    parameters, likelihood, _ = fit_conditionals(known)
    best = minimize(
        lambda p: -log_density(known, p), np.array([-0.7, -1.6, 1.0, 2.0]), method="Nelder-Mead",
        options={"xatol": 1e-6, "fatol": 1e-6, "maxiter": 10_000, "maxfev": 10_000},
    )  # fmt: skip
    assert log_density(known, parameters[0]) > -best.fun - 0.3  # the ridge pulls a little
    assert likelihood[0] <= log_density(known, parameters[0])


def test_numbers_out_of_range_are_no_fit() -> None:
    known = conditionals(0.0, 3)
    value, gradient, information = evaluated(known, np.array([800.0, 800.0, 1e200, 1e200]))
    assert value == -np.inf
    assert not gradient.any()
    assert not information.any()


def test_each_coordinate_is_fitted_alone() -> None:
    one, two = conditionals(1.0, 4), conditionals(0.0, 5)
    both = Conditionals(*(np.concatenate(pair) for pair in zip(one, two, strict=True)))
    parameters, likelihood, plain = fit_conditionals(both)
    for k, each in enumerate((one, two)):
        alone = fit_conditionals(each)
        np.testing.assert_array_equal(parameters[k], alone[0][0])
        assert (likelihood[k], plain[k]) == (alone[1][0], alone[2][0])
