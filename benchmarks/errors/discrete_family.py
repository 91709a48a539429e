"""Random models with discrete unknowns beside exact evidences: is the stated error right?

Each kind of model draws its sizes, priors and data from the seed of the model. The exact values are
sums in closed form, or quadratures in one or two dimensions. Each model is run some times by
default on one core. Kinds of the first list were there while the code was written; those of the
second half, in files of their own, are by somebody who had not seen it.
"""

import argparse
import itertools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from scipy.special import betaln, logsumexp
from scipy.stats import binom, gamma, multivariate_normal, norm, poisson

import pymc_tempering as pmt
from benchmarks.common import RESULTS, save
from benchmarks.models.discrete_family_second import SECOND, made

type Made = tuple[pm.Model, float]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
UNIT, UNIT_WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2
"""Nodes and weights of integrals from 0 to 1."""


def on_gamma(shape: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of integrals over a gamma law, by its quantiles."""
    return gamma.ppf(UNIT, shape, scale=1 / rate), UNIT_WEIGHTS


def poisson_mixture(rng: np.random.Generator) -> Made:
    """Labels of two Poisson laws with unknown rates."""
    n, share = int(rng.integers(15, 50)), float(rng.uniform(0.2, 0.8))
    shape, rate = float(rng.uniform(1, 4)), float(rng.uniform(0.2, 1))
    rates = rng.gamma(shape, 1 / rate, 2)
    y = rng.poisson(rates[(rng.random(n) < share).astype(int)])
    with pm.Model() as model:
        lam = pm.Gamma("lam", shape, rate, shape=2)
        z = pm.Bernoulli("z", share, shape=n)
        pm.Poisson("y", lam[z], observed=y)
    grid, weights = on_gamma(shape, rate)
    p = poisson.pmf(y[:, None], grid)
    log_p = np.zeros((grid.size, grid.size))
    for row in p:
        log_p += np.log((1 - share) * row[:, None] + share * row)
    return model, float(logsumexp(log_p + np.log(weights)[:, None] + np.log(weights)))


def change_in_regression(rng: np.random.Generator) -> Made:
    """Jump and change of slope at an unknown time; noise is known."""
    n, sd, scale = int(rng.integers(20, 60)), float(rng.uniform(0.3, 1.5)), float(rng.uniform(1, 4))
    t = np.linspace(-1, 1, n)
    after = (np.arange(n) >= rng.integers(2, n - 2)).astype(float)
    truth = rng.normal(0, scale, 4)
    y = truth[0] + truth[1] * t + after * (truth[2] + truth[3] * t) + sd * rng.standard_normal(n)
    with pm.Model() as model:
        s = pm.DiscreteUniform("s", 1, n - 1)
        b = pm.Normal("b", 0, scale, shape=4)
        later = pm.math.ge(np.arange(n), s)
        mu = b[0] + b[1] * t + later * (b[2] + b[3] * t)
        pm.Normal("y", mu, sd, observed=y)
    parts = []
    for s in range(1, n):
        later = (np.arange(n) >= s).astype(float)
        x = np.stack([np.ones(n), t, later, later * t], axis=1)
        cov = sd**2 * np.eye(n) + scale**2 * x @ x.T
        parts.append(multivariate_normal.logpdf(y, np.zeros(n), cov))
    return model, float(logsumexp(parts) - np.log(n - 1))


def latent_classes(rng: np.random.Generator) -> Made:
    """Two classes of people, by answers to yes-no questions."""
    n, items = int(rng.integers(6, 11)), int(rng.integers(2, 5))
    share, (a, b) = float(rng.uniform(0.3, 0.7)), rng.uniform(0.7, 3, 2)
    p = rng.beta(a, b, (2, items))
    y = (rng.random((n, items)) < p[(rng.random(n) < share).astype(int)]).astype(int)
    with pm.Model() as model:
        yes = pm.Beta("yes", a, b, shape=(2, items))
        label = pm.Bernoulli("label", share, shape=n)
        pm.Bernoulli("y", yes[label], observed=y)
    labels = np.array(list(itertools.product((0, 1), repeat=n)))
    log_p = labels.sum(1) * np.log(share) + (n - labels.sum(1)) * np.log(1 - share)
    for k in (0, 1):
        mine = labels == k
        ones = mine @ y
        log_p = log_p + (betaln(a + ones, b + mine.sum(1)[:, None] - ones) - betaln(a, b)).sum(
            axis=1
        )
    return model, float(logsumexp(log_p))


def occupancy(rng: np.random.Generator) -> Made:
    """Sites that are occupied or not, and visits that may miss it."""
    n, visits = int(rng.integers(15, 60)), int(rng.integers(2, 6))
    psi, p = rng.uniform(0.2, 0.8, 2)
    y = rng.binomial(visits, p * (rng.random(n) < psi))
    with pm.Model() as model:
        share, seen = pm.Beta("share", 1, 1), pm.Beta("seen", 1, 2)
        there = pm.Bernoulli("there", share, shape=n)
        pm.Binomial("y", visits, there * seen, observed=y)
    w, q = UNIT[:, None, None], UNIT[None, :, None]
    log_p = np.log(w * binom.pmf(y, visits, q) + (1 - w) * (y == 0)).sum(axis=2)
    log_p += np.log(2 * (1 - q[..., 0])) + np.log(UNIT_WEIGHTS)[:, None] + np.log(UNIT_WEIGHTS)
    return model, float(logsumexp(log_p))


def inflated_zeros(rng: np.random.Generator) -> Made:
    """Counts that are zero for one of two reasons."""
    n, rate = int(rng.integers(20, 80)), float(rng.uniform(0.2, 1))
    lam = float(rng.gamma(2, 1 / rate))
    y = rng.poisson(lam * (rng.random(n) < rng.uniform(0.3, 0.9)))
    with pm.Model() as model:
        share, mean = pm.Beta("share", 2, 2), pm.Gamma("mean", 2, rate)
        active = pm.Bernoulli("active", share, shape=n)
        pm.Poisson("y", active * mean, observed=y)
    grid, weights = on_gamma(2, rate)
    w, m = UNIT[:, None, None], grid[None, :, None]
    log_p = np.log(w * poisson.pmf(y, m) + (1 - w) * (y == 0)).sum(axis=2)
    log_p += np.log(6 * w * (1 - w))[..., 0] + np.log(UNIT_WEIGHTS)[:, None] + np.log(weights)
    return model, float(logsumexp(log_p))


def outliers(rng: np.random.Generator) -> Made:
    """Data of which some have a much larger spread."""
    n, share, wide = (
        int(rng.integers(15, 60)),
        float(rng.uniform(0.05, 0.3)),
        float(rng.uniform(3, 8)),
    )
    odd = rng.random(n) < share
    y = rng.normal(0, 2) + np.where(odd, wide, 0.5) * rng.standard_normal(n)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        is_odd = pm.Bernoulli("is_odd", share, shape=n)
        pm.Normal("y", mu, pt.switch(is_odd, wide, 0.5), observed=y)
    grid, step = np.linspace(-15, 15, 30001, retstep=True)
    log_p = norm.logpdf(grid, 0, 3)
    for value in y:
        log_p += np.log(
            (1 - share) * norm.pdf(value, grid, 0.5) + share * norm.pdf(value, grid, wide)
        )
    return model, float(logsumexp(log_p) + np.log(step))


FIRST: list[Callable[[np.random.Generator], Made]] = [
    poisson_mixture, change_in_regression, latent_classes, occupancy, inflated_zeros, outliers
]  # fmt: skip
"""Kinds that were there while the code was written."""

KINDS = {make.__name__: make for make in FIRST}
HALVES = {**dict.fromkeys(KINDS, "first"), **{make.__name__: "second" for make in SECOND}}
MODELS = {"first": 4, "second": 2}
"""Models of each kind, by the half."""


def timed_run(model: pm.Model, seed: int) -> tuple[xr.DataTree, float]:
    """Make a default run on one core, and return it with its CPU seconds."""
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verdicts are counted
        idata = pmt.sample(model=model, cores=1, random_seed=seed, quiet=True, progressbar=False)
    return idata, process_time() - began


def runs_of(name: str, number: int, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Make the runs of one model of a kind."""
    if HALVES[name] == "first":
        model, exact = KINDS[name](np.random.default_rng([number, len(name), 46]))
    else:
        model, exact = made(name, number)
    rows = []
    pmt.compile(model, progressbar=False)
    for seed in seeds:
        idata, took = timed_run(model, seed)
        found = pmt.log_marginal_likelihood(idata)
        z = (found.log_z - exact) / found.mcse
        rows.append({
            "half": HALVES[name], "kind": name, "model": number, "seed": seed, "exact": exact,
            "log_z": found.log_z, "mcse": found.mcse, "z": z, "verdict": found.verdict, "cpu": took,
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def summed_up(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a line of the table."""
    z = np.array([row["z"] for row in rows])
    ok = np.array([row["verdict"] == "ok" for row in rows])
    return {
        "runs": len(rows), "ok": f"{int(ok.sum())}", "sd of z": z[np.isfinite(z)].std(),
        "largest z of ok": np.abs(z[ok]).max(initial=0.0),
        "median mcse": float(np.median([row["mcse"] for row in rows])),
        "median CPU s": float(np.median([row["cpu"] for row in rows])),
    }  # fmt: skip


def main() -> None:
    """Run the kinds that are asked for, and save the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=HALVES, default=list(HALVES))
    parser.add_argument("--models", type=int, help="of each kind; else 4, and 2 of the second half")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    seeds = range(1, args.repeats + 1)
    table: list[dict[str, Any]] = []
    by_half: dict[str, list[dict[str, Any]]] = {}
    for name in args.kinds:
        half = HALVES[name]
        number_of = args.models or MODELS[half]
        rows = [row for number in range(number_of) for row in runs_of(name, number, seeds)]
        table.append({"half": half, "kind": name, **summed_up(rows)})
        by_half.setdefault(half, []).extend(rows)
    table += [{"half": half, "kind": "all", **summed_up(rows)} for half, rows in by_half.items()]
    if len(by_half) > 1:
        both = [row for rows in by_half.values() for row in rows]
        table.append({"half": "both", "kind": "all", **summed_up(both)})
    title = "Random models with discrete unknowns: default runs on one core"
    save("discrete_family", table, args.out, title, {"seeds": f"1 to {args.repeats}"})


if __name__ == "__main__":
    main()
