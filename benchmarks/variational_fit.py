"""Tempered fits beside pm.fit: final ELBO at T = 1 on multimodal or badly started models.

The same number of iterations, optimizer and start for every method. A start is a draw from the
prior or a stated bad place; both it and the noise of the gradients change with the seed.
"""

import argparse
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
from common import RESULTS, Row, markdown, save, worker_pool
from variational_problems import FIRST, LARGEST, PROBLEMS, Problem

import pymc_tempering as pmt
from pymc_tempering.variational.assess import UntemperedModel, assess, compile_target

METHODS = ("pm.fit", "annealed", "variational_tempering")
LEARNING_RATE = 0.02


def one_fit(
    problem: Problem, target: UntemperedModel, method: str, seed: int, n: int
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
        options["first_temperatures"] = "uniform"  # the paper's form
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
    columns = min(len(found), 7)
    rows = -(-len(found) // columns)
    size = (1.9 * columns, 3.2 * rows)
    fig, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for ax in axes.flat[len(found) :]:
        ax.set_visible(False)
    for ax, (name, runs) in zip(axes.flat, found.items(), strict=False):
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
    for ax in axes[:, 0]:
        ax.set_ylabel("nats below the best ELBO")
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


def run_model(name: str, repeats: int, n: int) -> dict[str, np.ndarray]:
    """Fit a model by every method from every start."""
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    problem = PROBLEMS[name]()
    target = compile_target(pm.MeanField(model=problem.model))
    return {
        method: np.array([one_fit(problem, target, method, seed, n) for seed in range(repeats)])
        for method in METHODS
    }


def run_alone(name: str, repeats: int, n: int) -> dict[str, np.ndarray]:
    """Do the same in a process of its own."""
    with worker_pool(1) as pool:
        return pool.submit(run_model, name, repeats, n).result()


def table(found: dict[str, dict[str, np.ndarray]]) -> list[Row]:
    """Summarize every model and method."""
    rows: list[Row] = []
    for name, methods in found.items():
        best = max(runs[:, 0].max() for runs in methods.values())
        plain = methods["pm.fit"]
        rows += [summary(name, m, runs, plain, best) for m, runs in methods.items()]
    return rows


def main() -> None:
    first = [problem.__name__ for problem in FIRST]
    more = [name for name in PROBLEMS if name not in first]
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=20)
    args.add_argument("--models", nargs="+", choices=list(PROBLEMS))
    args.add_argument("--more", action="store_true", help="the models left out of the first table")
    args.add_argument("--n", type=int, default=4000, help="iterations of every fit")
    args.add_argument("--out", type=Path, default=RESULTS, help="folder of table and picture")
    args.add_argument("--overhead", action="store_true", help="time iterations, and nothing else")
    options = args.parse_args()
    if options.overhead:
        overhead(options.out, 5)
        return
    file, title = "variational_fit", "Tempered fits beside pm.fit"
    if options.more:
        file, title = "variational_fit_more", f"{title}: models left out of the first table"
    run = run_alone if options.more else run_model
    began = sum(os.times()[:4])
    found: dict[str, dict[str, np.ndarray]] = {}
    for name in options.models or (more if options.more else first):
        found[name] = run(name, options.repeats, options.n)
        print(markdown(table(found)[-len(METHODS) :]), flush=True)
    draw(found, options.out / f"{file}.png")
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
        **({"runs": "each model in a process of its own"} if options.more else {}),
        "CPU minutes in all": f"{(sum(os.times()[:4]) - began) / 60:.1f}",
    }
    save(file, table(found), options.out, title, settings)


if __name__ == "__main__":
    main()
