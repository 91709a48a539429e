"""Small models and data for the tests of `variational.conjugate`, and the ELBO by Monte Carlo."""

import numpy as np
from scipy import stats as sps

from pymc_tempering.variational.conjugate import LDA, FactorialMixture, GaussianMixture

PARTS = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])


def gaussian_data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + np.array([[-2.0, 0.0], [2.0, 1.0]])[rng.integers(2, size=n)]


def factorial_data(n=60, seed=0, sd=0.3):
    rng = np.random.default_rng(seed)
    return (rng.random((n, 3)) < 0.4) @ PARTS + sd * rng.normal(size=(n, 4))


def documents(n=60, n_words=30, length=25, seed=0):
    """Documents from two topics that share no words; the first words of each are common."""
    rng, half = np.random.default_rng(seed), n_words // 2
    topics, common = np.zeros((2, n_words)), 0.7 ** np.arange(half)
    topics[0, :half] = topics[1, half:] = common / common.sum()
    share = rng.dirichlet([0.3, 0.3], size=n)
    return np.array([rng.multinomial(length, p @ topics) for p in share])


CASES = {
    "gaussian": (GaussianMixture(2, sd=1.0, prior_sd=4.0), gaussian_data()),
    "factorial": (FactorialMixture(3, sd=0.3, prior_sd=1.0, probability=0.4), factorial_data()),
    "factorial_full": (
        FactorialMixture(3, sd=0.3, prior_sd=1.0, probability=0.4, covariance="full"),
        factorial_data(),
    ),
    "lda": (LDA(3, tol=1e-9, max_iter=2000), documents()),
}


def log_ratio_draws(model, lam, data, state, inv_temp, draws, rng):
    """Draw (beta, z) from q and return log p(beta) + sum log p(x, z|beta)/T - log q, plainly."""
    if isinstance(model, GaussianMixture):
        return _gaussian_draws(model, lam, data, state, inv_temp, draws, rng)
    if isinstance(model, FactorialMixture):
        return _factorial_draws(model, lam, data, state, inv_temp, draws, rng)
    return _lda_draws(model, lam, data, state, inv_temp, draws, rng)


def _gaussian_draws(model, lam, data, state, inv_temp, draws, rng):
    a, precision, linear = lam
    prior = np.full(len(a), model.concentration)
    out = np.empty(draws)
    for i in range(draws):
        p = rng.dirichlet(a)
        mean, sd = linear / precision[:, None], precision[:, None] ** -0.5
        mu = mean + sd * rng.normal(size=mean.shape)
        z = np.array([rng.choice(len(a), p=row) for row in state])
        log_x = sps.norm.logpdf(data, mu[z], model.sd).sum(axis=1) + np.log(p[z])
        log_q = np.log(state[np.arange(len(z)), z]).sum()
        log_q += sps.norm.logpdf(mu, mean, sd).sum() + sps.dirichlet.logpdf(p, a)
        log_prior = sps.norm.logpdf(mu, model.prior_mean, model.prior_sd).sum()
        log_prior += sps.dirichlet.logpdf(p, prior)
        out[i] = log_prior + (inv_temp * log_x).sum() - log_q
    return out


def _factorial_draws(model, lam, data, state, inv_temp, draws, rng):
    mean, covariance = model.moments(lam)
    root, out = np.linalg.cholesky(covariance), np.empty(draws)
    for i in range(draws):
        noise = rng.normal(size=mean.shape)
        mu = mean + root @ noise
        z = rng.random(state.shape) < state
        log_x = sps.norm.logpdf(data, z @ mu, model.sd).sum(axis=1)
        log_x += sps.bernoulli.logpmf(z, model.probability).sum(axis=1)
        log_q = sps.bernoulli.logpmf(z, state).sum() + sps.norm.logpdf(noise).sum()
        log_q -= data.shape[1] * np.log(np.diag(root)).sum()
        log_prior = sps.norm.logpdf(mu, 0.0, model.prior_sd).sum()
        out[i] = log_prior + (inv_temp * log_x).sum() - log_q
    return out


def _lda_draws(model, lam, counts, gamma, inv_temp, draws, rng):
    """Draw beta and theta; z is summed out of log p - log q at its own optimum q(z)."""
    beta_a, out = lam[0].T, np.empty(draws)
    log_beta_mean = expected_log(beta_a)
    log_theta_mean = expected_log(gamma)
    for i in range(draws):
        beta = np.array([rng.dirichlet(a) for a in beta_a])
        theta = np.array([rng.dirichlet(a) for a in gamma])
        value = sum(
            sps.dirichlet.logpdf(b, np.full(b.size, model.word_prior)) - sps.dirichlet.logpdf(b, a)
            for b, a in zip(beta, beta_a, strict=True)
        )
        for d, s in enumerate(inv_temp):
            prior = np.full(theta.shape[1], model.topic_prior)
            value += sps.dirichlet.logpdf(theta[d], prior)
            value -= sps.dirichlet.logpdf(theta[d], gamma[d])
            q = np.exp(s * (log_theta_mean[d][:, None] + log_beta_mean))
            q /= q.sum(axis=0)
            log_p = np.log(theta[d])[:, None] + np.log(beta)
            value += (counts[d] * (q * (s * log_p - np.log(q)))).sum()
        out[i] = value
    return out


def expected_log(a):
    """E[log p] for p ~ Dirichlet(a), rows."""
    from scipy.special import digamma

    return digamma(a) - digamma(a.sum(axis=-1, keepdims=True))
