"""Real models: tempering beside NUTS and bridge sampling, each run in a fresh process.

Half of the models were there while the package was worked on; the others were written after it was
frozen and never tuned to ("half" in the table). Truths are computed apart, by `real_truths.py`.
Every run is written to `real_models_runs.csv` as soon as it is there. A benchmark that was cut
short goes on where it was; `--restart` forgets what there is. A run that takes more than
`--limit` CPU seconds after compiling is ended, and its row says where it was.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from real_models_list import all_models

METHODS = ("tempering",)
COLUMNS = (
    "model", "method", "seed", "status", "log_z", "mcse", "verdict", "cpu", "ess", "rhat", "draws",
    "reference", "rungs", "evaluations", "seconds", "warnings", "wall",
)  # fmt: skip
RUNS = "real_models_runs.csv"
RESULTS = Path(__file__).parent / "results"
CHILD = Path(__file__).parent / "real_models_child.py"
PATIENCE = 3.0
"""Wall seconds to CPU seconds, at which a process that does not use its core is ended."""

type Line = dict[str, Any]


def fresh_run(method: str, name: str, seed: int, limit: float) -> Line:
    """Run a method on a model in a new process, and say what came of it."""
    command = [sys.executable, str(CHILD), method, name, str(seed), str(limit)]
    line: Line = {"model": name, "method": method, "seed": seed}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    started = perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment,
            timeout=PATIENCE * 2.0 * limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return line | {"status": f"hung for {PATIENCE * 2.0 * limit:.0f} wall s"}
    line["wall"] = round(perf_counter() - started, 1)
    if done.returncode == 0:
        found = json.loads(done.stdout.splitlines()[-1])
        return line | {"status": "done"} | found
    if done.returncode < 0:
        return line | {"status": f"over {limit:.0f} CPU s in {place_of(done.stderr)}"}
    return line | {"status": f"failed: {done.stderr.strip().splitlines()[-1][:300]}"}


def place_of(stack: str) -> str:
    """Name the functions of the package on the first stack that was printed, outermost first."""
    first = stack.split("Current thread", 2)[1] if "Current thread" in stack else stack
    inside = re.findall(r'pymc_tempering/([\w/]+)\.py", line (\d+) in (\w+)', first)
    if not inside:
        inside = re.findall(r'/(\w+)\.py", line (\d+) in (\w+)', first)[:4]
    return " < ".join(f"{file}:{function}" for file, _, function in reversed(inside[-6:])) or "?"


def read_runs(path: Path) -> list[Line]:
    """Read the runs that earlier calls have left."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add_run(path: Path, line: Line) -> None:
    """Append a run to the file."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in line.items()}
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(cells)


def run_missing(args: argparse.Namespace, path: Path) -> None:
    """Make the runs that are not in the file yet."""
    done = {(run["model"], run["method"], int(run["seed"])) for run in read_runs(path)}
    for name in args.models:
        for seed in range(args.seed, args.seed + args.repeats):
            for method in args.methods:
                if (name, method, seed) in done:
                    continue
                line = fresh_run(method, name, seed, args.limit)
                add_run(path, line)
                shown = {k: line.get(k) for k in ("status", "log_z", "mcse", "verdict", "cpu")}
                print(name, method, seed, shown, flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    models = list(all_models())
    arguments.add_argument("--models", nargs="+", choices=models, default=models)
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    arguments.add_argument("--limit", type=float, default=600.0, help="CPU seconds of a run")
    arguments.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    arguments.add_argument("--restart", action="store_true", help="forget earlier runs")
    args = arguments.parse_args()
    path = args.out / RUNS
    if args.restart:
        path.unlink(missing_ok=True)
    run_missing(args, path)


if __name__ == "__main__":
    main()
