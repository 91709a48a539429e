"""RMSE against the number of rungs, of several estimators (RTS paper, Figure 4).

The 784 x 500 machine, 100 chains, K evenly spaced rungs as in the paper. The paper takes bootstrap
samples of one long run; here each repeat is a run of its own, from its annealed pass on. Intervals
are 90 %, by the bootstrap over repeats.

    python benchmarks/rts_figure4.py --repeats 8 --rungs 10 30 100 300 1000
"""

import argparse
import warnings
from pathlib import Path
from time import process_time

import numpy as np
from common import RESULTS, Row, save
from rbm_data import large_machine
from rts_figure3 import long_truth, summary

from pymc_tempering import TemperingError, TemperingWarning
from pymc_tempering.arrays import ArrayDensity, temper

ESTIMATORS = {"RTS": "rts", "TS": "counts", "TI": "ti", "TI-RB": "ti_rb"}
"""Of the figure, by their names here; MBAR up to ``MAX_MBAR`` rungs."""

MAX_MBAR = 30


def estimates(density: ArrayDensity, n_rungs: int, sweeps: int, seed: int) -> dict[str, float]:
    """Log Z by each estimator from one run."""
    run = temper(density, sweeps, betas=np.linspace(0.0, 1.0, n_rungs), random_seed=seed,
                 keep_cold=False)  # fmt: skip
    names = ESTIMATORS | ({"MBAR": "mbar"} if n_rungs <= MAX_MBAR else {})
    found = {}
    for name, method in names.items():
        try:
            found[name] = run.evidence(method).log_z
        except TemperingError as error:  # no solution
            print(name, error, flush=True)
    return found


def measure(rungs: list[int], sweeps: int, repeats: int, truth: float) -> list[Row]:
    """One row for each number of rungs and estimator."""
    rbm, reference, _, _ = large_machine()
    density, rows = rbm.density(reference), []
    for n_rungs in rungs:
        begin = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TemperingWarning)
            found = [estimates(density, n_rungs, sweeps, s) for s in range(1, repeats + 1)]
        took = (process_time() - begin) / repeats
        for name in dict.fromkeys(name for each in found for name in each):
            values = [each[name] for each in found if name in each]
            head: Row = {"rungs": n_rungs, "estimator": name, "sweeps": sweeps}
            rows.append(head | summary(values, truth) | {"CPU s of a run": took})
            print(rows[-1], flush=True)
    return rows


def picture(rows: list[Row], path: Path) -> None:
    """Draw RMSE against rungs, a line an estimator."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.5))
    for name in dict.fromkeys(str(row["estimator"]) for row in rows):
        own = [row for row in rows if row["estimator"] == name]
        x, y = ([float(row[key]) for row in own] for key in ("rungs", "RMSE"))
        axis.plot(x, y, "o-", label=name)
    axis.set(xscale="log", yscale="log", xlabel="rungs", ylabel="RMSE (nats)")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rungs", type=int, nargs="+", default=[10, 30, 100, 300, 1000])
    arguments.add_argument("--sweeps", type=int, default=1000)
    arguments.add_argument("--repeats", type=int, default=8)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    args = arguments.parse_args()
    begin = process_time()
    rbm, reference, truth, source = large_machine()
    truth = long_truth(rbm, reference, args.sweeps) if np.isnan(truth) else truth
    rows = measure(args.rungs, args.sweeps, args.repeats, truth)
    settings = {
        "model": f"784 visible, 500 hidden units, {source}; true log Z {truth:.2f}",
        "run": f"100 chains, {args.sweeps} sweeps after the warm-up",
        "seconds": f"{process_time() - begin:.0f} CPU seconds in all",
        "seeds": "1, 2, ...",
    }
    save("rts_figure4", rows, args.out, "RMSE against the number of rungs", settings)
    picture(rows, args.out / "rts_figure4.png")


if __name__ == "__main__":
    main()
