"""CPU seconds and error of log Z against dimension, rows, modes and cores, with a picture.

Models with exact evidence: a Gaussian posterior with correlations (dimension), a random walk of
unknown scale under normal noise of unknown scale (walk), a conjugate regression (rows), Gaussian
modes of sd 0.5 on a line, 5 apart (modes). Tempering by default, nutpie
with bridge sampling, and `pm.sample_smc`, each run in a process of its own that compiles first. A
run that takes more CPU seconds than `--limit` after compiling is ended, and its row says so. Cores:
wall seconds of the same run on one thread and on two.
"""

import json
import logging
import math
import resource
import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import matplotlib as mpl
import numpy as np
import pymc as pm
from common import MODELS, Row, earlier_rows, parser, run_once, save, system
from fields import by_tempering
from fields_models import FIRST
from fields_truth import random_walk_normal
from threadpoolctl import threadpool_limits

import pymc_tempering as pmt
from pymc_tempering import testsystems

FAMILIES: dict[str, tuple[int, ...]] = {
    "dimension": (10, 30, 100, 300, 1000),
    "walk": (300, 1000, 3000, 10_000),
    "rows": (100, 1000, 10_000, 100_000, 1_000_000),
    "modes": (1, 2, 5, 10, 20, 50),
    "cores": (1, 2),
}
METHODS = ("tempering", "nuts_bridge", "smc")
LARGEST_FIRST, WALK_FIRST = 10_000, 300
"""Size of the model that compiles first, at most: more rows, or values, need no other code."""
COMPILING = 100.0
"""CPU seconds that a first run may take beyond the limit, for its compilation."""
COLORS = {"tempering": "black", "nuts_bridge": "C1", "smc": "C0"}
MARKS = {"tempering": "o", "nuts_bridge": "s", "smc": "^"}


@dataclass(frozen=True)
class Walk:
    """A random walk, and its exact log evidence, by Kalman filters over the two scales."""

    size: int
    model: pm.Model

    @property
    def log_evidence(self) -> float:
        """Exact log Z (nats)."""
        return random_walk_normal(self.size, 1)[0]


def build(family: str, size: int) -> testsystems.TestSystem | Walk:
    """Build a model of a family; that of the cores is the regression with 10,000 rows."""
    if family == "walk":
        return Walk(size, FIRST["random_walk_normal"](size, 1))
    if family == "dimension":
        return testsystems.gaussian_posterior(dim=size)
    if family == "modes":
        places = tuple(5.0 * (np.arange(size) - 0.5 * (size - 1)))
        return testsystems.gaussian_mixture(
            dim=2, weights=(1.0 / size,) * size, positions=places, prior_sd=5.0 + 2.5 * size
        )
    rows = 10_000 if family == "cores" else size
    return testsystems.conjugate_regression(n=rows)


def child(family: str, size: int, method: str, seed: int, limit: float) -> None:
    """Compile, run within the limit, and print what came of it as JSON."""
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    first = min(size, WALK_FIRST if family == "walk" else LARGEST_FIRST)
    name, small = f"{family}_{size}", f"{family}_{first}"
    for n, each in ((size, name), (first, small)):
        MODELS[each] = partial(build, family, n)
    exact = float(system(name).log_evidence)
    if family == "cores":
        print(json.dumps(on_cores(name, size, seed) | {"exact": exact}))
        return
    end_after(limit + COMPILING)
    answer_of("tempering" if method == "smc" else method, small, seed + 1000)  # compiles
    end_after(limit)
    with threadpool_limits(1):
        found = answer_of(method, name, seed)
    print(json.dumps(found | {"exact": exact}))


def answer_of(method: str, name: str, seed: int) -> dict[str, float | bool]:
    """Evidence, its error, and what it cost without compiling."""
    import peers

    if method == "tempering" and isinstance(system(name), Walk):
        return of_a_walk(name, seed)
    if method == "tempering":
        run = run_once(name, seed)
        return {
            "log_z": run.log_z, "mcse": run.mcse, "cpu": run.cpu, "wall": run.seconds,
            "warned": run.verdict != "ok" or bool(run.warnings),
        }  # fmt: skip
    answer = peers.METHODS[method](name, seed)
    return {
        "log_z": answer.log_z, "mcse": answer.error, "cpu": answer.cpu, "wall": answer.wall,
        "warned": bool(answer.warned),
    }  # fmt: skip


def of_a_walk(name: str, seed: int) -> dict[str, float | bool]:
    """Run the default on a random walk, after its map was found."""
    model = system(name).model
    pmt.compile(model, progressbar=False)
    began, cpu = perf_counter(), process_time()
    found = by_tempering(model, seed)
    return {
        "log_z": found.log_z, "mcse": found.mcse, "cpu": process_time() - cpu,
        "wall": perf_counter() - began, "warned": found.verdict != "ok",
    }  # fmt: skip


def end_after(seconds: float) -> None:
    """Have the system end this process when it has used so many CPU seconds more."""
    end = math.ceil(process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))


