"""Variational tempering on mixtures, zero-inflated counts and regressions with outliers.

All parameters are free. The same iterations, optimizer and start (a draw from the prior) for every
method; final ELBO at T = 1.
"""

import argparse
import logging
import os
import warnings
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import RESULTS, Row, markdown, save
from variational_fit import LEARNING_RATE

import pymc_tempering as pmt
from pymc_tempering.variational.assess import UntemperedModel, assess, compile_target

METHODS = ("pm.fit", "annealed", "variational_tempering")

PAPER = "uniform"
"""VT in the paper's form."""

LARGEST = 20.0
"""Largest temperature."""


def poisson_two() -> pm.Model:
    """Counts from two Poissons."""
    rng = np.random.default_rng(1)
    y = rng.poisson(np.where(rng.random(60) < 0.3, 1.5, 9.0))
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        rate = pm.Gamma("rate", 2.0, 0.4, shape=2)
        pm.Mixture("y", w, pm.Poisson.dist(rate, shape=(60, 2)), observed=y)
    return model


def poisson_three() -> pm.Model:
    """Counts from three Poissons."""
    rng = np.random.default_rng(2)
    y = rng.poisson(np.array([1.0, 8.0, 20.0])[rng.integers(3, size=90)])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        rate = pm.Gamma("rate", 2.0, 0.2, shape=3)
        pm.Mixture("y", w, pm.Poisson.dist(rate, shape=(90, 3)), observed=y)
    return model


def zero_inflated() -> pm.Model:
    """Zero-inflated counts."""
    rng = np.random.default_rng(3)
    y = rng.poisson(6.0, 60) * (rng.random(60) < 0.6)
    with pm.Model() as model:
        psi, mu = pm.Beta("psi", 1.0, 1.0), pm.Gamma("mu", 2.0, 0.4)
        pm.ZeroInflatedPoisson("y", psi, mu, observed=y)
    return model


def zero_inflated_binomial() -> pm.Model:
    """Zero-inflated numbers of successes."""
    rng = np.random.default_rng(4)
    y = rng.binomial(12, 0.4, 60) * (rng.random(60) < 0.7)
    with pm.Model() as model:
        psi, p = pm.Beta("psi", 1.0, 1.0), pm.Beta("p", 1.0, 1.0)
        pm.ZeroInflatedBinomial("y", psi, 12, p, observed=y)
    return model


def zero_inflated_negative() -> pm.Model:
    """Zero-inflated overdispersed counts."""
    rng = np.random.default_rng(5)
    y = rng.negative_binomial(3, 3 / 11, 60) * (rng.random(60) < 0.7)
    with pm.Model() as model:
        psi, mu = pm.Beta("psi", 1.0, 1.0), pm.Gamma("mu", 2.0, 0.3)
        alpha = pm.Gamma("alpha", 4.0, 1.5)
        pm.ZeroInflatedNegativeBinomial("y", psi, mu=mu, alpha=alpha, observed=y)
    return model


def hurdle() -> pm.Model:
    """Zeros and positive amounts."""
    rng = np.random.default_rng(6)
    y = rng.gamma(3.0, 1.0, 60) * (rng.random(60) < 0.6)
    with pm.Model() as model:
        psi = pm.Beta("psi", 1.0, 1.0)
        alpha, beta = pm.Gamma("alpha", 3.0, 1.0), pm.Gamma("beta", 3.0, 2.0)
        pm.HurdleGamma("y", psi, alpha=alpha, beta=beta, observed=y)
    return model


def normal_two() -> pm.Model:
    """Two normals on the line, as in Fig. 1 of the paper, with free weights and one scale."""
    rng = np.random.default_rng(7)
    y = np.r_[rng.normal(-3.0, 1.0, 14), rng.normal(4.0, 1.0, 26)]
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu, sd = pm.Normal("mu", 0.0, 4.0, shape=2), pm.HalfNormal("sd", 1.5)
        pm.NormalMixture("y", w, mu, sd, observed=y)
    return model


def normal_unequal() -> pm.Model:
    """Two normals, one narrow and one wide."""
    rng = np.random.default_rng(8)
    y = np.r_[rng.normal(0.0, 3.0, 25), rng.normal(2.0, 0.3, 25)]
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu, sd = pm.Normal("mu", 0.0, 4.0, shape=2), pm.HalfNormal("sd", 2.0, shape=2)
        pm.NormalMixture("y", w, mu, sd, observed=y)
    return model


def line_with_outliers() -> pm.Model:
    """Regression whose noise is a mixture of a narrow and a wide normal about the line."""
    rng = np.random.default_rng(9)
    x = np.linspace(-2.0, 2.0, 40)
    y = 1.0 + 2.0 * x + np.where(rng.random(40) < 0.25, 5.0, 0.5) * rng.normal(size=40)
    with pm.Model() as model:
        line = pm.Normal("intercept", 0.0, 3.0) + pm.Normal("slope", 0.0, 3.0) * x
        w = pm.Beta("w", 2.0, 2.0)
        sd = pm.HalfNormal("sd", np.array([1.0, 6.0]), shape=2)
        parts = [pm.Normal.dist(line, sd[0]), pm.Normal.dist(line, sd[1])]
        pm.Mixture("y", pt.stack([1 - w, w]), parts, observed=y)
    return model


