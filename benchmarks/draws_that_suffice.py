"""Rounds until the draws suffice: is the stated error of log Z then still the real one?

Runs as by default, whose chains go on while the least effective sample size is below 400, on models
of which the first round often ends below: labels that switch, and a horseshoe. The first round of
each is what it would have been with `draws=1000`, so that both come from the same seeds. A rule
that looks at draws before it stops could favor some answers. It decides most where the target is
the median of what first rounds reach, as it is for the other models.
"""

import argparse
import warnings
from collections.abc import Sequence
from concurrent.futures import as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from common import MODELS, RESULTS, Row, prior, save, system, worker_pool
from draws_that_suffice_models import SMALL

from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.call import DRAWS, MOST_GROWTH, TARGET_ESS, Call, Goal, Job, Options
from pymc_tempering.sampling.choose_plan import choose_plan
from pymc_tempering.sampling.recorded import least_ess
from pymc_tempering.sampling.rounds import estimate, run_rounds

DEFAULT_MODELS = tuple(SMALL)
OFTEN_SHORT = ("labels", "shrinkage")
"""Models of which the first round often ends below the usual target."""
PILOT = 20
"""Runs, of other seeds, whose median sets the target of a model whose draws usually suffice."""


@dataclass(frozen=True)
class Stage:
    """What was known after a round: of log Z and its error (nats), draws, and CPU seconds."""

    draws: int
    log_z: float
    mcse: float
    ess: float
    cpu: float


@cache
def compiled(name: str) -> Prior:
    """Compile a model once a process."""
    return compile_model(SMALL[name].build()) if name in SMALL else prior(name)


def exact(name: str) -> float:
    """Log evidence of a model."""
    return SMALL[name].log_evidence() if name in SMALL else system(name).log_evidence


def run_stages(name: str, seed: int, target: float) -> list[Stage]:
    """Run as `pmt.sample` does by default, but for the target, and say what each round came to."""
    of, seen = compiled(name), list[Stage]()
    options = Options(reference="prior" if name in SMALL else "auto")
    job = Job(of, on_all(HMC(), of.path.dim), options, np.random.default_rng(seed), 1)
    goal = Goal(target_ess=target, by_default=True)
    chains: list[Any] = []

    def watch(chosen: Any, runs: Any, total: int) -> Any:
        chains[:] = chosen, runs
        return nullcontext(SimpleNamespace(update=lambda: None))

    def note(line: str) -> None:
        if " tours: log Z " not in line:  # not that of a round
            return
        chosen, runs = chains
        evidence = estimate(chosen, runs)
        least = least_ess(of.path, runs, 0, target)
        n = min(run.state.n_draws for run in runs)
        seen.append(Stage(n, evidence.log_z, evidence.mcse, least.ess, process_time() - started))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = process_time()
        chosen = choose_plan(job)
        told = Job(of, job.kernel, options, job.rng, 1, note)
        outcome = run_rounds(told, Call(DRAWS, goal=goal), chosen, watch)
        chains[:] = outcome.chosen, outcome.runs
        if not outcome.rounds:
            note(" tours: log Z ")
    return seen


def _met(run: Sequence[Stage], target: float, draws: int) -> bool:
    """Whether a run had its target with chains of so many draws."""
    return any(stage.ess >= target for stage in run if stage.draws <= draws)


