"""Ways of writing a model, crossed with kinds of models: what the package answers to each.

A cell is a default call of `pmt.sample` on a small model with an exact value, which does not depend
on the way (`ways_writer.py`, `ways_kinds.py`, `ways_kinds_second.py`, `ways_own.py`). With
`--doors` a cell is a front door of the package and a way; the kinds take turns. Cells that are
there already are not run again.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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
"""CPU seconds of a cell."""
EACH = 16
"""Cells of a process."""
SMOOTH = ("continuous", "imputed", "mixtures", "fields", "ordered", "hierarchical", "regression")
"""Kinds without discrete unknowns, which `pmt.fit` takes."""
ERRORS, NATS = 4.0, 0.02
"""An answer is right within so many errors, or so many nats."""


@dataclass(frozen=True)
class Run:
    """One cell.

    Attributes
    ----------
    status : str
        "done", "refused" with an error of the package, "raised" with any other, or how the process
        ended.
    """

    seed: int
    status: str
    door: str = ""
    way: str = ""
    kind: str = ""
    verdict: str = ""
    off: float = float("nan")
    mcse: float = float("nan")
    truth: float = float("nan")
    cpu: float = float("nan")
    message: str = ""
    warnings: str = ""

    @property
    def right(self) -> bool:
        """Whether it is as near to the truth as it says, or nearer than it need be."""
        return self.status == "done" and abs(self.off) <= max(ERRORS * self.mcse, NATS)


def cells(doors: bool) -> list[tuple]:
    """Every cell: a front door, a way and a kind."""
    from benchmarks.errors.ways_doors import DOORS
    from benchmarks.models.ways_kinds import FIRST
    from benchmarks.models.ways_kinds_second import SECOND
    from benchmarks.models.ways_own import OWN
    from benchmarks.models.ways_writer import WAYS

    kinds = [*FIRST, *SECOND]
    legal = [(way, kind) for way in WAYS for kind in kinds if way.name not in kind.without] + OWN
    if not doors:
        return [("sample", way, kind) for way, kind in legal]
    found = []
    for way in dict.fromkeys(way for way, _ in legal):
        own = [kind for other, kind in legal if other is way]
        turn = len(found) // (len(DOORS) - 1)
        smooth = [kind for kind in own if kind.name in SMOOTH]
        for door in [door for door in DOORS if door != "sample"]:
            kinds = smooth if door == "fit" else own
            found.append((door, way, kinds[turn % len(kinds)]))
    return found


def run_cell(door: str, way: object, kind: object) -> Line:
    """Answer a cell."""
    from benchmarks.errors.ways_doors import answer
    from pymc_tempering import TemperingError, TemperingWarning

    truth = kind.truth(way.seen(kind.y))
    line: Line = {"door": door, "way": way.name, "kind": kind.name, "truth": truth}
    before = process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            log_z, mcse, verdict = answer(door, way, kind)
        except Exception as error:  # what it says is the row
            ours = isinstance(error, TemperingError | ValueError) and (
                type(error).__module__.startswith("pymc_tempering")
            )
            text = f"{type(error).__name__}: {error}"
            line |= {"status": "refused" if ours else "raised", "message": text[:600]}
        else:
            line |= {"off": log_z - truth, "mcse": mcse, "verdict": verdict}
    said = {first_sentence(str(w.message)) for w in caught if w.category is TemperingWarning}
    return line | {"cpu": process_time() - before, "warnings": " | ".join(sorted(said))}


def summary(runs: Sequence[Run]) -> tuple[list[Row], dict[str, str]]:
    """A row for each kind or front door, and what is said below the table."""
    by = "kind" if {run.door for run in runs} == {"sample"} else "door"
    rows: list[Row] = []
    for name in [*dict.fromkeys(getattr(run, by) for run in runs), "all"]:
        own = [run for run in runs if name in (getattr(run, by), "all")]
        stated = [run for run in own if np.isfinite(run.off)]
        rows.append({
            by: name,
            "cells": len(own),
            "raw errors": sum(run.status not in ("done", "refused") for run in own),
            "refused": sum(run.status == "refused" for run in own),
            "ok and right": sum(run.right and run.verdict == "ok" for run in own),
            "ok and off": sum(run.verdict == "ok" and not run.right for run in own),
            "other verdicts": sum(run.verdict not in ("", "ok") for run in own),
            "largest off": max((abs(run.off) for run in stated), default=float("nan")),
            "CPU s": float(np.median([run.cpu for run in own])),
        })  # fmt: skip
    odd = [run for run in runs if run.status != "done" or run.verdict not in ("", "ok")]
    odd += [run for run in runs if run.verdict == "ok" and not run.right]
    named = [
        f"{run.door}, {run.way}, {run.kind}: {run.message or run.verdict or run.status}"
        f"{'' if np.isnan(run.off) else f' ({run.off:+.3f} nats)'}"
        for run in odd
    ]
    return rows, {"cells that are named": " / ".join(named) or "none"} | {
        "ways": ", ".join(f"{n} {c}" for n, c in Counter(run.way for run in runs).items())
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--doors", action="store_true", help="all front doors, kinds in turn")
    arguments.add_argument("--kinds", nargs="+", help="these kinds alone")
    arguments.add_argument("--ways", nargs="+", help="these ways alone")
    add_options(arguments, LIMIT, 2)
    arguments.add_argument("--seeds", type=int, nargs="+", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    doors = args.doors or args.child == "doors"
    every = cells(doors)
    if args.child:
        return print_runs(lambda: lambda i: run_cell(*every[i]), args.seeds, args.limit)
    wanted = [
        i for i, (_, way, kind) in enumerate(every)
        if (not args.kinds or kind.name in args.kinds) and (not args.ways or way.name in args.ways)
    ]  # fmt: skip
    name, runs_file = ("ways_doors", "ways_doors_runs.csv") if doors else ("ways", "ways_runs.csv")
    file = RunsFile(args.out / runs_file, Run)
    make_missing(file, __file__, {"doors" if doors else "cells": wanted}, args, each=EACH)
    runs = sorted((run for run in file.read() if run.seed in wanted), key=lambda run: run.seed)
    rows, notes = summary(runs)
    save(name, rows, args.out, "Ways of writing a model", {"runs": file.path.name, **notes})


if __name__ == "__main__":
    sys.exit(main())
