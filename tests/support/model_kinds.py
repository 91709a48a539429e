"""Small models of the kinds that PyMC users have, with their log evidence where it is known.

Each function returns (model, log evidence or None, posterior means by variable); a mean stands
for all elements of its variable, raveled.
"""

import warnings

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import xarray as xr
from pymc.distributions import transforms
from pymc.exceptions import ImputationWarning
from pytensor.graph.op import Op
from scipy import stats
from scipy.special import logsumexp

Y = np.array([0.8, 1.9, 1.1, 2.6, 0.3])


def grid_posterior(log_prior, log_likelihood, *axes):
    """Log evidence and means of each axis, on a grid that covers the prior."""
    grids = np.meshgrid(*axes, indexing="ij")
    log_p = log_prior(*grids) + log_likelihood(*grids)
    for i, axis in enumerate(axes):
        log_p = log_p + np.expand_dims(
            np.log(np.gradient(axis)), [j for j in range(len(axes)) if j != i]
        )
    share = np.exp(log_p - logsumexp(log_p))
    return logsumexp(log_p), [(share * grid).sum() for grid in grids]


def sum_over(data, log_density):
    """Sum a log density over data, at all points of a grid."""
    return lambda *grids: sum(log_density(y, *grids) for y in data)


def gaussian_evidence(y, covariance, mean=0.0):
    return stats.multivariate_normal.logpdf(y, np.full(len(y), mean), covariance)


def imputed():
    """Two of five observations are missing and are sampled too."""
    y = np.ma.masked_invalid([0.8, np.nan, 1.1, 2.6, np.nan])
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("y", mu, 1.0, observed=y)
    seen = y.compressed()
    mean = seen.sum() / (seen.size + 0.25)
    return model, gaussian_evidence(seen, np.eye(3) + 4.0), {"mu": mean, "y_unobserved": mean}


def censored():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Censored("y", pm.Normal.dist(mu, 1.0), lower=None, upper=1.5,
                    observed=np.minimum(Y, 1.5))  # fmt: skip

    def density(y, mu):
        return stats.norm.logsf(1.5, mu) if y >= 1.5 else stats.norm.logpdf(y, mu)

    log_z, [mean] = grid_posterior(
        lambda m: stats.norm.logpdf(m, 0, 2), sum_over(Y, density), np.linspace(-12, 12, 4001)
    )
    return model, log_z, {"mu": mean}


def truncated():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Truncated("y", pm.Normal.dist(mu, 1.0), lower=0.0, observed=Y)

    def density(y, mu):
        return stats.norm.logpdf(y, mu) - stats.norm.logsf(0.0, mu)

    log_z, [mean] = grid_posterior(
        lambda m: stats.norm.logpdf(m, 0, 2), sum_over(Y, density), np.linspace(-14, 12, 4001)
    )
    return model, log_z, {"mu": mean}


def marginal_mixture():
    with pm.Model() as model:
        w = pm.Beta("w", 2.0, 2.0)
        parts = [pm.Normal.dist(-1.0, 1.0), pm.Normal.dist(2.0, 0.7)]
        pm.Mixture("y", pt.stack([1 - w, w]), parts, observed=Y)

    def density(y, w):
        return np.log((1 - w) * stats.norm.pdf(y, -1, 1) + w * stats.norm.pdf(y, 2, 0.7))

    log_z, [mean] = grid_posterior(
        lambda w: stats.beta.logpdf(w, 2, 2),
        sum_over(Y, density),
        np.linspace(1e-6, 1 - 1e-6, 8001),
    )
    return model, log_z, {"w": mean}


def zero_inflated_poisson():
    counts = np.array([0, 0, 3, 1, 0, 4, 2])
    with pm.Model() as model:
        psi = pm.Beta("psi", 2.0, 2.0)
        rate = pm.Gamma("rate", 3.0, 1.0)
        pm.ZeroInflatedPoisson("y", psi, rate, observed=counts)

    def density(y, psi, rate):
        return np.log(psi * stats.poisson.pmf(y, rate) + (1 - psi) * (y == 0))

    log_z, means = grid_posterior(
        lambda psi, rate: stats.beta.logpdf(psi, 2, 2) + stats.gamma.logpdf(rate, 3),
        sum_over(counts, density), np.linspace(1e-4, 1 - 1e-4, 801), np.linspace(1e-3, 20, 2001),
    )  # fmt: skip
    return model, log_z, {"psi": means[0], "rate": means[1]}


