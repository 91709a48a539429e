"""log C(T) of the conjugate models against brute force: sums over states, quadrature."""

from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats as sps
from scipy.special import gammaln, logsumexp, roots_hermitenorm

from pymc_tempering.variational.conjugate import LDA, FactorialMixture, GaussianMixture, moments
from pymc_tempering.variational.conjugate.moments import log_tempered_moment

TEMPERATURES = np.array([1.0, 1.3, 2.0, 5.0])
X = np.linspace(-40.0, 40.0, 8001)


def hermite(sd, n=40):
    nodes, weights = roots_hermitenorm(n)
    return sd * nodes, weights / weights.sum()


def brute_factorial(n_data, temperature, *, pi=0.3, sd=0.25, prior_sd=0.8):
    """K = 2 components in one dimension: every z, x on a grid, mu by Gauss-Hermite."""
    nodes, weights = hermite(prior_sd, 12)
    total = 0.0
    for (m1, w1), (m2, w2) in product(zip(nodes, weights, strict=True), repeat=2):
        local = sum(
            integrate.trapezoid(
                (sps.norm.pdf(X, a * m1 + b * m2, sd) * pi ** (a + b) * (1 - pi) ** (2 - a - b))
                ** (1.0 / temperature),
                X,
            )
            for a, b in product((0, 1), repeat=2)
        )
        total += w1 * w2 * local**n_data
    return np.log(total)


def test_factorial_mixture():
    model = FactorialMixture(2, sd=0.25, prior_sd=0.8, probability=0.3)
    stated = model.log_partition(np.zeros((2, 1)), TEMPERATURES)
    exact = [brute_factorial(2, t) for t in TEMPERATURES]
    np.testing.assert_allclose(stated, exact, atol=1e-8)
    # planted: Appendix C as printed leaves the density's own constant out
    paper = stated - 2 * 0.5 * (1 - 1 / TEMPERATURES) * np.log(2 * np.pi * 0.25**2)
    assert np.abs(paper - exact)[1:].min() > 0.01


def brute_gaussian(n_data, temperature, a, *, sd=0.7, prior_sd=1.5):
    """K = 2: weights and means by quadrature, x on a grid, z summed over."""
    nodes, weights = hermite(prior_sd, 6)
    s = 1.0 / temperature

    def density(p):
        value = 0.0
        for (m1, w1), (m2, w2) in product(zip(nodes, weights, strict=True), repeat=2):
            local = p**s * tempered[m1] + (1 - p) ** s * tempered[m2]
            value += w1 * w2 * local**n_data
        return value * sps.beta.pdf(p, a, a)

    tempered = {m: integrate.trapezoid(sps.norm.pdf(X, m, sd) ** s, X) for m in nodes}
    return np.log(2.0 * integrate.quad(density, 0.0, 0.5, epsabs=0, epsrel=1e-9, limit=400)[0])


@pytest.mark.parametrize("concentration", [0.6, 2.0])
def test_gaussian_mixture(concentration):
    model = GaussianMixture(2, sd=0.7, prior_sd=1.5, concentration=concentration)
    stated = model.log_partition(np.zeros((3, 1)), TEMPERATURES)
    exact = [brute_gaussian(3, t, concentration) for t in TEMPERATURES]
    np.testing.assert_allclose(stated, exact, atol=1e-7)


@pytest.mark.parametrize(("size", "power"), [(2, 5), (3, 6), (5, 4)])
@pytest.mark.parametrize("a", [0.05, 1.0, 7.0])
def test_tempered_moment_is_the_multinomial_sum(size, power, a):
    s = 0.4
    logs = [
        gammaln(power + 1)
        - gammaln(np.add(n, 1)).sum()
        + gammaln(a + s * np.array(n)).sum()
        - size * gammaln(a)
        + gammaln(size * a)
        - gammaln(size * a + s * power)
        for n in product(range(power + 1), repeat=size)
        if sum(n) == power
    ]
    assert log_tempered_moment(a, size, power, s) == pytest.approx(logsumexp(logs), abs=1e-9)


@pytest.mark.parametrize("a", [0.05, 1.0, 20.0])
def test_tempered_moment_of_many_data(a):
    """N = 5000, by quadrature over p in log space; also at T = 1, where it is 1."""
    s, n = 0.5, 5000
    logit = np.linspace(-120.0 if a < 0.1 else -40.0, 0.0, 400_001)
    log_p, log_1p = -np.logaddexp(0, -logit), -np.logaddexp(0, logit)
    log_f = n * np.logaddexp(s * log_p, s * log_1p) + a * (log_p + log_1p)
    log_f += gammaln(2 * a) - 2 * gammaln(a) + np.log(2.0 * (logit[1] - logit[0]))
    log_f[-1] -= np.log(2.0)
    assert log_tempered_moment(a, 2, n, s) == pytest.approx(logsumexp(log_f), abs=2e-3)
    assert log_tempered_moment(a, 2, n, 1.0) == 0.0
    assert log_tempered_moment(a, 3, 50, 1.0 - 1e-9) == pytest.approx(0.0, abs=1e-6)


