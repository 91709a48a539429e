"""Planets in simulated radial velocities: data set 1 of the EPRV3 evidence challenge, as models.

Nelson et al. (2020, AJ 159, 73): velocities of a star with a quasi-periodic correlated noise of
known covariance, an offset, a jitter that adds to the stated errors, and up to two planets with
eccentric orbits. Time of epoch, priors and covariance are those of the challenge. The priors are
wide (offset 2,000 m/s, amplitudes to 999 m/s, periods over four decades if "broad"), and the
posterior has many narrow islands in period.
"""

import os
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad

FOLDER = Path(os.environ.get("PMT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
DATA = FOLDER / "rvs_0001.txt"
"""Days, velocities and their stated errors (m/s)."""
PERIODS = {
    "broad": ((1.25, 1e4), (1.25, 1e4)),
    "narrow": ((39.8107, 44.6684), (11.4815, 12.8825)),
}
"""Bounds of the log-uniform priors of the periods (days), of the first and the second planet."""
EPOCH, NEWTON_STEPS, MOST_E2 = 300.0, 8, 0.999


def amplitude_law(name: str, high: float, **shape: int) -> pt.TensorVariable:
    """Variable with the density 1 / ((x + 1) log(1 + high)) on (0, high), modified Jeffreys."""
    u = pm.Uniform(f"{name}_u", 0, 1, **shape)
    return pm.Deterministic(name, pt.expm1(u * np.log1p(high)))


def velocity(
    t: np.ndarray,
    period: pt.TensorVariable,
    amplitude: pt.TensorVariable,
    h: pt.TensorVariable,
    k: pt.TensorVariable,
    longitude: pt.TensorVariable,
) -> pt.TensorVariable:
    """Velocity of the star (m/s) by one planet, with h = e sin w and k = e cos w.

    Kepler's equation in the eccentric longitude F, F - k sin F + h cos F = mean longitude, is
    solved by Newton steps without gradient; one more step from the solution has its gradient.
    """
    mean = 2 * np.pi * (t - EPOCH) / period + longitude

    def step(F, at, h, k):  # type: ignore[no-untyped-def]
        return F - (F - k * pt.sin(F) + h * pt.cos(F) - at) / (1 - k * pt.cos(F) - h * pt.sin(F))

    still = [disconnected_grad(x) for x in (mean, h, k)]
    F = still[0] + still[2] * pt.sin(still[0]) - still[1] * pt.cos(still[0])
    for _ in range(NEWTON_STEPS):
        F = step(F, *still)
    F = step(disconnected_grad(F), mean, h, k)
    b = 1 / (1 + pt.sqrt(1 - h**2 - k**2))
    x = (1 - h**2 * b) * pt.cos(F) + h * k * b * pt.sin(F) - k
    return amplitude * (x / (1 - k * pt.cos(F) - h * pt.sin(F)) + k)


def planets_model(planets: int, periods: str) -> pm.Model:
    """Build the model of one or two planets, with "broad" or "narrow" priors of the periods."""
    t, v, sigma = np.loadtxt(DATA).T
    lag = t[:, None] - t
    kernel = 3.0 * np.exp(-0.5 * (np.sin(np.pi * lag / 20.0) ** 2 / 0.25 + lag**2 / 2500.0))
    # In the eigenvectors of the known covariance the jitter adds to a diagonal.
    values, Q = np.linalg.eigh(kernel + np.diag(sigma**2))
    low, high = np.log(PERIODS[periods][:planets]).T
    with pm.Model() as model:
        jitter = amplitude_law("jitter", 99.0)
        mean = pm.Uniform("offset", -1000, 1000) * np.ones(t.size)
        log_period = pm.Uniform("log_period", low, high, shape=planets)
        amplitude = amplitude_law("K", 999.0, shape=planets)
        hk = pm.Normal("hk", 0, 0.2, shape=(2, planets))
        e2 = pt.sum(hk**2, axis=0)
        pm.Potential("bound", pt.switch(pt.all(e2 < 1), 0.0, -np.inf))  # 4e-6 nats a planet
        hk = hk * pt.where(e2 < MOST_E2, 1.0, pt.sqrt(MOST_E2 / e2))
        angle = pm.Normal("angle", 0, 1, shape=(2, planets))
        longitude = pt.arctan2(angle[1], angle[0])
        for i in range(planets):
            mean = mean + velocity(
                t, pt.exp(log_period[i]), amplitude[i], hk[0, i], hk[1, i], longitude[i]
            )
        pm.Normal("rv", Q.T @ mean, pt.sqrt(values + jitter**2), observed=Q.T @ v)
    return model
