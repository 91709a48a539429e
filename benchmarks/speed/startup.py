"""From import to the first recorded draw in a fresh process, step by step, and the import alone.

Each repeat is a new Python process. The first one fills the caches and is not counted. What the
package does inside is timed by wrapping its functions in that process. The first recorded draw is
seen at the end of the first chunk of compiled work that holds one (`pmt.sample`), or at the first
call of `callback` (`pm.sample`), so that both are upper bounds.

The import is timed in CPU seconds, with an empty folder for Numba's disk cache and with what the
process before has left there, and what Numba compiles is counted in a process of its own
(`--import-only` stops there).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any

FRONT_DOORS = ("pmt.sample", "pm.sample")
EVENTS = (
    "import",
    "build the model",
    "compile the path",
    "compile the prior",
    "check the model",
    "annealed pass",
    "initial iterations",
    "fit and search of the reference",
    "first recorded draw",
    "draws done",
    "DataTree done",
    "evidence done",
)

IMPORTS = {
    "import pymc": "import pymc",
    "import pymc_tempering": "import pymc_tempering",
    "both": "import pymc, pymc_tempering",
    "both, and pmt.sample is touched": "import pymc, pymc_tempering; pymc_tempering.sample",
}
TIMED = """
from time import process_time
before = process_time()
{statement}
print(process_time() - before)
"""
COUNTED = """
from numba.core.event import install_recorder
with install_recorder("numba:compile") as recorder:
    {statement}
