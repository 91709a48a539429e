"""Small models for the tests of fits, and their exact answers."""

import numpy as np
import pymc as pm
from scipy.special import betaln, logsumexp

SIGMA, PRIOR = 2.0, 0.5
GAUSSIAN_DATA = np.random.default_rng(0).normal(0.5, SIGMA, 40)


def gaussian(data=GAUSSIAN_DATA):
    """Normal data of known scale, one unknown mean."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, PRIOR)
        pm.Normal("y", mu, SIGMA, observed=data)
    return model


def gaussian_log_c(temperatures, n):
    """log C(T): the integral of N(x; mu, s^2)^(1/T) does not depend on mu (closed form)."""
    return 0.5 * n * ((1 - 1 / temperatures) * np.log(2 * np.pi * SIGMA**2) + np.log(temperatures))


def gaussian_posterior(inverse_temperature, data=GAUSSIAN_DATA):
    """Mean and standard deviation of mu with the likelihood to the power 1/T."""
    precision = inverse_temperature * data.size / SIGMA**2 + PRIOR**-2
    return inverse_temperature * data.sum() / SIGMA**2 / precision, precision**-0.5


def gaussian_expected_loglik(mean, sd, data=GAUSSIAN_DATA):
    """E of the log-likelihood for mu ~ N(mean, sd^2)."""
    squares = ((data - mean) ** 2).sum() + data.size * sd**2
    return -0.5 * data.size * np.log(2 * np.pi * SIGMA**2) - 0.5 * squares / SIGMA**2


def gaussian_log_z(data=GAUSSIAN_DATA):
    """Log marginal likelihood (nats)."""
    n = data.size
    mean, sd = gaussian_posterior(1.0, data)
    at_zero = -0.5 * n * np.log(2 * np.pi * SIGMA**2) - 0.5 * (data**2).sum() / SIGMA**2
    return at_zero - np.log(PRIOR) + np.log(sd) + 0.5 * (mean / sd) ** 2


def tempered_fixed_point(temperatures, log_c, data=GAUSSIAN_DATA):
    """q(T) and E[1/T] of VT by iterating its two updates, each exact, to their fixed point."""
    q = np.full(temperatures.size, 1.0 / temperatures.size)
    for _ in range(500):
        loglik = gaussian_expected_loglik(*gaussian_posterior(q @ (1 / temperatures), data), data)
        logits = loglik / temperatures - log_c
        q = np.exp(logits - logsumexp(logits))
    return q, float(q @ (1 / temperatures))


def bernoulli(n=1000):
    """Half of the trials succeed, uniform prior: the trap of VT."""
    with pm.Model() as model:
        p = pm.Uniform("p")
        pm.Bernoulli("y", p, observed=np.arange(n) % 2)
    return model


def bernoulli_log_c(temperatures, n=1000):
    """log of the integral of (p^(1/T) + (1 - p)^(1/T))^n over p, by a fine grid."""
    p = (np.arange(100_000) + 0.5) / 100_000
    inner = [np.logaddexp(np.log(p) / t, np.log1p(-p) / t) for t in temperatures]
    return np.array([logsumexp(n * row) for row in inner]) - np.log(p.size)


def bernoulli_log_z(n=1000):
    """Log marginal likelihood of n / 2 successes in given places (nats)."""
    return betaln(1 + n // 2, 1 + n - n // 2)


def two_wells(start_in_the_wrong_one=True):
    """Mixture likelihood with modes at -3 (weight 0.03) and 3; the start is near the poor one."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 3.0)
        log_w = np.log([0.03, 0.97])
        parts = [pm.logp(pm.Normal.dist(m, 0.5), x) for m in (-3.0, 3.0)]
        pm.Potential("wells", pm.math.logaddexp(log_w[0] + parts[0], log_w[1] + parts[1]))
    return model, {"x": -3.0 if start_in_the_wrong_one else 3.0}


def minibatches():
    """Normal data of which a step sees five."""
    data = pm.Minibatch(GAUSSIAN_DATA, batch_size=5)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, PRIOR)
        pm.Normal("y", mu, SIGMA, observed=data, total_size=GAUSSIAN_DATA.size)
    return model


def contents(approx):
    """All numbers of a fit."""
    report = approx.tempering
    parts = [
        approx.hist,
        report.elbo,
        report.khat,
        report.evidence.log_z,
        report.inverse_temperature,
        report.q,
        report.elbo_history,
        *(p.get_value() for p in approx.groups[0].shared_params.values()),
        *report.local.values(),
    ]
    return np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])
