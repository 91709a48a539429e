"""The picture of the README, from stored runs: log Z of two separated Gaussians by three methods.

`python front_picture.py` draws it from `peers_120_runs.csv`, without any run.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.common import RESULTS, read_table, system

PLACE = Path(__file__).parents[2] / "docs" / "_static" / "front.png"
MODEL = "mixture"
METHODS = {
    "tempering": ("pmt.sample", "#3b6ea5"),
    "nuts_bridge": ("NUTS and bridge sampling", "#d98032"),
    "smc": ("pm.sample_smc", "0.45"),
}
"""Name and color of each method in the table."""

HOLDS = 4.0
"""Errors within which an answer counts as right."""


def picture(place: Path) -> None:
    """Draw each run's log Z and its interval, and count those that are right."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    exact = float(system(MODEL).log_evidence)
    runs = [run for run in read_table(RESULTS / "peers_120_runs.csv") if run["model"] == MODEL]
    figure, every = plt.subplots(1, 3, figsize=(8.5, 2.6), sharey=True, facecolor="white")
    for axes, (method, (name, color)) in zip(every, METHODS.items(), strict=True):
        own = [run for run in runs if run["method"] == method]
        off = np.array([float(run["log_z"]) for run in own]) - exact
        error = np.array([float(run["error"]) for run in own])
        wrong = np.abs(off) > HOLDS * error
        axes.axhline(0.0, color="0.75", lw=1)
        axes.errorbar(np.arange(off.size), off, 1.96 * error, fmt="none", ecolor=color, lw=1)
        axes.scatter(np.flatnonzero(~wrong), off[~wrong], s=16, color=color)
        axes.scatter(np.flatnonzero(wrong), off[wrong], s=22, color="crimson", marker="x")
        axes.set_title(f"{name}\n{wrong.sum()} of {off.size} runs wrong", fontsize=10)
        axes.set(xticks=[], xlabel="run")
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    every[0].set_ylabel("log Z - exact (nats)")
    figure.tight_layout()
    figure.savefig(place, dpi=150)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, default=PLACE, help="file of the picture")
    picture(arguments.parse_args().out)


if __name__ == "__main__":
    main()
