"""A mixture of t's fitted to draws: how many components, their covariances and their tails.

Where the draws show a funnel, the t's are fitted in coordinates that straighten it.

In many dimensions a full covariance has more numbers than there are draws. There covariances are
diagonal plus low rank: the clusters are found by k-means, and each gets its own factor analysis.
The number of clusters and the rank are those with the highest likelihood of held-out draws.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import gammaln, logsumexp

from pymc_tempering.core.threads import one_thread
from pymc_tempering.references.labels import (
    all_labelings,
    in_any_labeling,
    near_each_other,
    one_labeling,
    relabeled,
)
from pymc_tempering.references.mixture import FullScales, LowRankScales, Mixture, nearest_component
from pymc_tempering.references.score_covariance import distinct_rows, refine_normals
from pymc_tempering.references.warp import FunnelWarp, warped_scores
from pymc_tempering.references.warp_fit import WIDE_DIM, PriorDraws, fit_warp

PRIOR_SHARE = 0.05
"""Weight of the prior in the mixture, always: its tails and what the fit missed."""

INFLATION = 0.15
"""The scale matrices are multiplied by 1 + this; by less in more than 10 dimensions."""

COARSE, FINE = 1e-2, 1e-3
"""Gain of the mean log likelihood at which the fit stops, in the search and in the end (nats)."""

SEARCH_DRAWS, MAX_ITERATIONS = 1500, 30
"""Most draws that the search uses, and most steps of EM in each fit or factor analysis."""

COMPONENTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 25, 30)
"""Numbers of components that are tried in turn, until the BIC has risen twice."""

DOFS = np.array([2.0, 3.0, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0])
"""Degrees of freedom that a component can have. In d dimensions a t is near a normal density where
they are many times d."""

FACTORS = np.array([0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
"""Scale matrices that are tried for each of `DOFS`, as multiples of the component's covariance."""

ROUGH_DOF = 32.0
"""Most degrees of freedom of a fit to draws that may lie beside the posterior."""

MAX_TAIL_COST = 2.0
"""Log likelihood (nats) that heavier tails may cost."""

GAUSSIAN = 1e6
"""Degrees of freedom of a t that is as good as normal."""

HULL_SHARE, HULL_DOF = 0.02, 3.0
"""Weight and degrees of freedom of the hull, a wide component that spans all others. A mixture of
several components gets one: between and around them it is far denser than the prior."""

STRETCHES, MAX_STRETCHED = ((4.0, 0.05),), 4
"""With a warp there are copies of the components that are so many times as wide along a scale
coordinate, with this weight, for so many scale coordinates at most: the log of a scale has an
exponential tail toward the neck, which is far beyond the draws. Wider copies send chains so far
into the neck that their step sizes, and their work, suffer from it."""

MIN_GAIN = 20.0
"""Fall of half the Bayesian information criterion that a warp or labels must bring (nats)."""

FULL_DIM = WIDE_DIM
"""Most dimensions with full scale matrices; above, they are diagonal plus low rank."""

MAX_FIT_DRAWS = 4000
"""Most draws that a fit uses."""

SCORED_DRAWS, SCORED_BY_DIM = 500, 5
"""Draws at which a fit takes the gradient of the target: so many, or so many for each dimension."""

RANKS = (0, 1, 2, 4, 8, 16, 32, 64)
"""Ranks that are tried in turn for one cluster, until the held-out likelihood has fallen twice."""

LOW_RANK_DRAWS = 2000
"""Most draws that a fit of low rank uses."""

CLUSTERS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of clusters that are tried in turn, with the best rank of one cluster, until the held-out
likelihood falls."""

HELD_OUT = 0.25
"""Share of the draws that is held out to judge a fit."""

MIN_DRAWS = 10
"""Least number of draws in a cluster; with fewer there are too many clusters."""

FAR = 1e70
"""Values beyond which draws are left out of a fit: squares of their squares overflow."""

NOISE_FLOOR = 1e-4
"""Least variance of a variable's own noise, as a share of its variance in the cluster."""

type Scores = Callable[[np.ndarray], np.ndarray]
type Scored = tuple[np.ndarray, np.ndarray] | None


