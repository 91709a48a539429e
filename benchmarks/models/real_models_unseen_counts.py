"""Unseen real models of counts: tumors, seeds, pumps, fishing, deaths, lip cancer, dippers."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.models.published import published
from benchmarks.models.real_models_entry import RealModel
from benchmarks.truths.real_models_unseen_truths import (
    counts_by_district,
    fishing_trips,
    pump_failures,
    seeds_by_plate,
    survival_of_birds,
    tumor_rates,
    two_rates,
)

TUMORS = np.array(published("TUMORS"))
RATS = np.array(published("RATS"))
"""Rats with a tumor, and rats, of 71 experiments (Tarone 1982)."""

SPROUTED = np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3])
SOWN = np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7])
KIND = np.repeat([0.0, 1.0], [11, 10])
EXTRACT = np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5])
"""Seeds on 21 plates (Crowder 1978)."""

FAILURES = np.array([5, 1, 5, 14, 3, 19, 1, 1, 4, 22])
HOURS = np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
"""Failures of ten pumps, and thousands of hours (George, Makov & Smith 1993)."""

DAYS = np.array([162, 267, 271, 185, 111, 61, 27, 8, 3, 1])
"""Days with 0, 1, ... 9 deaths of women over 80 in The Times (Hasselblad 1969)."""

LIP_CANCERS = np.array(published("LIP_CANCERS"))
EXPECTED = np.array(published("EXPECTED"))
OUTDOORS = np.array(published("OUTDOORS")) / 10.0
NEIGHBORS = published("NEIGHBORS")
"""Cases of lip cancer in 56 districts of Scotland, those expected, a tenth of the percentage of
work outdoors, and the districts' neighbors from 1 (Clayton & Kaldor 1987)."""

SEEN_AGAIN = np.array(published("SEEN_AGAIN"))
RELEASED = np.array([22, 60, 78, 80, 88, 98])
"""Dippers released in six years (rows), and first seen again in each later year (Lebreton et al.
1992)."""


def tumors() -> pm.Model:
    """Build a beta-binomial model by mean and size, each experiment's rate explicit."""
    with pm.Model() as model:
        mean = pm.Beta("mean", 1, 1)
        size = pm.Pareto("size", alpha=1.5, m=1)
        theta = pm.Beta("theta", mean * size, (1 - mean) * size, shape=71)
        pm.Binomial("y", RATS, theta, observed=TUMORS)
    return model


def seeds() -> pm.Model:
    """Build a logistic regression with an effect of each plate (Breslow & Clayton 1993)."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2.5, shape=4)
        s = pm.HalfNormal("s", 1)
        e = pm.Normal("e", 0, s, shape=21)
        pm.Binomial("y", SOWN, logit_p=seeds_design() @ b + e, observed=SPROUTED)
    return model


@cache
def seeds_design() -> np.ndarray:
    return np.column_stack([np.ones(21), KIND, EXTRACT, KIND * EXTRACT])


def pumps() -> pm.Model:
    """Build the conjugate model of failure rates with a gamma law of unknown shape and rate."""
    with pm.Model() as model:
        a = pm.Exponential("a", 1)
        b = pm.Gamma("b", 0.1, 1)
        theta = pm.Gamma("theta", a, b, shape=10)
        pm.Poisson("y", theta * HOURS, observed=FAILURES)
    return model


@cache
def fishing_data() -> tuple[np.ndarray, np.ndarray]:
    """Size of 250 groups (centered), whether with a camper, and fish caught; simulated."""
    rng = np.random.default_rng(250)
    people = rng.integers(1, 5, size=250) - 2.5
    camper = (rng.random(250) < 0.6).astype(float)
    fishes = rng.random(250) < 1.0 / (1.0 + np.exp(0.6 - 0.9 * camper))
    counts = fishes * rng.poisson(np.exp(0.9 + 0.6 * people - 0.2 * camper))
    return np.column_stack([np.ones(250), people, camper]), counts


def fishing() -> pm.Model:
    """Build a zero-inflated Poisson regression, both of its parts on the covariates."""
    X, counts = fishing_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=3)
        c = pm.Normal("c", 0, 2, shape=3)
        share = pm.math.invlogit(X @ c)
        pm.ZeroInflatedPoisson("y", psi=share, mu=pm.math.exp(X @ b), observed=counts)
    return model


def deaths() -> pm.Model:
    """Build a mixture of two Poisson laws that are not ordered, 1,096 days."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        rate = pm.Gamma("rate", 2, 0.5, shape=2)
        pm.Mixture(
            "y", w, pm.Poisson.dist(rate, shape=(1096, 2)), observed=np.repeat(range(10), DAYS)
        )
    return model