def hurdle():
    counts = np.array([0, 0, 3, 1, 0, 4, 2])
    with pm.Model() as model:
        psi = pm.Beta("psi", 2.0, 2.0)
        pm.HurdlePoisson("y", psi, 2.5, observed=counts)
    log_z = stats.betabinom.logpmf(4, 7, 2, 2) - np.log(35)
    positive = counts[counts > 0]
    log_z += (stats.poisson.logpmf(positive, 2.5) - np.log(-np.expm1(-2.5))).sum()
    return model, log_z, {"psi": 6 / 11}


TIMES = np.linspace(0.0, 3.0, 6)[:, None]
SERIES = np.array([0.3, 0.9, 1.3, 0.7, -0.4, -0.9])


def kernel_matrix(length, eta):
    return eta**2 * np.exp(-0.5 * ((TIMES - TIMES.T) / length) ** 2)


def gp_marginal():
    with pm.Model() as model:
        length = pm.Gamma("length", 3.0, 3.0)
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, length))
        gp.marginal_likelihood("y", TIMES, SERIES, sigma=0.3)
    grid = np.linspace(0.02, 8, 1500)
    log_likelihood = np.array(
        [gaussian_evidence(SERIES, kernel_matrix(x, 1.0) + (0.09 + 1e-6) * np.eye(6)) for x in grid]
    )
    log_z, [mean] = grid_posterior(
        lambda x: stats.gamma.logpdf(x, 3, scale=1 / 3), lambda x: log_likelihood, grid
    )
    return model, log_z, {"length": mean}


def gp_latent():
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, 0.8))
        f = gp.prior("f", TIMES, jitter=1e-6)
        pm.Normal("y", f, 0.3, observed=SERIES)
    prior = kernel_matrix(0.8, 1.0) + 1e-6 * np.eye(6)
    covariance = prior + 0.09 * np.eye(6)
    mean = prior @ np.linalg.solve(covariance, SERIES)
    return model, gaussian_evidence(SERIES, covariance), {"f": mean}


def ode_by_scan():
    """Logistic growth by Euler steps in a loop; the rate is free."""
    observed, dt = np.array([0.2, 0.31, 0.44, 0.6, 0.75]), 0.1

    def euler(rate, where):
        x, path = 0.12 + 0.0 * rate, []
        for i in range(20):
            x = x + dt * rate * x * (1 - x)
            if i % 4 == 3:
                path.append(x)
        return where.stack(path)

    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 2.0)
        pm.Normal("y", euler(rate, pt), 0.05, observed=observed)
    grid = np.linspace(1e-3, 10, 6001)
    path = euler(grid, np)
    log_likelihood = stats.norm.logpdf(observed[:, None], path, 0.05).sum(axis=0)
    log_z, [mean] = grid_posterior(
        lambda r: stats.halfnorm.logpdf(r, scale=2), lambda r: log_likelihood, grid
    )
    return model, log_z, {"rate": mean}


def random_walk():
    with pm.Model() as model:
        walk = pm.GaussianRandomWalk("walk", sigma=0.5, init_dist=pm.Normal.dist(0.0, 1.0), shape=6)
        pm.Normal("y", walk, 0.3, observed=SERIES)
    index = np.arange(6)
    prior = 1.0 + 0.25 * np.minimum.outer(index, index)
    covariance = prior + 0.09 * np.eye(6)
    mean = prior @ np.linalg.solve(covariance, SERIES)
    return model, gaussian_evidence(SERIES, covariance), {"walk": mean}


def lkj():
    data = np.array([[0.5, 0.2], [-1.0, -0.7], [1.4, 0.6], [0.1, -0.5]])
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2)
        )
        pm.MvNormal("y", np.zeros(2), chol=chol, observed=data)

    def log_likelihood(s1, s2, r):
        square = sum((a / s1) ** 2 + (b / s2) ** 2 - 2 * r * a * b / (s1 * s2) for a, b in data) / (
            1 - r**2
        )
        return -0.5 * square - len(data) * np.log(2 * np.pi * s1 * s2 * np.sqrt(1 - r**2))

    def log_prior(s1, s2, r):
        return (
            stats.halfnorm.logpdf(s1) + stats.halfnorm.logpdf(s2)
            + stats.beta.logpdf((r + 1) / 2, 2, 2) - np.log(2)
        )  # fmt: skip

    log_z, means = grid_posterior(
        log_prior, log_likelihood, np.linspace(0.02, 6, 160), np.linspace(0.02, 6, 160),
        np.linspace(-0.999, 0.999, 160),
    )  # fmt: skip
    return model, log_z, {"chol_stds": means[:2]}