print(len(recorder.buffer) // 2)
"""


class Timeline:
    """Seconds since the start of the process at which something was over."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.ends: dict[str, float] = {}

    def mark(self, event: str, *, first: bool = False) -> None:
        if not (first and event in self.ends):
            self.ends[event] = time.time() - self.started

    def wrap(self, module: Any, name: str, event: str, *, first: bool = False) -> None:
        """Mark `event` whenever, or only the first time that, `module.name` returns."""
        function: Callable = getattr(module, name)

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self.mark(event, first=first)
            return result

        setattr(module, name, timed)


def watch_first_draw(timeline: Timeline) -> None:
    """Mark the first chunk of a chain that holds a draw."""
    from benchmarks.private import chains_module as chains

    make_runner = chains.make_runner

    def make(plan: Any) -> Callable:
        advance = make_runner(plan)

        def timed(state: Any, *args: Any) -> int:
            result = advance(state, *args)
            # Trial runs of a fitted reference are chains, too.
            if state.n_draws and "fit and search of the reference" in timeline.ends:
                timeline.mark("first recorded draw", first=True)
            return result

        return timed

    chains.make_runner = make


def child(
    front_door: str, model_name: str, reference: str, started: float, seed: int
) -> dict[str, float]:
    """Sample in this process and return its timeline."""
    timeline = Timeline(started)
    import pymc as pm

    import pymc_tempering as pmt

    timeline.mark("import")
    from benchmarks.common import MODELS

    model = MODELS[model_name]().model
    timeline.mark("build the model")
    from benchmarks.private import (
        choose_plan_module as choose_plan,
        compile_module as compiling,
        sample_module as sample,
        step_method_module as step_method,
        warm_up_module as warm_up,
    )

    timeline.wrap(compiling, "compile_path", "compile the path")
    timeline.wrap(compiling, "compile_prior", "compile the prior")
    timeline.wrap(compiling, "check_reference", "check the model")
    timeline.wrap(choose_plan, "warm_up_prior", "initial iterations")
    annealing = (warm_up, "anneal") if reference == "prior" else (choose_plan, "make_passes")
    timeline.wrap(*annealing, "annealed pass")
    for front in (sample, step_method):
        timeline.wrap(front, "choose_plan", "fit and search of the reference")
    timeline.wrap(sample, "run_rounds", "draws done")
    watch_first_draw(timeline)
    options = {"random_seed": seed, "progressbar": False}
    if front_door == "pmt.sample":
        idata = pmt.sample(model=model, reference=reference, quiet=True, **options)
    else:
        with model:
            idata = pm.sample(
                step=pmt.SimulatedTempering(reference=reference, random_seed=seed),
                callback=lambda trace, draw: timeline.mark("first recorded draw", first=True),
                **options,
            )
    timeline.mark("DataTree done")
    pmt.log_marginal_likelihood(idata)
    timeline.mark("evidence done")
    return timeline.ends


def fresh_process(front_door: str, model_name: str, reference: str, seed: int) -> dict[str, float]:
    """Run `child` in a new process."""
    arguments = [front_door, model_name, reference, str(time.time()), str(seed)]
    command = [sys.executable, str(Path(__file__).resolve()), "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def median_timeline(runs: list[dict[str, float]]) -> dict[str, float]:
    """Median of each event's end over repeats."""
    return {event: median(run[event] for run in runs) for event in EVENTS if event in runs[0]}


def without_annealing(run: dict[str, float]) -> float:
    """Seconds from import to the first recorded draw, less the annealed pass."""
    return run["first recorded draw"] - (run["annealed pass"] - run["check the model"])


def number_printed(script: str, statement: str, cache: str) -> float:
    """Run a script around a statement in a new process whose compiled code is in `cache`."""
    command = [sys.executable, "-c", script.format(statement=statement)]
    environment = os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={cache}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def time_imports(repeats: int) -> list[dict[str, Any]]:
    """CPU seconds of imports, and how many functions they compile, with empty and warm caches."""
    rows = []
    for name, statement in IMPORTS.items():
        found: dict[str, list[float]] = {"empty": [], "warm": []}
        compiled: dict[str, float] = {}
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                for state in found:
                    found[state].append(number_printed(TIMED, statement, cache))
        with tempfile.TemporaryDirectory() as cache:
            for state in found:
                compiled[state] = number_printed(COUNTED, statement, cache)
        rows += [
            {
                "import": name,
                "disk cache": state,
                "CPU (s)": median(seconds),
                "least": min(seconds),
                "most": max(seconds),
                "functions compiled": int(compiled[state]),
            }
            for state, seconds in found.items()
        ]
    return rows


def main() -> None:
    from benchmarks.common import Row, parser, save

    arguments = parser(__doc__, 3)
    arguments.add_argument("--model", default="noisy_regression")
    arguments.add_argument("--import-only", action="store_true")
    args = arguments.parse_args()
    save(
        "startup_import",
        time_imports(args.repeats),
        args.out,
        "Imports in a fresh process",
        {
            "processes": f"{args.repeats} a row, medians; the interpreter's own start is left out",
            "load average at the end": f"{os.getloadavg()[0]:.2f}",
        },
    )
    if args.import_only:
        return
    rows: list[Row] = []
    figures = {}
    for front_door in FRONT_DOORS:
        fresh_process(front_door, args.model, args.reference, args.seed)
        runs = [
            fresh_process(front_door, args.model, args.reference, args.seed + 1 + i)
            for i in range(args.repeats)
        ]
        before = 0.0
        for event, end in median_timeline(runs).items():
            times = {"ends at (s)": end, "took (s)": end - before}
            rows.append({"front door": front_door, "step": event, **times})
            before = end
        apart = [without_annealing(run) for run in runs]
        figures[f"{front_door}, import to first recorded draw without the annealed pass"] = (
            f"median {median(apart):.2f} s, {min(apart):.2f} to {max(apart):.2f} (wanted < 5 s)"
        )
    settings = {
        **figures,
        "model": f"{args.model}, reference={args.reference}",
        "seeds": f"{args.seed + 1} to {args.seed + args.repeats}",
        "processes": f"{args.repeats} a front door, medians of each step's end; the interpreter's "
        "own start is in the first",
        "load average at the end": f"{os.getloadavg()[0]:.2f}",
    }
    save(
        f"startup_{args.reference}",
        rows,
        args.out,
        "Start-up in a fresh process, disk caches warm",
        settings,
    )
    for what, figure in figures.items():
        print(f"{what}: {figure}")


if __name__ == "__main__":
    if "--child" in sys.argv:
        flags = argparse.ArgumentParser()
        flags.add_argument("--child", nargs=5)
        door, name, path, at, chosen = flags.parse_args().child
        print(json.dumps(child(door, name, path, float(at), int(chosen))))
    else:
        main()
