"""Real models that regress: correlated covariates, wells, child scores, a horseshoe, outliers."""

from functools import cache

import numpy as np
import pymc as pm

from benchmarks.models.real_models_entry import RealModel
from benchmarks.truths.real_models_exact import NormalSum, half_cauchy, over_scales


@cache
def diamonds_data() -> tuple[np.ndarray, np.ndarray]:
    """Return 24 centered covariates and the log price of 5,000 diamonds, simulated.

    The size of a diamond drives three of its measures almost alone, cut, color and clarity are
    polynomials of ordered factors, and size meets each of them: columns as in the regression of
    the diamonds data in posteriordb.
    """
    rng = np.random.default_rng(53940)
    carat = rng.normal(size=5000)
    factors = [_polynomials(rng.integers(levels, size=5000), levels) for levels in (5, 7, 8)]
    X = np.column_stack([carat, *factors, *(carat * f[:, 0] for f in factors)])
    X = np.column_stack([X, carat + 0.02 * rng.normal(size=5000), carat**2, carat**3])
    X -= X.mean(axis=0)
    y = 7.8 + X @ rng.normal(scale=0.3, size=X.shape[1]) + 0.25 * rng.normal(size=5000)
    return X, y


def _polynomials(level: np.ndarray, n: int) -> np.ndarray:
    """Orthogonal polynomials of the levels of an ordered factor, degrees 1 to n - 1."""
    powers = np.vander(np.arange(n) - (n - 1) / 2, increasing=True)
    return np.linalg.qr(powers)[0][level, 1:]


def diamonds() -> pm.Model:
    X, y = diamonds_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=X.shape[1])
        intercept = pm.Normal("intercept", 8, 10)
        sigma = pm.HalfCauchy("sigma", 10)
        pm.Normal("y", intercept + X @ b, sigma, observed=y)
    return model


def exact_diamonds() -> tuple[float, float]:
    X, y = diamonds_data()
    law = NormalSum.of(np.column_stack([np.ones(y.size), X]), y - 8.0)
    sds = np.r_[10.0, np.ones(X.shape[1])]

    def log_joint(sigma: float) -> float:
        return law.log_density(sds, sigma) + half_cauchy(sigma, 10.0)

    return over_scales(log_joint, [(0.01, 100.0)], 400)


@cache
def collinear_data() -> tuple[np.ndarray, np.ndarray]:
    """Return 5,000 rows of 26 covariates, each pair of correlation .99."""
    rng = np.random.default_rng(26)
    X = np.sqrt(0.99) * rng.normal(size=(5000, 1)) + 0.1 * rng.normal(size=(5000, 26))
    return X, 3.0 + X @ rng.normal(size=26) + 2.0 * rng.normal(size=5000)


def collinear() -> pm.Model:
    """Build a regression on covariates that are nearly the same, with wide priors."""
    X, y = collinear_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 10, shape=26)
        intercept = pm.Normal("intercept", 0, 10)
        sigma = pm.HalfCauchy("sigma", 5)
        pm.Normal("y", intercept + X @ b, sigma, observed=y)
    return model


def exact_collinear() -> tuple[float, float]:
    X, y = collinear_data()
    law = NormalSum.of(np.column_stack([np.ones(y.size), X]), y)

    def log_joint(sigma: float) -> float:
        return law.log_density(np.full(27, 10.0), sigma) + half_cauchy(sigma, 5.0)

    return over_scales(log_joint, [(0.01, 100.0)], 400)


def wells() -> pm.Model:
    """Build a logistic regression of 3,020 households on 9 terms; design as published.

    Distance, arsenic, education and membership, and their products (Gelman & Hill 2007, ch. 5);
    the covariates and the answers are simulated.
    """
    rng = np.random.default_rng(3020)
    distance = rng.gamma(1.6, 0.3, size=3020)
    arsenic = np.log(0.5 + rng.gamma(1.3, 0.9, size=3020))
    school = rng.choice([0.0, 1.25, 2.5, 4.0], p=[0.3, 0.3, 0.25, 0.15], size=3020)
    member = (rng.random(3020) < 0.42).astype(float)
    main = [each - each.mean() for each in (distance, arsenic, school, member)]
    d, a, e, m = main
    X = np.column_stack([np.ones(3020), *main, d * a, d * e, a * e, d * m])
    p = 1.0 / (1.0 + np.exp(-X @ [0.35, -0.9, 0.9, 0.17, -0.12, -0.1, 0.3, 0.05, 0.1]))
    y = (rng.random(3020) < p).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2.5, shape=9)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    return model


