"""How many looks from the prior arrive where the draws are, for all models that are measured.

Looks check a fitted reference: what it has missed, they may find. A look that ends on its way tells
nothing of that. Of a default run of each model this counts the looks that the run itself says have
arrived, and of its first 100 looks those whose log-likelihood and log posterior density (prior and
likelihood in unconstrained coordinates) are both above the 1 % quantile of the run's own draws.

The models are those of `calibration.py` (10 runs each) and of `real_models.py` (one each). Each
model has a process of its own. A run is written to a file beside the table as soon as it is there.
A benchmark that was cut short goes on where it was; `--restart` forgets the runs of the models that
are named. A run that raises, or takes more than `--limit` CPU seconds, is a row too.
"""

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common import Row, save, system
from benchmarks.errors.calibration import DEFAULT_MODELS
from benchmarks.fresh_runs import Line, RunsFile, add_options, make_missing, print_runs
from benchmarks.models.real_models_list import all_models

FIRST, QUANTILE, FEW = 100, 0.01, 20
"""Looks that are judged anew, the quantile of draws that they are held to, and the number of
arrivals below which a check should not say "agreed"."""
REPEATS = {"calibration": 10, "real": 1}
"""Runs of each model by default, by the set that it is of."""
NAMES = tuple([f"calibration/{name}" for name in DEFAULT_MODELS]) + tuple(
    f"real/{name}" for name in all_models()
)

NOTES = {
    "run": "pmt.sample() by default on one core; `n`: runs that have an answer",
    "looks": "median over runs; of a run that answers from the prior there are none",
    "arrived": "looks that have arrived by the run's own count, least and median of its runs",
    "of 100": f"those of the first {FIRST} looks whose log-likelihood and log posterior density "
    f"are at least the {QUANTILE:.0%} quantile of the run's draws, least and median of its runs",
    "log L": "median log-likelihood (nats) of the first 100 looks and of the draws, median of runs",
    "check": "verdicts of the looks, and `verdict` those of log Z, with their numbers of runs",
}


@dataclass(frozen=True)
class Arrivals:
    """What one run said of its looks.

    Attributes
    ----------
    model : str
        Set and name.
    status : str
        "done", or why there is no answer.
    d : int
        Unconstrained dimensions.
    looks : int
    arrived : float
        By the run's own count; NaN where it has none.
    of_first : float
        Of the first looks, judged anew; NaN without looks.
    looks_log_likelihood, draws_log_likelihood : float
        Medians (nats).
    check, verdict : str
        Of the looks, and of log Z.
    cpu : float
        Seconds.
    """

    model: str
    seed: int
    status: str
    d: int = 0
    looks: int = 0
    arrived: float = float("nan")
    of_first: float = float("nan")
    looks_log_likelihood: float = float("nan")
    draws_log_likelihood: float = float("nan")
    check: str = "none"
    verdict: str = ""
    cpu: float = float("nan")


def build(name: str) -> Any:
    """Build a model by its set and name."""
    kind, _, own = name.partition("/")
    return system(own).model if kind == "calibration" else all_models()[own].build()


@contextmanager
def keeping(kept: dict[type, Any]) -> Iterator[None]:
    """Keep what a call of `pmt.sample` ends with, its job and its outcome, by their types."""
    from benchmarks.private import finish_module as finish, sample_module

    def finish_call(*arguments: Any, **named: Any) -> Any:
        kept.update({type(each): each for each in arguments})
        return finish.finish_call(*arguments, **named)

    with patch.object(sample_module, "finish_call", finish_call):
        yield


def prepared(name: str) -> Callable[[int], Line]:
    """Build and compile a model; returns what makes a run."""
    import pymc_tempering as pmt

    model = build(name)
    pmt.compile(model, progressbar=False)
    return partial(one_run, model)


def one_run(model: Any, seed: int) -> Line:
    """Make a run by default, and say how many of its looks arrived."""
    import pymc_tempering as pmt
    from benchmarks.private import Job, Outcome

    kept: dict[type, Any] = {}
    started = process_time()
    with warnings.catch_warnings(), keeping(kept):
        warnings.simplefilter("ignore")
        idata = pmt.sample(model=model, random_seed=seed, cores=1, quiet=True, progressbar=False)
        cpu = process_time() - started
        evidence = pmt.log_marginal_likelihood(idata)
    job, check = kept[Job], evidence.check
    line: Line = {"d": job.prior.path.dim, "verdict": evidence.verdict, "cpu": cpu}
    if check is not None:
        stored = getattr(check, "n_arrived", None)
        line |= {"check": check.verdict, "looks": check.n_looks}
        line |= {} if stored is None else {"arrived": float(stored)}
    return line | judged_anew(job, kept[Outcome])