def fit_mixture(
    draws: np.ndarray,
    rng: np.random.Generator,
    start: Mixture | None = None,
    prior_draws: PriorDraws | None = None,
    scores: Scores | None = None,
    rough: bool = False,
    labelings: np.ndarray | None = None,
) -> Mixture:
    """Fit a mixture of t's to draws from the posterior.

    The number of components is that of the Gaussian mixture with the lowest Bayesian
    information criterion. Covariances of components with few draws are shrunk toward their
    diagonals, and all are inflated. Each component gets the heaviest tails that fit its draws.

    Parameters
    ----------
    draws : array, shape (n, d)
        Unconstrained; one chain after another, in the order of time.
    rng : numpy.random.Generator
    start : Mixture, optional
        An earlier fit to start from; fewer components are not tried, if its warp is alike.
    prior_draws : PriorDraws, optional
        With them the mixture is warped, if the model has funnels.
    scores : callable, optional
        Gradients of the log posterior at states, both of shape (k, d). With them a component that
        is nearly normal needs few draws for its mean and covariance.
    rough : bool, default False
        Whether the draws may lie beside the posterior: no component gets light tails then.
    labelings : array, shape (G, d, d), optional
        Linear maps that do not change the posterior, of labels that can be exchanged. The first
        fit tells whether it has more modes by them.

    Returns
    -------
    Mixture
    """
    near = (np.abs(draws) < FAR).all(axis=1)
    draws = draws[near] if near.sum() > MIN_DRAWS else np.clip(draws, -FAR, FAR)
    if len(draws) > MAX_FIT_DRAWS:
        draws = draws[np.sort(rng.choice(len(draws), MAX_FIT_DRAWS, replace=False))]
    if start is not None and start.labelings is not None:
        return _fit_labeled(draws, rng, start, start.labelings, scores, rough)
    if start is None and labelings is not None:
        again = copy.deepcopy(rng)
        plain = fit_mixture(draws, rng, None, prior_draws, scores, rough)
        labeled = _fit_labeled(draws, again, None, labelings, scores, rough)
        judges = in_any_labeling(draws, labelings, again)  # the draws may lack some
        better = _criterion(labeled, judges) - _criterion(plain, judges) > MIN_GAIN
        return labeled if better else plain
    scored = None if scores is None else _scored(draws, scores)
    earlier = None if start is None else start.warp
    warp = earlier if prior_draws is None else fit_warp(prior_draws, draws, earlier) or earlier
    if warp is None:
        return _fit(draws, rng, start, scored, rough)
    if earlier is not None or warp.centered.any():
        return _fit_warped(draws, rng, start, warp, scored, rough)
    again = copy.deepcopy(rng)
    plain = _fit(draws, rng, start, scored, rough)
    warped = _fit_warped(draws, again, start, warp, scored, rough)
    gain = _criterion(warped, draws) - _criterion(plain, draws)
    return warped if gain > MIN_GAIN else plain


def _fit_labeled(
    draws: np.ndarray,
    rng: np.random.Generator,
    start: Mixture | None,
    labelings: np.ndarray,
    scores: Scores | None,
    rough: bool,
) -> Mixture:
    """Fit to draws of one labeling, and copy the components to all."""
    if start is None:
        first = _fit(near_each_other(draws, labelings), rng, None, None, rough)
        start = all_labelings(first.modes, labelings)
    draws = relabeled(start, draws)
    scored = None if scores is None else _scored(draws, scores)
    made = _fit(draws, rng, one_labeling(start), scored, rough)
    return all_labelings(made.modes, labelings).with_hull(HULL_SHARE, HULL_DOF)


def _scored(draws: np.ndarray, scores: Scores) -> Scored:
    """Take gradients at distinct draws, from the first to the last; the rows of these."""
    rows, _ = distinct_rows(draws)
    n = min(len(rows), max(SCORED_DRAWS, SCORED_BY_DIM * draws.shape[1]))
    some = rows[np.linspace(0, len(rows) - 1, n).astype(int)]
    return some, scores(draws[some])