@cache
def children_data() -> tuple[np.ndarray, np.ndarray]:
    """Mother's school and IQ, their product, and the child's score, for 434 children; simulated."""
    rng = np.random.default_rng(434)
    school = (rng.random(434) < 0.79).astype(float)
    iq = 100.0 + 15.0 * rng.normal(size=434)
    X = np.column_stack([np.ones(434), school, iq, school * iq])
    return X, X @ [-11.5, 51.3, 1.1, -0.5] + 18.0 * rng.normal(size=434)


def children() -> pm.Model:
    """Build the regression of test scores with an interaction, not centered (Gelman & Hill)."""
    X, y = children_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 50, shape=4)
        sigma = pm.HalfCauchy("sigma", 2.5)
        pm.Normal("y", X @ b, sigma, observed=y)
    return model


def exact_children() -> tuple[float, float]:
    law = NormalSum.of(*children_data())

    def log_joint(sigma: float) -> float:
        return law.log_density(np.full(4, 50.0), sigma) + half_cauchy(sigma, 2.5)

    return over_scales(log_joint, [(0.1, 1e4)], 400)


def horseshoe() -> pm.Model:
    """Build a horseshoe regression of 100 rows on 65 covariates, 5 of which matter."""
    rng = np.random.default_rng(65)
    X = rng.normal(size=(100, 65))
    slopes = np.r_[2.0, -1.5, 1.0, 0.8, -0.6, np.zeros(60)]
    y = 0.5 + X @ slopes + rng.normal(size=100)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 5)
        tau = pm.HalfCauchy("tau", 0.1)
        local = pm.HalfCauchy("local", 1, shape=65)
        z = pm.Normal("z", shape=65)
        sigma = pm.HalfNormal("sigma", 2)
        pm.Normal("y", intercept + X @ (z * local * tau), sigma, observed=y)
    return model


def outliers() -> pm.Model:
    """Build a regression with Student-t noise of unknown degrees of freedom: 5 parameters."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(120), rng.normal(size=(120, 2))])
    y = X @ [1.0, 2.0, -0.5] + 0.7 * rng.standard_t(3, size=120)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 5, shape=3)
        sigma = pm.HalfNormal("sigma", 2)
        nu = pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=X @ b, sigma=sigma, observed=y)
    return model


@cache
def correlated_data() -> tuple[np.ndarray, np.ndarray]:
    """Return 200 rows of 100 covariates, each pair of correlation .95."""
    rng = np.random.default_rng(100)
    X = np.sqrt(0.95) * rng.normal(size=(200, 1)) + np.sqrt(0.05) * rng.normal(size=(200, 100))
    return X, X @ rng.normal(size=100) + rng.normal(size=200)


def correlated() -> pm.Model:
    """Build a regression whose posterior is a 100-D Gaussian of strong correlation."""
    X, y = correlated_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=100)
        pm.Normal("y", X @ b, 1, observed=y)
    return model


def exact_correlated() -> tuple[float, float]:
    return NormalSum.of(*correlated_data()).log_density(np.ones(100), 1.0), 1e-9


def one_mean() -> pm.Model:
    """Build the mean of 20 normal measurements: one parameter."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=one_mean_data())
    return model


@cache
def one_mean_data() -> np.ndarray:
    """Return 20 measurements."""
    return np.random.default_rng(1).normal(1.5, 1.0, size=20)


def exact_one_mean() -> tuple[float, float]:
    law = NormalSum.of(np.ones((20, 1)), one_mean_data())
    return law.log_density(np.array([10.0]), 1.0), 1e-9


DESIGN = "simulated to the published design"

MODELS = {
    "diamonds": RealModel(diamonds, 26, 5000, DESIGN, exact_diamonds),
    "collinear": RealModel(collinear, 28, 5000, "simulated", exact_collinear),
    "wells": RealModel(wells, 9, 3020, DESIGN, dear=True),
    "children": RealModel(children, 5, 434, DESIGN, exact_children),
    "horseshoe": RealModel(horseshoe, 133, 100, "simulated"),
    "outliers": RealModel(outliers, 5, 120, "simulated"),
    "correlated": RealModel(correlated, 100, 200, "simulated", exact_correlated),
    "one_mean": RealModel(one_mean, 1, 20, "simulated", exact_one_mean),
}
"""Models by name."""
