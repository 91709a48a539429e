"""Random mixture models whose labels can be exchanged: are the stated errors right?

Kinds of components, their number (2 to 5), priors and data are drawn at random. The evidence is a
sum over all ways to part the data among components, each in closed form. Beside each run is one
that does not know of labels. Models of the first half may be looked at while the sampler is worked
on; those of the second half (`--unseen`) are run once the code is frozen.
"""

import argparse
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import RESULTS, Row, save
from scipy.special import betaln, gammaln, logsumexp

import pymc_tempering as pmt
from pymc_tempering.references import labels

N_MODELS, FAMILY_SEED = 60, 411
"""Models of the family, the first half of which may be looked at; model i is drawn by
`numpy.random.default_rng([FAMILY_SEED, i])`."""

ROWS, TRIALS = 10, 12
"""Data of each model, and trials of a binomial one."""

type LogMarginal = Callable[[np.ndarray], float]
"""Log marginal likelihood (nats) of some of the data, all of one component."""


@dataclass(frozen=True)
class Exchangeable:
    """A mixture model, with its exact evidence."""

    kind: str
    k: int
    model: pm.Model
    log_z: float


def log_evidence(marginal: LogMarginal, y: np.ndarray, k: int, alpha: float) -> float:
    """Sum over all ways to part data among k components, with Dirichlet weights."""
    n = y.size
    inside = np.array([[s >> i & 1 for i in range(n)] for s in range(2**n)], dtype=bool)
    sizes = inside.sum(axis=1)
    own = np.array([marginal(y[rows]) for rows in inside]) + gammaln(alpha + sizes)
    own -= gammaln(alpha)
    every = own.copy()  # of the subsets, by one component and then by more
    for _ in range(k - 1):
        every = np.array([
            logsumexp([own[part] + every[s ^ part] for part in _subsets(s)]) for s in range(2**n)
        ])  # fmt: skip
    return float(every[-1] + gammaln(k * alpha) - gammaln(k * alpha + n))


def _subsets(s: int) -> Iterator[int]:
    """Subsets of a set, both as bits."""
    part = s
    while part:
        yield part
        part = (part - 1) & s
    yield 0


def normals(
    rng: np.random.Generator, k: int, w: pt.TensorVariable
) -> tuple[np.ndarray, LogMarginal]:
    """Normals with a known deviation."""
    sd, wide = rng.uniform(0.3, 1.5), rng.uniform(2.0, 6.0)
    y = (wide * rng.normal(size=k))[rng.integers(k, size=ROWS)] + sd * rng.normal(size=ROWS)
    mu = pm.Normal("mu", 0, wide, shape=k)
    pm.NormalMixture("y", w, mu, sigma=sd, observed=y)

    def marginal(own: np.ndarray) -> float:
        ratio, n = (wide / sd) ** 2, own.size
        square = (own**2).sum() - ratio * own.sum() ** 2 / (1 + n * ratio)
        return float(-0.5 * (n * np.log(2 * np.pi * sd**2) + np.log1p(n * ratio) + square / sd**2))

    return y, marginal


def spread_normals(
    rng: np.random.Generator, k: int, w: pt.TensorVariable
) -> tuple[np.ndarray, LogMarginal]:
    """Normals with unknown means and variances, conjugate priors."""
    a, b, few = rng.uniform(2.0, 4.0), rng.uniform(0.5, 2.0), rng.uniform(0.02, 0.2)
    v = b / rng.gamma(a, size=k)
    at = rng.integers(k, size=ROWS)
    y = (np.sqrt(v / few) * rng.normal(size=k))[at] + np.sqrt(v[at]) * rng.normal(size=ROWS)
    v = pm.InverseGamma("v", a, b, shape=k)
    mu = pm.Normal("mu", 0, pt.sqrt(v / few), shape=k)
    pm.NormalMixture("y", w, mu, sigma=pt.sqrt(v), observed=y)

    def marginal(own: np.ndarray) -> float:
        n = own.size
        after = b + 0.5 * ((own**2).sum() - own.sum() ** 2 / (few + n))
        half = 0.5 * (np.log(few / (few + n)) - n * np.log(2 * np.pi))
        return float(
            half + gammaln(a + n / 2) - gammaln(a) + a * np.log(b) - (a + n / 2) * np.log(after)
        )

    return y, marginal