def _criterion(mixture: Mixture, draws: np.ndarray) -> float:
    """Minus half the Bayesian information criterion; a warp counts as two numbers a coordinate."""
    dim, warp = draws.shape[1], mixture.warp
    numbers = one_labeling(mixture).n_components * (dim + 1) * (dim + 2) / 2
    numbers += 0 if warp is None else 2 * len(warp.index)
    likelihood = logsumexp(mixture.log_t(draws), axis=1).sum()
    return float(likelihood - 0.5 * np.log(len(draws)) * numbers)


def _fit_warped(
    draws: np.ndarray,
    rng: np.random.Generator,
    start: Mixture | None,
    warp: FunnelWarp,
    scored: Scored,
    rough: bool,
) -> Mixture:
    """Fit in warped coordinates; scale coordinates get stretched components."""
    if start is not None:
        start = replace(start, warp=None) if warp.alike(start.warp) else None
    if scored is not None:
        rows, slopes = scored
        scored = rows, warped_scores(warp, draws[rows], slopes)[1]
    mixture = replace(_fit(warp.forward(draws)[0], rng, start, scored, rough), warp=warp)
    for factor, share in STRETCHES:
        mixture = mixture.with_stretched(warp.scales[:MAX_STRETCHED], share, factor)
    return mixture


def _fit(
    draws: np.ndarray, rng: np.random.Generator, start: Mixture | None, scored: Scored, rough: bool
) -> Mixture:
    """Fit to draws as they are."""
    center, scale = np.median(draws, axis=0), draws.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    xs = (draws - center) / scale
    if start is not None:
        modes = start.modes
        start = replace(
            modes, means=(modes.means - center) / scale, scales=modes.scales.scaled(1 / scale)
        )
    scales: FullScales | LowRankScales
    if draws.shape[1] <= FULL_DIM:
        scored = None if scored is None else (scored[0], scale * scored[1])
        weights, means, scales = _full(xs, rng, start, scored)
    else:
        weights, means, scales = low_rank_mixture(xs, rng)
    normal = Mixture(weights, means, scales, GAUSSIAN * np.ones_like(weights), 0)
    dofs, factors = _tails(normal, xs, DOFS[DOFS <= ROUGH_DOF] if rough else DOFS)
    inflation = 1 + INFLATION * min(1.0, np.sqrt(10 / draws.shape[1]))
    scales = scales.scaled(np.outer(np.sqrt(inflation * factors), scale))
    modes = Mixture(weights, center + scale * means, scales, dofs, PRIOR_SHARE)
    return modes if modes.n_components == 1 else modes.with_hull(HULL_SHARE, HULL_DOF)


