"""Real models with groups: eight schools, radon by county, a hierarchical normal, counts, IRT."""

from functools import cache, partial

import numpy as np
import pymc as pm

from benchmarks.models.published import published
from benchmarks.models.real_models_entry import RealModel
from benchmarks.truths.real_models_exact import NormalSum, half_cauchy, half_normal, over_scales
from benchmarks.truths.real_models_integrals import item_responses, poisson_with_effects

SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOL_ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
"""Effects and standard errors of eight schools (Rubin 1981)."""

COUNTY_SIZES = published("COUNTY_SIZES")
"""Houses measured in the 85 counties of Minnesota (Price, Nero & Gelman 1996)."""


def eight_schools(*, centered: bool) -> pm.Model:
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        if centered:
            theta = pm.Normal("theta", mu, tau, shape=8)
        else:
            theta = mu + tau * pm.Normal("z", shape=8)
        pm.Normal("y", theta, SCHOOL_ERRORS, observed=SCHOOLS)
    return model


def exact_schools() -> tuple[float, float]:
    scaled = NormalSum.of(
        np.column_stack([np.ones(8), np.eye(8)]) / SCHOOL_ERRORS[:, None], SCHOOLS / SCHOOL_ERRORS
    )

    def log_joint(tau: float) -> float:
        return scaled.log_density(np.r_[5.0, np.full(8, tau)], 1.0) + half_cauchy(tau, 5.0)

    log_z, error = over_scales(log_joint, [(1e-12, 1e8)], 1000)
    return log_z - np.log(SCHOOL_ERRORS).sum(), error


@cache
def radon_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """County, floor and log radon of 919 houses: the published design, simulated measurements."""
    rng = np.random.default_rng(1996)
    county = np.repeat(np.arange(85), COUNTY_SIZES)
    floor = (rng.random(county.size) < 0.17).astype(float)
    intercept = 1.46 + 0.33 * rng.normal(size=85)
    return county, floor, intercept[county] - 0.69 * floor + 0.76 * rng.normal(size=county.size)


def radon(*, centered: bool) -> pm.Model:
    county, floor, y = radon_data()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        tau = pm.HalfCauchy("tau", 1)
        a = pm.Normal("a", mu, tau, shape=85) if centered else mu + tau * pm.Normal("z", shape=85)
        b = pm.Normal("b", 0, 10)
        sigma = pm.HalfCauchy("sigma", 1)
        pm.Normal("y", a[county] + b * floor, sigma, observed=y)
    return model


def exact_radon() -> tuple[float, float]:
    county, floor, y = radon_data()
    law = NormalSum.of(np.column_stack([np.ones(y.size), floor, np.eye(85)[county]]), y)

    def log_joint(tau: float, sigma: float) -> float:
        value = law.log_density(np.r_[10.0, 10.0, np.full(85, tau)], sigma)
        return value + half_cauchy(tau, 1.0) + half_cauchy(sigma, 1.0)

    return over_scales(log_joint, [(1e-8, 100.0), (0.1, 10.0)])


@cache
def batches_data() -> tuple[np.ndarray, np.ndarray]:
    """Nineteen batches of 2 to 11 measurements each."""
    rng = np.random.default_rng(22)
    batch = np.repeat(np.arange(19), rng.integers(2, 12, size=19))
    return batch, (60.0 + 2.0 * rng.normal(size=19))[batch] + 5.0 * rng.normal(size=batch.size)


def batches() -> pm.Model:
    """Build a hierarchical normal model of 22 parameters: strength of a product by batch."""
    batch, y = batches_data()
    with pm.Model() as model:
        mu = pm.Normal("mu", 50, 20)
        tau = pm.HalfNormal("tau", 10)
        sigma = pm.HalfNormal("sigma", 10)
        theta = pm.Normal("theta", mu, tau, shape=19)
        pm.Normal("y", theta[batch], sigma, observed=y)
    return model


def exact_batches() -> tuple[float, float]:
    batch, y = batches_data()
    law = NormalSum.of(np.column_stack([np.ones(y.size), np.eye(19)[batch]]), y - 50.0)

    def log_joint(tau: float, sigma: float) -> float:
        value = law.log_density(np.r_[20.0, np.full(19, tau)], sigma)
        return value + half_normal(tau, 10.0) + half_normal(sigma, 10.0)

    return over_scales(log_joint, [(1e-10, 100.0), (0.1, 100.0)], 200)


@cache
def seizures_data() -> tuple[np.ndarray, np.ndarray]:
    """Counts of 59 patients: the design of the epilepsy trial, simulated counts."""
    rng = np.random.default_rng(59)
    base = rng.normal(size=59)
    treated = (np.arange(59) >= 28).astype(float)
    X = np.column_stack([np.ones(59), base, treated, rng.normal(size=59)])
    return X, rng.poisson(np.exp(X @ [1.6, 0.9, -0.3, 0.1] + 0.5 * rng.normal(size=59)))


def seizures() -> pm.Model:
    """Build a Poisson regression with an effect for each patient (Breslow & Clayton 1993)."""
    X, counts = seizures_data()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2.5, shape=4)
        s = pm.HalfNormal("s", 1)
        e = pm.Normal("e", 0, s, shape=59)
        pm.Poisson("y", pm.math.exp(X @ b + e), observed=counts)
    return model


def exact_seizures() -> tuple[float, float]:
    return poisson_with_effects(*seizures_data(), slope_sd=2.5, scale_sd=1.0)


@cache
def irt_data() -> np.ndarray:
    """Return answers of 100 persons (columns) to 20 items (rows)."""
    rng = np.random.default_rng(2)
    theta, a = 1.2 * rng.normal(size=100), np.exp(0.5 * rng.normal(size=20))
    b = 0.3 + 1.1 * rng.normal(size=20)
    p = 1.0 / (1.0 + np.exp(-a[:, None] * (theta - b[:, None])))
    return (rng.random(p.shape) < p).astype(int)


def irt() -> pm.Model:
    """Build a two-parameter item response model: 144 parameters."""
    with pm.Model() as model:
        sigma_theta = pm.HalfCauchy("sigma_theta", 2)
        theta = pm.Normal("theta", 0, sigma_theta, shape=100)
        sigma_a = pm.HalfCauchy("sigma_a", 2)
        a = pm.LogNormal("a", 0, sigma_a, shape=20)
        mu_b = pm.Normal("mu_b", 0, 5)
        sigma_b = pm.HalfCauchy("sigma_b", 2)
        b = pm.Normal("b", mu_b, sigma_b, shape=20)
        pm.Bernoulli("y", logit_p=a[:, None] * (theta - b[:, None]), observed=irt_data())
    return model


PUBLISHED = "published (Rubin 1981)"
COUNTIES = "simulated; sizes of the counties as published"

MODELS = {
    "schools_centered": RealModel(
        partial(eight_schools, centered=True), 10, 8, PUBLISHED, exact_schools
    ),
    "schools": RealModel(partial(eight_schools, centered=False), 10, 8, PUBLISHED, exact_schools),
    "radon_centered": RealModel(partial(radon, centered=True), 89, 919, COUNTIES, exact_radon),
    "radon": RealModel(partial(radon, centered=False), 89, 919, COUNTIES, exact_radon),
    "batches": RealModel(batches, 22, batches_data()[1].size, "simulated", exact_batches),
    "seizures": RealModel(seizures, 64, 59, "simulated to the published design", exact_seizures),
    "irt": RealModel(
        irt, 144, 2000, "simulated to the published design", lambda: item_responses(irt_data())
    ),
}
"""Models by name."""