def summarize(name: str, target: float, runs: Sequence[list[Stage]]) -> Row:
    """Compare single rounds with the runs that went on."""
    truth = exact(name)
    first, last = [run[0] for run in runs], [run[-1] for run in runs]
    went_on = np.array([len(run) > 1 for run in runs])

    def scores(stages: Sequence[Stage], which: np.ndarray) -> np.ndarray:
        pairs = [(s.log_z - truth) / s.mcse for s, own in zip(stages, which, strict=True) if own]
        z = np.array(pairs)
        return z[np.isfinite(z) & (z != 0.0)]

    def spread(z: np.ndarray) -> float:
        return float(z.std(ddof=1)) if z.size > 1 else float("nan")

    everywhere = np.ones(len(runs), dtype=bool)
    single, rounds = scores(first, everywhere), scores(last, everywhere)
    met = {
        f"met by {growth}": float(np.mean([_met(run, target, growth * DRAWS) for run in runs]))
        for growth in (1, 2, 4, MOST_GROWTH)
    }
    return {
        "model": name,
        "target": round(target),
        "n": len(runs),
        "went on": float(went_on.mean()),
        "ESS single": float(np.median([s.ess for s in first])),
        "least single": min(s.ess for s in first),
        "ESS": float(np.median([s.ess for s in last])),
        "least": min(s.ess for s in last),
        **met,
        "RMSE single": float(np.sqrt(np.mean([(s.log_z - truth) ** 2 for s in first]))),
        "RMSE": float(np.sqrt(np.mean([(s.log_z - truth) ** 2 for s in last]))),
        "mean z single": float(single.mean()),
        "mean z": float(rounds.mean()),
        "sd z single": spread(single),
        "sd z": spread(rounds),
        "sd z stopped": spread(scores(last, ~went_on)),
        "sd z went on": spread(scores(last, went_on)),
        "cover": float(np.mean(np.abs(rounds) < 1.959964)),
        "no error single": 1.0 - single.size / len(runs),
        "no error": 1.0 - rounds.size / len(runs),
        "draws": float(np.mean([s.draws for s in last])),
        "CPU s single": float(np.mean([s.cpu for s in first])),
        "CPU ratio": float(np.sum([s.cpu for s in last]) / np.sum([s.cpu for s in first])),
    }


def _chunk(name: str, seeds: Sequence[int], target: float) -> list[list[Stage]]:
    run_stages(name, 0, target)  # compiles, and is not counted
    return [run_stages(name, seed, target) for seed in seeds]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    arguments.add_argument("--workers", type=int, default=2, help="processes, one core each")
    arguments.add_argument(
        "--models", nargs="+", choices=[*SMALL, *MODELS], default=list(DEFAULT_MODELS)
    )
    arguments.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    args = arguments.parse_args()
    seeds = list(range(args.seed, args.seed + args.repeats))
    rows: list[Row] = []
    settings = {
        "seeds": f"{seeds[0]} to {seeds[-1]}, of each model",
        "run": "as pmt.sample by default, 4 chains, one core; reference='prior' for the first "
        f"{len(SMALL)} models, since 'auto' comes to it after a search",
        "target": f"least bulk ESS: {TARGET_ESS:.0f} for {OFTEN_SHORT}, for the others "
        f"the median of {PILOT} first rounds with other seeds",
        "single": "after the first round of 1,000 draws a chain, the same seeds",
        "met by": "share of runs that have the target with chains of so many times 1,000 draws",
        "stopped, went on": "z of the runs that ended with their first round, and of the others",
        "z": "(log Z - exact) / mcse, of the runs that state a finite mcse; `no error`: the others",
        "noise": "the sd of z is known to 1 / sqrt(2n) of itself",
        "CPU ratio": "seconds of all, from warm-up to evidence, over those until the first round",
    }
    title = "Rounds until the draws suffice, and the error of log Z"
    with worker_pool(args.workers) as pool:
        for name in args.models:
            target = TARGET_ESS
            if name not in OFTEN_SHORT:
                pilot = pool.submit(_chunk, name, range(100_001, 100_001 + PILOT), 1.0).result()
                target = float(np.median([run[0].ess for run in pilot]))
            parts = [seeds[i :: args.workers] for i in range(args.workers)]
            futures = [pool.submit(_chunk, name, part, target) for part in parts]
            runs = [run for future in as_completed(futures) for run in future.result()]
            rows.append(summarize(name, target, runs))
            save("draws_that_suffice", rows, args.out, title, settings)


if __name__ == "__main__":
    main()
