"""Categories that are missing, noted wrongly or never seen: random models with unknown labels."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit, gammaln
from scipy.stats import beta, gamma, norm, poisson, t as student

from benchmarks.truths.discrete_family_truth import (
    Problem,
    of_beta,
    of_gamma,
    of_normal,
    pick,
    whole,
)


def imputed_covariate(rng: np.random.Generator) -> Problem:
    """Regression on a category or a count that is missing here and there."""
    form = pick(rng, "category", "count")
    return (missing_category if form == "category" else missing_count)(rng)


def masked(rng: np.random.Generator, values: np.ndarray) -> np.ma.MaskedArray:
    """Some of the values, a tenth to a third, taken away."""
    n = values.size
    gone = whole(rng, n // 10 + 1, n // 3 + 1)
    mask = np.isin(np.arange(n), rng.choice(n, gone, replace=False))
    return np.ma.masked_array(values, mask)


def missing_category(rng: np.random.Generator) -> Problem:
    """Groups of two or three levels in a regression; the share of two is unknown."""
    n, k = whole(rng, 18, 50), whole(rng, 2, 4)
    scale, sd = float(rng.uniform(1, 3)), float(rng.uniform(0.5, 1.2))
    share = rng.dirichlet(np.full(k, 3.0))
    x = rng.uniform(-1, 1, n)
    g = masked(rng, rng.choice(k, n, p=share))
    gone = g.mask
    y = rng.normal(rng.normal(0, scale, k)[g.data] + rng.normal() * x * (k == 2), sd)
    with pm.Model() as model:
        level = pm.Normal("level", 0, scale, shape=k)
        if k == 2:
            yes, b = pm.Beta("yes", 2, 2), pm.Normal("b", 0, 1)
            group = pm.Bernoulli("group", yes, observed=g)
            pm.Normal("y", level[group] + b * x, sd, observed=y)
        else:
            group = pm.Categorical("group", share, observed=g)
            pm.Normal("y", level[group], sd, observed=y)

    def log_sum(*place: np.ndarray) -> np.ndarray:
        (yes, b), levels = (place[:2], place[2:]) if k == 2 else ((share[1], 0.0), place)
        chances = [1 - yes, yes] if k == 2 else share
        out = sum(norm.logpdf(a, 0, scale) for a in levels)
        out = out + (beta.logpdf(yes, 2, 2) + norm.logpdf(b) if k == 2 else 0)
        for j, level in enumerate(levels):
            mine = ~gone & (g.data == j)
            pairs = zip(y[mine], x[mine], strict=True)
            square = sum((value - level - b * where) ** 2 for value, where in pairs)
            out = out - square / (2 * sd**2) + mine.sum() * np.log(chances[j])
        product = 1.0
        for value, where in zip(y[gone], x[gone], strict=True):
            parts = zip(chances, levels, strict=True)
            product = product * sum(
                q * np.exp(-(((value - a - b * where) / sd) ** 2) / 2) for q, a in parts
            )
        return out + np.log(product) - n * np.log(sd * np.sqrt(2 * np.pi))

    axes = (*([of_beta(24), of_normal(0, 1, 40)] if k == 2 else []), *[of_normal(0, scale, 70)] * k)
    told = f"{k} levels, {gone.sum()} of {n} missing"
    return Problem(model, told, axes, log_sum)


def missing_count(rng: np.random.Generator) -> Problem:
    """Counts as the covariate of counts; a missing one has no upper bound."""
    n = whole(rng, 18, 50)
    shape, rate, slope = whole(rng, 2, 5), float(rng.uniform(0.5, 2)), float(rng.uniform(0.1, 0.3))
    x = masked(rng, rng.poisson(rng.gamma(shape, 1 / rate), n))
    gone = x.mask
    y = rng.poisson(np.exp(rng.normal() + rng.normal(0, slope) * x.data))
    with pm.Model() as model:
        mean, a, b = pm.Gamma("mean", shape, rate), pm.Normal("a", 0, 1), pm.Normal("b", 0, slope)
        count = pm.Poisson("count", mean, observed=x)
        pm.Poisson("y", pm.math.exp(a + b * count), observed=y)

    def log_prior(mean: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        out = gamma.logpdf(mean, shape, scale=1 / rate) + norm.logpdf(a)
        return out + norm.logpdf(b, 0, slope)

    counts = np.arange(80)

    def log_sum(mean: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        out = log_prior(mean, a, b)
        for value, seen in zip(y[~gone], x.data[~gone], strict=True):
            out = out + value * (a + b * seen) - np.exp(a + b * seen) - gammaln(value + 1)
            out = out + seen * np.log(mean) - mean - gammaln(seen + 1)
        chances = poisson.pmf(counts, np.reshape(mean, (-1, 1)))
        line = np.ravel(a + 0 * b)[:, None] + np.ravel(b + 0 * a)[:, None] * counts
        for value in y[gone]:
            mixed = chances @ np.exp(value * line - np.exp(line) - gammaln(value + 1)).T
            out = out + np.log(mixed).reshape(np.shape(out))
        return out

    axes = (of_gamma(shape, rate, 60), of_normal(0, 1, 90), of_normal(0, slope, 90))
    told = f"counts, {gone.sum()} of {n} missing"
    return Problem(model, told, axes, log_sum)


def label_noise(rng: np.random.Generator) -> Problem:
    """Logistic regression whose outcomes are noted wrongly at times, by one rate or two."""
    form, n = pick(rng, "one rate", "two rates"), whole(rng, 20, 60)
    scale, c = float(rng.uniform(1, 2.5)), whole(rng, 1, 5)
    x, (a, b) = rng.normal(size=n), rng.normal(0, scale, 2)
    true = rng.random(n) < expit(a + b * x)
    wrong = rng.beta(1, 4, 2)[true.astype(int)]
    y = np.where(rng.random(n) < wrong, ~true, true).astype(int)
    k = 1 if form == "one rate" else 2
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, scale), pm.Normal("b", 0, scale)
        true = pm.Bernoulli("true", logit_p=a + b * x, shape=n)
        if k == 1:
            flip = pm.Beta("flip", 1, c)
            pm.Bernoulli("y", pm.math.switch(true, 1 - flip, flip), observed=y)
        else:
            false, miss = pm.Beta("false", 1, c), pm.Beta("miss", 1, c)
            pm.Bernoulli("y", true * (1 - miss) + (1 - true) * false, observed=y)

    def log_prior(a: np.ndarray, b: np.ndarray, *flips: np.ndarray) -> np.ndarray:
        out = norm.logpdf(a, 0, scale) + norm.logpdf(b, 0, scale)
        return out + sum(beta.logpdf(flip, 1, c) for flip in flips)

    def log_sum(a: np.ndarray, b: np.ndarray, *flips: np.ndarray) -> np.ndarray:
        product = 1.0
        for value, where in zip(y, x, strict=True):
            yes = expit(a + b * where)
            p = yes * (1 - flips[-1]) + (1 - yes) * flips[0]
            product = product * (p if value else 1 - p)
        return log_prior(a, b, *flips) + np.log(product)

    axes = (*[of_normal(0, scale, 80 if k == 1 else 60)] * 2, *[of_beta(36 if k == 1 else 28)] * k)
    told = f"{form}, {n} outcomes, Beta(1, {c})"
    return Problem(model, told, axes, log_sum)


def blood_groups(rng: np.random.Generator) -> Problem:
    """Groups A, B, AB and O of people: a genotype of six, or one allele of each parent."""
    form, n = pick(rng, "genotypes", "two alleles"), whole(rng, 15, 50)
    alpha, c = rng.integers(1, 4, 3), whole(rng, 10, 30)
    pairs = [(0, 0), (0, 2), (1, 1), (1, 2), (0, 1), (2, 2)]
    shown = np.array([[0, 2, 0], [2, 1, 1], [0, 1, 3]])
    freq, off = rng.dirichlet(alpha), rng.beta(1, c)
    mothers, fathers = (rng.choice(3, n, p=freq) for _ in "mf")
    y = shown[mothers, fathers]
    y = np.where(rng.random(n) < off, (y + rng.integers(1, 4, n)) % 4, y)
    right = np.eye(4)[shown if form == "two alleles" else [shown[pair] for pair in pairs]]
    with pm.Model() as model:
        freq, off = pm.Dirichlet("freq", alpha), pm.Beta("off", 1, c)
        table = right * (1 - off) + (1 - right) * off / 3
        if form == "two alleles":
            mother = pm.Categorical("mother", freq, shape=n)
            father = pm.Categorical("father", freq, shape=n)
            pm.Categorical("y", table[mother, father], observed=y)
        else:
            chance = pt.stack([freq[i] * freq[j] * (1 if i == j else 2) for i, j in pairs])
            genotype = pm.Categorical("genotype", chance, shape=n)
            pm.Categorical("y", table[genotype], observed=y)

    def log_sum(first: np.ndarray, second: np.ndarray, off: np.ndarray) -> np.ndarray:
        p, q = first, (1 - first) * second
        r = (1 - first) * (1 - second)
        groups = [p**2 + 2 * p * r, q**2 + 2 * q * r, 2 * p * q, r**2]
        size, left = alpha.sum(), alpha[1] + alpha[2]
        out = beta.logpdf(first, alpha[0], size - alpha[0]) + beta.logpdf(
            second, alpha[1], alpha[2]
        )
        out = out + beta.logpdf(off, 1, c) + 0 * left
        for j, chance in enumerate(groups):
            out = out + (y == j).sum() * np.log(chance * (1 - off) + (1 - chance) * off / 3)
        return out

    return Problem(model, f"{form}, {n} people", (of_beta(70),) * 3, log_sum)  # fmt: skip


def classes_of_lines(rng: np.random.Generator) -> Problem:
    """Two hidden classes with slopes of their own; outcomes are heavy-tailed, counts or ordered."""
    form, n = pick(rng, "Student", "Poisson", "ordered"), whole(rng, 20, 50)
    scale = float(rng.uniform(1, 3)) * (0.4 if form == "Poisson" else 1)
    nu, sd = float(rng.uniform(3, 8)), float(rng.uniform(0.4, 1))
    cuts = np.cumsum(rng.uniform(0.8, 2, whole(rng, 2, 5)))
    cuts = cuts - cuts.mean()
    x, c = rng.uniform(-2, 2, n), (rng.random(n) < rng.uniform(0.25, 0.75)).astype(int)
    mean = rng.normal() * (form != "ordered") + rng.normal(0, scale, 2)[c] * x
    y = {
        "Student": mean + sd * rng.standard_t(nu, n),
        "Poisson": rng.poisson(np.exp(mean)),
        "ordered": np.searchsorted(cuts, mean + rng.logistic(size=n)),
    }[form]
    with pm.Model() as model:
        share, slope = pm.Beta("share", 2, 2), pm.Normal("slope", 0, scale, shape=2)
        label = pm.Bernoulli("label", share, shape=n)
        mu = slope[label] * x
        mu = mu if form == "ordered" else pm.Normal("level", 0, 1) + mu
        if form == "Student":
            pm.StudentT("y", nu=nu, mu=mu, sigma=sd, observed=y)
        elif form == "Poisson":
            pm.Poisson("y", pm.math.exp(mu), observed=y)
        else:
            pm.OrderedLogistic("y", eta=mu, cutpoints=cuts, observed=y)

    def pmf(value: np.ndarray, mu: np.ndarray) -> np.ndarray:
        if form == "Student":
            return student.pdf((value - mu) / sd, nu) / sd
        if form == "Poisson":
            return np.exp(value * mu - np.exp(mu) - gammaln(value + 1))
        edges = np.concatenate([[-np.inf], cuts, [np.inf]])
        return expit(edges[np.asarray(value) + 1] - mu) - expit(edges[value] - mu)

    def log_prior(share: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        out = beta.logpdf(share, 2, 2) + norm.logpdf(rest[-2], 0, scale)
        out = out + norm.logpdf(rest[-1], 0, scale)
        return out if form == "ordered" else out + norm.logpdf(rest[0])

    def log_sum(share: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        level, product = 0.0 if form == "ordered" else rest[0], 1.0
        for value, where in zip(y, x, strict=True):
            ours, theirs = (pmf(value, level + slope * where) for slope in rest[-2:])
            product = product * (ours + share * (theirs - ours))
        return log_prior(share, *rest) + np.log(product)

    level = [] if form == "ordered" else [of_normal(0, 1, 36)]
    axes = (of_beta(20), *level, *[of_normal(0, scale, 100)] * 2)
    told = f"{form}, {n} outcomes"
    return Problem(model, told, axes, log_sum)
