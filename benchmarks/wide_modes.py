"""Factors of hundreds of persons whose sign is free: two modes in more than 200 dimensions.

The factors are normal given the loads, so that they can be integrated out. What is left has twelve
dimensions, and a run of it is the truth. Each row says which share of the draws has one sign, of
which half is right.
"""

import warnings
from time import process_time
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import Row, parser, save

import pymc_tempering as pmt
from pymc_tempering.evidence.result import Evidence

LOADS = np.array([0.9, 0.8, -0.7, 0.6, 0.5, 0.4])
QUIET = {"cores": 1, "progressbar": False, "quiet": True}


def factors(persons: int, *, explicit: bool = True) -> pm.Model:
    """Make six scores of each person, with the factor of each or without."""
    rng, n = np.random.default_rng(6), LOADS.size
    y = rng.normal(size=(persons, 1)) * LOADS
    y += np.sqrt(1 - LOADS**2) * rng.normal(size=(persons, n))
    with pm.Model() as model:
        load = pm.Normal("load", 0, 1, shape=n)
        psi = pm.HalfNormal("psi", 1, shape=n)
        if explicit:
            factor = pm.Normal("factor", shape=persons)
            pm.Normal("y", factor[:, None] * load, psi, observed=y)
        else:
            covariance = pt.outer(load, load) + pt.diag(psi**2)
            pm.MvNormal("y", np.zeros(n), covariance, observed=y)
    return model


def one_run(model: pm.Model, seed: int) -> tuple[Evidence, float, float]:
    """Return the evidence, the share of draws with the first load above zero, and CPU seconds."""
    start = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pmt.sample(model=model, random_seed=seed, **QUIET)
        found = pmt.log_marginal_likelihood(idata)
    share = float((idata["posterior"]["load"][..., 0] > 0).mean())
    return found, share, process_time() - start


def main() -> None:
    """Run both models, and store a row for each run of the one with factors."""
    arguments = parser(__doc__, 7)
    arguments.add_argument("--persons", nargs="*", type=int, default=[250, 400, 600])
    args = arguments.parse_args()
    rows: list[Row] = []
    for persons in args.persons:
        truth = one_run(factors(persons, explicit=False), 1)[0]
        model = factors(persons)
        pmt.compile(model, progressbar=False)
        for seed in range(args.seed, args.seed + args.repeats):
            found, share, cpu = one_run(model, seed)
            error = float(np.hypot(found.mcse, truth.mcse))
            row: dict[str, Any] = {
                "persons": persons, "dim": persons + 2 * LOADS.size, "seed": seed,
                "log_z": found.log_z, "mcse": found.mcse, "verdict": found.verdict,
                "z": (found.log_z - truth.log_z) / error, "share of one sign": share, "cpu": cpu,
            }  # fmt: skip
            rows.append(row)
            print(row, flush=True)
    settings = {"run": "defaults, one core, after compiling", "cpu": "CPU seconds to the evidence"}
    save("wide_modes", rows, args.out, "Two modes in more than 200 dimensions", settings)


if __name__ == "__main__":
    main()
