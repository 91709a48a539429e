"""Models that lose a mode or a count: how often is a wrong number "ok"?

Each model has its log evidence by construction or by brute force. A run is wrong if it is off by
more than 4 stated errors and .05 nats. Half of the models were known while the code was written,
the others (`*_second.py`) were written by somebody who had not seen it, and a third set when faults
that they showed were mended. No top is flat, and no shell is thinner than a tenth of its radius:
such needles no climb reaches.
"""

import argparse
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

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
from benchmarks.models import (
    classics,
    count_family_first,
    count_family_second,
    fool_first,
    fool_second,
    fool_third,
)

FAMILIES: dict[str, dict[str, tuple[str, Callable[[], Any], Callable[[], float]]]] = {
    "modes first": fool_first.MODELS,
    "modes second": fool_second.MODELS,
    "modes third": fool_third.MODELS,
    "classics": classics.MODELS,
    "counts first": {k: ("counts", *v) for k, v in count_family_first.MODELS.items()},
    "counts second": {k: ("counts", *v) for k, v in count_family_second.MODELS.items()},
}
ALL = {
    f"{family}/{name}": made for family, models in FAMILIES.items() for name, made in models.items()
}
BEYOND, NATS = 4.0, 0.05


@dataclass(frozen=True)
class Run:
    """One run of a model: what it said, and what is true."""

    model: str
    seed: int
    status: str
    verdict: str = ""
    log_z: float = float("nan")
    mcse: float = float("nan")
    truth: float = float("nan")
    cpu: float = float("nan")
    why: str = ""

    @property
    def right(self) -> bool:
        """Whether it is no more than 4 errors, or .05 nats, off."""
        return abs(self.log_z - self.truth) <= max(BEYOND * self.mcse, NATS)


def prepared(name: str) -> Callable[[int], Line]:
    """Build a model, and return what makes a run."""
    import pymc_tempering as pmt

    _, build, truth = ALL[name]
    model, exact = build(), truth()
    pmt.compile(model, progressbar=False)
    return partial(one_run, model, exact)


def one_run(model: Any, exact: float, seed: int) -> Line:
    """Make a default run on one core."""
    import pymc_tempering as pmt

    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pmt.sample(model=model, random_seed=seed, cores=1, quiet=True, progressbar=False)
        found = pmt.log_marginal_likelihood(idata)
    return {
        "verdict": found.verdict, "log_z": found.log_z, "mcse": found.mcse, "truth": exact,
        "cpu": process_time() - began, "why": first_sentence("".join(found.warnings[:1])),
    }  # fmt: skip


def row_of(family: str, kind: str, name: str, runs: Sequence[Run]) -> Row:
    """One row of the table."""
    ok = [run for run in runs if run.status == "done" and run.verdict == "ok"]
    return {
        "set": family, "kind": kind, "model": name, "runs": len(runs),
        "ok and right": sum(run.right for run in ok),
        "ok and wrong": sum(not run.right for run in ok),
        "other verdicts": sum(run.status == "done" for run in runs) - len(ok),
        "raised": sum(run.status != "done" for run in runs),
        "median CPU s": float(np.median([run.cpu for run in runs])) if runs else float("nan"),
    }  # fmt: skip


def table_of(names: Collection[str], runs: Sequence[Run]) -> list[Row]:
    """Rows of models, of each kind of a set, and of each set."""
    rows = []
    for name in names:
        family, model = name.split("/", 1)
        own = [run for run in runs if run.model == name]
        rows.append(row_of(family, ALL[name][0], model, own))
    for family in dict.fromkeys(name.split("/", 1)[0] for name in names):
        own = [run for run in runs if run.model.startswith(f"{family}/") and run.model in names]
        kinds = dict.fromkeys(ALL[run.model][0] for run in own)
        for kind in kinds if len(kinds) > 1 else ():
            of_kind = [run for run in own if ALL[run.model][0] == kind]
            rows.append(row_of(family, kind, "all", of_kind))
        rows.append(row_of(family, "all", "all", own))
    return rows


def main() -> None:
    """Make the runs that are asked for, and save the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    arguments.add_argument("--models", default="", help="only those whose name holds this")
    arguments.add_argument("--repeats", type=int, default=10)
    arguments.add_argument("--seeds", type=int, nargs="+", help="else 1 to the repeats")
    add_options(arguments, 300.0, child=list(ALL))
    args = arguments.parse_args()
    if args.child:
        print_runs(partial(prepared, args.child), args.seeds, args.limit)
        return
    seeds = args.seeds or range(1, args.repeats + 1)
    file = RunsFile(args.out / "fool_the_verdict_runs.csv", Run)
    wanted = {n: seeds for n in ALL if n.split("/")[0] in args.families and args.models in n}
    make_missing(file, __file__, wanted, args, "model")
    runs = [run for run in file.read() if run.seed in seeds]
    rows = table_of(wanted, runs)
    title = "Models that lose a mode or a count: default runs on one core"
    save("fool_the_verdict", rows, args.out, title, {"seeds": f"{min(seeds)} to {max(seeds)}"})


if __name__ == "__main__":
    main()