def _tails(mixture: Mixture, xs: np.ndarray, tried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Degrees of freedom of each component, and the ratio of its scale matrix to its covariance.

    Each draw counts for its nearest component. For each number that is tried the most likely scale
    is found. Then the lowest degrees of freedom are taken that cost at most `MAX_TAIL_COST` nats.
    """
    dim, own = xs.shape[1], nearest_component(mixture, xs)
    dofs, factors = np.empty(mixture.n_components), np.empty(mixture.n_components)
    dof, factor = tried[:, None, None], FACTORS[:, None]
    constants = gammaln(0.5 * (dof + dim)) - gammaln(0.5 * dof) - 0.5 * dim * np.log(dof * factor)
    for j, mean in enumerate(mixture.means):
        whitened = mixture.scales.whiten(j, xs[own == j] - mean)
        squares = (whitened**2).sum(axis=1)
        terms = constants - 0.5 * (dof + dim) * np.log1p(squares / (dof * factor))
        likelihoods = terms.sum(axis=2)
        by_dof = likelihoods.max(axis=1)
        lowest = int((by_dof >= by_dof.max() - MAX_TAIL_COST).argmax())
        dofs[j], factors[j] = tried[lowest], FACTORS[likelihoods[lowest].argmax()]
    return dofs, factors


def _full(
    xs: np.ndarray, rng: np.random.Generator, start: Mixture | None, scored: Scored
) -> tuple[np.ndarray, np.ndarray, FullScales]:
    """Weights, means and covariances of the Gaussian mixture with the lowest BIC."""
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.mixture import GaussianMixture

    some = xs if len(xs) <= SEARCH_DRAWS else rng.choice(xs, SEARCH_DRAWS, replace=False)
    n, dim = some.shape
    best, lowest, risen = None, np.inf, 0
    least = 1 if start is None else start.n_components
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for k in [least, *(k for k in COMPONENTS if k > least)]:
            if best is not None and n < 5 * k * (dim + 1):
                break
            model = GaussianMixture(
                k, tol=COARSE, max_iter=MAX_ITERATIONS, random_state=int(rng.integers(2**31))
            )
            if start is not None and isinstance(start.scales, FullScales) and k == least:
                model.set_params(
                    weights_init=start.weights,
                    means_init=start.means,
                    precisions_init=start.scales.precisions,
                )
            try:
                model.fit(some)
            except ValueError:  # a start so narrow that rounding makes its precisions indefinite
                model.set_params(weights_init=None, means_init=None, precisions_init=None).fit(some)
            criterion = model.bic(some)
            if criterion < lowest:
                best, lowest, risen = model, criterion, 0
            else:
                risen += 1
                if risen == 2:
                    break
        assert best is not None
        best = best.set_params(tol=FINE, warm_start=True).fit(xs)
    covariances = best.covariances_.copy()
    for j, weight in enumerate(best.weights_):
        shrink = min(1.0, dim / max(weight * len(xs), 1.0))
        diagonal = np.diag(np.diag(covariances[j]))
        covariances[j] = (1 - shrink) * covariances[j] + shrink * diagonal
    means = best.means_
    if scored is not None:
        with one_thread():
            shares = best.predict_proba(xs)
            means, covariances = refine_normals(xs, shares, *scored, means, covariances)
    scales = FullScales(np.linalg.cholesky(covariances))
    return best.weights_ / best.weights_.sum(), means, scales


def low_rank_mixture(
    xs: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, LowRankScales]:
    """Fit weights (J,), means (J, d) and covariances to draws, shape (n, d), of unit scale.

    The last quarter of the draws is held out. A random quarter would favor an overfit, because
    neighboring draws of a chain are alike, or even equal.
    """
    if len(xs) > LOW_RANK_DRAWS:
        xs = xs[np.sort(rng.choice(len(xs), LOW_RANK_DRAWS, replace=False))]
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")  # of convergence: the held-out likelihood judges
        rank, highest = _best_rank(*_parts(xs))
        return _factors(xs, *_clusters(xs, rank, highest, rng))


def n_clusters(xs: np.ndarray, rng: np.random.Generator) -> int:
    """Count the clusters of draws, shape (n, d), that a fit of diagonal covariances finds."""
    used, held = _parts(xs)
    if len(used) < 2 * MIN_DRAWS:
        return 1
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")
        likelihood = _held_out(used, np.zeros(len(used), dtype=int), 0, held)
        return int(_clusters(xs, 0, likelihood, rng)[0].max()) + 1


def _parts(xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws that a fit uses, and those that are held out."""
    n_used = len(xs) - int(HELD_OUT * len(xs))
    return xs[:n_used], xs[n_used:]


def _clusters(
    xs: np.ndarray, rank: int, highest: float, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Cluster of each draw, shape (n,), as long as more of them make held-out ones likelier.

    Also their rank: what seemed to be a long direction may be two clusters of a lower one.
    """
    from sklearn.cluster import KMeans  # slow to import

    used, held = _parts(xs)
    labels = np.zeros(len(xs), dtype=int)
    for k in CLUSTERS[1:]:
        clusters = KMeans(k, n_init=1, random_state=int(rng.integers(2**31))).fit(used)
        smallest = int(np.bincount(clusters.labels_, minlength=k).min())
        if smallest < MIN_DRAWS:
            break
        before, last = highest, -np.inf
        for lower in [each for each in RANKS[::-1] if each <= min(rank, smallest // 2)]:
            likelihood = _held_out(used, clusters.labels_, lower, held)
            if likelihood <= last:
                break
            last = likelihood
            if likelihood > highest:
                labels, highest, rank = clusters.predict(xs), likelihood, lower
        if highest == before:
            break
    return labels, rank


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
