"""Time to an answer in a fresh process, for tempering and its peers: from nothing to log Z.

Each repeat is a new Python process that imports, builds the model, compiles or loads from the
disk caches, computes and prints the evidence. The first one of each model and method fills the
caches and is not counted. `cpu` is that of the process and its threads.

Rows of earlier calls stay, if machine, versions and settings were the same; "calls" says which
models were run together.
"""

import argparse
import csv
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from common import Row, machine, parser, save, system

METHODS = ("tempering", "smc", "nuts_bridge")
DEFAULT_MODELS = (
    "regression", "hierarchical", "mixture", "twenty_modes", "gaussian100", "logistic", "schools",
    "shells",
)  # fmt: skip


def child(name: str, method: str, seed: int) -> float:
    """Compute log Z in this process, as a user of the method would."""
    if method == "tempering":
        import pymc_tempering as pmt

        idata = pmt.sample(model=system(name).model, cores=1, random_seed=seed, quiet=True,
                           progressbar=False)  # fmt: skip
        return pmt.log_marginal_likelihood(idata).log_z
    from peers import METHODS as calls

    return calls[method](name, seed).log_z


def fresh_process(name: str, method: str, seed: int) -> tuple[float, float, float]:
    """Run `child` in a new process: wall seconds, CPU seconds, log Z."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", name, method, str(seed)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    seconds = perf_counter() - started
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, float(done.stdout.splitlines()[-1])


def read_earlier(path: Path, head: dict[str, str]) -> tuple[dict[str, Row], list[list[str]]]:
    """Rows by model, and the models of each call, that earlier calls of the same head have left."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    if "calls" not in found or any(found.get(key) != value for key, value in head.items()):
        return {}, []
    table = csv.DictReader(line for line in lines if not line.startswith("#"))
    rows: dict[str, Row] = {
        line["model"]: {key: v if key == "model" else float(v) for key, v in line.items()}
        for line in table
    }
    return rows, [call.split(", ") for call in found["calls"].split("; ")]


def measure(name: str, seed: int, repeats: int) -> Row:
    """Median seconds of each method on a model, after a process that fills the caches."""
    row: Row = {"model": name}
    for method in METHODS:
        fresh_process(name, method, seed)
        runs = [fresh_process(name, method, seed + 1 + i) for i in range(repeats)]
        row[f"{method} (s)"] = median(run[0] for run in runs)
        row[f"{method} (cpu s)"] = median(run[1] for run in runs)
    return row


def main() -> None:
    args = parser(__doc__, 3, DEFAULT_MODELS).parse_args()
    settings = {
        "seconds": f"medians over {args.repeats} processes; as in `peers.md`, one core",
        "seeds": f"{args.seed + 1} to {args.seed + args.repeats}",
    }
    rows, before = read_earlier(args.out / "peers_fresh.csv", {**machine(), **settings})
    done: list[str] = []
    for name in args.models:
        rows[name] = measure(name, args.seed, args.repeats)
        done.append(name)
        calls = [*([each for each in call if each not in done] for call in before), done]
        changing = {
            "load average at the end": f"{os.getloadavg()[0]:.2f}",
            "calls": "; ".join(", ".join(call) for call in calls if call),
        }
        title = "Time to an answer in a fresh process"
        save("peers_fresh", list(rows.values()), args.out, title, settings | changing)


if __name__ == "__main__":
    if "--child" in sys.argv:
        flags = argparse.ArgumentParser()
        flags.add_argument("--child", nargs=3)
        model, way, chosen = flags.parse_args().child
        print(child(model, way, int(chosen)))
    else:
        main()
