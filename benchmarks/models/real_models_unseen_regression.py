"""Unseen real models that regress: iris, attitudes, stacks, clicks, diabetes, lines, a factor."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from sklearn.datasets import load_diabetes, load_iris

from benchmarks.models.real_models_entry import RealModel
from benchmarks.truths.real_models_unseen_marginals import (
    clicks_evidence,
    lasso,
    one_common_cause,
    ordered_answers,
    robust_ridge,
    softmax,
    two_regressions,
)

AIR = [80, 80, 75, 62, 62, 62, 62, 62, 58, 58, 58, 58, 58, 58, 50, 50, 50, 50, 50, 56, 70]
WATER = [27, 27, 25, 24, 22, 23, 24, 24, 23, 18, 18, 17, 18, 19, 18, 18, 19, 19, 20, 20, 20]
ACID = [89, 88, 90, 87, 87, 87, 93, 93, 87, 80, 89, 88, 82, 93, 89, 86, 72, 79, 80, 82, 91]
LOSS = [42, 37, 37, 28, 18, 18, 19, 20, 15, 14, 14, 13, 11, 12, 8, 7, 8, 8, 9, 15, 15]
"""Air flow, temperature of the water, acid and loss of a plant in 21 days (Brownlee 1965)."""


def scaled(X: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and standard deviation 1."""
    return (X - X.mean(axis=0)) / X.std(axis=0)


@cache
def iris_data() -> tuple[np.ndarray, np.ndarray]:
    """Ones and four measures of 150 flowers, and their kind."""
    data = load_iris()
    return np.column_stack([np.ones(150), scaled(data.data)]), data.target


def iris() -> pm.Model:
    """Build a softmax regression of three kinds, one of them separate from the others."""
    X, kind = iris_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2.5, shape=(2, 5))
        eta = pt.concatenate([pt.zeros((150, 1)), X @ b.T], axis=1)
        pm.Categorical("y", logit_p=eta, observed=kind)
    return model


@cache
def attitudes_data() -> tuple[np.ndarray, np.ndarray]:
    """Three covariates and one of five answers of 300 persons; simulated."""
    rng = np.random.default_rng(300)
    X = rng.normal(size=(300, 3))
    eta = X @ [0.8, -0.5, 0.2] + rng.logistic(size=300)
    return X, np.searchsorted([-2.0, -0.5, 0.8, 2.5], eta)


def attitudes() -> pm.Model:
    """Build an ordinal regression, its cuts by the ordered transform."""
    X, answer = attitudes_data()
    with pm.Model() as model:
        cut = pm.Normal(
            "cut", 0, 3, shape=4, transform=pm.distributions.transforms.ordered,
            initval=np.array([-1.5, -0.5, 0.5, 1.5]),
        )  # fmt: skip
        b = pm.Normal("b", 0, 1, shape=3)
        pm.OrderedLogistic("y", eta=X @ b, cutpoints=cut, observed=answer, compute_p=False)
    return model


@cache
def stacks_data() -> tuple[np.ndarray, np.ndarray]:
    """Ones and three scaled covariates, and the scaled loss."""
    X = np.column_stack([AIR, WATER, ACID]).astype(float)
    return np.column_stack([np.ones(21), scaled(X)]), scaled(np.array(LOSS, dtype=float))


def stacks() -> pm.Model:
    """Build a ridge regression with Student-t noise of four degrees of freedom."""
    X, y = stacks_data()
    with pm.Model() as model:
        level = pm.Normal("level", 0, 2)
        phi = pm.HalfCauchy("phi", 1)
        b = pm.Normal("b", 0, phi, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        pm.StudentT("y", nu=4, mu=level + X[:, 1:] @ b, sigma=sigma, observed=y)
    return model


@cache
def clicks_data() -> tuple[np.ndarray, np.ndarray]:
    """Ones and ten covariates, half of them rare, and clicks of 50,000 visits; simulated."""
    rng = np.random.default_rng(50_000)
    rare = (rng.random((50_000, 5)) < [0.02, 0.05, 0.1, 0.3, 0.5]).astype(float)
    X = np.column_stack([np.ones(50_000), rng.normal(size=(50_000, 5)), rare])
    b = np.array([-2.0, 0.5, -0.3, 0.2, 0.1, 0.0, 0.8, -0.6, 0.4, 0.2, -0.1])
    return X, (rng.random(50_000) < 1.0 / (1.0 + np.exp(-X @ b))).astype(float)


def clicks() -> pm.Model:
    """Build a logistic regression of 50,000 rows."""
    X, y = clicks_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=11)
        pm.Bernoulli("y", logit_p=X @ b, observed=y.astype(int))
    return model


