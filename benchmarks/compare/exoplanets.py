"""Evidence of planets in simulated radial velocities, beside the truth: default runs, one core.

The models are in `exoplanets_model.py`, the truths are by stratified importance sampling in period
(one planet) or a mixture proposal (two); of two planets with broad periods there is only the range
of the teams of the challenge, cut to what is not ruled out. The data are `rvs_0001.txt` in the
folder `$PMT_DATA`, or `../shared/data` beside the repository; where they are missing there is
nothing to do.

Each run is a call of `pmt.sample` by default, in a process that has compiled the model before, on
one core. It is written to a file beside the table as soon as it is there. A benchmark that was cut
short goes on where it was; `--restart` forgets the runs of the cases that are named. A run that
raises, or takes more than `--limit` CPU seconds, is a row too.
"""

import argparse
import json
import os
import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.common import save
from benchmarks.compare.exoplanets_table import CASES, NOTES, PlanetRun, failures, table
from benchmarks.fresh_runs import Line, RunsFile, add_options, make_missing, print_runs, said
from benchmarks.models.exoplanets_model import DATA, planets_model


def prepared(name: str) -> Callable[[int], Line]:
    """Build and compile a case, and all that every run compiles; returns what makes a run."""
    import pymc as pm

    import pymc_tempering as pmt
    from benchmarks.private import compile_constrain, model_layout

    case = CASES[name]
    with pm.Model() as toy:
        mu = pm.Normal("mu", 0, 10)
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", mu, sigma, observed=[1.0, 2.0, 4.0])
    pmt.sample(50, model=toy, cores=1, random_seed=1, quiet=True, progressbar=False)
    model = planets_model(case.planets, case.periods)
    pmt.compile(model, progressbar=False)
    layout = model_layout(model)
    compile_constrain(model, layout)(np.zeros((2, layout.dim)))
    return partial(one_run, model, case.options)


def one_run(model: Any, options: dict[str, float], seed: int) -> Line:
    """Make a run, and say what came of it, also where it raises."""
    import pymc_tempering as pmt

    line: Line = {}
    started = process_time(), perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pmt.TemperingWarning)
        try:
            idata = pmt.sample(
                model=model, random_seed=seed, cores=1, quiet=True, progressbar=False, **options
            )
            line |= {"cpu": process_time() - started[0], "wall": perf_counter() - started[1]}
            line |= answer_of(idata, pmt.log_marginal_likelihood(idata))
        except Exception as error:
            times = {"cpu": process_time() - started[0], "wall": perf_counter() - started[1]}
            line = times | line | {"status": said(error)}
    texts = dict.fromkeys(" ".join(str(w.message).split()) for w in caught)
    return line | {"warnings": " / ".join(texts)}


def answer_of(idata: Any, evidence: Any) -> Line:
    """Collect what a run says of log Z, its check, and its work."""
    check, attrs = evidence.check, idata["tempering"].attrs
    work = json.loads(attrs["evaluations"]) | {"run": int(idata["sample_stats"]["n_steps"].sum())}
    known = {"looks": "n_looks", "arrived": "n_arrived"}
    counts = {name: getattr(check, its, None) for name, its in known.items()}
    counts["passes"] = attrs.get("passes")
    return {
        "log_z": evidence.log_z,
        "mcse": evidence.mcse,
        "verdict": evidence.verdict,
        "check": getattr(check, "verdict", ""),
        **{name: "" if n is None else str(n) for name, n in counts.items()},
        "least_ess": float(attrs.get("least_ess", "nan")),
        "seconds": attrs["seconds"],
        "evaluations": json.dumps(work),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    arguments.add_argument("--repeats", type=int, help="of each case; 40 or 10 by default")
    arguments.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    add_options(arguments, 1800.0, child=list(CASES))
    arguments.add_argument("--seeds", type=int, nargs="+", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if not DATA.exists():
        print(f"{DATA} is missing: set PMT_DATA to the folder of rvs_0001.txt. Nothing is run.")
        return
    if args.child:
        return print_runs(partial(prepared, args.child), args.seeds, args.limit)
    file = RunsFile(args.out / "exoplanets_runs.csv", PlanetRun)
    wanted = {
        name: range(args.seed, args.seed + (args.repeats or CASES[name].repeats))
        for name in args.cases
    }
    longest = max(len(seeds) for seeds in wanted.values())
    make_missing(file, __file__, wanted, args, "case", -(-longest // args.workers))
    runs = file.read()
    if not runs:
        return
    settings = {
        "failed runs": failures(runs),
        "runs": file.path.name,
        "limit": f"{args.limit:.0f} CPU seconds a run",
        "load average at the end": f"{os.getloadavg()[0]:.2f}",
        **NOTES,
    }
    title = "Planets in radial velocities, data set 1 of the EPRV3 evidence challenge"
    save("exoplanets", table(runs), args.out, title, settings)


if __name__ == "__main__":
    main()