def brute_lda(model, lengths, n_words, temperature):
    """Joint form: the sum over all words and topics of every token, with Dirichlet moments."""
    s, size = 1.0 / temperature, model.n_topics

    def log_mean(counts, a):
        counts = np.asarray(counts, dtype=float)
        value = gammaln(a + s * counts) - gammaln(a)
        total = a * counts.shape[-1]
        return (value.sum(-1) + gammaln(total) - gammaln(total + s * counts.sum(-1))).sum()

    cells, logs = list(product(range(size), range(n_words))), []
    document = np.repeat(np.arange(len(lengths)), lengths)
    for tokens in product(cells, repeat=sum(lengths)):
        topics, theta = np.zeros((size, n_words)), np.zeros((len(lengths), size))
        for d, (k, v) in zip(document, tokens, strict=True):
            topics[k, v] += 1
            theta[d, k] += 1
        logs.append(log_mean(topics, model.word_prior) + log_mean(theta, model.topic_prior))
    return logsumexp(logs)


TINY = LDA(2, alpha=0.4, eta=0.7)
COUNTS = np.array([[1, 1], [2, 0]])


def lower_bounds(model, data, grid):
    """Jensen's bound on log C(T), and that of the terms in which all words have one topic."""
    inv = 1.0 / np.asarray(grid)
    per_word = model.log_partition_per_word(data.shape[1], inv)
    return data.sum() * per_word, model.log_one_topic(data, inv)


def test_lda_joint_form_and_its_bounds():
    grid = TEMPERATURES[:3]
    exact = np.array([brute_lda(TINY, [2, 2], 2, t) for t in grid])
    assert exact[0] == pytest.approx(0.0, abs=1e-9)
    jensen, one_topic = lower_bounds(TINY, TINY.check(COUNTS), grid)
    # what the paper takes for an upper bound is a lower one, by Jensen's inequality
    assert (jensen <= exact + 1e-9).all()
    assert (jensen < exact - 0.01)[2]
    assert (one_topic <= exact).all()


def test_closed_form_mean_is_the_mean():
    """E[sum_kv (theta_k beta_kv)^s] by draws from the priors."""
    rng, inv = np.random.default_rng(0), np.array([0.8, 0.3])
    beta = rng.dirichlet(np.full(7, 0.1), size=(400, 3))
    theta = rng.dirichlet(np.full(3, 0.2), size=(400, 200))
    by_beta = np.array(
        [np.einsum("itk,ik->it", theta**s, (beta**s).sum(axis=2)).mean(axis=1) for s in inv]
    )
    error = by_beta.std(axis=1) / 20.0
    stated = np.exp(LDA(3, alpha=0.2, eta=0.1).log_partition_per_word(7, inv))
    assert (np.abs(by_beta.mean(axis=1) - stated) < 4.0 * error).all()


@pytest.mark.parametrize(("a", "size"), [(0.02, 2000), (0.5, 40)])
def test_saddle_point_of_a_tempered_moment_is_the_power_of_the_series(a, size, monkeypatch):
    def values():
        return np.array([log_tempered_moment(a, size, 17_000, s) for s in (0.5, 0.9, 0.9999)])

    by_saddle_point, few_orders = values(), moments._few_orders
    monkeypatch.setattr(moments, "_few_orders", lambda n: (few_orders(n)[0], 0.0))
    unweighted = values()  # planted: each order counted once
    monkeypatch.setattr(moments, "MANY", np.inf)
    exact = values()
    np.testing.assert_allclose(by_saddle_point, exact, atol=0.01)
    assert np.abs(unweighted - exact).max() > 0.02


def test_lda_takes_the_larger_of_its_lower_bounds():
    # a flat prior of the words favors Jensen's bound, a sparse one the terms of one topic
    counts, temperatures, larger = np.full((40, 60), 7), np.array([1.0, 1.2, 1.5]), []
    for eta in (2.0, 0.02):
        model = LDA(20, alpha=0.05, eta=eta)
        checked = model.check(counts)
        jensen, one = lower_bounds(model, checked, temperatures)
        stated = model.log_partition(checked, temperatures)
        np.testing.assert_allclose(stated, np.maximum(jensen, one), rtol=1e-12)
        larger.append((one > jensen)[1:].all())
    assert larger == [False, True]
