"""Regressions with an indicator for each coefficient, and their evidences.

Given indicators and noise the coefficients are integrated in closed form, and the noise on a
grid. With few indicators all their states are summed. With many, states are drawn from a law that
is fitted to a Gibbs run over the indicators alone, and weighted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pymc as pm
from scipy.special import expit, logsumexp
from scipy.stats import norm

from pymc_tempering.bridge.binary import fit_regressions

LOG_NOISE, STEP = np.linspace(np.log(0.15), np.log(4.0), 121, retstep=True)
SWEEPS, WEIGHTED = 1500, 40_000


@dataclass(frozen=True)
class Regression:
    """Columns (n, J), data (n,), and the prior probability of each indicator."""

    columns: np.ndarray
    y: np.ndarray
    share: float


def regression(
    n: int, correlation: float, near: tuple[int, int, float], beta: dict[int, float], share: float
) -> Regression:
    """Draw columns, each correlated with that before it, and one nearly a copy of another."""
    rng = np.random.default_rng(100)
    size, own = (40 if correlation else 12), np.sqrt(1 - correlation**2)
    columns = rng.normal(size=(n, size))
    for j in range(1, size):
        columns[:, j] = correlation * columns[:, j - 1] + own * columns[:, j]
    copy, of, off = near
    columns[:, copy] = columns[:, of] + off * rng.normal(size=n)
    effects = np.zeros(size)
    effects[list(beta)] = list(beta.values())
    return Regression(columns, columns @ effects + rng.normal(size=n), share)


FEW = regression(60, 0.0, (1, 0, 0.15), {0: 0.7, 3: 0.5, 7: 0.3, 9: -0.2}, 0.3)
MANY = regression(
    100, 0.4, (11, 10, 0.2),
    {2: 0.8, 6: -0.6, 10: 0.5, 20: 0.35, 25: 0.3, 30: 0.25, 35: -0.2}, 0.2,
)  # fmt: skip


def model_of(data: Regression) -> pm.Model:
    """Write the regression as users do."""
    with pm.Model() as model:
        size = data.columns.shape[1]
        included = pm.Bernoulli("included", data.share, shape=size)
        slab = pm.Normal("slab", 0, 1, shape=size)
        noise = pm.HalfNormal("noise", 1)
        pm.Normal("y", pm.math.dot(data.columns, included * slab), noise, observed=data.y)
    return model


def log_joint(data: Regression) -> Callable[[Sequence[int]], float]:
    """Log of the probability of indicators and data, for a state of the indicators."""

    @cache
    def value(state: tuple[int, ...]) -> float:
        z, variance = np.array(state), np.exp(2 * LOG_NOISE)
        x, n = data.columns[:, z == 1], data.y.size
        spread, axes = np.linalg.eigh(x.T @ x)
        along = axes.T @ (x.T @ data.y)
        own = variance + np.maximum(spread, 0)[:, None]
        square = (data.y @ data.y - (along[:, None] ** 2 / own).sum(axis=0)) / variance
        log_det = n * 2 * LOG_NOISE + np.log(own / variance).sum(axis=0)
        log_p = -0.5 * (square + log_det + n * np.log(2 * np.pi))
        log_p += norm.logpdf(np.exp(LOG_NOISE)) + np.log(2) + LOG_NOISE
        k = z.sum()
        log_prior = k * np.log(data.share) + (z.size - k) * np.log1p(-data.share)
        return float(logsumexp(log_p) + np.log(STEP) + log_prior)

    return lambda state: value(tuple(int(z) for z in state))


def summed(data: Regression) -> float:
    """Evidence by the sum over all states."""
    log_p = log_joint(data)
    return float(logsumexp([log_p(z) for z in product([0, 1], repeat=data.columns.shape[1])]))


def weighted(data: Regression) -> tuple[float, float]:
    """Evidence by weighted states, and its error."""
    rng, log_p, size = np.random.default_rng(1), log_joint(data), data.columns.shape[1]
    z, seen = np.zeros(size), np.zeros((SWEEPS, size))
    for sweep in range(SWEEPS):
        for j in rng.permutation(size):
            z[j] = 0
            without = log_p(z)
            z[j] = 1
            z[j] = rng.random() < expit(log_p(z) - without)
        seen[sweep] = z
    law = fit_regressions(seen[100:], np.ones(SWEEPS - 100))
    drawn = law.draw(WEIGHTED, rng)
    log_w = np.array([log_p(state) for state in drawn]) - law.log_density(drawn)
    w = np.exp(log_w - log_w.max())
    log_z = float(log_w.max() + np.log(w.mean()))
    return log_z, float(w.std() / w.mean() / np.sqrt(w.size))


def few() -> tuple[pm.Model, float]:
    """Twelve indicators, two of them of nearly collinear columns."""
    return model_of(FEW), summed(FEW)


def many() -> tuple[pm.Model, float]:
    """Forty indicators and a hundred rows."""
    return model_of(MANY), weighted(MANY)[0]


if __name__ == "__main__":
    print(summed(FEW), weighted(FEW), weighted(MANY))
