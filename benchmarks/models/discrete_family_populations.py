"""Animals, dice and photons: random models whose discrete unknowns are members, sizes or counts."""

import numpy as np
import pymc as pm
from scipy.special import expit, gammaln
from scipy.stats import beta, binom, gamma, norm, poisson

from benchmarks.truths.discrete_family_truth import (
    Problem,
    of_beta,
    of_gamma,
    of_normal,
    pick,
    whole,
)


def capture_recapture(rng: np.random.Generator) -> Problem:
    """Animals in or out of the population; alike, or changed by the trap, or of two groups."""
    form = pick(rng, "alike", "trap", "groups")
    animals, visits = whole(rng, 15, 40), whole(rng, 3, 7)
    a, b = (whole(rng, 1, 4) for _ in "ab")
    rates, group = rng.beta(a, b, 2), (rng.random(animals) < rng.uniform(0.3, 0.7)).astype(int)
    seen = np.zeros((animals, visits), int)
    for t in range(visits):
        which = {"alike": 0 * group, "trap": seen.any(axis=1).astype(int), "groups": group}[form]
        seen[:, t] = rng.random(animals) < rates[which]
    seen = np.concatenate([seen[seen.any(axis=1)], np.zeros((animals, visits), int)])
    m, count, caught = len(seen), seen.sum(axis=1), seen.any(axis=1)
    later = (np.cumsum(seen, axis=1) - seen > 0).astype(int)
    k = 1 if form == "alike" else 2
    with pm.Model() as model:
        psi, p = pm.Beta("psi", 1, 1), pm.Beta("p", a, b, shape=k)
        z = pm.Bernoulli("z", psi, shape=m, initval=caught.astype(int))
        if form == "trap":
            pm.Bernoulli("y", z[:, None] * p[later], observed=seen)
        elif form == "alike":
            pm.Binomial("y", visits, z * p[0], observed=count)
        else:
            share = pm.Beta("share", 2, 2)
            g = pm.Bernoulli("g", share, shape=m)
            pm.Binomial("y", visits, z * p[g], observed=count)

    first = (seen * (1 - later)).sum(axis=1), ((1 - seen) * (1 - later)).sum(axis=1)
    again = (seen * later).sum(axis=1), ((1 - seen) * later).sum(axis=1)
    rows, times = np.unique(np.stack([*first, *again], axis=1), axis=0, return_counts=True)

    def log_sum(psi: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        p, q = rest[:k], rest[-1]
        out = beta.logpdf(p[0], a, b) + (beta.logpdf(p[1], a, b) if k == 2 else 0)
        out = out + (beta.logpdf(q, 2, 2) if form == "groups" else 0)
        for (hit, miss, hit2, miss2), n in zip(rows, times, strict=True):
            if form == "trap":
                mine = p[0] ** hit * (1 - p[0]) ** miss * p[1] ** hit2 * (1 - p[1]) ** miss2
            elif form == "alike":
                mine = binom.pmf(hit + hit2, visits, p[0])
            else:
                mine = (1 - q) * binom.pmf(hit + hit2, visits, p[0])
                mine = mine + q * binom.pmf(hit + hit2, visits, p[1])
            out = out + n * np.log(psi * mine + (1 - psi) * (hit + hit2 == 0))
        return out

    axes = tuple(
        of_beta(48 if form == "groups" else 80) for _ in range(k + (2 if form == "groups" else 1))
    )
    return Problem(model, f"{form}, {m} animals", axes, log_sum)


def hidden_counts(rng: np.random.Generator) -> Problem:
    """Animals at each of some sites, counted repeatedly, or of one place, removed as caught."""
    form = pick(rng, "sites", "removal")
    return (sites if form == "sites" else removal)(rng)


def sites(rng: np.random.Generator) -> Problem:
    """Mixture of binomial laws over unknown sizes, which have no upper bound."""
    n, visits = whole(rng, 8, 21), whole(rng, 2, 5)
    shape, rate = whole(rng, 2, 5), float(rng.uniform(0.2, 0.6))
    a, b = whole(rng, 1, 4), whole(rng, 1, 4)
    y = rng.binomial(
        rng.poisson(rng.gamma(shape, 1 / rate), n)[:, None], rng.beta(a, b), (n, visits)
    )
    with pm.Model() as model:
        lam, p = pm.Gamma("lam", shape, rate), pm.Beta("p", a, b)
        size = pm.Poisson("size", lam, shape=n, initval=y.max(axis=1))
        pm.Binomial("y", size[:, None], p, shape=y.shape, observed=y)

    sizes = np.arange(300)[:, None]

    def log_sum(lam: np.ndarray, p: np.ndarray) -> np.ndarray:
        prior = poisson.pmf(sizes, np.ravel(lam))
        out = gamma.logpdf(lam, shape, scale=1 / rate) + beta.logpdf(p, a, b)
        for row in y:
            seen = np.prod([binom.pmf(value, sizes, np.ravel(p)) for value in row], axis=0)
            out = out + np.log(prior.T @ seen).reshape(np.broadcast(lam, p).shape)
        return out

    axes = (of_gamma(shape, rate, 90), of_beta(90))
    told = f"sites, {n} × {visits}"
    return Problem(model, told, axes, log_sum)


def removal(rng: np.random.Generator) -> Problem:
    """One unknown size, and catches that are not put back; the chance depends on the effort."""
    n, visits = whole(rng, 40, 200), whole(rng, 3, 7)
    upper, effort = int(n * rng.uniform(1.5, 3)), rng.normal(0, 1, visits)
    level, slope = rng.normal(-1, 0.5), rng.normal(0, 0.5)
    catches = np.zeros(visits, int)
    for t in range(visits):
        catches[t] = rng.binomial(n - catches.sum(), expit(level + slope * effort[t]))
    total, before = int(catches.sum()), np.cumsum(catches) - catches
    with pm.Model() as model:
        a, b = pm.Normal("a", -1, 1), pm.Normal("b", 0, 1)
        size = pm.DiscreteUniform("size", total, upper)
        pm.Binomial("catch", size - before, pm.math.invlogit(a + b * effort), observed=catches)

    def log_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        rest = -np.inf
        no = sum(-np.logaddexp(0, a + b * x) for x in effort)
        for size in range(total, upper + 1):
            ways = gammaln(size + 1) - gammaln(size - total + 1)
            rest = np.logaddexp(rest, ways + (size - total) * no)
        out = norm.logpdf(a, -1, 1) + norm.logpdf(b, 0, 1) - np.log(upper - total + 1)
        # What an animal that is caught at t has missed before.
        for t, (c, x) in enumerate(zip(catches, effort, strict=True)):
            out = out + c * -np.logaddexp(0, -a - b * x) - gammaln(c + 1)
            out = out - catches[t + 1 :].sum() * np.logaddexp(0, a + b * x)
        return out + rest

    axes = (of_normal(-1, 1, 120), of_normal(0, 1, 120))
    told = f"removal, {total} of at most {upper}"
    return Problem(model, told, axes, log_sum)


def dice(rng: np.random.Generator) -> Problem:
    """A hidden die says how often a coin is thrown, a hidden draw which of two coins it is."""
    n, loaded = whole(rng, 20, 70), rng.dirichlet(np.full(6, rng.uniform(1, 6)))
    a, b, c = (whole(rng, 1, 5) for _ in "abc")
    coins = rng.beta(a, b, 2)[(rng.random(n) < rng.beta(c, c)).astype(int)]
    y = rng.binomial(1 + rng.choice(6, n, p=loaded), coins)
    with pm.Model() as model:
        share, heads = pm.Beta("share", c, c), pm.Beta("heads", a, b, shape=2)
        pips = pm.Categorical("pips", loaded, shape=n, initval=np.full(n, 5))
        coin = pm.Bernoulli("coin", share, shape=n)
        pm.Binomial("y", pips + 1, heads[coin], observed=y)

    def log_sum(share: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        out = beta.logpdf(share, c, c) + beta.logpdf(first, a, b) + beta.logpdf(second, a, b)
        for value, times in zip(*np.unique(y, return_counts=True), strict=True):
            ours, theirs = (
                sum(loaded[j] * binom.pmf(value, j + 1, p) for j in range(6))
                for p in (first, second)
            )
            out = out + times * np.log((1 - share) * ours + share * theirs)
        return out

    return Problem(model, f"{n} throws", (of_beta(70),) * 3, log_sum)


def noisy_counts(rng: np.random.Generator) -> Problem:
    """Photons in a pixel, read as an offset and a gain times their number, with noise."""
    n, shape, rate = whole(rng, 8, 25), whole(rng, 2, 5), float(rng.uniform(0.5, 1.5))
    power, scale = whole(rng, 3, 7), float(rng.uniform(0.3, 1.5))
    gain, lam = rng.gamma(power, 1 / power), rng.gamma(shape, 1 / rate)
    sd = float(rng.uniform(0.12, 0.4) * gain)
    y = rng.normal(rng.normal(0, scale) + gain * rng.poisson(lam, n), sd)
    with pm.Model() as model:
        lam, gain = pm.Gamma("lam", shape, rate), pm.Gamma("gain", power, power)
        offset = pm.Normal("offset", 0, scale)
        photons = pm.Poisson("photons", lam, shape=n)
        pm.Normal("y", offset + gain * photons, sd, observed=y)

    def log_prior(lam: np.ndarray, gain: np.ndarray, offset: np.ndarray) -> np.ndarray:
        out = gamma.logpdf(lam, shape, scale=1 / rate) + gamma.logpdf(gain, power, scale=1 / power)
        return out + norm.logpdf(offset, 0, scale)

    counts = np.arange(120)

    def log_sum(lam: np.ndarray, gain: np.ndarray, offset: np.ndarray) -> np.ndarray:
        out, chances = log_prior(lam, gain, offset), poisson.pmf(counts, np.reshape(lam, (-1, 1)))
        mean = np.ravel(offset + 0 * gain)[:, None] + np.ravel(gain + 0 * offset)[:, None] * counts
        for value in y:
            mixed = chances @ np.exp(-(((value - mean) / sd) ** 2) / 2).T
            out = out + np.log(mixed).reshape(np.shape(out))
        return out - n * np.log(sd * np.sqrt(2 * np.pi))

    axes = (of_gamma(shape, rate, 50), of_gamma(power, power, 160), of_normal(0, scale, 140))
    return Problem(model, f"{n} pixels", axes, log_sum)
