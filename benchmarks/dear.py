"""Models of which a value of the density is dear: default runs on one core, beside NUTS.

NUTS is nutpie, with `bridge_sampling`. A model is compiled before, so that CPU seconds are those of
a run. Runs that are stored are not made again.
"""

import argparse
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import RESULTS, read_table, save
from fields import METHODS
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import pymc_tempering as pmt

PRIOR_SD = 3.0
"""Of each coordinate of a black box."""

COLUMNS = ("model", "seed", "method")
NAMES = (
    *COLUMNS, "log_z", "mcse", "verdict", "cpu", "exact", "z", "warnings",
)  # fmt: skip


def buy_till_you_die(n: int = 6000) -> pm.Model:
    """Make the BG/NBD model of repeat buyers (Fader, Hardie & Lee 2005), with customers drawn."""
    rng = np.random.default_rng(1)
    until = rng.uniform(27, 39, n)
    rate, leaves = rng.gamma(0.25, 1 / 4.4, n), rng.beta(0.8, 2.4, n)
    count, last = np.zeros(n), np.zeros(n)
    for i in range(n):
        now = rng.exponential(1 / rate[i])
        while now < until[i]:
            count[i], last[i] = count[i] + 1, now
            if rng.random() < leaves[i]:
                break
            now += rng.exponential(1 / rate[i])
    with pm.Model() as model:
        r, alpha = pm.HalfNormal("r", 1), pm.HalfNormal("alpha", 10)
        a, b = pm.HalfNormal("a", 2), pm.HalfNormal("b", 5)
        common = pt.gammaln(r + count) - pt.gammaln(r) + r * pt.log(alpha)
        stays = pt.gammaln(a + b) + pt.gammaln(b + count)
        stays -= pt.gammaln(b) + pt.gammaln(a + b + count)
        alive = -(r + count) * pt.log(alpha + until)
        gone = pt.log(a) - pt.log(b + np.maximum(count, 1) - 1)
        gone -= (r + count) * pt.log(alpha + last)
        either = pt.switch(count > 0, pt.logaddexp(alive, gone), alive)
        pm.Potential("log_likelihood", pt.sum(common + stays + either))
    return model


def logistic(rows: int, dim: int) -> pm.Model:
    """Make a logistic regression."""
    rng = np.random.default_rng(1)
    x, slopes = rng.standard_normal((rows, dim)), 0.3 * rng.standard_normal(dim)
    y = rng.random(rows) < 1 / (1 + np.exp(-x @ slopes))
    with pm.Model() as model:
        mean = pm.Normal("a", 0, 2) + pt.dot(x, pm.Normal("b", 0, 1, shape=dim))
        pm.Bernoulli("y", logit_p=mean, observed=y.astype(int))
    return model


class BlackBox(Op):
    """Log of a mixture of normals, in Python, without gradient; a value takes a millisecond."""

    def __init__(self, means: np.ndarray, covariance: np.ndarray, shares: np.ndarray) -> None:
        self.means, self.shares = means, shares
        self.precision = np.linalg.inv(covariance)

    def make_node(self, x: Any) -> Apply:
        """Apply it to a vector."""
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Evaluate it, and wait."""
        end, away = perf_counter() + 1e-3, inputs[0] - self.means
        squares = np.einsum("ki,ij,kj->k", away, self.precision, away)
        outputs[0][0] = np.asarray(logsumexp(-0.5 * squares, b=self.shares))
        while perf_counter() < end:
            pass


def box(dim: int, shares: tuple[float, ...] = (1.0,)) -> tuple[pm.Model, float]:
    """Make a black box with one mode or two, and its exact log evidence."""
    covariance = 0.25 * (0.3 * np.eye(dim) + 0.7)
    means = np.outer([1.0, -3.0][: len(shares)], np.ones(dim))
    with pm.Model() as model:
        x = pm.Normal("x", 0, PRIOR_SD, shape=dim)
        pm.Potential("log_likelihood", BlackBox(means, covariance, np.array(shares))(x))
    whole = covariance + PRIOR_SD**2 * np.eye(dim)
    constant = 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    each = [multivariate_normal(cov=whole).logpdf(mean) for mean in means]
    return model, float(logsumexp(each, b=shares) + constant)


MODELS: dict[str, Callable[[], tuple[pm.Model, float]]] = {
    "buy_till_you_die": lambda: (buy_till_you_die(), np.nan),
    "black_box_3": lambda: box(3),
    "black_box_4": lambda: box(4),
    "black_box_3_two_modes": lambda: box(3, (0.81, 0.19)),
    "logistic_50,000": lambda: (logistic(50_000, 10), np.nan),
    "logistic_100,000": lambda: (logistic(100_000, 4), np.nan),
}


def one_run(name: str, model: pm.Model, exact: float, seed: int, method: str) -> dict[str, Any]:
    """Make one run."""
    row: dict[str, Any] = dict.fromkeys(NAMES, "") | {"model": name, "seed": seed, "method": method}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        start = process_time()
        found = METHODS[method](model, seed)
        cpu = process_time() - start
    told = [str(each.message) for each in said if "Tempering" in each.category.__name__]
    return row | {
        "log_z": found.log_z, "mcse": found.mcse, "verdict": found.verdict, "cpu": cpu,
        "exact": exact, "z": (found.log_z - exact) / found.mcse, "warnings": json.dumps(told),
    }  # fmt: skip


def table(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the runs of a model and method into one row, with medians."""
    rows = []
    for key in dict.fromkeys((r["model"], r["method"]) for r in runs):
        some = [r for r in runs if (r["model"], r["method"]) == key]
        middle = {
            name: float(np.median([float(r[name]) for r in some]))
            for name in ("log_z", "mcse", "cpu")
        }
        z = [abs(float(r["z"])) for r in some if np.isfinite(float(r["z"]))]
        rows.append(
            dict(zip(("model", "method"), key, strict=True))
            | {"runs": len(some), "ok": sum(r["verdict"] == "ok" for r in some)}
            | middle | {"largest |z|": max(z) if z else ""}
        )  # fmt: skip
    return rows


def main() -> None:
    """Make the runs that are asked for, and store each as it ends."""
    logging.getLogger("pytensor").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    path = args.out / "dear_runs.csv"
    runs: list[dict[str, Any]] = list(read_table(path)) if path.exists() else []
    made = {tuple(str(run[name]) for name in COLUMNS) for run in runs}
    settings = {"tempering": "defaults, one core", "nutpie": "4 x 1,000 draws after 1,000"}
    for name in args.models:
        methods = [m for m in args.methods if not ("black" in name and "nutpie" in m)]
        model, exact = MODELS[name]()
        pmt.compile(model, progressbar=False)
        for seed in args.seeds:
            for method in methods:
                if (name, str(seed), method) not in made:
                    runs.append(one_run(name, model, exact, seed, method))
                    print({k: v for k, v in runs[-1].items() if k != "warnings"}, flush=True)
        save("dear_runs", runs, args.out, "Dear densities: runs", settings)
        save("dear", table(runs), args.out, "Dear densities", settings)


if __name__ == "__main__":
    main()
