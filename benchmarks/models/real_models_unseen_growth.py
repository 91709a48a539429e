"""Unseen real models of growth and time: dugongs, rats, stores, a bend, drugs, remissions."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.models.published import published
from benchmarks.models.real_models_entry import RealModel
from benchmarks.truths.real_models_unseen_drugs import DOSES, LEVELS, TIMES, drug_levels
from benchmarks.truths.real_models_unseen_lines import (
    bend,
    lines_of_equal_design,
    lines_of_stores,
    saturating_growth,
)
from benchmarks.truths.real_models_unseen_truths import remission_times

AGES = np.array(published("AGES"))
LENGTHS = np.array(published("LENGTHS"))
"""Age and length of 27 dugongs (Ratkowsky 1983)."""

DAYS_OLD = np.array([8.0, 15.0, 22.0, 29.0, 36.0])
WEIGHTS = np.array(published("WEIGHTS")).reshape(30, 5)
"""Weights of 30 rats in five weeks (Gelfand et al. 1990)."""

FLOW = np.array(published("FLOW"))
BAND = np.array(published("BAND"))
"""Log flow, and log height of a stagnant band, 29 rows (Carlin, Gelfand & Smith 1992)."""

WEEKS = np.array(published("WEEKS"), dtype=float)
ENDED = np.array([1] * 21 + [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0])
TREATED = np.repeat([0.0, 1.0], 21)
"""Weeks of remission of 42 patients, whether it ended, and their group (Freireich et al. 1963)."""


def dugongs() -> pm.Model:
    """Build a growth curve that saturates, nonlinear in one parameter."""
    with pm.Model() as model:
        top = pm.Normal("top", 2.5, 1)
        gain = pm.Normal("gain", 1, 1)
        base = pm.Uniform("base", 0.5, 1)
        sigma = pm.HalfNormal("sigma", 0.5)
        pm.Normal("y", top - gain * base**AGES, sigma, observed=LENGTHS)
    return model


def rat_weights() -> pm.Model:
    """Build lines with correlated intercepts and slopes, a Cholesky factor of LKJ's law."""
    with pm.Model() as model:
        mean = pm.Normal("mean", [250, 6], [50, 3])
        sds = pm.HalfNormal.dist([30.0, 2.0], shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sds)
        line = pm.MvNormal("line", mean, chol=chol, shape=(30, 2))
        sigma = pm.HalfNormal("sigma", 20)
        mu = line[:, :1] + line[:, 1:] * (DAYS_OLD - 22.0)
        pm.Normal("y", mu, sigma, observed=WEIGHTS)
    return model


@cache
def stores_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Store, log price and log sales of 4,000 weeks in 200 stores; simulated."""
    rng = np.random.default_rng(405)
    store = np.repeat(np.arange(200), 20)
    x = 0.3 * rng.normal(size=4000)
    a, b = 3.0 + 0.6 * rng.normal(size=200), -1.5 + 0.5 * rng.normal(size=200)
    return store, x, a[store] + b[store] * x + 0.4 * rng.normal(size=4000)


def stores() -> pm.Model:
    """Build the lines of 200 stores, 405 parameters."""
    store, x, y = stores_data()
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 5, shape=2)
        tau = pm.HalfNormal("tau", 1, shape=2)
        a = pm.Normal("a", mean[0], tau[0], shape=200)
        b = pm.Normal("b", mean[1], tau[1], shape=200)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", a[store] + b[store] * x, sigma, observed=y)
    return model


def stagnant() -> pm.Model:
    """Build two lines that meet at an unknown place."""
    with pm.Model() as model:
        level = pm.Normal("level", 0, 2)
        slope = pm.Normal("slope", 0, 2, shape=2)
        place = pm.Uniform("place", -1.3, 1.1)
        sigma = pm.HalfNormal("sigma", 0.5)
        below, above = pt.minimum(FLOW - place, 0.0), pt.maximum(FLOW - place, 0.0)
        pm.Normal("y", level + slope[0] * below + slope[1] * above, sigma, observed=BAND)
    return model


def remissions() -> pm.Model:
    """Build a Weibull regression of censored times."""
    limit = np.where(ENDED == 1, 1000.0, WEEKS)
    with pm.Model() as model:
        b = pm.Normal("b", [2, 0], 2, shape=2)
        shape = pm.Gamma("shape", 2, 1)
        time = pm.Weibull.dist(shape, pm.math.exp(b[0] + b[1] * TREATED))
        pm.Censored("y", time, lower=None, upper=limit, observed=WEEKS)
    return model


def theophylline() -> pm.Model:
    """Build one compartment with absorption, rates of twelve persons around their means."""
    with pm.Model() as model:
        mean = pm.Normal("mean", [0.5, -3.2, -0.8], 1, shape=3)
        spread = pm.HalfNormal("spread", 0.5, shape=3)
        z = pm.Normal("z", shape=(12, 3))
        rates = pt.exp(mean + spread * z)
        absorbed, cleared, volume = rates[:, :1], rates[:, 1:2], rates[:, 2:]
        lost = cleared / volume
        gap = pt.exp(-lost * TIMES) - pt.exp(-absorbed * TIMES)
        level = DOSES[:, None] * absorbed / (volume * (absorbed - lost)) * gap
        sigma = pm.HalfNormal("sigma", 2)
        pm.Normal("y", level, sigma, observed=LEVELS)
    return model


MODELS = {
    "dugongs": RealModel(
        dugongs, 4, 27, "published (Ratkowsky 1983)", lambda: saturating_growth(AGES, LENGTHS),
        "unseen",
    ),
    "rat_weights": RealModel(
        rat_weights, 66, 150, "published (Gelfand et al. 1990)",
        lambda: lines_of_equal_design(DAYS_OLD - 22.0, WEIGHTS), "unseen",
    ),
    "stores": RealModel(
        stores, 405, 4000, "simulated", lambda: lines_of_stores(*stores_data()), "unseen"
    ),
    "stagnant": RealModel(
        stagnant, 5, 29, "published (Carlin, Gelfand & Smith 1992)", lambda: bend(FLOW, BAND),
        "unseen",
    ),
    "remissions": RealModel(
        remissions, 3, 42, "published (Freireich et al. 1963)",
        lambda: remission_times(WEEKS, ENDED, TREATED), "unseen",
    ),
    "theophylline": RealModel(
        theophylline, 43, 120, "published (Boeckmann, Sheiner & Beal 1994)", drug_levels, "unseen",
    ),
}  # fmt: skip
"""Models by name."""
