"""Whether the stated standard error is the real one: hundreds of full runs with exact answers.

Every repeat is what a user does: its own warm-up, its own chains, its own evidence. The claim
(500 repeats a model): sd of z = (log Z - exact) / mcse in [0.9, 1.1], coverage of the 95 %
interval in [0.925, 0.975], warnings in at most 5 % of the runs on unimodal models.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks import common

DEFAULT_MODELS = (
    "gaussian", "regression", "noisy_regression", "binomial", "hierarchical", "schools",
    "logistic", "mixture", "shells", "twenty_modes",
    "intercepts3", "intercepts5", "intercepts20", "intercepts3_raw", "intercepts5_raw",
    "intercepts20_raw", "funnel", "scale_mixture",
)  # fmt: skip

NOTES = {
    "z": "(log Z - exact) / mcse, of the runs that state a finite mcse",
    "cover": "share of finite runs whose 95 % interval holds the exact value; `cover all` counts "
    "an infinite mcse as an interval that holds it",
    "estimator": "that of most runs, as users get it by default",
    "noise": "with n repeats the sd of z is known to 1/sqrt(2n) of itself (0.03 for 500) and a "
    "coverage of 95 % to 0.22/sqrt(n) (0.01)",
    "mcse": "the mean is that of finite ones, the median that of all",
    "warned": "any warning of warm-up, chains or evidence; `unchecked`, `disagreed`, `ok`: the "
    "verdict",
    "tail": "mean share of a run's draws above the exact 99 % quantile of a scale or other "
    "statistic, 0.01 if right; `tail error`: standard error of this mean over runs",
    "fallback": "share of runs that answered from the prior, all of them with --reference prior",
    "other work": "mean share of density evaluations of all legs but the run",
    "seconds": "median from warm-up to evidence on one core, compiling not counted; `cpu`: CPU "
    "seconds of the process, which other work on the machine does not lengthen",
}


def summarize(name: str, runs: Sequence[common.Run]) -> common.Row:
    """Compare what the runs stated with what was true."""
    exact = common.system(name).log_evidence
    error = np.array([run.log_z for run in runs]) - exact
    mcse = np.array([run.mcse for run in runs])
    finite = np.isfinite(mcse)
    z = error[finite] / mcse[finite]
    inside = np.abs(z) < 1.959964
    tail = np.array([run.tail for run in runs])
    verdicts = Counter(run.verdict for run in runs)
    n = len(runs)
    return {
        "model": name,
        "dim": common.system(name).dim,
        "n": n,
        "estimator": Counter(run.method for run in runs).most_common(1)[0][0],
        "bias": float(error.mean()),
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "mean mcse": float(mcse[finite].mean()) if finite.any() else float("nan"),
        "median mcse": float(np.median(mcse)),
        "mean z": float(z.mean()) if finite.any() else float("nan"),
        "sd z": float(z.std(ddof=1)) if finite.sum() > 1 else float("nan"),
        "max abs z": float(np.abs(z).max()) if finite.any() else float("nan"),
        "cover": float(inside.mean()) if finite.any() else float("nan"),
        "cover all": float((inside.sum() + (~finite).sum()) / n),
        "warned": sum(bool(run.warnings) for run in runs) / n,
        "unchecked": verdicts["unchecked"] / n,
        "disagreed": verdicts["disagreed"] / n,
        "ok": verdicts["ok"] / n,
        "tail": float(tail.mean()),
        "tail error": float(tail.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan"),
        "tours": float(np.mean([run.n_tours for run in runs])),
        "ess": float(np.mean([run.ess for run in runs])),
        "fallback": sum(not run.fitted for run in runs) / n,
        "other work": float(np.mean([run.prior_work for run in runs])),
        "seconds": float(np.median([run.seconds for run in runs])),
        "cpu": float(np.median([run.cpu for run in runs])),
    }


def write_runs(path: Path, runs: dict[str, list[common.Run]]) -> None:
    """Write a line for each run, for a closer look at those that are off."""
    with path.open("w") as file:
        file.write("model,seed,exact,log_z,mcse,verdict,n_tours,ess,seconds,tail,warnings\n")
        for name, of_model in runs.items():
            exact = common.system(name).log_evidence
            for run in sorted(of_model, key=lambda run: run.seed):
                said = " / ".join(run.warnings).replace('"', "'")
                file.write(
                    f"{name},{run.seed},{exact},{run.log_z},{run.mcse},{run.verdict},"
                    f'{run.n_tours},{run.ess},{run.seconds},{run.tail},"{said}"\n'
                )


def place_of(row: common.Row) -> int:
    """Place of a model's row in the table."""
    name = str(row["model"])
    return DEFAULT_MODELS.index(name) if name in DEFAULT_MODELS else len(DEFAULT_MODELS)


def main() -> None:
    arguments = common.parser(__doc__, 500, DEFAULT_MODELS)
    arguments.add_argument("--draws", type=int, help="by default as many as suffice")
    arguments.add_argument("--target-mcse", type=float, help="of every run, in nats")
    arguments.add_argument("--chains", type=int, default=4)
    arguments.add_argument("--workers", type=int, default=2, help="processes, one core each")
    arguments.add_argument("--runs", type=Path, help="file for a line of CSV a run")
    arguments.add_argument("--keep", action="store_true", help="rows of other models stay")
    args = arguments.parse_args()
    seeds = range(args.seed, args.seed + args.repeats)
    common.check_same_as_sample(args.models[0], args.seed, args.reference)
    name_of_table = f"calibration_{args.reference}" + ("_target" if args.target_mcse else "")
    rows = (
        common.earlier_rows(args.out / f"{name_of_table}.csv", "model", args.models)
        if args.keep
        else []
    )
    runs: dict[str, list[common.Run]] = {}
    how = {"draws": args.draws, "chains": args.chains, "reference": args.reference}
    how |= {"target_mcse": args.target_mcse} if args.target_mcse else {}
    settings = {
        "seeds": f"{seeds.start} to {seeds.stop - 1}, of each model",
        "run": ", ".join(f"{key}={value}" for key, value in how.items()) + ", all else by default",
        **NOTES,
    }
    title = "Calibration of the stated error of log Z"
    with common.worker_pool(args.workers) as pool:
        for name in args.models:
            started = perf_counter()
            runs[name] = list(common.run_many(pool, name, seeds, **how))
            rows.append(summarize(name, runs[name]))
            row = rows[-1]
            print(
                f"{name}: sd z {row['sd z']:.3f}, cover {row['cover']:.3f}, warned "
                f"{row['warned']:.1%} ({perf_counter() - started:.0f} s)",
                flush=True,
            )
            common.save(name_of_table, sorted(rows, key=place_of), args.out, title, settings)
            if args.runs:
                write_runs(args.runs, runs)


if __name__ == "__main__":
    main()
