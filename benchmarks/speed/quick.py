"""What a change does to speed and error, in five minutes: a line of a history, `make bench-quick`.

A line has the commit, the start-up of a fresh process to its first recorded draw with warm caches,
a compiled gradient and what the chain makes of it, effective draws a second, and of four models
with an exact log Z the root mean square of its error, over some seeds, and the median CPU seconds
of a run. Lines of one machine, free of other work, can be compared.
"""

import csv
import os
import subprocess
import warnings
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np

import pymc_tempering as pmt
from benchmarks.common import Row, machine, markdown, parser, read_table, run_once, system
from benchmarks.speed.overhead import MODEL, frozen_plan, loop_overhead
from benchmarks.speed.startup import fresh_process

MODELS = ("regression", "hierarchical", "mixture", "logistic")
PROCESSES, PAIRS, ITERATIONS = 3, 9, 20_000
"""Fresh processes, of which the first one fills the caches; timed pairs of gradient and chain."""


def commit() -> str:
    """Return the commit, with a plus where files differ from it."""

    def git(*command: str) -> str:
        root = str(Path(__file__).parents[2])
        done = subprocess.run(["git", "-C", root, *command], capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def start_up(seed: int) -> float:
    """Seconds from the start of a process to its first recorded draw."""
    runs = [fresh_process("pmt.sample", MODEL, "auto", seed + i) for i in range(PROCESSES)]
    return median(run["first recorded draw"] for run in runs[1:])


def draws_a_second(seed: int, repeats: int) -> float:
    """Least effective sample size of a default run for each of its CPU seconds."""
    found, model = [], system(MODEL).model
    for i in range(-1, repeats):  # the first one compiles
        before = process_time()
        idata = pmt.sample(
            model=model, cores=1, random_seed=seed + i, quiet=True, progressbar=False
        )
        found.append(idata["tempering"].attrs["least_ess"] / (process_time() - before))
    return median(found[1:])


def error_and_seconds(name: str, seed: int, repeats: int) -> Row:
    """Root mean square error of log Z (nats), CPU seconds of a run, and verdicts but ok."""
    run_once(name, seed - 1, draws=50)
    runs = [run_once(name, seed + i) for i in range(repeats)]
    error = np.array([run.log_z for run in runs]) - system(name).log_evidence
    return {
        f"{name}: error": f"{np.sqrt(np.mean(error**2)):.2g}",
        f"{name}: CPU s": f"{median(run.cpu for run in runs):.3g}",
        f"{name}: not ok": sum(run.verdict != "ok" for run in runs),
    }


def line(seed: int, repeats: int) -> Row:
    """Measure all."""
    row: Row = {"commit": commit(), "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", **machine()}
    row["start-up s"] = f"{start_up(seed):.2f}"
    bare, _, ratio, _ = loop_overhead(frozen_plan(seed), PAIRS, ITERATIONS)
    row["gradient us"] = f"{bare['value']:.3g}"
    row["chain / gradient"] = f"{ratio['value']:.3f}"
    row["effective draws / s"] = f"{draws_a_second(seed, repeats):.3g}"
    for name in MODELS:
        row |= error_and_seconds(name, seed, repeats)
    return row | {"seeds": f"{seed} to {seed + repeats - 1}", "load": f"{os.getloadavg()[0]:.2f}"}


def append(row: Row, path: Path) -> None:
    """Add a line to the history.

    Raises
    ------
    ValueError
        The history has other columns.
    """
    earlier = read_table(path) if path.exists() else []
    if earlier and list(earlier[0]) != list(row):
        raise ValueError(f"{path} has other columns: begin a new history.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if not earlier:
            writer.writeheader()
        writer.writerow(row)
    last = earlier[-1] if earlier else dict.fromkeys(row, "")
    print(markdown([{"": k, "before": last[k], "now": row[k]} for k in row]), flush=True)


def main() -> None:
    args = parser(__doc__, 5).parse_args()
    warnings.simplefilter("ignore")
    append(line(args.seed, args.repeats), args.out / "history.csv")


if __name__ == "__main__":
    main()
