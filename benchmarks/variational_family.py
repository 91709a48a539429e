"""Variational tempering on models that were drawn at random, half of which nothing was tuned on.

Settings were chosen on the seeds of the first half; then those of the second half were run, once.
Models in which all starts reach one optimum can show nothing, and which ones these are is told by
`pm.fit` alone, from starts of its own.
"""

import argparse
import json
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import RESULTS, Row, save
from variational_family_models import LARGEST_OF, kind_of, model_of
from variational_mixtures import gain_of
from variational_mixtures_fits import (
    ANNEALED,
    ANNEALED_TRIALS,
    LARGEST,
    PLAIN,
    SEVERAL,
    VT,
    Fits,
    partition_of,
    request_of,
)

import pymc_tempering as pmt

METHODS = (PLAIN, SEVERAL, ANNEALED, ANNEALED_TRIALS)
"""VT needs C(T), which takes longer than all of these: `--vt`."""

HALVES = {"tuned on": range(12), "unseen": range(12, 24)}
"""Seeds."""

DRAWS = 160
"""Particles for log C(T)."""

APART = 0.7
"""Several optima: a smaller share of `pm.fit`'s own starts ends within 1 nat of their best."""


def run_seed(seed: int, found: dict, methods: Sequence[str], options: argparse.Namespace) -> None:
    """Fit the model of a seed by every method that is still missing, from every start."""
    missing = [method for method in methods if method not in found["elbo"]]
    if not missing:
        return
    began = sum(os.times()[:4])
    model, largest, n = model_of(seed), LARGEST_OF.get(kind_of(seed), LARGEST), options.n
    fits = Fits(model, n, largest)
    if VT in missing:
        found |= partition_of(model, DRAWS, largest)
        fits.log_c = (np.array(found["log_c"]), np.array(found["mcse"]))
    starts, own = fits.starts(options.repeats), fits.starts(options.repeats, seed=2)
    for method in missing:
        request = request_of(method, n, largest)
        found["elbo"][method] = [
            fits.final_elbo(fits.fit(method, start, place, request))
            for place, start in enumerate(starts)
        ]
    if "alone" not in found:
        plain = request_of(PLAIN, n, largest)
        apart = [
            fits.final_elbo(fits.fit(PLAIN, start, 100 + place, plain))
            for place, start in enumerate(own)
        ]
        found["alone"] = float(np.mean(np.array(apart) > max(apart) - 1.0))
    found["minutes"] += (sum(os.times()[:4]) - began) / 60


def rows_of(half: str, seed: int, found: dict) -> list[Row]:
    """One row a method."""
    elbo = {method: np.array(values) for method, values in found["elbo"].items()}
    best = max(values.max() for values in elbo.values())
    plain = elbo[PLAIN]
    rows: list[Row] = []
    for method, values in elbo.items():
        gain, error = gain_of(values, plain)
        rows.append(
            {
                "half": half,
                "seed": seed,
                "kind": kind_of(seed),
                "alone": found["alone"],
                "method": method,
                "median": float(np.median(values)),
                "gain": gain,
                "se": error,
                "higher": int((values > plain + 1.0).sum()),
                "lower": int((values < plain - 1.0).sum()),
                "within_1": float(np.mean(values > best - 1.0)),
            }
        )
    return rows


def summary_of(rows: list[Row]) -> list[Row]:
    """One row for each half, kind of model (one optimum or several) and method."""
    out: list[Row] = []
    for half in HALVES:
        for several in (True, False):
            chosen = [r for r in rows if r["half"] == half and (r["alone"] < APART) == several]
            for method in dict.fromkeys(r["method"] for r in chosen):
                own = [r for r in chosen if r["method"] == method]
                gain, error = (np.array([r[key] for r in own]) for key in ("gain", "se"))
                noise = np.maximum(2.0 * error, 0.1)
                out.append(
                    {
                        "half": half,
                        "optima": "several" if several else "one",
                        "models": len(own),
                        "method": method,
                        "median gain": float(np.median(gain)),
                        "mean gain": float(np.mean(gain)),
                        "above": int((gain > noise).sum()),
                        "below": int((gain < -noise).sum()),
                        "starts higher": int(sum(r["higher"] for r in own)),
                        "starts lower": int(sum(r["lower"] for r in own)),
                        "within_1": float(np.mean([r["within_1"] for r in own])),
                    }
                )
    return out


def report(found: dict[int, dict], options: argparse.Namespace, minutes: float) -> None:
    """Write both tables."""
    rows = [
        row
        for half, seeds in HALVES.items()
        for seed in seeds
        if seed in found
        for row in rows_of(half, seed, found[seed])
    ]
    settings = {
        "models": "variational_family_models.py, by seed; settings were chosen on the first half, "
        "with 6 to 10 starts and a scratch form of this file, which is not in the table",
        "methods": "as in variational_mixtures.md; annealed, 8 trials: what VT does as long as its "
        "q(T) lies on the edge of the schedule, without C(T)",
        "starts": f"{options.repeats} draws from the prior, the same for every method",
        "iterations": str(options.n),
        "alone": f"share of {options.repeats} further fits of pm.fit, from other starts, within 1 "
        "nat of the best of them",
        "optima": f"several where alone is below {APART:g}",
        "gain, se": "median of final ELBOs less that of pm.fit (nats), and its standard error over "
        "starts",
        "above, below": "models with a gain beyond two standard errors and 0.1 nats",
        "starts higher, lower": "that end more than 1 nat above, below pm.fit's",
        "within_1": "share of starts within 1 nat of the best of all methods",
        "CPU minutes": f"{minutes:.1f}",
    }
    save("variational_family", summary_of(rows), options.out, "VT on models drawn at random",
         settings)  # fmt: skip
    save("variational_family_models", rows, options.out, "VT on models drawn at random, each model",
         settings)  # fmt: skip


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=10)
    args.add_argument("--n", type=int, default=2400, help="iterations of every fit")
    args.add_argument("--half", choices=list(HALVES), nargs="+", default=list(HALVES))
    args.add_argument("--seeds", type=int, nargs="+", help="only these")
    args.add_argument("--vt", action="store_true", help="VT, too")
    args.add_argument("--out", type=Path, default=RESULTS)
    args.add_argument("--keep", type=Path, help="folder of finished seeds, which are not run again")
    options = args.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    found: dict[int, dict] = {}
    minutes = 0.0
    methods = (*METHODS, VT) if options.vt else METHODS
    for seed in options.seeds or [seed for half in options.half for seed in HALVES[half]]:
        kept = options.keep and options.keep / f"{seed}.json"
        found[seed] = {"elbo": {}, "minutes": 0.0}
        if kept and kept.exists():
            found[seed] = json.loads(kept.read_text())
        run_seed(seed, found[seed], methods, options)
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found[seed]))
        minutes += found[seed]["minutes"]
        gains = {m: round(gain_of(np.array(v), np.array(found[seed]["elbo"][PLAIN]))[0], 2)
                 for m, v in found[seed]["elbo"].items()}  # fmt: skip
        print(seed, kind_of(seed), gains, f"{found[seed]['minutes']:.2f} minutes", flush=True)
        report(found, options, minutes)


if __name__ == "__main__":
    main()
