"""What the parts of `variational.py` share: runs of several methods, their table and picture."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.common import Row
from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.variational.conjugate import Fit

BLUE, ORANGE, GREEN, GRAY, PURPLE, SKY = (
    "#0072B2", "#D55E00", "#009E73", "#7F7F7F", "#CC79A7", "#56B4E9",
)  # fmt: skip
VT, LVT = "variational_tempering", "local_variational_tempering"


@dataclass(frozen=True)
class Method:
    """How one method is called, and its color in pictures."""

    options: dict[str, Any]
    color: str


@dataclass(frozen=True)
class Run:
    """What one fit gave; nats."""

    method: str
    seed: int
    fit: Fit
    held_out: float
    found: int
    seconds: float


def run_all(
    methods: dict[str, Method],
    seeds: range,
    fit: Callable[[dict[str, Any], int], Fit],
    judge: Callable[[Fit], tuple[float, int]],
) -> list[Run]:
    """Fit with every method from every seed, interleaved."""
    runs = []
    for seed in seeds:
        for name, method in methods.items():
            started = process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TemperingWarning)
                result = fit(method.options, seed)
            seconds = process_time() - started
            run = Run(name, seed, result, *judge(result), seconds)
            runs.append(run)
            print(
                f"{name:14s} seed {seed:3d}  ELBO {result.elbo:12.1f}  held out "
                f"{run.held_out:10.4f}  found {run.found}  {len(result.elbo_history)} iterations "
                f"{seconds:.1f} s",
                flush=True,
            )
    return runs


def summary(runs: list[Run], methods: dict[str, Method], n_parts: int = 0) -> list[Row]:
    """Return a row for each method: its ELBO, held-out likelihood and found components."""
    rows: list[Row] = []
    for name in methods:
        mine = [run for run in runs if run.method == name]
        values = np.array([run.fit.elbo for run in mine])
        held_out = np.array([run.held_out for run in mine])
        row: Row = {
            "method": name, "n": len(mine),
            "ELBO median": f"{np.median(values):.0f}", "ELBO best": f"{values.max():.0f}",
            "ELBO worst": f"{values.min():.0f}",
            "held out": f"{held_out.mean():.4f}",
            "its se": f"{held_out.std(ddof=1) / np.sqrt(len(mine)):.4f}" if len(mine) > 1 else "-",
        }  # fmt: skip
        if n_parts:
            found = np.array([run.found for run in mine])
            row |= {"all found": f"{np.mean(found == n_parts):.0%}", "mean found": found.mean()}
        row |= {
            "iterations": float(np.mean([len(run.fit.elbo_history) for run in mine])),
            "seconds": float(np.median([run.seconds for run in mine])),
        }
        rows.append(row)
    return rows


def pictures() -> Any:
    """Return pyplot without a window."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
    return plt


def draw(name: str, runs: list[Run], methods: dict[str, Method], out: Path, label: str) -> None:
    """Draw the final ELBO and held-out likelihood of all runs, and T over the iterations."""
    figure, axes = pictures().subplots(1, 3, figsize=(12.0, 3.8), layout="constrained")
    jitter = np.random.default_rng(0)
    for i, (method, look) in enumerate(methods.items()):
        mine = [run for run in runs if run.method == method]
        x = i + 0.15 * jitter.uniform(-1, 1, len(mine))
        axes[0].plot(x, [run.fit.elbo for run in mine], "o", ms=4, alpha=0.7, color=look.color)
        axes[1].plot(x, [run.held_out for run in mine], "o", ms=4, alpha=0.7, color=look.color)
        history = 1.0 / mine[0].fit.inverse_temperature
        axes[2].plot(np.arange(1, len(history) + 1), history, color=look.color, label=method)
    for ax, title in zip(
        axes, ("ELBO at T = 1 (nats)", label, "1 / E[1/T], first run"), strict=True
    ):
        ax.set_title(title, loc="left")
    for ax in axes[:2]:
        ax.set_xticks(range(len(methods)), list(methods), rotation=30, ha="right")
    axes[2].set(xlabel="iteration", xscale="log", yscale="log")
    axes[2].legend(frameon=False, fontsize=8, loc="upper right")
    figure.savefig(out / f"{name}.png", dpi=130)


def annealed(passes: float, hottest: float, schedule: str = "linear") -> dict[str, Any]:
    """Return the options of AVI."""
    return {
        "method": "annealed", "hottest": hottest, "anneal_passes": passes, "schedule": schedule,
    }  # fmt: skip
