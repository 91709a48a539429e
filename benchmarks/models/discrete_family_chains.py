"""Hidden Markov chains and change points: random models whose discrete unknowns are in a row."""

from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.stats import beta, gamma, norm, poisson

from benchmarks.truths import discrete_family_truth as sums


def forward(seen: Sequence[Sequence[np.ndarray]], move: Sequence[Sequence]) -> np.ndarray:
    """Log probability of a chain's data: `seen[t][k]` in state k, which starts anywhere."""
    k = len(move)
    now = [p / k for p in seen[0]]
    for row in seen[1:]:
        now = [sum(now[i] * move[i][j] for i in range(k)) * row[j] for j in range(k)]
    return np.log(sum(now))


def staying(rng: np.random.Generator, k: int) -> tuple[int, int, np.ndarray]:
    """Draw the prior of the chance to stay, and a matrix of moves from it."""
    a, b = sums.whole(rng, 3, 8), sums.whole(rng, 1, 3)
    stay = rng.beta(a, b, 2) if k == 2 else np.full(k, rng.uniform(0.6, 0.9))
    return a, b, np.diag(stay) + (1 - np.eye(k)) * ((1 - stay) / (k - 1))[:, None]


def walk(rng: np.random.Generator, move: np.ndarray, steps: int) -> np.ndarray:
    """Draw the states of a chain."""
    states = [int(rng.integers(len(move)))]
    for _ in range(steps - 1):
        states.append(int(rng.choice(len(move), p=move[states[-1]])))
    return np.array(states)


def moves(stay: Sequence) -> list[list]:
    """Matrix of moves between two states by their chances to stay."""
    return [[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]]


def hidden_markov(rng: np.random.Generator) -> sums.Problem:
    """Chain of two or three states, one Categorical for each step; normal readings."""
    k, steps = sums.whole(rng, 2, 4), sums.whole(rng, 15, 41)
    scale, sd = float(rng.uniform(1.5, 4)), float(rng.uniform(0.5, 1.2))
    a, b, move = staying(rng, k)
    y = rng.normal(rng.normal(0, scale, k)[walk(rng, move, steps)], sd)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, scale, shape=k)
        table = pt.stack(moves(pm.Beta("stay", a, b, shape=2))) if k == 2 else pt.constant(move)
        states = [pm.Categorical("s0", np.full(k, 1 / k))]
        for t in range(1, steps):
            states.append(pm.Categorical(f"s{t}", table[states[-1]]))
        pm.Normal("y", mu[pt.stack(states)], sd, observed=y)

    def log_sum(*place: np.ndarray) -> np.ndarray:
        stay, mu = (place[:2], place[2:]) if k == 2 else ((), place)
        seen = [[norm.pdf(value, m, sd) for m in mu] for value in y]
        out = sum(norm.logpdf(m, 0, scale) for m in mu) + sum(beta.logpdf(s, a, b) for s in stay)
        return out + forward(seen, moves(stay) if k == 2 else move)

    axes = (
        *[sums.of_beta(24)] * (2 if k == 2 else 0),
        *[sums.of_normal(0, scale, 300 if k == 2 else 170)] * k,
    )
    told = f"{k} states, {steps} steps"
    return sums.Problem(model, told, axes, log_sum)


