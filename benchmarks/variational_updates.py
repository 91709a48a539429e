"""Why q(T) of variational tempering cools too early, and what keeps it hot: updates side by side.

Final ELBO at T = 1 on the models where the paper's form stays with pm.fit. In all of them the
normalizer is the same for all parameters, and so C(T) averaged over a tempered posterior is, too.
"""

import argparse
import logging
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pymc as pm
from common import RESULTS, Row, markdown, save
from variational_fit import LEARNING_RATE
from variational_problems import LARGEST, PROBLEMS, Problem

import pymc_tempering as pmt

MODELS = ("ring", "shift", "outliers", "peak")
VT, LVT = "variational_tempering", "local_variational_tempering"
UPDATES: dict[str, dict[str, Any]] = {
    "paper, every 10, damped": {"method": VT, "first_temperatures": "uniform"},
    "paper, every 1000": {
        "method": VT, "first_temperatures": "uniform", "update_every": 1000, "damping": 0.0,
    },
    "slow: damping 0.99": {"method": VT, "first_temperatures": "uniform", "damping": 0.99},
    "local temperatures": {"method": LVT},
    "annealed start": {
        "method": VT, "schedule": lambda share: LARGEST + (1.0 - LARGEST) * share, "trials": 0,
    },
    "annealed": {"method": "annealed"},
}  # fmt: skip


def one_fit(problem: Problem, options: dict[str, Any], seed: int, n: int) -> tuple[float, ...]:
    """Final ELBO, E[1/T] after 20 and 400 iterations and at the end of the tempered stage."""
    largest = LARGEST if options["method"] == "annealed" else problem.largest
    n_grid = 10 if options["method"] == LVT else 100
    report = pmt.fit(
        n,
        model=problem.model,
        temperatures=np.geomspace(1.0, largest, n_grid),
        max_n=n,
        random_seed=seed,
        start=problem.start(np.random.default_rng(1000 + seed)),
        progressbar=False,
        obj_optimizer=pm.adam(learning_rate=LEARNING_RATE),
        **options,
    ).tempering
    inverse = report.inverse_temperature
    return report.elbo, inverse[20], inverse[400], inverse[max(report.n_tempered - 1, 0)]


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=20)
    args.add_argument("--n", type=int, default=4000, help="iterations of every fit")
    args.add_argument("--out", type=Path, default=RESULTS)
    options = args.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    rows: list[Row] = []
    began = process_time()
    for name in MODELS:
        problem = PROBLEMS[name]()
        found = {
            update: np.array(
                [one_fit(problem, how, seed, options.n) for seed in range(options.repeats)]
            )
            for update, how in UPDATES.items()
        }
        best = max(runs[:, 0].max() for runs in found.values())
        rows += [
            {
                "model": name,
                "update of q(T)": update,
                "n": len(runs),
                "median": float(np.median(runs[:, 0])),
                "near_best": int((runs[:, 0] > best - 3.0).sum()),
                "at 20": float(np.median(runs[:, 1])),
                "at 400": float(np.median(runs[:, 2])),
                "at end": float(np.median(runs[:, 3])),
            }
            for update, runs in found.items()
        ]
        print(markdown(rows[-len(UPDATES) :]), flush=True)
    settings = {
        "iterations": f"{options.n}, half of them tempered at most; adam, rate {LEARNING_RATE}",
        "temperatures": f"100 from 1 to {LARGEST:g} (outliers: 4.5, local ones: 10 of them)",
        "annealed start": f"q(T) above a linear schedule from {LARGEST:g} for 80 % of the stage",
        "repeats": f"{options.repeats} starts, the same for every update",
        "median": "ELBO at T = 1 (nats)",
        "near_best": "fits within 3 nats of the best of all",
        "at 20, at 400, at end": "median E[1/T] after 20 and 400 iterations, and of the stage",
        "CPU minutes in all": f"{(process_time() - began) / 60:.1f}",
    }
    save("variational_updates", rows, options.out, "Updates of q(T) side by side", settings)


if __name__ == "__main__":
    main()
