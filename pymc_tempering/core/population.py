"""Steps of a population of weighted particles along the path: the next beta, and resampling."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from pymc_tempering.core.ladder import PathSample, alive_sample
from pymc_tempering.core.weighting import conditional_ess, log_mean
from pymc_tempering.exceptions import LikelihoodError


@dataclass(frozen=True, eq=False)
class Stages:
    """What n particles found on their way from the reference to the target, a row a stage.

    Attributes
    ----------
    betas, log_z : array, shape (S,)
        Log Z in nats.
    log_ratio : array, shape (S, n)
        Of the particles after their moves at each stage.
    """

    betas: np.ndarray
    log_z: np.ndarray
    log_ratio: np.ndarray

    @property
    def alive(self) -> PathSample:
        """The particles of some likelihood as a sample over the whole path."""
        return alive_sample(self.betas, self.log_z, self.log_ratio)


def resample_at(
    new: float, beta: float, log_ratio: np.ndarray, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """Take particles from one beta to a new one: log of the mean weight, and who goes on (n,)."""
    log_w = (new - beta) * log_ratio
    return log_mean(log_w), systematic_resampling(log_w, rng)


def next_beta(log_ratio: np.ndarray, beta: float, cess: float) -> float:
    """Largest beta up to 1 whose conditional effective sample size is `cess`.

    Raises
    ------
    LikelihoodError
        No step is small enough.
    """
    if conditional_ess(log_ratio, 1.0 - beta) >= cess:
        return 1.0

    def excess(log_delta: float) -> float:
        return conditional_ess(log_ratio, np.exp(log_delta)) - cess

    high = low = np.log(1.0 - beta)
    while excess(low) < 0.0:
        low -= 5.0
        if low < -700.0:
            if beta > 0.0:
                raise _stuck(beta)
            raise LikelihoodError(
                "The log-likelihood differs so much between prior draws that no first step away "
                "from the prior is small enough; check its scale."
            )
    new = min(beta + float(np.exp(brentq(excess, low, high, xtol=1e-3))), 1.0)
    if new == beta:
        raise _stuck(beta)
    return new


def _stuck(beta: float) -> LikelihoodError:
    """Return the error of a path that goes no further, since the likelihood has no bound there."""
    return LikelihoodError(
        f"The way from prior to posterior ends at beta = {beta:.3g}, where the log-likelihood "
        "grows without bound: the posterior has probably no finite integral. Look for a potential "
        "or likelihood that grows faster than the prior falls."
    )


def systematic_resampling(log_w: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Resample systematically by log weights; returns indices, shape (n,)."""
    cumulative = np.cumsum(np.exp(log_w - log_w.max()))
    positions = (rng.random() + np.arange(log_w.size)) / log_w.size * cumulative[-1]
    return np.minimum(np.searchsorted(cumulative, positions, side="right"), log_w.size - 1)


def multinomial_resampling(log_w: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Resample independently by log weights; returns indices, shape (n,)."""
    cumulative = np.cumsum(np.exp(log_w - log_w.max()))
    positions = rng.random(log_w.size) * cumulative[-1]
    return np.minimum(np.searchsorted(cumulative, positions, side="right"), log_w.size - 1)


RESAMPLING = {"systematic": systematic_resampling, "multinomial": multinomial_resampling}
