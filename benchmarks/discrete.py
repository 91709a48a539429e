"""Models with discrete or circular unknowns beside exact evidences: default runs on one core.

Each model is compiled before, so that the CPU seconds are those of a run. The exact values come
from sums in closed form and from quadrature.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from common import RESULTS, save
from scipy.special import betaln, gammaln, i0e, logsumexp
from scipy.stats import binom, gamma, norm, poisson
from spike_and_slab import few, many

import pymc_tempering as pmt

MINES = """
4 5 4 1 0 4 3 4 0 6 3 3 4 0 2 6 3 3 5 4 5 3 1 4 4 1 5 5 3 4 2 5 2 2 3 4 2 1 3 2 2 1 1 1 1 3 0 0
1 0 1 1 0 0 3 1 0 3 2 2 0 1 1 1 0 1 0 1 0 0 0 2 1 0 0 0 1 1 0 2 3 3 1 1 2 1 1 1 1 2 3 3 0 0 0 1
4 0 0 0 1 0 0 0 0 0 1 0 0 1 0 1
"""
"""Disasters in British coal mines a year, 1851 to 1962 (Jarrett 1979)."""

HISTORIES = (np.arange(1, 16)[:, None] >> np.arange(4)) & 1
"""Of animals that were caught at least once, on four occasions."""


def mines() -> tuple[pm.Model, float]:
    """Switch point between two exponential rates."""
    y = np.array(MINES.split(), dtype=int)
    n = y.size
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", 0, n - 1)
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        pm.Poisson("y", pm.math.switch(np.arange(n) < switch, early, late), observed=y)
    before, s = np.cumsum(np.r_[0, y])[:-1], np.arange(n)
    parts = [(before, s), (y.sum() - before, n - s)]
    log_p = sum(gammaln(k + 1) - (k + 1) * np.log(m + 1) for k, m in parts)
    return model, float(logsumexp(log_p) - np.log(n) - gammaln(y + 1).sum())


def labels(n: int = 60) -> tuple[pm.Model, float]:
    """Two means, and a label for each datum."""
    rng = np.random.default_rng(1)
    y = np.where(rng.random(n) < 0.4, 1.2, -1.0) + 0.7 * rng.standard_normal(n)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3, shape=2)
        w = pm.Beta("w", 1, 1)
        label = pm.Categorical("label", pt.stack([1 - w, w]), shape=n)
        pm.Normal("y", mu[label], 0.7, observed=y)
    grid, step = np.linspace(-9, 9, 721, retstep=True)
    p = norm.pdf(y[:, None], grid, 0.7)
    prior = norm.logpdf(grid, 0, 3)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    parts = []
    for share, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        log_p = prior[:, None] + prior
        for row in p:
            log_p = log_p + np.log((1 - share) * row[:, None] + share * row + 1e-300)
        parts.append(np.log(weight) + logsumexp(log_p))
    return model, float(logsumexp(parts) + 2 * np.log(step))


def abundance(sites: int = 25, visits: int = 4) -> tuple[pm.Model, float]:
    """Animals at each site, of which each visit sees some (Royle 2004)."""
    rng = np.random.default_rng(3)
    y = rng.binomial(rng.poisson(12, sites)[:, None], 0.4, (sites, visits))
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.1)
        p = pm.Beta("p", 1, 1)
        count = pm.Poisson("count", rate, shape=sites)
        pm.Binomial("y", count[:, None], p, observed=y)
    nodes, weights = np.polynomial.legendre.leggauss(120)
    rates, step = np.linspace(0.05, 200, 4000, retstep=True)
    counts = np.arange(600)
    log_prior = poisson.logpmf(counts[:, None], rates)
    top = log_prior.max(axis=0)
    parts = []
    for share, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        seen = np.array([binom.logpmf(row, counts[:, None], share).sum(axis=1) for row in y])
        most = seen.max(axis=1, keepdims=True)
        sums = np.log(np.exp(seen - most) @ np.exp(log_prior - top) + 1e-300) + most + top
        log_p = sums.sum(axis=0) + gamma.logpdf(rates, 2, scale=10)
        parts.append(np.log(weight) + logsumexp(log_p) + np.log(step))
    return model, float(logsumexp(parts))


def hidden_chain(n: int = 12) -> tuple[pm.Model, float]:
    """Binary states in a chain with unknown transitions and levels, each a variable of its own."""
    rng = np.random.default_rng(12)
    states = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1])
    y = np.where(states == 1, 1.3, -1.2) + rng.standard_normal(n)
    prior = ((2.0, 6.0), (6.0, 2.0))
    with pm.Model() as model:
        up = pm.Beta("up", [a for a, _ in prior], [b for _, b in prior])
        level = pm.Normal("level", 0, 3, shape=2)
        state = [pm.Bernoulli("state_0", 0.5)]
        for t in range(1, n):
            state.append(pm.Bernoulli(f"state_{t}", up[state[-1]]))
        pm.Normal("y", level[pt.stack(state)], 1.0, observed=y)
    paths = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    log_p = np.full(len(paths), -np.log(2.0))
    for s, (a, b) in enumerate(prior):
        here = paths[:, :-1] == s
        rose = (here & (paths[:, 1:] == 1)).sum(axis=1)
        log_p += betaln(a + rose, b + here.sum(axis=1) - rose) - betaln(a, b)
        mine = paths == s
        k, total, squares = mine.sum(axis=1), mine @ y, mine @ y**2
        v = 1 + k * 9.0
        log_p += -0.5 * (k * np.log(2 * np.pi) + np.log(v) + squares - 9.0 * total**2 / v)
    return model, float(logsumexp(log_p))


def population(top: int = 600) -> tuple[pm.Model, float]:
    """Size of a closed population from four occasions of capture."""
    rng = np.random.default_rng(1214)
    caught = rng.uniform(size=(140, 4)) < [0.18, 0.30, 0.12, 0.22]
    found = np.bincount(caught @ (1 << np.arange(4)), minlength=16)[1:]

    def log_p(value: Any, size: Any, p: Any, histories: Any) -> Any:
        times, seen = pt.dot(value, histories), value.sum()
        ways = pt.gammaln(size + 1.0) - pt.gammaln(size - seen + 1.0)
        ways = ways - pt.gammaln(value + 1.0).sum()
        total = ways + (times * pt.log(p) + (size - times) * pt.log1p(-p)).sum()
        return pt.switch(size >= seen, total, -np.inf)

    with pm.Model() as model:
        size = pm.DiscreteUniform("size", 0, top - 1)
        p = pm.Beta("p", 1, 1, shape=4)
        pm.CustomDist(
            "found", size, p, HISTORIES.astype(float), logp=log_p,
            signature="(),(k),(h,k)->(h)", dtype="int64", observed=found,
        )  # fmt: skip
    sizes = np.arange(found.sum(), top)
    ways = gammaln(sizes + 1.0) - gammaln(sizes - found.sum() + 1.0) - gammaln(found + 1.0).sum()
    parts = sum(betaln(1 + k, 1 + sizes - k) for k in found @ HISTORIES)
    return model, float(logsumexp(ways - np.log(top) + parts))


def imputed_counts(n: int = 24, m: int = 1100) -> tuple[pm.Model, float]:
    """Counts with a gap, whose log rate is a random walk with an unknown step."""
    rng = np.random.default_rng(1203)
    y = rng.poisson(np.exp(2.0 + np.cumsum(0.25 * rng.standard_normal(n))))
    gap = np.zeros(n, bool)
    gap[9:17] = True
    with pm.Model() as model:
        step = pm.LogNormal("step", np.log(0.3), 0.4)
        level = pm.GaussianRandomWalk(
            "level", mu=0, sigma=step, init_dist=pm.Normal.dist(2, 1), shape=n
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyMC says that it imputes
            pm.Poisson("y", pm.math.exp(level), observed=np.ma.masked_array(y, mask=gap))
    grid, h = np.linspace(-4.0, 7.0, m, retstep=True)
    seen = [np.ones(m) if gap[t] else poisson.pmf(y[t], np.exp(grid)) for t in range(n)]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    parts = []
    for z, weight in zip(2.2 * nodes, 2.2 * weights, strict=True):
        moves = norm.pdf(grid[:, None], grid, np.exp(np.log(0.3) + z)) * h
        a, log_z = norm.pdf(grid, 2, 1) * seen[0], 0.0
        for t in range(1, n):
            a = (moves @ a) * seen[t]
            log_z += np.log(a.sum())
            a /= a.sum()
        parts.append(np.log(weight) + norm.logpdf(z, 0, 0.4) + log_z + np.log(h))
    return model, float(logsumexp(parts))


def direction(n: int = 40) -> tuple[pm.Model, float]:
    """Mean direction and concentration of angles about pi, where the circle is closed."""
    rng = np.random.default_rng(8)
    y = rng.vonmises(np.pi, 2.0, n)
    with pm.Model() as model:
        mu = pm.VonMises("mu", 0.0, 0.5)
        kappa = pm.HalfNormal("kappa", 5)
        pm.VonMises("y", mu, kappa, observed=y)
    angles = np.linspace(-np.pi, np.pi, 2000, endpoint=False)
    kappas, h = np.linspace(0.0, 40, 20001, retstep=True)
    c, s = np.cos(y).sum(), np.sin(y).sum()
    prior = 0.5 * np.cos(angles) - np.log(2 * np.pi * i0e(0.5)) - 0.5
    parts = []
    for some in np.array_split(kappas, 50):
        k = some[:, None]
        log_p = k * (c * np.cos(angles) + s * np.sin(angles)) - n * (np.log(2 * np.pi * i0e(k)) + k)
        log_p = logsumexp(log_p + prior, axis=1) + np.log(2 * np.pi / angles.size)
        ends = np.where((some == kappas[0]) | (some == kappas[-1]), np.log(0.5), 0.0)
        parts.append(log_p + norm.logpdf(some, 0, 5) + np.log(2) + ends)
    return model, float(logsumexp(np.concatenate(parts)) + np.log(h))


CASES: dict[str, tuple[Callable[[], tuple[pm.Model, float]], float, float]] = {
    "coal mining, switch point": (mines, 0.01, 3),
    "two means, 60 labels": (labels, 0.015, 6),
    "latent abundance, 25 sites": (abundance, 0.05, 15),
    "hidden chain, 12 states": (hidden_chain, 0.025, 6),
    "population size": (population, 0.025, 6),
    "imputed counts": (imputed_counts, 0.025, 6),
    "mean direction": (direction, 0.004, 2),
    "spike and slab, 12 indicators": (few, 0.02, 4),
    "spike and slab, 40 indicators": (many, 0.05, 30),
}
"""Model with its exact value, largest error (nats) and CPU seconds that are wanted."""


def timed_run(model: pm.Model, seed: int) -> tuple[xr.DataTree, float]:
    """Make a default run on one core, and return it with its CPU seconds."""
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verdicts are counted
        idata = pmt.sample(model=model, cores=1, random_seed=seed, quiet=True, progressbar=False)
    return idata, process_time() - began


def rows_of(name: str, seeds: range) -> dict[str, Any]:
    """Make the runs of a model, and sum them up."""
    make, mcse, seconds = CASES[name]
    model, exact = make()
    pmt.compile(model, progressbar=False)
    timed_run(model, seeds.start - 1)
    found = []
    for seed in seeds:
        idata, took = timed_run(model, seed)
        result = pmt.log_marginal_likelihood(idata)
        least = idata["tempering"].attrs["least_ess"]
        found.append((result.log_z - exact, result.mcse, took, least, result.verdict == "ok"))
    off, error, took, least, ok = np.array(found).T
    return {
        "model": name, "exact": exact, "ok": f"{int(ok.sum())} of {ok.size}",
        "largest error / mcse": np.abs(off / error).max(), "largest mcse": error.max(),
        "wanted mcse": mcse, "median CPU s": np.median(took), "largest CPU s": took.max(),
        "wanted CPU s": seconds, "least ESS": round(float(least.min())),
    }  # fmt: skip


def main() -> None:
    """Run the models that are asked for, and save the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.repeats)
    rows = [rows_of(name, seeds) for name in args.cases]
    title = "Models with discrete or circular unknowns: default runs on one core"
    settings = {"seeds": f"{seeds.start} to {seeds.stop - 1}"}
    save("discrete", rows, args.out, title, settings)


if __name__ == "__main__":
    main()