def judged_anew(job: Any, outcome: Any) -> Line:
    """Hold the first looks of a run against its draws."""
    from benchmarks.private import evaluate_states

    xs = np.concatenate([run.record.x[: run.state.n_draws] for run in outcome.runs])
    draws = evaluate_states(job.prior, xs)
    line: Line = {"draws_log_likelihood": float(np.median(draws.log_likelihood))}
    if outcome.chosen.last is None:
        return line
    ends = outcome.chosen.last.looks.ends
    first = ends.at(np.arange(min(FIRST, ends.n)))
    likely, dense = (np.quantile(v, QUANTILE) for v in (draws.log_likelihood, draws.log_target))
    there = (first.log_likelihood >= likely) & (first.log_target >= dense)
    return line | {
        "of_first": float(there.sum()),
        "looks_log_likelihood": float(np.median(first.log_likelihood)),
    }


def counted(words: Sequence[str]) -> str:
    """Words with their numbers, the most frequent first; a number of one is left out."""
    counts = Counter(words).most_common()
    return ", ".join(word if n == 1 else f"{word} {n}" for word, n in counts)


def one_row(name: str, runs: Sequence[Arrivals]) -> Row:
    """Row of a model."""
    back = [run for run in runs if run.status == "done"]
    kind, _, own = name.partition("/")

    def of(function: Callable[[Any], Any], field: str) -> str | float:
        values = [value for run in back if not np.isnan(value := getattr(run, field))]
        return float(function(values)) if values else ""

    return {
        "set": kind,
        "model": own,
        "d": max(run.d for run in runs) or "",
        "n": len(back),
        "looks": of(np.median, "looks"),
        "arrived": of(np.min, "arrived"),
        "median arrived": of(np.median, "arrived"),
        "of 100": of(np.min, "of_first"),
        "median of 100": of(np.median, "of_first"),
        "looks' log L": of(np.median, "looks_log_likelihood"),
        "draws' log L": of(np.median, "draws_log_likelihood"),
        "check": counted([run.check for run in back]),
        "verdict": counted([run.verdict for run in back]),
        "no answer": counted([run.status for run in runs if run.status != "done"]),
    }


def judge(runs: Sequence[Arrivals]) -> dict[str, str]:
    """Count the models that are "agreed" with few arrivals, which should be none."""
    agreed = [run for run in runs if run.check == "agreed"]
    unknown = sum(np.isnan(run.arrived) for run in agreed)
    stored = {run.model: None for run in agreed if run.arrived < FEW}
    anew = {run.model: None for run in agreed if run.of_first < FEW}
    n = len({run.model for run in runs})
    return {
        f"agreed with fewer than {FEW} arrivals": f"{len(stored)} of {n} models (should be 0): "
        f"{', '.join(stored) or 'none'}"
        + (f"; {unknown} of {len(agreed)} runs that agreed state no number" if unknown else ""),
        f"agreed with fewer than {FEW} of {FIRST} looks, judged anew": f"{len(anew)} of {n} "
        f"models: {', '.join(anew) or 'none'}",
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--models", nargs="+", choices=NAMES, default=list(NAMES), metavar="SET/NAME"
    )
    arguments.add_argument("--repeats", type=int, help="of each model; 10 or 1 by default")
    arguments.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    add_options(arguments, 600.0, child=NAMES)
    arguments.add_argument("--seeds", type=int, nargs="+", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.child:
        return print_runs(partial(prepared, args.child), args.seeds, args.limit)
    file = RunsFile(args.out / "arrivals_runs.csv", Arrivals)
    repeats = {name: args.repeats or REPEATS[name.partition("/")[0]] for name in args.models}
    wanted = {name: range(args.seed, args.seed + n) for name, n in repeats.items()}
    make_missing(file, __file__, wanted, args, "model")
    runs = file.read()
    by_model = {name: [run for run in runs if run.model == name] for name in NAMES}
    rows = [one_row(name, own) for name, own in by_model.items() if own]
    if not rows:
        return
    settings = {
        **judge(runs),
        "runs": file.path.name,
        "limit": f"{args.limit:.0f} CPU seconds a run",
        "load average at the end": f"{os.getloadavg()[0]:.2f}",
        **NOTES,
    }
    save("arrivals", rows, args.out, "Looks from the prior that arrive at the posterior", settings)


if __name__ == "__main__":
    main()