def simplex():
    counts, a = np.array([3, 1, 6]), np.array([2.0, 3.0, 1.5])
    with pm.Model(coords={"kind": list("abc")}) as model:
        p = pm.Dirichlet("p", a, dims="kind")
        pm.Multinomial("y", n=10, p=p, observed=counts)
    return model, stats.dirichlet_multinomial.logpmf(counts, a, 10), {"p": (counts + a) / 16.5}


def ordered():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0, shape=2, transform=transforms.ordered)
        pm.NormalMixture("y", [0.4, 0.6], mu, 0.8, observed=Y)

    def density(y, a, b):
        return np.logaddexp(
            np.log(0.4) + stats.norm.logpdf(y, a, 0.8), np.log(0.6) + stats.norm.logpdf(y, b, 0.8)
        )

    def log_prior(a, b):
        inside = np.log(2.0) + stats.norm.logpdf(a, 0, 2) + stats.norm.logpdf(b, 0, 2)
        return np.where(a < b, inside, np.where(a == b, inside - np.log(2.0), -np.inf))

    axis = np.linspace(-9, 9, 1501)
    log_z, means = grid_posterior(log_prior, sum_over(Y, density), axis, axis)
    return model, log_z, {"mu": means}


def circular():
    with pm.Model() as model:
        angle = pm.VonMises("angle", 0.4, 0.7)
        pm.Normal("y", pt.cos(angle), 0.5, observed=[0.2, -0.4])
    axis = np.linspace(-np.pi, np.pi, 4001)[:-1]
    log_z, _ = grid_posterior(
        lambda a: stats.vonmises.logpdf(a, 0.7, loc=0.4),
        sum_over([0.2, -0.4], lambda y, a: stats.norm.logpdf(y, np.cos(a), 0.5)), axis,
    )  # fmt: skip
    return model, log_z, {}


def dims():
    with pm.Model(coords={"obs": range(5)}) as model:
        mu = pmd.Normal("mu", 0.0, 2.0)
        pmd.Normal("y", mu, 1.0, observed=xr.DataArray(Y, dims="obs"))
    return model, gaussian_evidence(Y, np.eye(5) + 4.0), {"mu": Y.sum() / 5.25}


class BlackBox(Op):
    """A function that PyTensor can neither differentiate nor compile."""

    __props__ = ()
    itypes = (pt.dscalar,)
    otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        squares = ((Y - inputs[0]) ** 2).sum()
        outputs[0][0] = np.asarray(-0.5 * (squares + Y.size * np.log(2.0 * np.pi)))


def black_box():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Potential("likelihood", BlackBox()(mu))
    return model, gaussian_evidence(Y, np.eye(5) + 4.0), {"mu": Y.sum() / 5.25}


def custom_likelihood():
    """A Laplace law written by hand, in a CustomDist."""

    def logp(value, mu):
        return -pt.abs(value - mu) - np.log(2.0)

    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.CustomDist("y", mu, logp=logp, observed=Y)
    log_z, [mean] = grid_posterior(
        lambda m: stats.norm.logpdf(m, 0, 2), sum_over(Y, stats.laplace.logpdf),
        np.linspace(-12, 12, 20001),
    )  # fmt: skip
    return model, log_z, {"mu": mean}


def custom_prior():
    """A prior made of others: the logarithm of a gamma law."""

    def log_gamma(a, b, size):
        return pt.log(pm.Gamma.dist(a, b, size=size))

    with pm.Model() as model:
        x = pm.CustomDist("x", 3.0, 1.0, dist=log_gamma)
        pm.Poisson("y", pt.exp(x), observed=[2, 4, 3])
    log_z, [mean] = grid_posterior(
        lambda x: stats.loggamma.logpdf(x, 3),
        sum_over([2, 4, 3], lambda y, x: stats.poisson.logpmf(y, np.exp(x))),
        np.linspace(-6, 4, 4001),
    )  # fmt: skip
    return model, log_z, {"x": mean}


def conditional_autoregression():
    adjacency = np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    with pm.Model() as model:
        phi = pm.CAR("phi", np.zeros(6), adjacency, alpha=0.8, tau=2.0)
        pm.Normal("y", phi, 0.3, observed=SERIES)
    prior = np.linalg.inv(2.0 * (np.diag(adjacency.sum(axis=1)) - 0.8 * adjacency))
    covariance = prior + 0.09 * np.eye(6)
    mean = prior @ np.linalg.solve(covariance, SERIES)
    return model, gaussian_evidence(SERIES, covariance), {"phi": mean}


