"""A reference that is fitted to draws from the posterior: a defensive mixture of t's."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp
from threadpoolctl import threadpool_limits

from pymc_tempering.mixture import Mixture
from pymc_tempering.path import Path
from pymc_tempering.references import Prior

PRIOR_SHARE = 0.05
"""Weight of the prior in the mixture, always: its tails and what the fit missed."""

INFLATION = 0.15
"""The scale matrices are the covariances times 1 + this (in up to 10 dimensions)."""

COMPONENTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 25, 30)
"""Numbers of components that are tried in turn, until the criterion has risen twice."""

DOFS = np.array([2.0, 3.0, 5.0, 8.0, 16.0, 32.0])
"""Degrees of freedom that are tried; the most likely one is taken."""

MAX_FIT_DRAWS = 4000


@dataclass(frozen=True)
class Fitted:
    """A mixture of t's plus a share of the prior, as reference.

    Attributes
    ----------
    prior : Prior
    components : Mixture
    """

    prior: Prior
    components: Mixture
    name: str = "fitted"

    @property
    def path(self) -> Path:
        """The compiled model."""
        return self.prior.path

    @property
    def normalizer(self) -> tuple[float, float]:
        """Log Z of the target's prior and its error."""
        return self.prior.normalizer

    @cached_property
    def mixture(self) -> np.ndarray:
        """Packed mixture that points carry."""
        return self.components.pack()

    def spawn(self, rng: np.random.Generator) -> list[np.random.Generator]:
        """Child generators for one stream of draws."""
        return [*rng.spawn(1), *self.prior.spawn(rng)]

    def draw(self, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
        """Draw `n` fresh, independent states, shape (n, d), unconstrained."""
        own, *priors = rngs
        from_prior = own.random(n) < self.components.prior_share
        draws = self.components.draw(n, own)
        draws[from_prior] = self.prior.draw(int(from_prior.sum()), priors)
        return draws


def log_t(components: Mixture, xs: np.ndarray) -> np.ndarray:
    """Log density of each weighted t component, shape (n, J), at states of shape (n, d)."""
    dim = xs.shape[1]
    columns = []
    for weight, mean, cholesky, dof in zip(
        components.weights, components.means, components.cholesky, components.dofs, strict=True
    ):
        square = (solve_triangular(cholesky, (xs - mean).T, lower=True) ** 2).sum(axis=0)
        constant = gammaln(0.5 * (dof + dim)) - gammaln(0.5 * dof)
        constant -= 0.5 * dim * np.log(dof * np.pi) + np.log(np.diag(cholesky)).sum()
        columns.append(np.log(weight) + constant - 0.5 * (dof + dim) * np.log1p(square / dof))
    return np.array(columns).T


def nearest_component(components: Mixture, xs: np.ndarray) -> np.ndarray:
    """Component that is most likely for each state, shape (n,)."""
    return log_t(components, xs).argmax(axis=1)


def fit_mixture(
    draws: np.ndarray, rng: np.random.Generator, n_components: int | None = None
) -> Mixture:
    """Fit a mixture of t's to draws from the posterior.

    The number of components is that of the Gaussian mixture with the lowest Bayesian
    information criterion; covariances are shrunk toward their diagonals where a component
    holds few draws, and inflated; the degrees of freedom are the most likely ones.

    Parameters
    ----------
    draws : array, shape (n, d)
        Unconstrained.
    rng : numpy.random.Generator
    n_components : int, optional
        By default the one with the lowest criterion.

    Returns
    -------
    Mixture
    """
    if len(draws) > MAX_FIT_DRAWS:
        draws = rng.choice(draws, MAX_FIT_DRAWS, replace=False)
    center, scale = np.median(draws, axis=0), draws.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    whitened = (draws - center) / scale
    weights, means, covariances = _gaussian_mixture(
        whitened, rng, COMPONENTS if n_components is None else (n_components,)
    )
    dim = draws.shape[1]
    inflation = 1 + INFLATION * min(1.0, np.sqrt(10 / dim))
    cholesky = np.linalg.cholesky(inflation * covariances)
    candidates = [
        Mixture(weights, means, cholesky, np.full(weights.size, dof), PRIOR_SHARE) for dof in DOFS
    ]
    likelihoods = [logsumexp(log_t(mixture, whitened), axis=1).sum() for mixture in candidates]
    dof = float(DOFS[int(np.argmax(likelihoods))])
    return Mixture(
        weights,
        center + scale * means,
        scale[:, None] * cholesky,
        np.full(weights.size, dof),
        PRIOR_SHARE,
    )


def _gaussian_mixture(
    xs: np.ndarray, rng: np.random.Generator, components: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariances of the Gaussian mixture with the lowest BIC."""
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.mixture import GaussianMixture

    n, dim = xs.shape
    best, lowest, risen = None, np.inf, 0
    for k in components:
        if best is not None and n < 5 * k * (dim + 1):
            break
        model = GaussianMixture(
            k, init_params="k-means++", random_state=int(rng.integers(2**31)), reg_covar=1e-6
        )
        # One thread: at this size, thread pools cost far more than they save.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            criterion = model.fit(xs).bic(xs)
        if criterion < lowest:
            best, lowest, risen = model, criterion, 0
        else:
            risen += 1
            if risen == 2:
                break
    assert best is not None
    covariances = best.covariances_.copy()
    for j, weight in enumerate(best.weights_):
        shrink = min(1.0, dim / max(weight * n, 1.0))
        diagonal = np.diag(np.diag(covariances[j]))
        covariances[j] = (1 - shrink) * covariances[j] + shrink * diagonal
    return best.weights_ / best.weights_.sum(), best.means_, covariances