def markov_potential(rng: np.random.Generator) -> sums.Problem:
    """Chain of two or three states as one vector, whose moves are a Potential; counts."""
    k, steps = sums.whole(rng, 2, 4), sums.whole(rng, 15, 41)
    shape, rate = sums.whole(rng, 2, 5), float(rng.uniform(0.2, 1))
    a, b, move = staying(rng, k)
    law = sums.pick(rng, "Categorical", "DiscreteUniform")
    y = rng.poisson(rng.gamma(shape, 1 / rate, k)[walk(rng, move, steps)])
    with pm.Model() as model:
        rates = pm.Gamma("rates", shape, rate, shape=k)
        table = pt.stack(moves(pm.Beta("stay", a, b, shape=2))) if k == 2 else pt.constant(move)
        if law == "Categorical":
            s = pm.Categorical("s", np.full(k, 1 / k), shape=steps)
        else:
            s = pm.DiscreteUniform("s", 0, k - 1, shape=steps)
        pm.Potential("moves", pt.log(table[s[:-1], s[1:]]).sum())
        pm.Poisson("y", rates[s], observed=y)

    def log_sum(*place: np.ndarray) -> np.ndarray:
        stay, rates = (place[:2], place[2:]) if k == 2 else ((), place)
        seen = [[poisson.pmf(value, r) for r in rates] for value in y]
        out = sum(gamma.logpdf(r, shape, scale=1 / rate) for r in rates)
        out = out + sum(beta.logpdf(s, a, b) for s in stay)
        # The law of the vector is not that of a chain: all its values have one probability.
        return out - (steps - 1) * np.log(k) + forward(seen, moves(stay) if k == 2 else move)

    axes = (
        *[sums.of_beta(24)] * (2 if k == 2 else 0),
        *[sums.of_gamma(shape, rate, 100 if k == 2 else 150)] * k,
    )
    told = f"{law}, {k} states, {steps} steps"
    return sums.Problem(model, told, axes, log_sum)


def two_switches(rng: np.random.Generator) -> sums.Problem:
    """Change point, and a switch at each time: a zero of its own kind, or a wild reading."""
    form, n = sums.pick(rng, "zeros", "wild"), sums.whole(rng, 15, 51)
    shape, rate, c = sums.whole(rng, 2, 5), float(rng.uniform(0.2, 1)), sums.whole(rng, 1, 6)
    scale, sd = float(rng.uniform(1, 4)), float(rng.uniform(0.3, 1))
    wide = sd * float(rng.uniform(4, 10))
    after, odd = np.arange(n) >= rng.integers(1, n), rng.random(n) < rng.beta(2, 2 + c)
    if form == "zeros":
        y = rng.poisson(rng.gamma(shape, 1 / rate, 2)[after.astype(int)]) * ~odd
    else:
        y = rng.normal(rng.normal(0, scale, 2)[after.astype(int)], np.where(odd, wide, sd))
    with pm.Model() as model:
        switch, share = pm.DiscreteUniform("switch", 1, n - 1), pm.Beta("share", 1, c)
        odd = pm.Bernoulli("odd", share, shape=n, initval=np.zeros(n, int))
        before = np.arange(n) < switch
        if form == "zeros":
            early, late = pm.Gamma("early", shape, rate), pm.Gamma("late", shape, rate)
            pm.Poisson("y", pt.switch(before, early, late) * (1 - odd), observed=y)
        else:
            early, late = pm.Normal("early", 0, scale), pm.Normal("late", 0, scale)
            spread = pt.switch(pt.eq(odd, 1), wide, sd)
            pm.Normal("y", pt.switch(before, early, late), spread, observed=y)

    def log_prior(mean: np.ndarray) -> np.ndarray:
        if form == "zeros":
            return gamma.logpdf(mean, shape, scale=1 / rate)
        return norm.logpdf(mean, 0, scale)

    def of_one(value: float, mean: np.ndarray, share: np.ndarray) -> np.ndarray:
        if form == "zeros":
            return np.log((1 - share) * poisson.pmf(value, mean) + share * (value == 0))
        clean, wild = norm.pdf(value, mean, sd), norm.pdf(value, mean, wide)
        return np.log((1 - share) * clean + share * wild)

    def log_sum(share: np.ndarray, early: np.ndarray, late: np.ndarray) -> np.ndarray:
        first = np.cumsum([of_one(value, early, share) for value in y], axis=0)
        last = np.cumsum([of_one(value, late, share) for value in y[::-1]], axis=0)
        out = -np.inf
        for s in range(1, n):
            out = np.logaddexp(out, first[s - 1] + last[n - s - 1])
        prior = log_prior(early) + log_prior(late) + beta.logpdf(share, 1, c)
        return out + prior - np.log(n - 1)

    mean = sums.of_gamma(shape, rate, 90) if form == "zeros" else sums.of_normal(0, scale, 120)
    axes = (sums.of_beta(32), mean, mean)
    told = f"{form}, {n} times"
    return sums.Problem(model, told, axes, log_sum)