def hidden_markov():
    """Explicit binary states of a chain; the evidence by the forward algorithm."""
    stay, means = 0.8, np.array([-0.5, 1.0])
    with pm.Model() as model:
        states = [pm.Bernoulli("s0", 0.5)]
        for i in range(1, 6):
            p = pt.switch(pt.eq(states[-1], 1), stay, 1 - stay)
            states.append(pm.Bernoulli(f"s{i}", p))
        pm.Normal("y", pt.as_tensor(means)[pt.stack(states)], 0.6, observed=SERIES)
    move = np.log([[stay, 1 - stay], [1 - stay, stay]])
    emit = stats.norm.logpdf(SERIES[:, None], means, 0.6)
    forward = [np.log(0.5) + emit[0]]
    for e in emit[1:]:
        forward.append(logsumexp(forward[-1][:, None] + move, axis=0) + e)
    last = np.exp(forward[-1] - logsumexp(forward[-1]))
    return model, logsumexp(forward[-1]), {"s5": last[1]}


def survival():
    """Weibull times, some of them censored, by a potential."""
    times, died = np.array([0.6, 1.4, 2.2, 0.9, 3.0]), np.array([1, 1, 0, 1, 0])
    with pm.Model() as model:
        scale = pm.Gamma("scale", 3.0, 1.5)
        cumulative = (times / scale) ** 1.5
        hazard = np.log(1.5) + 0.5 * np.log(times) - 1.5 * pt.log(scale)
        pm.Potential("survival", (died * hazard - cumulative).sum())

    def log_likelihood(s):
        return sum(
            stats.weibull_min.logpdf(t, 1.5, scale=s) if d
            else stats.weibull_min.logsf(t, 1.5, scale=s)
            for t, d in zip(times, died, strict=True)
        )  # fmt: skip

    log_z, [mean] = grid_posterior(
        lambda s: stats.gamma.logpdf(s, 3, scale=1 / 1.5),
        log_likelihood,
        np.linspace(0.02, 20, 8001),
    )
    return model, log_z, {"scale": mean}


def zero_sum():
    """Group effects that sum to zero, in a centered normal model with known noise."""
    groups = np.array([0, 0, 1, 1, 2])
    with pm.Model() as model:
        effect = pm.ZeroSumNormal("effect", sigma=1.3, shape=3)
        pm.Normal("y", effect[groups], 0.8, observed=Y - 1.0)
    projector = np.eye(3) - 1.0 / 3.0
    design = np.eye(3)[groups]
    prior = 1.69 * projector
    covariance = design @ prior @ design.T + 0.64 * np.eye(5)
    mean = prior @ design.T @ np.linalg.solve(covariance, Y - 1.0)
    return model, gaussian_evidence(Y - 1.0, covariance), {"effect": mean}


def negative_binomial():
    counts = np.array([4, 9, 2, 6])
    with pm.Model() as model:
        mu = pm.Gamma("mu", 4.0, 0.8)
        alpha = pm.Exponential("alpha", 0.5)
        pm.NegativeBinomial("y", mu=mu, alpha=alpha, observed=counts)

    def density(y, mu, alpha):
        return stats.nbinom.logpmf(y, alpha, alpha / (alpha + mu))

    log_z, means = grid_posterior(
        lambda m, a: stats.gamma.logpdf(m, 4, scale=1.25) + stats.expon.logpdf(a, scale=2),
        sum_over(counts, density), np.linspace(0.05, 25, 900), np.geomspace(1e-3, 40, 900),
    )  # fmt: skip
    return model, log_z, {"mu": means[0], "alpha": means[1]}


def robust_regression():
    x = np.linspace(-1, 1, 5)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 2.0)
        level = pm.Normal("level", 0.0, 2.0)
        pm.StudentT("y", 3.0, mu=level + slope * x, sigma=0.6, observed=Y)

    def log_likelihood(slope, level):
        return sum(
            stats.t.logpdf(y, 3, level + slope * xi, 0.6) for y, xi in zip(Y, x, strict=True)
        )

    axis = np.linspace(-10, 10, 801)
    log_z, means = grid_posterior(
        lambda s, a: stats.norm.logpdf(s, 0, 2) + stats.norm.logpdf(a, 0, 2),
        log_likelihood,
        axis,
        axis,
    )
    return model, log_z, {"slope": means[0], "level": means[1]}


MODEL_KINDS = {
    f.__name__: f
    for f in (
        imputed, censored, truncated, marginal_mixture, zero_inflated_poisson, hurdle, gp_marginal,
        gp_latent, ode_by_scan, random_walk, lkj, simplex, ordered, circular, dims, black_box,
        custom_likelihood, custom_prior, conditional_autoregression, hidden_markov, survival,
        zero_sum, negative_binomial, robust_regression,
    )
}  # fmt: skip