def on_cores(name: str, cores: int, seed: int) -> dict[str, float | bool]:
    """Run tempering on so many threads; the second call counts, as the first compiles."""
    for each in (seed + 1000, seed):
        began, cpu = perf_counter(), process_time()
        options = {"random_seed": each, "quiet": True, "cores": cores}
        idata = pmt.sample(20_000, model=system(name).model, **options)
        wall, spent = perf_counter() - began, process_time() - cpu
    found = pmt.log_marginal_likelihood(idata)
    return {
        "log_z": found.log_z, "mcse": found.mcse, "cpu": spent, "wall": wall,
        "warned": found.verdict != "ok",
    }  # fmt: skip


def runs(family: str, size: int, method: str, seeds: range, limit: float) -> Row:
    """Run a method on a model with each seed, in fresh processes."""
    found, said = [], ""
    for seed in seeds:
        command = [
            sys.executable, __file__, "--child", family, str(size), method, str(seed), str(limit),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=10 * limit + 900
            )
        except subprocess.TimeoutExpired:
            said = "hung"
            break
        if done.returncode != 0:
            over = done.returncode < 0
            said = f"over {limit:.0f} s" if over else done.stderr.strip().splitlines()[-1][:60]
            break
        found.append(json.loads(done.stdout.splitlines()[-1]))
    off = np.array([each["log_z"] - each["exact"] for each in found])
    empty = float("nan")
    return {
        "family": family, "size": size, "method": method, "runs": len(found),
        "cpu": float(np.median([f["cpu"] for f in found])) if found else empty,
        "wall": float(np.median([f["wall"] for f in found])) if found else empty,
        "RMSE": float(np.sqrt(np.mean(off**2))) if found else empty,
        "stated": float(np.median([f["mcse"] for f in found])) if found else empty,
        "warned": sum(f["warned"] for f in found), "note": said,
    }  # fmt: skip


def place_of(row: Row) -> tuple[int, int, int]:
    """Place of a row in the table."""
    family, method = str(row["family"]), str(row["method"])
    return list(FAMILIES).index(family), int(row["size"]), METHODS.index(method)


def picture(rows: list[Row], path: Path) -> None:
    """Draw CPU seconds and RMSE against size, one column a family."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    families = [name for name in FAMILIES if name != "cores"]
    figure, axes = plt.subplots(2, len(families), figsize=(11, 6), sharex="col", squeeze=False)
    for column, family in enumerate(families):
        for method in METHODS:
            mine = [r for r in rows if r["family"] == family and r["method"] == method]
            known = [r for r in mine if r["runs"]]
            for row, what in enumerate(("cpu", "RMSE")):
                axes[row, column].plot(
                    [float(r["size"]) for r in known], [float(r[what]) for r in known],
                    label=method,
                    color=COLORS[method], marker=MARKS[method],
                )  # fmt: skip
        for row, label in enumerate(("CPU seconds after compiling", "RMSE of log Z (nats)")):
            axes[row, column].set(xscale="log", yscale="log")
            if column == 0:
                axes[row, 0].set_ylabel(label)
        axes[1, column].set_xlabel(family)
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    if "--child" in sys.argv:
        family, size, method, seed, limit = sys.argv[2:]
        child(family, int(size), method, int(seed), float(limit))
        return
    arguments = parser(__doc__, 3)
    arguments.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--sizes", nargs="+", type=int, help="of the families; all by default")
    arguments.add_argument("--limit", type=float, default=120.0, help="CPU seconds of a run")
    arguments.add_argument("--keep", action="store_true", help="rows that are not run anew stay")
    args = arguments.parse_args()
    seeds = range(args.seed, args.seed + args.repeats)
    settings = {
        "seeds": f"{seeds[0]} to {seeds[-1]}",
        "runs": "4 chains of 1,000 draws, of 20,000 for cores; sample_smc by default",
        "warned": "runs with a verdict other than ok, R-hat above 1.01, or a warning",
        "cpu": "median, after compiling; a run over a limit (120 s unless asked for more) is ended",
    }
    rows = earlier_rows(args.out / "scaling.csv", "family", ()) if args.keep else []
    for family in args.families:
        over: set[str] = set()
        sizes = [n for n in FAMILIES[family] if n in (args.sizes or FAMILIES[family])]
        if family == "cores":
            found = [runs(family, size, "tempering", seeds, args.limit) for size in sizes]
            save("scaling_cores", found, args.out, "Time on one core and on two", settings)
            continue
        for size in sizes:
            for method in args.methods:
                if method in over:  # it was over the limit at a smaller size
                    continue
                row = runs(family, size, method, seeds, args.limit)
                over |= {method} if row["note"] else set()
                others = [r for r in rows if place_of(r) != place_of(row)]
                rows = sorted([*others, row], key=place_of)
                save("scaling", rows, args.out, "Scaling of time and error", settings)
    if rows:
        picture(rows, args.out / "scaling.png")


if __name__ == "__main__":
    main()
