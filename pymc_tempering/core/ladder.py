"""The ladder of inverse temperatures, and where its rungs go.

A ladder needs one number per state, log_ratio. A sample of it over the whole path, together with
the mixture that it was drawn from, gives log Z and the rejection rate between any two inverse
temperatures by reweighting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.weighting import log_mean, rung_probabilities, systematic_resampling, tilt
from pymc_tempering.exceptions import LadderError

type RungWeights = Callable[[np.ndarray], Any] | Sequence[float]

MAX_WEIGHTS = 4_000_000
"""Weights that are held at a time: 1,000 states at each of 130 stages need 140 million."""

N_FINE = 8
"""Points that each interval of the mixture is refined into, to measure the barrier."""

MIN_RUNGS = 3
"""Least number of rungs that are placed."""


@dataclass(frozen=True)
class Ladder:
    """Inverse temperatures with their weights and current normalizing constants.

    Attributes
    ----------
    betas : array, shape (K,)
        Increasing from 0 to 1.
    log_z : array, shape (K,)
        Current log Z-hat of each rung, in nats; `log_z[0] = 0`.
    log_weights : array, shape (K,)
        Log of the target occupancies r_k; normalized.
    """

    betas: np.ndarray
    log_z: np.ndarray
    log_weights: np.ndarray

    def __post_init__(self) -> None:
        betas = np.array(self.betas, dtype=float)
        if betas.ndim != 1 or betas.size < 2 or betas[0] != 0 or betas[-1] != 1:
            raise LadderError(
                "A ladder runs from beta = 0 to beta = 1 and has at least two rungs, such as "
                f"[0, 0.1, 1]; got {np.array2string(betas, threshold=10, precision=4)}."
            )
        if not np.all(np.diff(betas) > 0):
            raise LadderError("The inverse temperatures of a ladder must increase strictly.")
        for name in ("log_z", "log_weights"):
            values = np.array(getattr(self, name), dtype=float)
            if values.shape != betas.shape or not np.isfinite(values).all():
                raise LadderError(f"{name} needs one finite number for each rung.")
            object.__setattr__(self, name, values)
        object.__setattr__(self, "betas", betas)
        object.__setattr__(self, "log_weights", self.log_weights - logsumexp(self.log_weights))
        object.__setattr__(self, "log_z", self.log_z - self.log_z[0])

    @property
    def n_rungs(self) -> int:
        """Number of rungs K."""
        return self.betas.size

    @property
    def offsets(self) -> np.ndarray:
        """Log r_k - log Z-hat_k, shape (K,): what the chain adds to beta_k * log_ratio."""
        return self.log_weights - self.log_z

    def probabilities(self, log_ratio: np.ndarray) -> np.ndarray:
        """q(beta_k | x), RTS eq. (7), of states with the given log_ratio, shape (K, ...)."""
        flat = rung_probabilities(np.ravel(log_ratio), self.betas, self.offsets)
        return flat.T.reshape(self.n_rungs, *np.shape(log_ratio))

    def with_log_z(self, log_z: np.ndarray) -> "Ladder":
        """Ladder with other normalizing constants."""
        return Ladder(self.betas, log_z, self.log_weights)

    def with_weights(self, rung_weights: RungWeights) -> "Ladder":
        """Ladder with other target occupancies: one positive number a rung, or a function of beta.

        Raises
        ------
        LadderError
            They are not one positive, finite number for each rung.
        """
        given = rung_weights(self.betas.copy()) if callable(rung_weights) else rung_weights
        weights = np.asarray(given, dtype=float)
        if weights.shape != self.betas.shape or not np.all((weights > 0) & np.isfinite(weights)):
            raise LadderError(
                f"rung_weights must give one positive number for each of the {self.n_rungs} rungs, "
                f"not {weights}. Where the ladder is automatic, pass a function of beta, such as "
                "lambda beta: np.exp(2 * beta)."
            )
        return Ladder(self.betas, self.log_z, np.log(weights))


@dataclass(frozen=True)
class PathSample:
    """A sample of log_ratio over the whole path, and the mixture that it was drawn from.

    Attributes
    ----------
    log_ratio : array, shape (n,)
        In nats; -inf where the likelihood is zero.
    betas, log_z, counts : array, shape (S,)
        The mixture: `counts[s]` states at `betas[s]`, whose normalizing constant is
        `log_z[s]`.
    """

    log_ratio: np.ndarray
    betas: np.ndarray
    log_z: np.ndarray
    counts: np.ndarray

    @cached_property
    def _log_mixture(self) -> np.ndarray:
        """Log density of the mixture relative to the reference at each state, times n."""
        return logsumexp(
            np.log(self.counts)[:, None] - self.log_z[:, None] + self._tilt(self.betas), axis=0
        )

    def _tilt(self, betas: np.ndarray) -> np.ndarray:
        """Beta * log_ratio, shape (len(betas), n)."""
        return np.ascontiguousarray(tilt(betas, self.log_ratio).T)

    def log_z_at(self, betas: np.ndarray) -> np.ndarray:
        """Log Z at any inverse temperatures, shape (len(betas),), by reweighting."""
        betas = np.asarray(betas, dtype=float)
        log_z = logsumexp(self._tilt(betas) - self._log_mixture, axis=1)
        return log_z - logsumexp(-self._log_mixture)

    def rejections(self, betas: np.ndarray) -> np.ndarray:
        """Rejection rates between neighbors, shape (len(betas) - 1,).

        With exact log Z the rejection rate in both directions is the total variation
        distance: 1 - sum_i min(w_i(beta), w_i(beta')).
        """
        betas = np.asarray(betas, dtype=float)
        rows = max(1, MAX_WEIGHTS // self.log_ratio.size)
        parts = [self._rejections(betas[i : i + rows + 1]) for i in range(0, betas.size - 1, rows)]
        return np.concatenate([np.empty(0), *parts])

    def _rejections(self, betas: np.ndarray) -> np.ndarray:
        """Rejection rates between neighbors, all at once."""
        log_w = self._tilt(betas) - self._log_mixture
        weights = np.exp(log_w - logsumexp(log_w, axis=1, keepdims=True))
        return 1.0 - np.minimum(weights[1:], weights[:-1]).sum(axis=1)


def alive_sample(betas: np.ndarray, log_z: np.ndarray, log_ratio: np.ndarray) -> PathSample:
    """Make a sample over the whole path of the particles (S, n) of S stages that have a density.

    Reference draws of zero likelihood are out at any beta above 0. What is left at beta = 0 is the
    reference on the rest, whose normalizing constant is the rest's share: otherwise a jump at beta
    = 0 would count as length, and draw all rungs to it.
    """
    alive = log_ratio > -np.inf
    counts = alive.sum(axis=1)
    log_z = np.where(betas == 0.0, np.log(counts / alive.shape[1]), log_z)
    return PathSample(log_ratio[alive], betas, log_z, counts)


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


def fine_grid(betas: np.ndarray) -> np.ndarray:
    """Grid that refines `betas`, geometrically toward 0 in the first interval."""
    first = betas[1] * 2.0 ** np.arange(-10, 1)
    rest = [np.linspace(low, high, N_FINE + 1)[1:] for low, high in pairwise(betas[1:])]
    return np.concatenate([[0.0], first, *rest])


def barrier_of(sample: PathSample) -> tuple[np.ndarray, np.ndarray]:
    """Length of the path up to any inverse temperature: the barrier of Syed et al. (2022).

    The rejection rate between beta and beta + delta is near delta E|log_ratio - log_ratio'| / 2
    for two independent states: the length of the path in steps of one size, as the standard
    deviation of log_ratio would measure it, but finite where that is not.

    Returns
    -------
    grid : array, shape (G,)
        Inverse temperatures from 0 to 1.
    length : array, shape (G,)
        Sum of the rejection rates up to each of them; the last is the barrier Lambda.
    """
    grid = fine_grid(sample.betas)
    rejections = np.maximum(sample.rejections(grid), 1e-12)
    return grid, np.concatenate([[0.0], np.cumsum(rejections)])


def space_betas(barrier: tuple[np.ndarray, np.ndarray], n_rungs: int) -> np.ndarray:
    """Inverse temperatures from 0 to 1 at equal distances along the path.

    Shape (n_rungs,); fewer where the path cannot tell them apart in floating point.
    """
    grid, length = barrier
    betas = np.interp(np.linspace(0.0, length[-1], n_rungs), length, grid)
    betas[0], betas[-1] = 0.0, 1.0
    return np.unique(betas)


def place_rungs(sample: PathSample, rungs_per_barrier: float) -> np.ndarray:
    """Inverse temperatures with equal rejection rates between neighbors.

    Parameters
    ----------
    sample : PathSample
    rungs_per_barrier : float
        Intervals per unit of the barrier.

    Returns
    -------
    array, shape (K,)
    """
    barrier = barrier_of(sample)
    n_rungs = max(MIN_RUNGS, int(np.ceil(rungs_per_barrier * barrier[1][-1])) + 1)
    return space_betas(barrier, n_rungs)


def check_betas(betas: object) -> np.ndarray:
    """Return a user's inverse temperatures as an array.

    Raises
    ------
    LadderError
        They do not increase from 0 to 1.
    """
    array = np.array(betas, dtype=float)
    return Ladder(array, np.zeros(array.shape), np.zeros(array.shape)).betas
