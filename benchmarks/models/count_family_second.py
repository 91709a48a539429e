"""A second set of models with unknown counts without a largest value, and their evidences."""

import numpy as np
import pymc as pm
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import beta, expon, gamma, geom, halfnorm, nbinom, norm, poisson, t

K = np.arange(20_000)
PANELS = 24  # pieces that an interval is cut in
COLONIES = np.array([[31, 0, 46, 9], [36, 0, 41, 12]])
TITRES = np.array([633.0, 671.0, 648.0, 659.0])
READINGS, WRAP = np.array([14.0, 9.0, 12.0, 17.0]), 1000
NEAR, FAR, BONUS = np.array([11.0, 8.0]), np.array([150.0, 90.0]), np.array([274.0, 120.5])
CHICKS = np.array([0, 6, 60])
WEIGHTS = np.array([[29.0, 611.0], [38.0, 596.0], [33.0, 604.0]])


def rule(low, high):
    """Nodes and log weights of Gauss-Legendre, eight in each piece."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * (high - low) / PANELS
    middles = low + half * (2 * np.arange(PANELS) + 1)
    return (middles[:, None] + half * nodes).ravel(), np.tile(np.log(half * weights), PANELS)


def evidence(terms, law, low, high):
    """Log of the mean over a law, with the counts summed out along the last axis."""
    at, log_w = rule(low, high)
    each = [logsumexp(terms(x), axis=-1).sum() for x in at]
    return float(logsumexp(each + law.logpdf(at) + log_w))


def inflated(prior, psi=0.8):
    """Log probabilities with zeros put in, for counts from 0."""
    zero = np.where(K[: len(prior)] == 0, np.log1p(-psi), -np.inf)
    return np.logaddexp(np.log(psi) + prior, zero)


def wells():
    with pm.Model(coords={"plate": ["first", "second"], "well": list("abcd")}) as model:
        grown = pm.Data("grown", COLONIES, dims=("plate", "well"))
        p = pm.Beta("p", 6, 4)
        cells = pm.ZeroInflatedNegativeBinomial("cells", psi=0.8, mu=60.0, alpha=2.0, dims="well")
        pm.Binomial("y", cells, p, observed=grown, dims=("plate", "well"))
    return model


def wells_truth():
    k, y = K[:4000], COLONIES[:, :, None]
    left = k - y
    choose = gammaln(k + 1) - gammaln(y + 1) - gammaln(left + 1)  # -inf where too few
    fixed = choose.sum(axis=0) + inflated(nbinom.logpmf(k, 2.0, 2.0 / 62.0))
    seen = lambda p: (y * np.log(p) + left * np.log1p(-p)).sum(axis=0)  # noqa: E731
    return evidence(lambda p: fixed + seen(p), beta(6, 4), 0.0, 1.0)


def titres():
    with pm.Model() as model:
        n = pm.Geometric("n", 0.1)
        sigma = pm.HalfNormal("sigma", 0.05)
        pm.LogNormal("y", pm.math.log(n), sigma, observed=TITRES)
    return model


def titres_truth():
    logs = np.log(TITRES)[:, None]
    prior = geom.logpmf(K[1:], 0.1) - logs.sum()
    seen = lambda s: norm.logpdf(logs, np.log(K[1:]), s).sum(axis=0)  # noqa: E731
    return evidence(lambda s: prior + seen(s), halfnorm(scale=0.05), 0.005, 0.5)


def counter():
    with pm.Model(coords={"reading": range(4)}) as model:
        w = pm.Beta("w", 2, 2)
        n = pm.DiscreteWeibull("n", 0.6, 0.4)
        means, weights = pm.math.stack([n, n - WRAP]), pm.math.stack([1 - w, w])
        pm.NormalMixture("y", weights, means, sigma=[100.0, 3.0], observed=READINGS, dims="reading")
    return model


def counter_truth():
    k, y = K[:6000], READINGS[:, None]  # beyond, the prior's differences are too small
    prior = np.log(0.6 ** (k**0.4) - 0.6 ** ((k + 1) ** 0.4))
    plain, wrapped = norm.logpdf(y, k, 100.0), norm.logpdf(y, k - WRAP, 3.0)

    seen = lambda w: np.logaddexp(np.log1p(-w) + plain, np.log(w) + wrapped)  # noqa: E731
    return evidence(lambda w: prior + seen(w).sum(axis=0), beta(2, 2), 0.0, 1.0)


def stars():
    with pm.Model(coords={"star": ["a", "b"]}) as model:
        bonus = pm.Data("bonus", BONUS, dims="star")
        tau = pm.HalfNormal("tau", 2.0)
        n = pm.ZeroInflatedPoisson("n", 0.8, 9.0, dims="star")
        near = pm.logp(pm.Normal.dist(NEAR, 2.0 + tau), n)
        far = pm.logp(pm.Normal.dist(FAR, 1.5), n) + bonus
        pm.Potential("seen", pm.math.logaddexp(near, far), dims="star")
    return model


def stars_truth():
    k, near = K[:2000], NEAR[:, None]
    prior = inflated(poisson.logpmf(k, 9.0))
    far = norm.logpdf(k, FAR[:, None], 1.5) + BONUS[:, None]

    both = lambda s: np.logaddexp(norm.logpdf(k, near, 2.0 + s), far)  # noqa: E731
    return evidence(lambda s: prior + both(s), halfnorm(scale=2.0), 0.0, 20.0)


def nests():
    with pm.Model(coords={"nest": ["north", "south", "west"]}) as model:
        lam = pm.Gamma("lam", 2, 0.2)
        c = pm.LogNormal("c", np.log(0.5), 0.1)
        eggs = pm.HurdlePoisson("eggs", psi=0.6, mu=lam, dims="nest")
        pm.Poisson("chicks", c * eggs + 0.05, observed=CHICKS, dims="nest")
    return model


def nests_truth():
    k, (lam, w_lam), (z, w_z) = K[:1500], rule(0.0, 200.0), rule(-9.0, 9.0)
    prior = 0.6 * poisson.pmf(k, lam[:, None]) / -np.expm1(-lam[:, None])
    prior[:, 0] = 0.4
    rate = 0.5 * np.exp(0.1 * z) * k[:, None] + 0.05
    each = np.log(np.prod([prior @ poisson.pmf(y, rate) for y in CHICKS], axis=0) + 1e-300)
    log_lam = (w_lam + gamma.logpdf(lam, 2, scale=5.0))[:, None]
    return float(logsumexp(each + log_lam + w_z + norm.logpdf(z)))


def survey():
    with pm.Model(coords={"audit": range(2)}) as model:
        n = pm.Geometric("n", 0.02)
        a = pm.Exponential("a", 0.25)
        pm.BetaBinomial("visit", alpha=a + 1, beta=a + 1, n=n, observed=34)
        pm.StudentT("y", nu=2, mu=n, sigma=3.0, observed=[1229.0, 1233.0], dims="audit")
    return model


def survey_truth():
    k = K[34:]
    fixed = geom.logpmf(k, 0.02) + sum(t.logpdf(y, 2, k, 3.0) for y in (1229.0, 1233.0))
    fixed += gammaln(k + 1) - gammaln(35) - gammaln(k - 33)

    seen = lambda a: betaln(35 + a, k - 33 + a) - betaln(a + 1, a + 1)  # noqa: E731
    return evidence(lambda a: fixed + seen(a), expon(scale=4.0), 0.0, 90.0)


def batches():
    with pm.Model(coords={"repeat": range(3), "batch": ["old", "new"]}) as model:
        rest = pm.Exponential("rest", 4.0)
        n = pm.Poisson("n", 16.0, dims="batch")
        mu = 2 * n + rest
        pm.Gamma("y", mu=mu, sigma=0.03 * mu, observed=WEIGHTS, dims=("repeat", "batch"))
    return model


def batches_truth():
    y, k, prior = WEIGHTS[:, :, None], K[:4000], poisson.logpmf(K[:4000], 16.0)
    seen = lambda b: gamma.logpdf(y, 0.03**-2, scale=(2 * k + b) * 0.03**2)  # noqa: E731
    return evidence(lambda b: prior + seen(b).sum(axis=0), expon(scale=0.25), 0.0, 12.0)


MODELS = {
    "wells, near": (wells, wells_truth),
    "titres, far": (titres, titres_truth),
    "counter that wraps, two peaks": (counter, counter_truth),
    "two stars, two peaks each": (stars, stars_truth),
    "nests, one far": (nests, nests_truth),
    "survey and audit, two peaks": (survey, survey_truth),
    "batches, one far": (batches, batches_truth),
}
