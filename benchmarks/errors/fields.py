"""Models with latent fields of hundreds to thousands of values: default runs on one core.

Beside each run, on request, is nutpie (4 x 1,000 draws after 1,000 of tuning) with
`bridge_sampling`. A model is compiled before, so that CPU seconds are those of a run. Runs that are
stored are not made again.
"""

import argparse
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pymc as pm

import pymc_tempering as pmt
from benchmarks.common import RESULTS, read_table, save
from benchmarks.models.fields_models import FIRST
from benchmarks.models.fields_second import SECOND
from benchmarks.truths.fields_truth import stored
from pymc_tempering.evidence import Evidence

KINDS = FIRST | SECOND

ROUNDED = 1e-5
"""Error of the constant of PyMC's normal density, summed over some thousand of them (nats)."""

COLUMNS = ("kind", "dim", "seed", "method")
NAMES = (
    *COLUMNS, "log_z", "mcse", "verdict", "cpu", "wall", "compiling", "exact", "exact_error", "z",
    "warnings",
)  # fmt: skip
"""Of what a run is, and of all that is told of it."""


def by_tempering(model: pm.Model, seed: int) -> Evidence:
    """Run the default."""
    idata = pmt.sample(model=model, random_seed=seed, cores=1, progressbar=False, quiet=True)
    return pmt.log_marginal_likelihood(idata)


def by_nuts(model: pm.Model, seed: int) -> Evidence:
    """Run nutpie, and bridge to its draws."""
    with model:
        idata = pm.sample(
            1000, tune=1000, chains=4, cores=1, nuts_sampler="nutpie", random_seed=seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    return pmt.bridge_sampling(idata, model, cores=1, random_seed=seed)


METHODS: dict[str, Callable[[pm.Model, int], Evidence]] = {
    "tempering": by_tempering, "nutpie + bridge": by_nuts,
}  # fmt: skip


def one_run(kind: str, dim: int, seed: int, method: str) -> dict[str, Any]:
    """Make one run, and compare it with the exact value where there is one."""
    model = KINDS[kind](dim, seed)
    start = process_time()
    pmt.compile(model, progressbar=False)
    compiling, start, began = process_time() - start, process_time(), perf_counter()
    row: dict[str, Any] = dict.fromkeys(NAMES, "")
    row |= {"kind": kind, "dim": dim, "seed": seed, "method": method}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = METHODS[method](model, seed)
        except Exception as error:  # a method may refuse a model: the table says it
            return row | {"verdict": f"{type(error).__name__}: {error}"[:200]}
        told = [str(each.message) for each in said if "Tempering" in each.category.__name__]
    exact, error = stored().get((kind, dim, seed), (np.nan, np.nan))
    return row | {
        "log_z": found.log_z, "mcse": found.mcse, "verdict": found.verdict,
        "cpu": process_time() - start, "wall": perf_counter() - began, "compiling": compiling,
        "exact": exact, "exact_error": error,
        "z": (found.log_z - exact) / np.sqrt(found.mcse**2 + error**2 + ROUNDED**2),
        "warnings": json.dumps(told),
    }  # fmt: skip


def table(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the runs of a kind, size and method into one row."""
    rows = []
    for key in dict.fromkeys((r["kind"], int(r["dim"]), r["method"]) for r in runs):
        some = [r for r in runs if (r["kind"], int(r["dim"]), r["method"]) == key]
        done = [r for r in some if r.get("mcse") not in (None, "")]
        z = np.array([float(r["z"]) for r in done if r["z"] not in ("", "nan")])
        z = z[np.isfinite(z)]
        rows.append(
            dict(zip(("kind", "dim", "method"), key, strict=True))
            | {
                "runs": len(some), "ok": sum(r["verdict"] == "ok" for r in some),
                "mcse": float(np.median([float(r["mcse"]) for r in done])) if done else np.nan,
                "largest mcse": max((float(r["mcse"]) for r in done), default=np.nan),
                "cpu": float(np.median([float(r["cpu"]) for r in done])) if done else np.nan,
                "largest |z|": float(np.abs(z).max()) if z.size else "",
            }
        )  # fmt: skip
    return rows


def main() -> None:
    """Make the runs that are asked for, and store each as it ends."""
    logging.getLogger("pytensor").setLevel(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--dims", nargs="*", type=int, default=[200, 500, 1000, 2000])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--methods", nargs="*", default=["tempering"], choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    path = args.out / "fields_runs.csv"
    runs: list[dict[str, Any]] = list(read_table(path)) if path.exists() else []
    made = {tuple(str(run[name]) for name in COLUMNS) for run in runs}
    settings = {"tempering": "defaults, one core", "nutpie": "4 x 1,000 draws after 1,000"}
    for dim in args.dims:
        for kind in args.kinds:
            for seed in args.seeds:
                for method in args.methods:
                    if (kind, str(dim), str(seed), method) in made:
                        continue
                    runs.append(one_run(kind, dim, seed, method))
                    print({k: v for k, v in runs[-1].items() if k != "warnings"}, flush=True)
            save("fields_runs", runs, args.out, "Latent fields: runs", settings)
            save("fields", table(runs), args.out, "Latent fields", settings)


if __name__ == "__main__":
    main()
