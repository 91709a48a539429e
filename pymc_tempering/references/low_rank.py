"""A Gaussian mixture with covariances that are diagonal plus low rank, for many dimensions.

In many dimensions a full covariance has more numbers than there are draws. The clusters are found
by k-means, and each gets its own factor analysis. The number of clusters and the rank are those
with the highest likelihood of held-out draws.
"""

import warnings

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.threads import one_thread
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.scales import LowRankScales

RANKS = (0, 1, 2, 4, 8, 16, 32, 64)
"""Ranks that are tried in turn for one cluster, until the held-out likelihood has fallen twice."""

MAX_DRAWS, MAX_ITERATIONS = 2000, 30
"""Draws that the fit uses at most, and iterations of a factor analysis."""

CLUSTERS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of clusters that are tried in turn, with the best rank of one cluster, until the held-out
likelihood falls."""

HELD_OUT = 0.25
"""Share of the draws that is held out to judge a fit."""

MIN_DRAWS = 10
"""Least number of draws in a cluster; with fewer there are too many clusters."""

NOISE_FLOOR = 1e-4
"""Least variance of a variable's own noise, as a share of its variance in the cluster."""

GAUSSIAN = 1e6
"""Degrees of freedom of a t that is as good as normal."""


def low_rank_mixture(
    xs: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, LowRankScales]:
    """Fit weights (J,), means (J, d) and covariances to draws, shape (n, d), of unit scale.

    The last quarter of the draws is held out. A random quarter would favor an overfit, because
    neighboring draws of a chain are alike, or even equal.
    """
    from sklearn.cluster import KMeans  # slow to import

    if len(xs) > MAX_DRAWS:
        xs = xs[np.sort(rng.choice(len(xs), MAX_DRAWS, replace=False))]
    n_used = len(xs) - int(HELD_OUT * len(xs))
    used, held = xs[:n_used], xs[n_used:]
    labels = np.zeros(len(xs), dtype=int)
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")  # of convergence: the held-out likelihood judges
        rank, highest = _best_rank(used, held)
        for k in CLUSTERS[1:]:
            clusters = KMeans(k, n_init=1, random_state=int(rng.integers(2**31))).fit(used)
            if np.bincount(clusters.labels_, minlength=k).min() < max(MIN_DRAWS, 2 * rank):
                break
            likelihood = _held_out(used, clusters.labels_, rank, held)
            if likelihood <= highest:
                break
            labels, highest = clusters.predict(xs), likelihood
        return _factors(xs, labels, rank)


def _best_rank(used: np.ndarray, held: np.ndarray) -> tuple[int, float]:
    """Rank of one cluster with the highest likelihood of held-out draws, and that likelihood."""
    best, highest, fallen = 0, -np.inf, 0
    for rank in RANKS:
        if rank > min(len(used) // 2, used.shape[1]):
            break
        likelihood = _held_out(used, np.zeros(len(used), dtype=int), rank, held)
        if likelihood > highest:
            best, highest, fallen = rank, likelihood, 0
        else:
            fallen += 1
            if fallen == 2:
                break
    return best, highest


def _held_out(used: np.ndarray, labels: np.ndarray, rank: int, held: np.ndarray) -> float:
    """Mean log likelihood of held-out draws under a fit to the others (nats a draw)."""
    weights, means, scales = _factors(used, labels, rank)
    mixture = Mixture(weights, means, scales, np.full(weights.size, GAUSSIAN), 0.0)
    return float(logsumexp(mixture.log_t(held), axis=1).mean())


def _factors(
    xs: np.ndarray, labels: np.ndarray, rank: int
) -> tuple[np.ndarray, np.ndarray, LowRankScales]:
    """Factor analysis of each cluster, with the same rank."""
    from sklearn.decomposition import FactorAnalysis

    weights, means, sds, loadings = [], [], [], []
    for label in np.unique(labels):
        own = xs[labels == label]
        variance = own.var(axis=0)
        floor = NOISE_FLOOR * np.where(variance > 0, variance, 1.0)
        components = np.empty((0, xs.shape[1]))
        if rank > 0:
            model = FactorAnalysis(
                rank, tol=1e-2 * xs.shape[1], max_iter=MAX_ITERATIONS, random_state=0
            ).fit(own)
            variance, components = model.noise_variance_, model.components_
        weights.append(len(own) / len(xs))
        means.append(own.mean(axis=0))
        sds.append(np.sqrt(np.maximum(variance, floor)))
        loadings.append(components.T)
    return np.array(weights), np.array(means), LowRankScales(np.array(sds), np.array(loadings))
