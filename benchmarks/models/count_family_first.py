"""Models with unknown counts that have no largest value, and their evidences by brute force."""

from collections.abc import Callable

import numpy as np
import pymc as pm
from scipy.special import gammaln, logsumexp
from scipy.stats import beta, betabinom, binom, geom, nbinom, norm, poisson, t

K = np.arange(20_000)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)


def quadrature(terms: Callable[[float], float], law, low: float = 0.0, high: float = 1.0) -> float:
    """Log of the mean of exp(terms) over a law, by its quantiles from low to high."""
    at = law.ppf(low + (high - low) * 0.5 * (NODES + 1.0))
    return float(logsumexp([terms(x) for x in at], b=0.5 * (high - low) * WEIGHTS))


def scalar_far():
    with pm.Model() as model:
        lam = pm.Gamma("lam", 3, 0.2)
        n = pm.Poisson("n", lam)
        pm.Normal("y", n, 4.0, observed=160.0)
    return model


def scalar_far_truth():
    # gamma mixture of Poissons: negative binomial with alpha 3, mu 15
    return float(logsumexp(nbinom.logpmf(K, 3, 0.2 / 1.2) + norm.logpdf(160.0, K, 4.0)))


CAUGHT = np.array([11, 8, 14, 90, 10])


def detection():
    with pm.Model(coords={"site": list("abcde")}) as model:
        caught = pm.Data("caught", CAUGHT, dims="site")
        p = pm.Beta("p", 4, 4)
        n = pm.Poisson("n", 25.0, dims="site")
        pm.Binomial("y", n, p, observed=caught, dims="site")
    return model


def detection_truth():
    k = K[:1500]
    inside = lambda p: sum(  # noqa: E731
        logsumexp(poisson.logpmf(k, 25.0) + binom.logpmf(y, k, p)) for y in CAUGHT
    )
    return quadrature(inside, beta(4, 4))


def two_peaks():
    with pm.Model() as model:
        n = pm.NegativeBinomial("n", mu=30.0, alpha=0.8)
        x = pm.Normal("x", 0, 1)
        near = pm.Normal.logp(n, 25.0, 6.0)
        far = pm.Normal.logp(n, 900.0, 1.5) + 24.0
        pm.Potential("likelihood", pm.math.logaddexp(near, far) - 0.5 * (x - 1.0) ** 2)
    return model


def two_peaks_truth():
    prior = nbinom.logpmf(K, 0.8, 0.8 / 30.8)
    both = np.logaddexp(norm.logpdf(K, 25.0, 6.0), norm.logpdf(K, 900.0, 1.5) + 24.0)
    return float(logsumexp(prior + both) - 0.25 - 0.5 * np.log(2.0))


RATES = np.array([310.0, 295.0, 322.0])


def scaled():
    with pm.Model(coords={"scan": range(3)}) as model:
        n = pm.NegativeBinomial("n", mu=20.0, alpha=1.5)
        gain = pm.LogNormal("gain", 0, 0.1)
        pm.Normal("y", n * gain, 10.0, observed=RATES, dims="scan")
    return model


def scaled_truth():
    k = K[:3000]
    prior = nbinom.logpmf(k, 1.5, 1.5 / 21.5)
    inside = lambda z: logsumexp(  # noqa: E731
        prior + norm.logpdf(RATES[:, None], k * np.exp(0.1 * z), 10.0).sum(axis=0)
    )
    z = np.linspace(-9, 9, 4001)
    return float(logsumexp([inside(v) for v in z] + norm.logpdf(z)) + np.log(z[1] - z[0]))


def waiting():
    with pm.Model() as model:
        n = pm.Geometric("n", 0.2, shape=2)
        noise = pm.HalfNormal("noise", 2.0)
        pm.StudentT("y", nu=4, mu=n, sigma=noise + 0.5, observed=[70.0, 3.0])
    return model


def waiting_truth():
    k = np.arange(1, 4000)
    prior = geom.logpmf(k, 0.2)
    inside = lambda s: sum(  # noqa: E731
        logsumexp(prior + t.logpdf(y, 4, k, s + 0.5)) for y in (70.0, 3.0)
    )
    return quadrature(inside, norm(scale=2.0), 0.5, 1.0 - 1e-12) + np.log(2.0)


SEEN = np.array([0, 3, 0, 41])


def inflated():
    with pm.Model(coords={"plot": range(4)}) as model:
        psi = pm.Beta("psi", 2, 2)
        n = pm.ZeroInflatedPoisson("n", psi, 6.0, dims="plot")
        pm.Poisson("y", 0.7 * n + 0.05, observed=SEEN, dims="plot")
    return model


def inflated_truth():
    k = K[:2000]

    def inside(psi):
        prior = np.log(psi) + poisson.logpmf(k, 6.0)
        prior[0] = np.logaddexp(prior[0], np.log1p(-psi))
        return sum(logsumexp(prior + poisson.logpmf(y, 0.7 * k + 0.05)) for y in SEEN)

    return quadrature(inside, beta(2, 2))


def over_dispersed():
    with pm.Model() as model:
        n = pm.Poisson("n", 40.0)
        a = pm.Exponential("a", 0.5)
        pm.BetaBinomial("y", alpha=a + 1, beta=2.0, n=n, observed=130)
    return model


def over_dispersed_truth():
    k = K[:3000]
    prior = poisson.logpmf(k, 40.0)
    inside = lambda u: logsumexp(prior + betabinom.logpmf(130, k, 1 - 2 * np.log1p(-u), 2.0))  # noqa: E731
    u = 0.5 * (NODES + 1.0)
    return float(logsumexp([inside(v) for v in u], b=0.5 * WEIGHTS))


def followed():
    with pm.Model() as model:
        births = pm.Gamma("births", 5, 1)
        first = pm.Poisson("first", 12.0)
        second = pm.Poisson("second", 1.5 * first + births)
        pm.Normal("y", second, 5.0, observed=95.0)
    return model


def followed_truth():
    first, second = np.arange(200)[:, None], np.arange(1200)
    seen = norm.logpdf(95.0, second, 5.0)
    nodes, weights = np.polynomial.laguerre.laggauss(60)
    log_w = np.log(weights) + 4 * np.log(nodes) - gammaln(5)
    prior = poisson.logpmf(first, 12.0)
    each = [logsumexp(prior + poisson.logpmf(second, 1.5 * first + b) + seen) for b in nodes]
    return float(logsumexp(each + log_w))


MODELS = {
    "scalar, far": (scalar_far, scalar_far_truth),
    "detection, one site far": (detection, detection_truth),
    "two peaks, the far one narrow": (two_peaks, two_peaks_truth),
    "scaled by a gain, far": (scaled, scaled_truth),
    "waiting times, one far": (waiting, waiting_truth),
    "zero-inflated, one far": (inflated, inflated_truth),
    "over-dispersed, far": (over_dispersed, over_dispersed_truth),
    "one count follows another": (followed, followed_truth),
}
"""By name: how each is built, and its evidence."""
