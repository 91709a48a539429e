"""Real models: tempering beside NUTS and bridge sampling, each run in a fresh process.

Half of the models were there while the package was worked on; the others were written after it was
frozen and never tuned to ("half" in the table). With `--truths` the long runs are made that the
others are held against, by formula or by two methods, into `real_models_truths.csv`.

Every run is written to `real_models_runs.csv` as soon as it is there. A benchmark that was cut
short goes on where it was; `--restart` forgets the runs that are named. A run that takes more than
`--limit` CPU seconds after compiling is ended, and its row says where it was.
"""

import argparse
import csv
import hashlib
import json
import os
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.common import RESULTS, save
from benchmarks.compare.real_models_table import NOTES, Line, judge, read_runs, table
from benchmarks.fresh_runs import lines_of
from benchmarks.models.real_models_list import all_models
from benchmarks.truths.real_truth_methods import TRUTHS, truths_of

METHODS = ("tempering", "nuts_bridge")
COLUMNS = (
    "model", "method", "seed", "status", "log_z", "mcse", "verdict", "cpu", "ess", "rhat", "draws",
    "reference", "rungs", "evaluations", "seconds", "warnings", "wall", "code",
)  # fmt: skip
RUNS, LONG_RUNS = "real_models_runs.csv", "real_models_truths.csv"
PACKAGE = Path(__file__).parents[2] / "pymc_tempering"
CHILD = Path(__file__).parent / "real_models_child.py"


def fresh_run(method: str, name: str, seed: int, limit: float) -> Line:
    """Run a method on a model in a new process, and say what came of it."""
    started = perf_counter()
    (found,) = lines_of(str(CHILD), f"{method}/{name}", [seed], limit)
    wall = {"wall": round(perf_counter() - started, 1), "code": code_of(PACKAGE)}
    if not found["status"].startswith(("done", "over", "hung")):
        found["status"] = f"failed: {found['status']}"
    return {"model": name, "method": method} | found | wall


def by_formula(name: str, seed: int) -> Line:
    """Take the truth of a model from its formula, here and now."""
    started, cpu = perf_counter(), process_time()
    line: Line = {"model": name, "method": "exact", "seed": seed, "code": code_of(PACKAGE)}
    found = TRUTHS["exact"](name, seed)
    times = {"cpu": process_time() - cpu, "wall": round(perf_counter() - started, 1)}
    return line | {"status": "done"} | found | times


def code_of(package: Path) -> str:
    """Return a short hash of the sources of the package, the same wherever it lies."""
    parts = [path.read_bytes() for path in sorted(package.rglob("*.py"))]
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()[:8]


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
    seeds = [args.seed] if args.truths else range(args.seed, args.seed + args.repeats)
    done = {(run["model"], run["method"], int(run["seed"])) for run in read_runs(path)}
    for name in args.models:
        methods = truths_of(name) if args.truths else args.methods
        for seed in seeds:
            for method in methods:
                if (name, method, seed) in done:
                    continue
                if method == "exact":
                    line = by_formula(name, seed)
                else:
                    line = fresh_run(method, name, seed, args.limit)
                add_run(path, line)
                shown = {k: line.get(k) for k in ("status", "log_z", "mcse", "verdict", "cpu")}
                print(name, method, seed, shown, flush=True)


def forget(path: Path, args: argparse.Namespace) -> None:
    """Take the runs of some models and methods out of the file."""
    runs = read_runs(path)
    path.unlink(missing_ok=True)
    for run in runs:
        named = run["model"] in args.models and (args.truths or run["method"] in args.methods)
        if not named:
            add_run(path, run)


def write_table(out: Path, limit: float) -> None:
    """Write the table of all runs that are there, and the judgment."""
    runs, truths = read_runs(out / RUNS), read_runs(out / LONG_RUNS)
    if not runs:
        return
    rows = table(runs, truths)
    seeds = sorted({int(run["seed"]) for run in runs})
    settings = {
        **judge(runs, truths),
        "seeds": f"{', '.join(map(str, seeds))}; runs: {RUNS}; truths: {LONG_RUNS}",
        "limit": f"{limit:.0f} CPU seconds a run",
        "hash of the package's sources": ", ".join(sorted({run["code"] for run in runs})),
        "load average at the end": f"{os.getloadavg()[0]:.2f}",
        **NOTES,
    }
    save("real_models", rows, out, f"{len(rows)} real models", settings)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    models = list(all_models())
    arguments.add_argument("--models", nargs="+", choices=models, default=models)
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    arguments.add_argument("--limit", type=float, default=600.0, help="CPU seconds of a run")
    arguments.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    arguments.add_argument("--truths", action="store_true", help="the long runs")
    arguments.add_argument("--restart", action="store_true", help="forget earlier runs")
    arguments.add_argument("--table", action="store_true", help="only the table of what is there")
    args = arguments.parse_args()
    path = args.out / (LONG_RUNS if args.truths else RUNS)
    if args.restart:
        forget(path, args)
    if not args.table:
        run_missing(args, path)
    write_table(args.out, args.limit)


if __name__ == "__main__":
    main()
