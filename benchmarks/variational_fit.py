"""Tempered fits beside pm.fit: final ELBO at T = 1 on multimodal or badly started models.

The same number of iterations, optimizer and start for every method. A start is a draw from the prior
or a stated bad place; both it and the noise of the gradients change with the seed.
"""

import argparse
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
from common import RESULTS, Row, markdown, save

import pymc_tempering as pmt
from pymc_tempering.variational.assess import Target, assess, compile_target

METHODS = ("pm.fit", "annealed", "variational_tempering")
LEARNING_RATE = 0.02


@dataclass(frozen=True)
class Problem:
    """A model with its starts.

    Attributes
    ----------
    model : Model
    start : callable
        Generator to the initial values of a fit.
    largest : float
        Largest temperature.
    normalizer : {"global", "local"}
        That of VT: local where C(T) is infinite, or takes longer than the fit.
    """

    model: pm.Model
    start: Callable[[np.random.Generator], dict[str, np.ndarray]]
    largest: float = 100.0
    normalizer: str = "global"


def peak() -> Problem:
    """A peak in a noisy spectrum; a start beside it feels hardly any slope."""
    rng = np.random.default_rng(2)
    x = np.linspace(-15.0, 15.0, 120)
    y = 3.0 * np.exp(-0.5 * ((x - 5.0) / 0.7) ** 2) + 0.5 * rng.normal(size=120)
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 6.0)
        height = pm.HalfNormal("height", 3.0)
        width = pm.LogNormal("width", -0.4, 0.3)
        curve = height * pm.math.exp(-0.5 * ((x - center) / width) ** 2)
        pm.Normal("y", curve, 0.5, observed=y)
    return Problem(model, lambda rng: {"center": rng.normal(-5.0, 2.0)})


def clusters() -> Problem:
    """A mixture of four normals; a start may put two components into one cluster."""
    rng = np.random.default_rng(3)
    y = np.concatenate([rng.normal(m, 0.6, 25) for m in (-6.0, -2.0, 2.0, 6.0)])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0, shape=4)
        pm.NormalMixture("y", np.full(4, 0.25), mu, sigma=0.6, observed=y)
    return Problem(model, lambda rng: {"mu": rng.normal(0.0, 5.0, size=4)}, normalizer="local")


def outliers() -> Problem:
    """Location of heavy-tailed data, a third of which lie elsewhere; started among these."""
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.normal(4.0, 0.5, 40), rng.normal(-6.0, 0.5, 20)])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        pm.StudentT("y", nu=4.0, mu=mu, sigma=0.5, observed=y)
    return Problem(model, lambda rng: {"mu": rng.normal(-6.0, 1.0)}, 4.5)


def shift() -> Problem:
    """Shift of a pattern with three peaks; a start may lie one peak beside."""
    rng = np.random.default_rng(8)
    x = np.linspace(-15.0, 15.0, 150)

    def pattern(shift):  # type: ignore[no-untyped-def]
        peaks = zip((-4.0, 0.0, 5.0), (1.0, 2.0, 3.0), strict=True)
        return sum(h * pm.math.exp(-0.5 * ((x - shift - c) / 0.6) ** 2) for c, h in peaks)

    y = pattern(2.0).eval() + 0.5 * rng.normal(size=150)
    with pm.Model() as model:
        offset = pm.Normal("offset", 0.0, 4.0)
        pm.Normal("y", pattern(offset), 0.5, observed=y)
    return Problem(model, lambda rng: {"offset": rng.normal(-4.0, 1.5)})


def ghost() -> Problem:
    """A source located by distances from sensors nearly on a line; started at its mirror image."""
    rng = np.random.default_rng(9)
    sensors = np.column_stack([np.linspace(-4.0, 4.0, 9), 0.25 * rng.normal(size=9)])
    truth = np.array([1.0, 3.0])
    y = np.linalg.norm(sensors - truth, axis=1) + 0.1 * rng.normal(size=9)
    with pm.Model() as model:
        place = pm.Normal("place", 0.0, 3.0, shape=2)
        distance = pm.math.sqrt(((sensors - place) ** 2).sum(axis=1))
        pm.Normal("y", distance, 0.1, observed=y)
    return Problem(model, lambda rng: {"place": rng.normal([1.0, -3.0], 0.5)})


