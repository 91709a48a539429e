"""Tempered fits beside pm.fit: final ELBO at T = 1 on multimodal or badly started models.

The same number of iterations, optimizer and start for every method. A start is a draw from the
prior or a stated bad place; both it and the noise of the gradients change with the seed.
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
LARGEST = 100.0


@dataclass(frozen=True)
class Problem:
    """A model with its starts.

    Attributes
    ----------
    model : Model
    start : callable
        Generator to the initial values of a fit.
    largest : float
        Largest temperature of VT.
    """

    model: pm.Model
    start: Callable[[np.random.Generator], dict[str, np.ndarray]]
    largest: float = LARGEST


def peak() -> Problem:
    """A peak in a noisy spectrum; a start beside it feels hardly any slope."""
    rng = np.random.default_rng(2)
    x = np.linspace(-15.0, 15.0, 60)
    y = 3.0 * np.exp(-0.5 * ((x - 5.0) / 0.7) ** 2) + 0.5 * rng.normal(size=60)
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 6.0)
        height = pm.HalfNormal("height", 3.0)
        width = pm.LogNormal("width", -0.4, 0.3)
        curve = height * pm.math.exp(-0.5 * ((x - center) / width) ** 2)
        pm.Normal("y", curve, 0.5, observed=y)
    return Problem(model, lambda rng: {"center": rng.normal(-5.0, 2.0)})


def blob() -> Problem:
    """A bright spot in a small noisy image; started in another corner."""
    rng = np.random.default_rng(3)
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(9.0), np.arange(9.0)))
    light = 4.0 * np.exp(-0.5 * ((x - 6.0) ** 2 + (y - 6.0) ** 2)) + 0.4 * rng.normal(size=81)
    with pm.Model() as model:
        place = pm.Normal("place", 4.0, 3.0, shape=2)
        height = pm.HalfNormal("height", 4.0)
        square = (x - place[0]) ** 2 + (y - place[1]) ** 2
        pm.Normal("light", height * pm.math.exp(-0.5 * square), 0.4, observed=light)
    return Problem(model, lambda rng: {"place": rng.normal(1.0, 0.7, size=2)})


def ring() -> Problem:
    """Center of a bright ring in a small noisy image; started outside of it."""
    rng = np.random.default_rng(4)
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(11.0), np.arange(11.0)))

    def light(place):  # type: ignore[no-untyped-def]
        radius = pm.math.sqrt((x - place[0]) ** 2 + (y - place[1]) ** 2 + 1e-6)
        return 3.0 * pm.math.exp(-0.5 * ((radius - 2.0) / 0.7) ** 2)

    seen = light(np.array([7.0, 7.0])) + 0.6 * rng.normal(size=121)
    with pm.Model() as model:
        place = pm.Normal("place", 5.0, 4.0, shape=2)
        pm.Normal("light", light(place), 0.6, observed=np.asarray(seen.eval()))
    return Problem(model, lambda rng: {"place": rng.normal(-1.0, 0.7, size=2)})


def wavefront() -> Problem:
    """Time and slowness of a wave that crosses eight receivers; started too early."""
    rng = np.random.default_rng(7)
    t, x = (axis.ravel() for axis in np.meshgrid(np.arange(14.0), np.arange(8.0) - 3.5))
    y = 4.0 * np.exp(-0.5 * (t - 9.0 - 0.5 * x) ** 2) + 0.4 * rng.normal(size=t.size)
    with pm.Model() as model:
        time = pm.Normal("time", 7.0, 4.0)
        slowness = pm.Normal("slowness", 0.0, 1.0)
        strength = pm.HalfNormal("strength", 4.0)
        curve = strength * pm.math.exp(-0.5 * (t - time - slowness * x) ** 2)
        pm.Normal("y", curve, 0.4, observed=y)
    return Problem(model, lambda rng: {"time": rng.normal(2.0, 1.0), "slowness": rng.normal()})


def spots() -> Problem:
    """Two bright spots in a small noisy image; both are started in another corner."""
    rng = np.random.default_rng(3)
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(9.0), np.arange(9.0)))
    pairs = zip((6.0, 2.0), (6.0, 7.0), strict=True)
    light = sum(4.0 * np.exp(-0.5 * ((x - a) ** 2 + (y - b) ** 2)) for a, b in pairs)
    with pm.Model() as model:
        place = pm.Normal("place", 4.0, 3.0, shape=(2, 2))
        height = pm.HalfNormal("height", 4.0, shape=2)
        square = (x[:, None] - place[0]) ** 2 + (y[:, None] - place[1]) ** 2
        curve = (height * pm.math.exp(-0.5 * square)).sum(axis=1)
        pm.Normal("light", curve, 0.4, observed=light + 0.4 * rng.normal(size=81))
    return Problem(model, lambda rng: {"place": rng.normal(1.0, 0.7, size=(2, 2))})


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
    x = np.linspace(-15.0, 15.0, 60)

    def pattern(shift):  # type: ignore[no-untyped-def]
        peaks = zip((-4.0, 0.0, 5.0), (1.0, 2.0, 3.0), strict=True)
        return sum(h * pm.math.exp(-0.5 * ((x - shift - c) / 0.6) ** 2) for c, h in peaks)

    y = pattern(2.0).eval() + 0.5 * rng.normal(size=60)
    with pm.Model() as model:
        offset = pm.Normal("offset", 0.0, 4.0)
        pm.Normal("y", pattern(offset), 0.5, observed=y)
    return Problem(model, lambda rng: {"offset": rng.normal(-4.0, 1.5)})


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


PROBLEMS: dict[str, Callable[[], Problem]] = {
    f.__name__: f for f in (peak, blob, spots, wavefront, ring, shift, outliers, phases)
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
        largest = LARGEST if method == "annealed" else problem.largest
        grid = np.geomspace(1.0, largest, 100)
        approx = pmt.fit(n, method, temperatures=grid, max_n=n, **options)
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


def overhead(out: Path, repeats: int) -> None:
    """CPU time of an iteration of pmt.fit over one of pm.fit, compilation left out, in pairs."""
    model = PROBLEMS["peak"]().model
    options = {"model": model, "progressbar": False, "obj_optimizer": pm.adam(learning_rate=0.01)}

    def iteration(fit: Callable[..., object], **more: object) -> float:
        seconds = []
        for n in (2_000, 12_000):
            began = process_time()
            fit(n, random_seed=1, **options, **more)
            seconds.append(process_time() - began)
        return (seconds[1] - seconds[0]) / 10_000

    pairs = np.array([
        (
            iteration(pm.fit),
            iteration(pmt.fit, method="advi"),
            iteration(pmt.fit, method="annealed", max_n=12_000),
            iteration(pmt.fit, method="variational_tempering", max_n=12_000),
        )
        for _ in range(repeats)
    ])  # fmt: skip
    rows: list[Row] = [
        {
            "fit": name,
            "microseconds": float(np.median(pairs[:, i])) * 1e6,
            "over pm.fit": float(np.median(pairs[:, i] / pairs[:, 0])),
        }
        for i, name in enumerate(("pm.fit", "advi", "annealed", "variational_tempering"))
    ]
    settings = {
        "model": "peak, 3 parameters, 60 data; no progress bar",
        "repeats": f"{repeats}, medians; an iteration is a ten-thousandth of the difference "
        "between fits of 12,000 and 2,000 iterations (CPU time)",
    }
    save("variational_overhead", rows, out, "An iteration of a fit", settings)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=20)
    args.add_argument("--models", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    args.add_argument("--n", type=int, default=6000, help="iterations of every fit")
    args.add_argument("--out", type=Path, default=RESULTS, help="folder of table and picture")
    args.add_argument("--overhead", action="store_true", help="time iterations, and nothing else")
    options = args.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    if options.overhead:
        overhead(options.out, 5)
        return
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
        "temperatures": f"annealed: from {LARGEST:g} on, linear; VT: 100 from 1 to {LARGEST:g} "
        "(outliers: 4.5, below which its normalizer is finite), evenly spaced in log T",
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
