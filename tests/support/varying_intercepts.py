"""A regression with varying intercepts whose posterior draws and log Z are exact, by quadrature."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pymc as pm
from scipy import stats
from scipy.special import logsumexp


@dataclass(frozen=True)
class VaryingIntercepts:
    """`y ~ N(alpha + b x + a[g], sigma)`, `a ~ N(0, tau)`, centered or as `a = tau z`.

    Priors N(0, 5), N(0, 5), HalfNormal(5), HalfNormal(2.5) of alpha, b, sigma and tau. States are
    (alpha, b, log sigma, log tau, a or z).
    """

    n_groups: int = 3
    centered: bool = True
    n: int = 50
    seed: int = 0

    @cached_property
    def data(self):
        """Groups, x and y."""
        rng = np.random.default_rng(self.seed)
        rest = rng.integers(0, self.n_groups, self.n - self.n_groups)
        groups = np.sort(np.concatenate([np.arange(self.n_groups), rest]))
        x = rng.normal(size=self.n)
        effects = 0.7 * rng.normal(size=self.n_groups)
        return groups, x, 1 + 0.5 * x + effects[groups] + rng.normal(size=self.n)

    @cached_property
    def model(self):
        groups, x, y = self.data
        with pm.Model() as model:
            alpha, b = pm.Normal("alpha", 0, 5), pm.Normal("b", 0, 5)
            sigma, tau = pm.HalfNormal("sigma", 5), pm.HalfNormal("tau", 2.5)
            if self.centered:
                effects = pm.Normal("a", 0, tau, shape=self.n_groups)
            else:
                effects = tau * pm.Normal("z", 0, 1, shape=self.n_groups)
            pm.Normal("y", alpha + b * x + effects[groups], sigma, observed=y)
        return model

    @cached_property
    def _gram(self):
        """Products of the columns 1, x and the groups, with themselves and with y; and y'y."""
        groups, x, y = self.data
        columns = np.column_stack([np.ones(self.n), x, np.eye(self.n_groups)[groups]])
        return columns.T @ columns, columns.T @ y, y @ y

    def log_parts(self, xs):
        """Log prior and log likelihood of states."""
        alpha, b, log_sigma, log_tau = xs[:, :4].T
        effects, tau, normal = xs[:, 4:], np.exp(log_tau), stats.norm(0, 5)
        log_prior = normal.logpdf(alpha) + normal.logpdf(b) + log_sigma + log_tau
        log_prior += stats.halfnorm.logpdf(np.exp(log_sigma), scale=5)
        log_prior += stats.halfnorm.logpdf(tau, scale=2.5)
        sd = tau[:, None] if self.centered else 1.0
        log_prior += stats.norm.logpdf(effects, 0, sd).sum(axis=1)
        effects = effects if self.centered else effects * tau[:, None]
        theta = np.column_stack([alpha, b, effects])
        gram, projected, square = self._gram
        residual = square - 2 * theta @ projected + ((theta @ gram) * theta).sum(axis=1)
        log_likelihood = -0.5 * residual * np.exp(-2 * log_sigma) - self.n * log_sigma
        return log_prior, log_likelihood - 0.5 * self.n * np.log(2 * np.pi)

    def prior_draws(self, n, rng):
        log_tau = np.log(np.abs(2.5 * rng.normal(size=n)))
        z = rng.normal(size=(n, self.n_groups))
        effects = z * np.exp(log_tau)[:, None] if self.centered else z
        log_sigma = np.log(np.abs(5 * rng.normal(size=n)))
        return np.column_stack([5 * rng.normal(size=(n, 2)), log_sigma, log_tau, effects])

    def _given_sds(self, log_sigma, log_tau):
        """Evidence given the two sds, means of (alpha, b, a) and roots of their covariances."""
        gram, projected, square = self._gram
        weight = np.exp(-2 * log_sigma)
        prior = np.full((log_sigma.size, len(gram)), 1 / 25)
        prior[:, 2:] = np.exp(-2 * log_tau)[:, None]
        precision = gram * weight[:, None, None] + prior[:, :, None] * np.eye(len(gram))
        root = np.linalg.cholesky(precision)
        inverse = np.linalg.inv(root)
        half = np.einsum("nij,j,n->ni", inverse, projected, weight)
        logs = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        log_z = 0.5 * np.log(prior).sum(axis=1) - logs + 0.5 * (half**2).sum(axis=1)
        log_z -= self.n * (log_sigma + 0.5 * np.log(2 * np.pi)) + 0.5 * square * weight
        return log_z, np.einsum("nij,ni->nj", inverse, half), inverse

    @cached_property
    def _grid(self):
        """Axes of log sigma and log tau, and the log posterior mass of each cell."""
        log_sigma, log_tau = np.linspace(-1.5, 2.0, 101), np.linspace(-14.0, 4.5, 401)
        sigmas, taus = (v.ravel() for v in np.meshgrid(log_sigma, log_tau, indexing="ij"))
        log_p = self._given_sds(sigmas, taus)[0] + sigmas + taus
        log_p += stats.halfnorm.logpdf(np.exp(sigmas), scale=5)
        log_p += stats.halfnorm.logpdf(np.exp(taus), scale=2.5)
        steps = log_sigma[1] - log_sigma[0], log_tau[1] - log_tau[0]
        return sigmas, taus, steps, log_p + np.log(steps[0] * steps[1])

    @cached_property
    def log_evidence(self):
        return float(logsumexp(self._grid[3]))

    def posterior_draws(self, n, rng):
        """Independent draws; both log sds are spread evenly over the cells of a fine grid."""
        sigmas, taus, steps, log_p = self._grid
        which = rng.choice(log_p.size, n, p=np.exp(log_p - logsumexp(log_p)))
        log_sigma = sigmas[which] + steps[0] * (rng.random(n) - 0.5)
        log_tau = taus[which] + steps[1] * (rng.random(n) - 0.5)
        _, mean, inverse = self._given_sds(log_sigma, log_tau)
        theta = mean + np.einsum("nij,ni->nj", inverse, rng.normal(size=mean.shape))
        scale = 1.0 if self.centered else np.exp(-log_tau)[:, None]
        return np.column_stack([theta[:, :2], log_sigma, log_tau, theta[:, 2:] * scale])
