"""Time to an answer in a fresh process, for tempering and its peers: from nothing to log Z.

Each repeat is a new Python process that imports, builds the model, compiles or loads from the
disk caches, computes and prints the evidence. The first one of each model and method fills the
caches and is not counted. `cpu` is that of the process and its threads.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

METHODS = ("tempering", "smc", "nuts_bridge")
DEFAULT_MODELS = (
    "regression", "hierarchical", "mixture", "twenty_modes", "gaussian100", "logistic", "schools",
    "shells",
)  # fmt: skip


def child(name: str, method: str, seed: int) -> float:
    """Compute log Z in this process, as a user of the method would."""
    if method == "tempering":
        from common import system

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


def main() -> None:
    from common import Row, parser, save

    arguments = parser(__doc__, 3, DEFAULT_MODELS)
    args = arguments.parse_args()
    rows: list[Row] = []
    for name in args.models:
        row: Row = {"model": name}
        for method in METHODS:
            fresh_process(name, method, args.seed)
            runs = [fresh_process(name, method, args.seed + 1 + i) for i in range(args.repeats)]
            row[f"{method} (s)"] = median(run[0] for run in runs)
            row[f"{method} (cpu s)"] = median(run[1] for run in runs)
        rows.append(row)
        settings = {
            "seconds": f"medians over {args.repeats} processes; as in `peers.md`, one core",
            "seeds": f"{args.seed + 1} to {args.seed + args.repeats}",
            "load average at the end": f"{os.getloadavg()[0]:.2f}",
        }
        save("peers_fresh", rows, args.out, "Time to an answer in a fresh process", settings)


if __name__ == "__main__":
    if "--child" in sys.argv:
        flags = argparse.ArgumentParser()
        flags.add_argument("--child", nargs=3)
        model, way, chosen = flags.parse_args().child
        print(child(model, way, int(chosen)))
    else:
        main()
