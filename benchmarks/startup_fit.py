"""Fits of one model, one after the other: tempering and `pm.fit`, in fresh processes.

Each process fits three models several times, shortly, so that CPU seconds are those of imports and
compilation; what the iterations take is measured by a longer fit, and taken off. One process
starts with empty folders for the caches of PyTensor and of Numba, the next one with what that one
has left there.
"""

import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

N = 200
"""Iterations of a fit."""

LONG = 10_200
"""Iterations of the longer one; the difference tells what an iteration takes."""

METHODS = ("pmt.fit", "pm.fit")


def models() -> dict[str, Callable[..., Any]]:
    """What is fitted, by name."""
    from startup_models import logistic, regression, schools

    return {"regression": regression, "logistic regression": logistic, "eight schools": schools}


def fit_with(method: str, model: Any, n: int, seed: int, temper: str = "annealed") -> None:
    """Fit shortly."""
    import pymc as pm

    import pymc_tempering as pmt

    options = {"progressbar": False, "random_seed": seed, "model": model}
    if method == "pm.fit":
        pm.fit(n, **options)
    else:
        pmt.fit(n, temper, max_n=n, **options)


def seconds_of(*arguments: Any) -> float:
    """CPU seconds of a fit."""
    before = process_time()
    fit_with(*arguments)
    return process_time() - before


def child(method: str) -> dict[str, dict[str, Any]]:
    """CPU seconds of each fit of each model in this process."""
    import pymc as pm

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with pm.Model() as other:  # what all fits share, imports too
        pm.Normal("y", pm.Normal("x"), 1.0, observed=[0.5])
    fit_with(method, other, N, 1)
    found = {}
    for name, build in models().items():
        model = build()
        first = seconds_of(method, model, N, 1)
        again = seconds_of(method, model, N, 2)
        rebuilt = seconds_of(method, build(), N, 2)
        data = seconds_of(method, build(seed=1), N, 2) if name == "regression" else ""
        iterating = (seconds_of(method, model, LONG, 3) - again) * N / (LONG - N)
        found[name] = {
            "first fit": first,
            "built again": rebuilt,
            "other y": data,
            "same model again": again,
            "iterating": iterating,
        }
        for temper in ("advi", "variational_tempering"):
            ours = method == "pmt.fit"
            found[name][temper] = seconds_of(method, model, N, 4, temper) if ours else ""
    return found


def main() -> None:
    from common import Row, parser, save
    from startup_models import in_fresh_process

    args = parser(__doc__, 1).parse_args()
    rows: list[Row] = []
    for method in METHODS:
        with tempfile.TemporaryDirectory() as caches:
            for state in ("empty", "warm"):
                for name, seconds in in_fresh_process(method, caches, script=__file__).items():
                    row: dict[str, Any] = {"disk caches": state, "fits by": method, "model": name}
                    row |= seconds | {"beyond iterating": seconds["same model again"]}
                    row["beyond iterating"] -= seconds["iterating"]
                    rows.append(row)
                    print(row, flush=True)
    save(
        "startup_fit",
        rows,
        args.out,
        "Fits of one model, one after the other, CPU seconds",
        {
            "threads": "one, that of linear algebra too",
            "fits": f"{N} iterations; by pmt.fit the method is annealed where none is named, and "
            "4000 evaluations of the log density for its ELBO, k-hat and log Z are counted",
            "iterating": f"what {N} iterations take, by a fit of {LONG}",
            "load average at the end": f"{os.getloadavg()[0]:.2f}",
        },
    )


if __name__ == "__main__":
    if "--child" in sys.argv:
        print(json.dumps(child(sys.argv[sys.argv.index("--child") + 1])))
    else:
        main()
