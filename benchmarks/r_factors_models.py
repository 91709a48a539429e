"""PyMC models of the designs of R's packages BayesFactor and bridgesampling.

What BayesFactor gives an improper prior (a common mean, the log of sigma) is uniform here, on a
range that is the same in both models of a pair and so wide that the share of the posterior outside
of it is below 1e-8: the factor is the same.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import pymc as pm
import r_factors_data as data
import r_factors_exact as exact


def _sigma(y: np.ndarray) -> pm.Deterministic:
    """Noise with a flat prior of its log, 8 nats wide."""
    middle = np.log(y.std())
    log_sigma = pm.Uniform("log_sigma", middle - 4.0, middle + 4.0)
    return pm.math.exp(log_sigma)


def _mean(y: np.ndarray) -> pm.Uniform:
    """Mean with a flat prior, 16 standard deviations of the data wide."""
    return pm.Uniform("mu", y.mean() - 8.0 * y.std(), y.mean() + 8.0 * y.std())


def t_test(effect: str) -> pm.Model:
    """One sample; the effect is "none", "any" or "positive"."""
    y = data.SLEEP
    with pm.Model() as model:
        sigma = _sigma(y)
        if effect == "any":
            delta = pm.Cauchy("delta", 0.0, exact.R_EFFECT)
        elif effect == "positive":
            delta = pm.HalfCauchy("delta", exact.R_EFFECT)
        else:
            delta = 0.0
        pm.Normal("y", delta * sigma, sigma, observed=y)
    return model


def two_means(a: np.ndarray, b: np.ndarray, *, differ: bool) -> pm.Model:
    """Two samples with one mean, or two."""
    y = np.concatenate([a, b])
    sign = np.repeat([0.5, -0.5], [a.size, b.size])
    with pm.Model() as model:
        sigma, mu = _sigma(y), _mean(y)
        delta = pm.Cauchy("delta", 0.0, exact.R_EFFECT) if differ else 0.0
        pm.Normal("y", mu + delta * sigma * sign, sigma, observed=y)
    return model


def regression(*names: str) -> pm.Model:
    """Rating by some of its covariates, with slopes ~ N(0, n g sigma^2 (X'X)^-1)."""
    y = data.ATTITUDE["rating"].astype(float)
    with pm.Model() as model:
        sigma, mu = _sigma(y), _mean(y)
        if names:
            X = covariates(*names)
            Q = np.linalg.qr(X - X.mean(axis=0))[0]
            g = pm.InverseGamma("g", 0.5, exact.R_SLOPE**2 / 2.0)
            z = pm.Normal("z", shape=len(names))
            mu = mu + sigma * pm.math.sqrt(y.size * g) * (Q @ z)
        pm.Normal("y", mu, sigma, observed=y)
    return model


def covariates(*names: str) -> np.ndarray:
    """Columns of `attitude`, shape (30, k)."""
    return np.column_stack([data.ATTITUDE[name] for name in names]).astype(float)


def puzzle_term(name: str) -> tuple[np.ndarray, float]:
    """Columns of a term of `puzzles`, (48, k), and the scale of its effects."""
    person = np.tile(np.arange(12), 4)
    contrasts = {
        "shape": np.repeat([1.0, -1.0, 1.0, -1.0], 12) / np.sqrt(2.0),
        "color": np.repeat([1.0, 1.0, -1.0, -1.0], 12) / np.sqrt(2.0),
    }
    contrasts["both"] = contrasts["shape"] * contrasts["color"]
    if name == "ID":
        return np.eye(12)[person], exact.R_RANDOM
    return contrasts[name][:, None], exact.R_FIXED


def puzzles(*names: str) -> pm.Model:
    """Analysis of variance with effects ~ N(0, g sigma^2), and a g for each term.

    For an effect of one column g is integrated out: a Cauchy law. Sampled, it makes a funnel (the
    posterior of log g has an exponential tail along which z narrows), and 4 of 6 runs with two or
    more of them stated no error.
    """
    y = data.PUZZLES.ravel().astype(float)
    with pm.Model() as model:
        sigma, mean = _sigma(y), _mean(y)
        for name in names:
            X, r = puzzle_term(name)
            if X.shape[1] == 1:
                effect = pm.Cauchy(name, 0.0, r, shape=1)
            else:
                g = pm.InverseGamma(f"g_{name}", 0.5, r**2 / 2.0)
                effect = pm.math.sqrt(g) * pm.Normal(f"z_{name}", shape=X.shape[1])
            mean = mean + sigma * (X @ effect)
        pm.Normal("y", mean, sigma, observed=y)
    return model


def hierarchical(*, mean: bool) -> pm.Model:
    """Group means around zero, or around an unknown mean."""
    y = data.THETA_NORMAL
    with pm.Model() as model:
        tau2 = pm.InverseGamma("tau2", 1.0, 1.0)
        mu = pm.Normal("mu") if mean else 0.0
        theta = pm.Normal("theta", mu, pm.math.sqrt(tau2), shape=y.size)
        pm.Normal("y", theta, 1.0, observed=y)
    return model


def rows(*, differ: bool) -> pm.Model:
    """Counts of the first column, with a share for each row or one for both."""
    with pm.Model() as model:
        share = pm.Beta("share", 1.0, 1.0, shape=2 if differ else None)
        pm.Binomial("y", data.TABLE.sum(axis=1), share, observed=data.TABLE[:, 0])
    return model


def cells(*, independent: bool) -> pm.Model:
    """Counts of all cells, with a law of their own or the product of two."""
    with pm.Model() as model:
        if independent:
            row, column = pm.Beta("row", 1.0, 1.0), pm.Beta("column", 1.0, 1.0)
            law = pm.math.stack(
                [row * column, row * (1 - column), (1 - row) * column, (1 - row) * (1 - column)]
            )
        else:
            law = pm.Dirichlet("law", np.ones(4))
        pm.Multinomial("y", data.TABLE.sum(), law, observed=data.TABLE.ravel())
    return model


def coin(heads: int) -> pm.Model:
    """Heads of 100 throws, with a logistic prior of the log odds."""
    with pm.Model() as model:
        theta = pm.Logistic("theta", 0.0, exact.R_LOGIT)
        pm.Binomial("y", 100, logit_p=theta, observed=heads)
    return model


TOOTH = (data.TOOTH_ACID, data.TOOTH_JUICE)
CARS = (data.WEIGHT_AUTOMATIC, data.WEIGHT_MANUAL)

MODELS: Mapping[tuple[str, str], Callable[[], pm.Model]] = {
    ("sleep", "none"): partial(t_test, "none"),
    ("sleep", "effect"): partial(t_test, "any"),
    ("sleep", "positive"): partial(t_test, "positive"),
    ("ToothGrowth", "one"): partial(two_means, *TOOTH, differ=False),
    ("ToothGrowth", "two means"): partial(two_means, *TOOTH, differ=True),
    ("mtcars", "one"): partial(two_means, *CARS, differ=False),
    ("mtcars", "two means"): partial(two_means, *CARS, differ=True),
    ("attitude", "none"): regression,
    ("attitude", "complaints"): partial(regression, "complaints"),
    ("attitude", "complaints, learning"): partial(regression, "complaints", "learning"),
    ("attitude", "learning"): partial(regression, "learning"),
    ("attitude", "critical"): partial(regression, "critical"),
    ("puzzles", "none"): puzzles,
    ("puzzles", "ID"): partial(puzzles, "ID"),
    ("puzzles", "ID, shape"): partial(puzzles, "ID", "shape"),
    ("puzzles", "ID, shape, color"): partial(puzzles, "ID", "shape", "color"),
    ("puzzles", "ID, shape, color, both"): partial(puzzles, "ID", "shape", "color", "both"),
    ("hierarchical", "mean 0"): partial(hierarchical, mean=False),
    ("hierarchical", "mean"): partial(hierarchical, mean=True),
    ("table", "rows differ"): partial(rows, differ=True),
    ("table", "rows alike"): partial(rows, differ=False),
    ("table", "dependent"): partial(cells, independent=False),
    ("table", "independent"): partial(cells, independent=True),
    ("coin, 60 of 100", "unknown"): partial(coin, 60),
    ("coin, 0 of 100", "unknown"): partial(coin, 0),
}
"""Models by data and name; a fair coin has nothing to sample."""


@cache
def exact_log_bf(of: data.Published) -> float:
    """Exact log Bayes factor of a published pair (nats)."""
    if of.data == "puzzles":
        y = data.PUZZLES.ravel().astype(float)
        parts = [
            exact.anova(y, [puzzle_term(name) for name in side.split(", ") if name != "none"])
            for side in (of.upper, of.lower)
        ]
        return parts[0] - parts[1]
    if of.data == "attitude":
        return exact.regression(data.ATTITUDE["rating"], covariates(*of.upper.split(", ")))
    y = data.THETA_NORMAL
    return {
        ("sleep", "effect"): lambda: exact.one_sample(data.SLEEP),
        ("sleep", "positive"): lambda: exact.one_sided(data.SLEEP),
        ("ToothGrowth", "two means"): lambda: exact.two_sample(*TOOTH),
        ("mtcars", "two means"): lambda: exact.two_sample(*CARS),
        ("hierarchical", "mean 0"): lambda: (
            exact.hierarchical(y, mean=False) - exact.hierarchical(y, mean=True)
        ),
        ("table", "rows differ"): lambda: exact.rows_differ(data.TABLE),
        ("table", "dependent"): lambda: exact.dependent(data.TABLE),
        ("coin, 60 of 100", "unknown"): lambda: exact.coin(60, 100),
        ("coin, 0 of 100", "unknown"): lambda: exact.coin(0, 100),
    }[of.data, of.upper]()