@cache
def diabetes_data() -> tuple[np.ndarray, np.ndarray]:
    """Ten scaled measures of 442 patients, and the scaled progression of their disease."""
    X, y = load_diabetes(return_X_y=True)
    return scaled(X), scaled(y)


def diabetes() -> pm.Model:
    """Build a Bayesian lasso: slopes with a Laplace law of unknown scale."""
    X, y = diabetes_data()
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        b = pm.Laplace("b", 0, scale, shape=10)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", X @ b, sigma, observed=y)
    return model


@cache
def two_lines_data() -> tuple[np.ndarray, np.ndarray]:
    """Return 150 rows of two crossing lines; simulated to the design of tone perception."""
    rng = np.random.default_rng(1980)
    x = rng.uniform(1.3, 3.0, size=150)
    flat = rng.random(150) < 0.6
    y = np.where(flat, 1.9 + 0.05 * (x - 2.0), 2.0 + 1.0 * (x - 2.0)) + 0.12 * rng.normal(size=150)
    return x - 2.0, y


def two_lines() -> pm.Model:
    """Build a mixture of two regressions that nothing tells apart but the data (Cohen 1980)."""
    x, y = two_lines_data()
    with pm.Model() as model:
        w = pm.Beta("w", 2, 2)
        a = pm.Normal("a", 0, 5, shape=2)
        b = pm.Normal("b", 0, 2, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        weights = pt.stack([w, 1 - w])
        pm.NormalMixture("y", weights, mu=a + b * x[:, None], sigma=sigma, observed=y)
    return model


@cache
def one_factor_data() -> np.ndarray:
    """Six scores of 100 persons; simulated."""
    rng = np.random.default_rng(6)
    load = np.array([0.9, 0.8, -0.7, 0.6, 0.5, 0.4])
    factor = rng.normal(size=(100, 1))
    return factor * load + np.sqrt(1.0 - load**2) * rng.normal(size=(100, 6))


def one_factor() -> pm.Model:
    """Build a factor analysis with the persons' factors explicit; its sign is free."""
    y = one_factor_data()
    with pm.Model() as model:
        load = pm.Normal("load", 0, 1, shape=6)
        psi = pm.HalfNormal("psi", 1, shape=6)
        factor = pm.Normal("factor", shape=100)
        pm.Normal("y", factor[:, None] * load, psi, observed=y)
    return model


MODELS = {
    "iris": RealModel(
        iris, 10, 150, "shipped by scikit-learn", lambda: softmax(*iris_data()), "unseen"
    ),
    "attitudes": RealModel(
        attitudes, 7, 300, "simulated", lambda: ordered_answers(*attitudes_data()), "unseen"
    ),
    "stacks": RealModel(
        stacks, 6, 21, "published (Brownlee 1965)", lambda: robust_ridge(*stacks_data()), "unseen"
    ),
    "clicks": RealModel(
        clicks, 11, 50_000, "simulated", lambda: clicks_evidence(*clicks_data()), "unseen",
        dear=True,
    ),
    "diabetes": RealModel(
        diabetes, 12, 442, "shipped by scikit-learn", lambda: lasso(*diabetes_data()), "unseen"
    ),
    "two_lines": RealModel(
        two_lines, 6, 150, "simulated to the published design",
        lambda: two_regressions(*two_lines_data()), "unseen", several=True,
    ),
    "one_factor": RealModel(
        one_factor, 112, 600, "simulated", lambda: one_common_cause(one_factor_data()), "unseen",
        several=True,
    ),
}  # fmt: skip
"""Models by name."""