@cache
def adjacency() -> np.ndarray:
    """Return the 56 x 56 matrix of neighbors."""
    W = np.zeros((56, 56))
    for i, row in enumerate(NEIGHBORS.split()):
        W[i, [int(j) - 1 for j in row.split(",")]] = 1.0
    return W


def lip_cancer() -> pm.Model:
    """Build a Poisson regression with a proper conditional autoregression of the districts."""
    W = adjacency()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        alpha = pm.Uniform("alpha", 0, 1)
        s = pm.HalfNormal("s", 1)
        precision = (np.diag(W.sum(axis=0)) - alpha * W) / s**2
        field = pm.MvNormal("field", np.zeros(56), tau=precision)
        rate = EXPECTED * pm.math.exp(b[0] + b[1] * OUTDOORS + field)
        pm.Poisson("y", rate, observed=LIP_CANCERS)
    return model


def dippers() -> pm.Model:
    """Build Cormack, Jolly and Seber's model of survival and recapture, a rate for each year.

    The last survival and the last recapture are known by their product alone.
    """
    with pm.Model() as model:
        live = pm.Beta("live", 1, 1, shape=6)
        seen = pm.Beta("seen", 1, 1, shape=6)
        rows = []
        for i in range(6):
            there, cells = pt.constant(1.0), []
            for j in range(6):
                if j < i:
                    cells.append(pt.constant(0.0))
                    continue
                cells.append(there * live[j] * seen[j])
                there = there * live[j] * (1.0 - seen[j])
            rows.append(pt.stack([*cells, 1.0 - sum(cells[i:])]))
        lost = RELEASED - SEEN_AGAIN.sum(axis=1)
        for i in range(6):
            counts = np.r_[SEEN_AGAIN[i, i:], lost[i]]
            pm.Multinomial(f"y{i}", n=RELEASED[i], p=rows[i][i:], observed=counts)
    return model


MODELS = {
    "tumors": RealModel(
        tumors, 73, 71, "published (Tarone 1982)", lambda: tumor_rates(TUMORS, RATS), "unseen"
    ),
    "seeds": RealModel(
        seeds, 26, 21, "published (Crowder 1978)",
        lambda: seeds_by_plate(seeds_design(), SPROUTED, SOWN), "unseen",
    ),
    "pumps": RealModel(
        pumps, 12, 10, "published (George, Makov & Smith 1993)",
        lambda: pump_failures(FAILURES, HOURS), "unseen",
    ),
    "fishing": RealModel(
        fishing, 6, 250, "simulated", lambda: fishing_trips(*fishing_data()), "unseen"
    ),
    "deaths": RealModel(
        deaths, 3, 1096, "published (Hasselblad 1969)", lambda: two_rates(DAYS), "unseen",
        several=True,
    ),
    "lip_cancer": RealModel(
        lip_cancer, 60, 56, "published (Clayton & Kaldor 1987)",
        lambda: counts_by_district(adjacency(), LIP_CANCERS, EXPECTED, OUTDOORS), "unseen",
    ),
    "dippers": RealModel(
        dippers, 12, 6, "published (Lebreton et al. 1992)",
        lambda: survival_of_birds(SEEN_AGAIN, RELEASED), "unseen",
    ),
}  # fmt: skip
"""Models by name."""
