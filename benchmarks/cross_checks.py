"""Whether a cross-check sees that a run lacks a mode, and how often it doubts a sound run.

A reference that is forced thin: all fits of a run are robbed of the draws of one of two modes, and
no looks are taken (`reference="fitted"`), so that nothing in the run itself warns. What such a run
lacks is measured: the share of exact posterior draws in the mode, less that of the run's draws.
The claim: where 5 to 15 % are missing, `cross_check` disagrees in at least 80 % of the runs; of
sound runs on models with an exact evidence, in at most 2 %; and no row with an error above a nat
agrees. CPU seconds are those of the cross-check alone, on one core, with all that is compiled warm.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import xarray as xr
from common import MODELS, Row, parser, save, system

import pymc_tempering as pmt
from pymc_tempering import testsystems
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.sampling import fit_reference

THIN = {
    f"mixture{dim}_{share:.0%}": (dim, share)
    for dim, share in ((10, 0.02), (6, 0.07), (10, 0.06), (10, 0.08), (10, 0.1), (10, 0.14))
}
"""Two Gaussians in so many dimensions, the second with this share, which the fits never see."""
for _name, (_dim, _share) in THIN.items():
    MODELS[_name] = partial(testsystems.gaussian_mixture, _dim, weights=(1.0 - _share, _share))

SOUND = (
    "gaussian", "regression", "noisy_regression", "binomial", "schools", "logistic", "mixture",
    "twenty_modes", "intercepts3", "funnel",
)  # fmt: skip
"""Models whose runs are sound: unimodal, with modes, hierarchical."""

MODE_SD = (1.0 / 5.0**2 + 1.0 / 0.5**2) ** -0.5
"""Standard deviation of each mode of the posterior: prior and component are normal."""

N_EXACT = 100_000
"""Exact draws that tell the share of a mode."""

BANDS = {"about 2 %": (0.01, 0.035), "5 to 15 %": (0.05, 0.15)}
"""Rows of the table by what a run lacks."""

WIDE = 1.0
"""Nats of error above which no row may agree."""


@cache
def handle(name: str) -> Any:
    """Compile a model of `MODELS` once."""
    return pmt.compile(system(name).model)


def mode_of(name: str, xs: np.ndarray) -> np.ndarray:
    """Nearest mode of states, shape (n, d)."""
    centers = np.asarray(system(name).mode_centers)
    return np.asarray(((xs[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1))


@contextmanager
def forced_thin(name: str) -> Iterator[None]:
    """Hide the second mode from all fits of a reference."""
    fit = fit_reference.fit_mixture

    def robbed(draws: np.ndarray, *args: Any, **kwargs: Any) -> Mixture:
        return fit(draws[mode_of(name, draws) == 0], *args, **kwargs)

    with patch.object(fit_reference, "fit_mixture", robbed):
        yield


@cache
def exact_share(name: str) -> float:
    """Share of the second mode among exact posterior draws: a mixture of two normals."""
    dim, share = THIN[name]
    rng, centers = np.random.default_rng(0), np.asarray(system(name).mode_centers)
    second = (rng.random(N_EXACT) < share).astype(int)
    xs = centers[second] + MODE_SD * rng.standard_normal((N_EXACT, dim))
    return float((mode_of(name, xs) == 1).mean())


def lacking(name: str, idata: xr.DataTree) -> float:
    """Share of the exact posterior in the second mode, less that of a run."""
    (variable,) = idata["posterior"].data_vars
    draws = idata["posterior"][variable].values.reshape(-1, THIN[name][0])
    return exact_share(name) - float((mode_of(name, draws) == 1).mean())


def checked_run(name: str, seed: int, cores: int) -> Row:
    """Sample, and cross-check with another seed."""
    thin = name in THIN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings: dict[str, Any] = {"random_seed": seed, "quiet": True, "cores": cores}
        if thin:
            with forced_thin(name):
                idata = pmt.sample(model=handle(name), reference="fitted", **settings)
        else:
            idata = pmt.sample(model=handle(name), **settings)
        run = pmt.log_marginal_likelihood(idata)
        started = process_time()
        check = pmt.cross_check(
            idata, handle(name), random_seed=10_000 + seed, cores=cores, progressbar=False
        )
        cpu = process_time() - started
    table, draws = check.table, check.draws
    own = table[(table["draws"] == "own") & (table["mcse"] < np.inf)]
    return {
        "model": name,
        "seed": seed,
        "missing": lacking(name, idata) if thin else 0.0,
        "off": run.log_z - system(name).log_evidence,
        "mcse": run.mcse,
        "verdict": check.verdict,
        "by estimates": int("estimates disagree" in check.words),
        "by draws": int(draws is not None and draws.verdict == "disagree"),
        "share": np.nan if draws is None else draws.share,
        "level": np.nan if draws is None else draws.level,
        "p draws": np.nan if draws is None else draws.pvalue,
        "own mcse": float(own["mcse"].min()) if len(own) else np.nan,
        "wide and agrees": int(((table["mcse"] > WIDE) & (table["agreement"] == "yes")).sum()),
        "cpu": cpu,
    }


def summarize(title: str, runs: Sequence[Row]) -> Row:
    """Count what the cross-checks of some runs said."""

    def column(name: str) -> np.ndarray:
        return np.array([float(run[name]) for run in runs])

    disagreed = np.array([run["verdict"] == "disagree" for run in runs])
    return {
        "runs": title,
        "n": len(runs),
        "missing": f"{column('missing').min():.1%} to {column('missing').max():.1%}",
        "disagree": f"{disagreed.mean():.1%}",
        "number": int(disagreed.sum()),
        "by draws": int(column("by draws").sum()),
        "by estimates": int(column("by estimates").sum()),
        "unchecked": int(sum(run["verdict"] == "unchecked" for run in runs)),
        "wide, agrees": int(column("wide and agrees").sum()),
        "off": float(column("off").mean()),
        "own mcse": float(np.nanmedian(column("own mcse"))),
        "cpu": float(np.median(column("cpu"))),
        "max cpu": float(column("cpu").max()),
    }


def main() -> None:
    arguments = parser(__doc__, 20)
    arguments.add_argument("--thin-repeats", type=int, default=12)
    arguments.add_argument("--cores", type=int, default=1)
    args = arguments.parse_args()
    runs: list[Row] = []
    plan = [(name, args.thin_repeats) for name in THIN] + [(name, args.repeats) for name in SOUND]
    for name, repeats in plan:
        # What compiles, and what is read from a cache, is not what a cross-check takes.
        checked_run(name, args.seed + 1000, args.cores)
        for seed in range(args.seed, args.seed + repeats):
            runs.append(checked_run(name, seed, args.cores))
            print(runs[-1], flush=True)
    rows = []
    thin = [run for run in runs if run["model"] in THIN]
    for title, (low, high) in BANDS.items():
        some = [run for run in thin if low <= float(run["missing"]) <= high]
        if some:
            rows.append(summarize(f"{title} missing", some))
    sound = [run for run in runs if run["model"] in SOUND]
    rows.append(summarize("sound", sound))
    rows += [summarize(name, [run for run in runs if run["model"] == name]) for name, _ in plan]
    settings = {
        "seeds": f"{args.seed} to {args.seed + args.repeats - 1} of each sound model, "
        f"{args.seed} to {args.seed + args.thin_repeats - 1} of each thin one; the cross-check "
        "has 10,000 more",
        "missing": "share of exact draws in the mode that the fits never saw, less the run's own",
        "disagree": "share of cross-checks that disagree; `by draws`: looks beyond the run's "
        "quantiles; `by estimates`: pairs, bounds or homogeneity",
        "wide, agrees": f"rows with an error above {WIDE:.0f} nat that agree, in all runs",
        "off": "mean of the run's log Z less the exact one (nats)",
        "own mcse": "smallest error of an estimate that is independent of the run, median",
        "cpu": "CPU seconds of the cross-check, median, one core",
    }
    save("cross_checks", rows, args.out, "Cross-checks of thin and of sound runs", settings)
    save("cross_checks_runs", runs, args.out, "The single runs", settings)


if __name__ == "__main__":
    main()