def phases() -> Problem:
    """Coefficients from squared projections: signs are lost, and most starts lead astray."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(50, 6))
    truth = rng.normal(size=6)
    y = (X @ truth) ** 2 + rng.normal(size=50)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 1.0, shape=6)
        pm.Normal("y", pm.math.sqr(X @ beta), 1.0, observed=y)
    return Problem(model, lambda rng: {"beta": rng.normal(size=6)})


def counts() -> Problem:
    """A Poisson rate that jumps at an unknown time; the start is at the wrong end."""
    rng = np.random.default_rng(7)
    t = np.arange(80.0)
    y = rng.poisson(np.where(t < 55, 3.0, 9.0))
    with pm.Model() as model:
        jump = pm.Uniform("jump", 0.0, 80.0)
        level = pm.Normal("level", 1.0, 1.0, shape=2)
        after = pm.math.sigmoid((t - jump) / 0.5)
        pm.Poisson("y", pm.math.exp(level[0] + (level[1] - level[0]) * after), observed=y)

    def start(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"jump": rng.uniform(2.0, 20.0), "level": rng.normal(1.0, 1.0, 2)}

    return Problem(model, start, normalizer="local")


PROBLEMS: dict[str, Callable[[], Problem]] = {
    f.__name__: f for f in (peak, clusters, outliers, shift, ghost, phases, counts)
}


def one_fit(
    problem: Problem, target: Target, method: str, seed: int, n: int
) -> tuple[float, float, float]:
    """Final ELBO at T = 1, share of iterations before T = 1, and CPU seconds."""
    start = problem.start(np.random.default_rng(1000 + seed))
    options = {
        "model": problem.model, "random_seed": seed, "start": start, "progressbar": False,
        "obj_optimizer": pm.adam(learning_rate=LEARNING_RATE),
    }  # fmt: skip
    began = process_time()
    if method == "pm.fit":
        approx = pm.fit(n, **options)
    else:
        grid = np.geomspace(1.0, problem.largest, 100)
        approx = pmt.fit(
            n, method, temperatures=grid, normalizer=problem.normalizer, max_n=n, **options
        )
    seconds = process_time() - began
    elbo = assess(approx, target, np.random.default_rng(seed)).elbo
    hot = 0.0 if method == "pm.fit" else approx.tempering.n_tempered / n
    return elbo, hot, seconds


def summary(name: str, method: str, runs: np.ndarray, plain: np.ndarray, best: float) -> Row:
    """Median ELBO of a method, and how its seeds compare with those of pm.fit."""
    elbo = runs[:, 0]
    difference = elbo - plain[:, 0]
    return {
        "model": name,
        "method": method,
        "n": len(elbo),
        "median": float(np.median(elbo)),
        "quartile": float(np.quantile(elbo, 0.25)),
        "best": float(elbo.max()),
        "near_best": int((elbo > best - 3.0).sum()),
        "gain": float(np.median(elbo) - np.median(plain[:, 0])),
        "higher": int((difference > 1.0).sum()),
        "lower": int((difference < -1.0).sum()),
        "hot": float(runs[:, 1].mean()),
        "seconds": float(np.median(runs[:, 2])),
    }


def draw(found: dict[str, dict[str, np.ndarray]], path: Path) -> None:
    """One panel a model: ELBO of each seed below the best that any method found."""
    import matplotlib.pyplot as plt

    colors = {"pm.fit": "#7F7F7F", "annealed": "#0072B2", "variational_tempering": "#D55E00"}
    fig, axes = plt.subplots(1, len(found), figsize=(2.1 * len(found), 3.4), layout="constrained")
    for ax, (name, runs) in zip(np.atleast_1d(axes), found.items(), strict=True):
        best = max(values[:, 0].max() for values in runs.values())
        for i, (method, values) in enumerate(runs.items()):
            below = np.maximum(best - values[:, 0], 0.1)
            jitter = np.linspace(-0.25, 0.25, below.size)
            ax.plot(i + jitter, below, "o", ms=4, alpha=0.6, color=colors[method])
            ax.hlines(np.median(below), i - 0.38, i + 0.38, color=colors[method], lw=2.2)
        ax.set_yscale("log")
        ax.invert_yaxis()
        ax.set_title(name, fontsize="medium")
        ax.set_xticks(range(len(runs)), ["pm.fit", "annealed", "VT"], rotation=45, ha="right")
        ax.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(axes)[0].set_ylabel("nats below the best ELBO (top: best)")
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=150)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=20)
    args.add_argument("--models", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    args.add_argument("--n", type=int, default=6000, help="iterations of every fit")
    args.add_argument("--out", type=Path, default=RESULTS, help="folder of table and picture")
    options = args.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    began = process_time()
    rows: list[Row] = []
    found: dict[str, dict[str, np.ndarray]] = {}
    for name in options.models:
        problem = PROBLEMS[name]()
        target = compile_target(pm.MeanField(model=problem.model))
        found[name] = {
            method: np.array([
                one_fit(problem, target, method, seed, options.n)
                for seed in range(options.repeats)
            ])
            for method in METHODS
        }  # fmt: skip
        best = max(runs[:, 0].max() for runs in found[name].values())
        plain = found[name]["pm.fit"]
        rows += [summary(name, m, runs, plain, best) for m, runs in found[name].items()]
        print(markdown(rows[-len(METHODS) :]), flush=True)
    draw(found, options.out / "variational_fit.png")
    settings = {
        "iterations": f"{options.n} for every method, tempered ones included",
        "temperatures": "100, evenly spaced in log T, from 1 to 100 (outliers: 4.5); linear schedule",
        "optimizer": f"adam, learning rate {LEARNING_RATE}; approx meanfield",
        "repeats": f"{options.repeats} starts, the same for every method",
        "median, quartile, best": "ELBO at T = 1 (nats)",
        "near_best": "fits within 3 nats of the best of all methods",
        "gain": "median less that of pm.fit (nats)",
        "higher, lower": "starts that end more than 1 nat above, below pm.fit's",
        "hot": "mean share of iterations before T = 1",
        "seconds": "median CPU time of a fit, compilation (cached) and, for VT, C(T) included",
        "CPU minutes in all": f"{(process_time() - began) / 60:.1f}",
    }
    save("variational_fit", rows, options.out, "Tempered fits beside pm.fit", settings)


if __name__ == "__main__":
    main()