def t_line() -> pm.Model:
    """Regression with Student t noise of known degrees of freedom, a quarter of the data off."""
    rng = np.random.default_rng(10)
    x = np.linspace(-2.0, 2.0, 40)
    y = 1.0 + 2.0 * x + np.where(np.arange(40) % 4 == 0, 12.0, 0.4 * rng.normal(size=40))
    with pm.Model() as model:
        line = pm.Normal("intercept", 0.0, 8.0) + pm.Normal("slope", 0.0, 3.0) * x
        pm.StudentT("y", nu=30.0, mu=line, sigma=pm.HalfNormal("sd", 1.0), observed=y)
    return model


MODELS = {
    f.__name__: f
    for f in (
        zero_inflated, zero_inflated_binomial, zero_inflated_negative, hurdle, t_line,
        poisson_two, poisson_three, normal_two, normal_unequal, line_with_outliers,
    )
}  # fmt: skip


def starts_of(model: pm.Model, repeats: int) -> list[dict[str, np.ndarray]]:
    """Draws from the prior."""
    names = [rv.name for rv in model.free_RVs]
    drawn = pm.draw(model.free_RVs, draws=repeats, random_seed=1)
    return [
        dict(zip(names, (np.asarray(draw[i]) for draw in drawn), strict=True))
        for i in range(repeats)
    ]


def one_fit(
    model: pm.Model, target: UntemperedModel, method: str, start: dict, seed: int, n: int
) -> tuple[float, float]:
    """Final ELBO at T = 1, and E[1/T] where the tempered stage ended."""
    options = {
        "model": model, "random_seed": seed, "start": start, "progressbar": False,
        "obj_optimizer": pm.adam(learning_rate=LEARNING_RATE),
    }  # fmt: skip
    end = 1.0
    if method == "pm.fit":
        approx = pm.fit(n, **options)
    else:
        if method == PAPER:
            options["first_temperatures"] = "uniform"
        name = "annealed" if method == "annealed" else "variational_tempering"
        grid = np.geomspace(1.0, LARGEST, 100)
        approx = pmt.fit(n, name, temperatures=grid, max_n=n, **options)
        report = approx.tempering
        end = float(report.inverse_temperature[max(report.n_tempered - 1, 0)])
    return assess(approx, target, np.random.default_rng(seed)).elbo, end


def rows_of(name: str, methods: tuple[str, ...], repeats: int, n: int) -> list[Row]:
    """Fit a model by every method from every start."""
    model = MODELS[name]()
    target = compile_target(pm.MeanField(model=model))
    began = process_time()
    try:
        partition = pmt.log_partition(model, np.geomspace(1.0, LARGEST, 100), random_seed=1)
    except pmt.NormalizerError as error:
        print(name, error, flush=True)
        numbers = ("median", "gain", "within_1", "E[1/T]", "C(T) s", "mcse")
        return [{"model": name, "method": "refused", "n": 0, **dict.fromkeys(numbers, np.nan)}]
    seconds = process_time() - began
    starts = starts_of(model, repeats)
    found = {
        method: np.array([
            one_fit(model, target, method, start, seed, n) for seed, start in enumerate(starts)
        ])
        for method in methods
    }  # fmt: skip
    plain = found["pm.fit"][:, 0]
    best = max(np.nanmax(found[m][:, 0]) for m in ("annealed", "variational_tempering"))
    return [
        {
            "model": name,
            "method": method,
            "n": len(runs),
            "median": float(np.nanmedian(runs[:, 0])),
            "gain": float(np.nanmedian(runs[:, 0]) - np.nanmedian(plain)),
            "within_1": float(np.mean(runs[:, 0] > best - 1.0)),
            "E[1/T]": float(np.median(runs[:, 1])),
            "C(T) s": seconds if method in methods[2:] else 0.0,
            "mcse": float(partition.mcse.max()) if method in methods[2:] else 0.0,
        }
        for method, runs in found.items()
    ]


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=20)
    args.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    args.add_argument("--n", type=int, default=3000, help="iterations of every fit")
    args.add_argument("--out", type=Path, default=RESULTS)
    args.add_argument("--paper", action="store_true", help="the paper's form of VT, too")
    options = args.parse_args()
    methods = (*METHODS, PAPER) if options.paper else METHODS
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    began = sum(os.times()[:4])
    rows: list[Row] = []
    settings = {
        "iterations": f"{options.n}, half of them tempered at most; adam, rate {LEARNING_RATE}",
        "temperatures": f"from {LARGEST:g} on; VT: 100, evenly spaced in log T",
        "uniform": "VT in the paper's form, first_temperatures='uniform'",
        "repeats": f"{options.repeats} starts from the prior, the same for every method",
        "median, gain": "final ELBO at T = 1 (nats), and less that of pm.fit",
        "within_1": "share of starts within 1 nat of the best of annealed and VT",
        "E[1/T]": "median at the end of the tempered stage",
        "C(T) s, mcse": "CPU seconds of log C(T), compilation included; its largest error (nats)",
    }
    for name in options.models:
        rows += rows_of(name, methods, options.repeats, options.n)
        print(markdown([row for row in rows if row["model"] == name]), flush=True)
        done = {**settings, "CPU minutes": f"{(sum(os.times()[:4]) - began) / 60:.1f}"}
        save("variational_mixtures", rows, options.out, "VT on mixtures, and the like", done)


if __name__ == "__main__":
    main()
