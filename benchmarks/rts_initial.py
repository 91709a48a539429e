"""Initial iterations as the RTS paper prints them, beside an annealed pass first.

On the 784 x 500 machine, 100 chains: from Z-hat = 1 with rounds of 50 sweeps and betas drawn anew,
100 evenly spaced rungs (section 2.4); and by the warm-up of `temper`. Sweeps are those of 100
chains. And on a 784 x 10 machine, how often the rule max |r_k - c_k| < 0.1 / K passes at the exact
log Z, where every round should.

    python benchmarks/rts_initial.py --rounds 40
"""

import argparse
import warnings
from pathlib import Path
from time import process_time

import numpy as np
from common import RESULTS, Row, save
from rbm_data import large_machine, trained_machine
from rts_figure1 import exact_curve
from rts_initial_iterations import initial_iterations, rule_passes, start_chains

from pymc_tempering import TemperingWarning
from pymc_tempering.arrays import temper
from pymc_tempering.arrays.lockstep import run_sweeps
from pymc_tempering.core.ladder import Ladder


def passes_of_the_rule(rounds: int, sweeps: int, seed: int, updates: int) -> tuple[int, int]:
    """Rounds at the exact log Z that pass the rule of the paper, and those that do not."""
    rbm, reference = trained_machine(10, updates)
    betas, rng = np.linspace(0.0, 1.0, 100), np.random.default_rng(seed)
    ladder = Ladder(betas, exact_curve(rbm, reference, betas), np.zeros(100))
    density, passed = rbm.density(reference), 0
    chains = start_chains(density, 100, rng.integers(100, size=100), rng)
    for i in range(rounds + 2):  # the first two lead to equilibrium
        chains, trace = run_sweeps(density, ladder, chains, sweeps, rng)
        passed += i >= 2 and rule_passes(trace.probabilities().mean(axis=0), ladder)
    return passed, rounds - passed


def measure(rounds: int, seed: int) -> list[Row]:
    """Log Z-hat at beta = 1 after each round, by both ways."""
    rbm, reference, truth, _ = large_machine()
    density, rows = rbm.density(reference), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        printed = initial_iterations(density, 100, max_rounds=rounds, random_seed=seed)
        run = temper(density, 1, random_seed=seed)
    before = run.warm_sweeps - run.learned.n_rounds * run.learned.n_sweeps
    for way, learned, spent in (
        ("as printed", printed, 0),
        ("annealed first", run.learned, before),
    ):
        for i, log_z in enumerate(learned.log_z[:, -1]):
            sweeps = spent + i * learned.n_sweeps
            row: Row = {"way": way, "round": i, "sweeps": sweeps, "log Z-hat": float(log_z)}
            rows.append(row | {"off": float(log_z) - truth})
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--updates", type=int, default=5000, help="of CD-1 for 784 x 10")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    args = arguments.parse_args()
    begin = process_time()
    rows = measure(args.rounds, args.seed)
    passed = {n: passes_of_the_rule(20, n, args.seed, args.updates) for n in (50, 500)}
    settings = {
        "model": f"784 visible, 500 hidden units, {large_machine()[3]}; true log Z 451.27",
        "rule of the paper at the exact log Z, 784 x 10, 100 rungs": ", ".join(
            f"{yes} of {yes + no} rounds of {n} sweeps pass" for n, (yes, no) in passed.items()
        ),
        "seconds": f"{process_time() - begin:.0f} CPU seconds in all",
        "seed": str(args.seed),
    }
    save("rts_initial", rows, args.out, "Initial iterations as printed, and annealed", settings)


if __name__ == "__main__":
    main()
