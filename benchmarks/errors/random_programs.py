"""Small PyMC models written at random, against their evidence by brute force.

A seed names a program (`random_programs_draw.py`). Each is a default call of `pmt.sample` on one
core, then of `pmt.log_marginal_likelihood`; its truth is summed and integrated from SciPy's
densities (`random_programs_truth.py`), and compared with draws of the prior
(`random_programs_monte_carlo.py`). Rows are written to a file of runs beside the table as soon as
they are there, and a benchmark that was cut short goes on where it was. `--show SEED` prints the
source of a program and its truth.

PyMC takes an `ExGaussian` with nu <= .05 sigma for a normal, and SciPy does not. Where both
parameters are free the evidence may differ, by .013 nats for seed 11654.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time

import numpy as np

from benchmarks.common import Row, save
from benchmarks.fresh_runs import (
    Line,
    RunsFile,
    add_options,
    first_sentence,
    make_missing,
    print_runs,
)

LIMIT = 300.0
"""CPU seconds of a program."""
EACH = 20
"""Programs of a process; it has compiled what all models share."""
BEYOND = (5.0, 7.0)
MCSE = 0.05


@dataclass(frozen=True)
class Run:
    """One program: what the package said, what is true, and what was in it.

    Attributes
    ----------
    status : str
        "done", "refused" with an error of the package, "raised" with any other, "no truth" where no
        program of the seed has one, or how the process ended.
    z : float
        (log_z - truth) / hypot(mcse, truth_error, 1e-6).
    passed_over : int
        Programs of the seed before this one whose truth was not known to .02 nats, or for which two
        ways to it disagreed.
    """

    seed: int
    status: str
    z: float = float("nan")
    log_z: float = float("nan")
    mcse: float = float("nan")
    truth: float = float("nan")
    truth_error: float = float("nan")
    verdict: str = ""
    cpu: float = float("nan")
    families: str = ""
    message: str = ""
    warnings: str = ""
    passed_over: int = 0


@dataclass(frozen=True)
class WrittenRun(Run):
    """One program in a way of writing (`random_programs_ways.py`)."""

    way: str = ""


def run_program(seed: int, ways: bool = False) -> Line:
    """Draw the program of a seed, in a way that is drawn too or as it is, and answer it."""
    import pymc_tempering as pmt
    from benchmarks.models.random_programs_draw import program_of
    from benchmarks.models.random_programs_source import model_of
    from benchmarks.models.random_programs_ways import way_of, written
    from benchmarks.truths.random_programs_states import NoTruthError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program, truth = program_of(seed)
        except NoTruthError:
            return {"status": "no truth"}
        way, model = written(program, way_of(seed)) if ways else ("", model_of(program))
    line: Line = {"way": way} if ways else {}
    line |= {
        "truth": truth.log_value, "truth_error": truth.error,
        "families": " + ".join(program.families()), "passed_over": program.passed_over,
    }  # fmt: skip
    before = process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pmt.TemperingWarning)
        try:
            idata = pmt.sample(
                model=model, random_seed=seed, quiet=True, progressbar=False, cores=1
            )
            found = pmt.log_marginal_likelihood(idata)
        except Exception as error:  # what it says is the row
            ours = type(error).__module__.startswith("pymc_tempering")
            text = f"{type(error).__name__}: {error}"
            line |= {"status": "refused" if ours else "raised", "message": text[:600]}
        else:
            error = float(np.hypot(np.hypot(found.mcse, truth.error), 1e-6))
            line |= {
                "log_z": found.log_z, "mcse": found.mcse, "verdict": found.verdict,
                "z": (found.log_z - truth.log_value) / error,
            }  # fmt: skip
    said = {first_sentence(str(w.message)) for w in caught if w.category is pmt.TemperingWarning}
    return line | {"cpu": process_time() - before, "warnings": " | ".join(sorted(said))}


def summary(runs: Sequence[Run]) -> tuple[list[Row], dict[str, str]]:
    """One row of the table, and what is said below it."""
    ok = [run for run in runs if run.status == "done" and run.verdict == "ok"]
    z = np.array([run.z for run in ok])
    refused = [run for run in runs if run.status == "refused"]
    raised = [run for run in runs if run.status not in ("done", "refused", "no truth")]
    rest = z[np.abs(z) <= BEYOND[0]]
    row: Row = {
        "programs": len(runs),
        "ok": len(ok),
        "other verdicts": sum(run.status == "done" and run.verdict != "ok" for run in runs),
        "refused": len(refused),
        "without a truth": sum(run.passed_over + (run.status == "no truth") for run in runs),
        "raw errors": len(raised),
        **{f"abs z > {size:.0f}": int(np.sum(np.abs(z) > size)) for size in BEYOND},
        "sd z": float(np.std(rest)) if len(rest) else float("nan"),
        "largest mcse": max((run.mcse for run in ok), default=float("nan")),
        f"mcse > {MCSE}": sum(run.mcse > MCSE for run in ok),
        "CPU s": float(np.nanmedian([run.cpu for run in runs])),
    }
    answered = Counter(name for run in ok for name in run.families.split(" + "))
    reasons = Counter(first_sentence(run.message or run.status) for run in refused + raised)
    far = [run for run in ok if abs(run.z) > BEYOND[0]]
    notes = {
        "answered": ", ".join(f"{name} {count}" for name, count in sorted(answered.items())),
        "never answered": ", ".join(sorted(_all_names() - set(answered))) or "none",
        "refused or raised": " / ".join(f"{n} x {why}" for why, n in reasons.most_common())
        or "none",
        "beyond 5": ", ".join(f"seed {run.seed} (z {run.z:.1f})" for run in far) or "none",
    }
    return [row], notes


def _all_names() -> set[str]:
    from benchmarks.models.random_programs_families import FAMILIES
    from benchmarks.models.random_programs_vectors import VECTORS

    return {*FAMILIES, *VECTORS, "Truncated", "Censored", "Mixture", "NormalMixture"}


def show(seed: int) -> None:
    """Print the program of a seed and its truth."""
    from benchmarks.models.random_programs_draw import program_of
    from benchmarks.models.random_programs_source import source_of

    program, truth = program_of(seed)
    print(source_of(program))
    print(f"# log Z {truth.log_value:.5f} +- {truth.error:.1e}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=300)
    arguments.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    arguments.add_argument("--seeds", type=int, nargs="+", help="these seeds")
    add_options(arguments, LIMIT, 2)
    arguments.add_argument("--ways", action="store_true", help="each in a way drawn at random")
    arguments.add_argument("--show", type=int, metavar="SEED")
    args = arguments.parse_args()
    seeds = args.seeds or list(range(args.seed, args.seed + args.repeats))
    if args.show is not None:
        return show(args.show)
    if args.child:
        return print_runs(
            lambda: partial(run_program, ways=args.child == "ways"), seeds, args.limit
        )
    stem, runs_file, kind = "random_programs", "random_programs_runs.csv", Run
    if args.ways:
        stem, runs_file = "random_programs_ways", "random_programs_ways_runs.csv"
        kind = WrittenRun
    file = RunsFile(args.out / runs_file, kind)
    make_missing(file, __file__, {"ways" if args.ways else "programs": seeds}, args, each=EACH)
    runs = sorted((run for run in file.read() if run.seed in set(seeds)), key=lambda r: r.seed)
    rows, notes = summary(runs)
    settings = {"seeds": f"{min(seeds)} to {max(seeds)}; runs: {file.path.name}", **notes}
    if args.ways:
        notes["ways"] = ", ".join(f"{n} {c}" for n, c in Counter(r.way for r in runs).items())
    save(stem, rows, args.out, f"{len(runs)} random programs", settings)


if __name__ == "__main__":
    sys.exit(main())
