"""Sweeps of a 784 x 500 machine with RTS statistics beside the bare arithmetic of a sweep.

Bare are the two products of matrices, the random numbers and the exponentials by which bits are
drawn; the run has in addition the path, fresh draws at beta = 0, log_ratio, moves on the ladder
and all statistics of its rows. Both in turn, CPU seconds of one process, BLAS on one thread.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/rts_speed.py
"""

import argparse
from pathlib import Path
from time import process_time

import numpy as np
from common import RESULTS, Row, save
from rbm_data import large_machine
from rbm_density import RBM, draw_bits

from pymc_tempering.arrays import temper
from pymc_tempering.arrays.lockstep import rows_of_trace, run_sweeps


def bare_sweeps(rbm: RBM, v: np.ndarray, sweeps: int, rng: np.random.Generator) -> None:
    """Make the products, random numbers and exponentials of block Gibbs sweeps."""
    for _ in range(sweeps):
        h = draw_bits(v @ rbm.weights, rng)
        v = draw_bits(h @ rbm.weights.T, rng)


def measure(sweeps: int, repeats: int, seed: int) -> list[Row]:
    """CPU seconds of both, in turn, and their ratio."""
    rbm, reference, _, _ = large_machine()
    density, rng = rbm.density(reference), np.random.default_rng(seed)
    run = temper(density, 1, betas=100, random_seed=rng)
    chains, rows = run.chains, []
    v = np.ascontiguousarray(chains.states[:, : rbm.n_visible])
    bare_sweeps(rbm, v, 20, rng)
    for repeat in range(repeats):
        begin = process_time()
        bare_sweeps(rbm, v, sweeps, rng)
        middle = process_time()
        chains, trace = run_sweeps(density, run.ladder, chains, sweeps, rng)
        rows_of_trace(trace)
        end = process_time()
        row: Row = {"run": repeat + 1, "sweeps": sweeps, "bare, CPU s": middle - begin}
        rows.append(row | {"with RTS, CPU s": end - middle})
    for row in rows:
        row["ratio"] = float(row["with RTS, CPU s"]) / float(row["bare, CPU s"])
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sweeps", type=int, default=1000)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    args = arguments.parse_args()
    rows = measure(args.sweeps, args.repeats, args.seed)
    settings = {
        "model": f"784 visible, 500 hidden units, {large_machine()[3]}; float32; 100 chains, 100 "
        "rungs",
        "median ratio": f"{np.median([float(row['ratio']) for row in rows]):.2f}",
        "seed": str(args.seed),
    }
    save("rts_speed", rows, args.out, "Sweeps with RTS statistics beside bare sweeps", settings)


if __name__ == "__main__":
    main()