def poissons(
    rng: np.random.Generator, k: int, w: pt.TensorVariable
) -> tuple[np.ndarray, LogMarginal]:
    """Counts with unknown rates."""
    a, b = rng.uniform(0.7, 3.0), rng.uniform(0.05, 0.5)
    y = rng.poisson((rng.gamma(a, size=k) / b)[rng.integers(k, size=ROWS)])
    rate = pm.Gamma("rate", a, b, shape=k)
    pm.Mixture("y", w, pm.Poisson.dist(rate, shape=k), observed=y)

    def marginal(own: np.ndarray) -> float:
        law = gammaln(a + own.sum()) - gammaln(a) - gammaln(own + 1.0).sum()
        return float(law + a * np.log(b) - (a + own.sum()) * np.log(b + own.size))

    return y, marginal


def binomials(
    rng: np.random.Generator, k: int, w: pt.TensorVariable
) -> tuple[np.ndarray, LogMarginal]:
    """Hits out of some trials with unknown rates."""
    a, b = rng.uniform(0.5, 2.0, size=2)
    y = rng.binomial(TRIALS, rng.beta(a, b, size=k)[rng.integers(k, size=ROWS)])
    rate = pm.Beta("rate", a, b, shape=k)
    pm.Mixture("y", w, pm.Binomial.dist(TRIALS, rate, shape=k), observed=y)

    def marginal(own: np.ndarray) -> float:
        ways = -np.log(TRIALS + 1.0) - betaln(own + 1.0, TRIALS - own + 1.0)
        total = own.sum()
        return float(ways.sum() + betaln(a + total, b + TRIALS * own.size - total) - betaln(a, b))

    return y, marginal


KINDS = {f.__name__: f for f in (normals, spread_normals, poissons, binomials)}
"""Components, and how their data are drawn."""


def draw_mixture(index: int) -> Exchangeable:
    """Draw a model of the family, and its data."""
    rng = np.random.default_rng([FAMILY_SEED, index])
    kind, k = list(KINDS)[rng.integers(len(KINDS))], int(rng.integers(2, 6))
    alpha = rng.uniform(0.5, 3.0)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(k, alpha))
        y, marginal = KINDS[kind](rng, k, w)
    return Exchangeable(kind, k, model, log_evidence(marginal, y, k, alpha))


def run_index(index: int, *, by_labels: bool) -> Row:
    """Make a run of one model; its seed is the model's number."""
    known, before = draw_mixture(index), labels.MAX_LABELS
    labels.MAX_LABELS = before if by_labels else 1
    try:
        pmt.compile(known.model, progressbar=False)
        start = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pmt.TemperingWarning)
            idata = pmt.sample(
                model=known.model, random_seed=index, cores=1, progressbar=False, quiet=True
            )
            found = pmt.log_marginal_likelihood(idata)
    finally:
        labels.MAX_LABELS = before
    return {
        "model": index, "half": "seen" if index < N_MODELS // 2 else "unseen",
        "kind": known.kind, "components": known.k, "labels": "known" if by_labels else "not known",
        "exact": known.log_z, "log Z": found.log_z, "mcse": found.mcse,
        "z": (found.log_z - known.log_z) / found.mcse, "verdict": found.verdict,
        "cpu": process_time() - start,
    }  # fmt: skip


def table(runs: list[Row]) -> list[Row]:
    """Put the runs of a half and a number of components into one row."""
    rows: list[Row] = []
    for key in sorted({(r["half"], r["components"], r["labels"]) for r in runs}):
        some = [r for r in runs if (r["half"], r["components"], r["labels"]) == key]
        z = np.array([r["z"] for r in some if np.isfinite(r["mcse"])])
        rows.append(
            dict(zip(("half", "components", "labels"), key, strict=True))
            | {
                "n": len(some), "ok": sum(r["verdict"] == "ok" for r in some),
                "median mcse": float(np.median([r["mcse"] for r in some])),
                "largest mcse": float(max(r["mcse"] for r in some)),
                "rms z": float(np.sqrt(np.mean(z**2))), "largest |z|": float(np.abs(z).max()),
                "median cpu": float(np.median([r["cpu"] for r in some])),
                "cpu of all": float(sum(r["cpu"] for r in some)),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    """Make the runs, and store them."""
    logging.getLogger("pytensor").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unseen", action="store_true", help="the second half too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    runs: list[Row] = []
    for index in range(N_MODELS if args.unseen else N_MODELS // 2):
        for by_labels in (True, False):
            runs.append(run_index(index, by_labels=by_labels))
            print(runs[-1], flush=True)
    settings = {
        "run": "pmt.sample by default, one core, one seed a model",
        "z": "(log Z - exact) / mcse, where the mcse is finite",
        "family seed": str(FAMILY_SEED), "cpu": "seconds after compiling",
    }  # fmt: skip
    save("label_family_runs", runs, args.out, "Mixtures with exchangeable labels: runs", settings)
    save("label_family", table(runs), args.out, "Mixtures with exchangeable labels", settings)


if __name__ == "__main__":
    main()
