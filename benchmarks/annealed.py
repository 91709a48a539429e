"""All estimators from independent runs on models with a known evidence: value, error, cost.

Radiata pine (closed form) and Pima Indians (importance sampling, 200,000 draws), two models each,
as in Friel & Wyse (2012); where `$PMT_DATA` or `../shared/data` does not hold them, test systems.
Writes `results/annealed.md` and `.csv`.

    python benchmarks/annealed.py
"""

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
from common import RESULTS, Row, save

import pymc_tempering as pmt
from pymc_tempering import testsystems

ROOT = Path(os.environ.get("PMT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

type Model = tuple[pm.Model, float]


def pine(column: int) -> Model:
    """Strength of timber on density (2) or adjusted density (3): conjugate, in closed form."""
    rows = np.loadtxt(ROOT / "radiata_pine.csv", skiprows=1)
    x, y = rows[:, column], rows[:, 1]
    design = np.column_stack([np.ones(y.size), x - x.mean()])
    system = testsystems.normal_inverse_gamma_regression(
        design, y, [3000.0, 185.0], 1.0 / np.sqrt([0.06, 6.0]), 3.0, 2.0 * 300.0**2
    )
    return system.model, system.log_evidence


def pima(covariates: list[int], log_z: float) -> Model:
    """Logistic regression with an intercept and coefficients of variance 100."""
    rows = np.loadtxt(ROOT / "pima_indian.csv")
    design = np.column_stack([np.ones(len(rows)), rows[:, covariates]])
    with pm.Model() as model:
        coef = pm.Normal("coef", 0.0, 10.0, shape=design.shape[1])
        pm.Bernoulli("y", logit_p=design @ coef, observed=rows[:, 0])
    return model, log_z


def models() -> dict[str, Callable[[], Model]]:
    """Models by name."""
    if (ROOT / "pima_indian.csv").exists():
        return {
            "pine, density": lambda: pine(2),
            "pine, adjusted": lambda: pine(3),
            "Pima, 5 coefficients": lambda: pima([1, 2, 5, 6], -257.2325),
            "Pima, 6 coefficients": lambda: pima([1, 2, 5, 6, 7], -259.8566),
        }
    systems = (testsystems.conjugate_regression, testsystems.logistic_regression)
    return {f.__name__: lambda f=f: ((s := f()).model, s.log_evidence) for f in systems}


METHODS = {
    "ais": lambda model, idata, **kwargs: pmt.ais(model, **kwargs),
    "hais": lambda model, idata, **kwargs: pmt.annealed.hais(model, **kwargs),
    "reverse_ais": lambda model, idata, **kwargs: pmt.reverse_ais(idata, model, **kwargs),
    "smc": lambda model, idata, **kwargs: pmt.smc(model, **kwargs),
    "thermodynamic_integration": lambda model, idata, **kwargs: pmt.thermodynamic_integration(
        model, **kwargs
    ),
}


def rows_of(name: str, model: pm.Model, exact: float, seed: int) -> list[Row]:
    """Run every method on one model; log Z in nats, CPU seconds without compilation."""
    idata = pmt.sample(1000, model=model, random_seed=seed, quiet=True, progressbar=False)
    rows: list[Row] = []
    for method, run in METHODS.items():
        run(model, idata, betas=9, random_seed=0, progressbar=False)  # compile
        began = process_time()
        evidence = run(model, idata, random_seed=seed, progressbar=False)
        seconds = process_time() - began
        rows.append({
            "model": name, "method": method,
            "log Z": f"{evidence.log_z:.3f}", "exact": f"{exact:.3f}",
            "mcse": f"{evidence.mcse:.3f}", "z": f"{(evidence.log_z - exact) / evidence.mcse:+.1f}",
            "evaluations": f"{evidence.n_evaluations:,}", "CPU s": f"{seconds:.1f}",
        })  # fmt: skip
        print(rows[-1], *evidence.warnings, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = list(models())
    help_models = "by default the first two; those of Pima take minutes each"
    parser.add_argument("--models", nargs="+", choices=known, default=known[:2], help=help_models)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows: list[Row] = []
    settings = {
        "seed": f"{args.seed}, of each method and of the posterior draws",
        "run": "one run of each method by default",
        "z": "distance from the exact value in stated errors",
        "CPU s": "without compilation; reverse_ais reads draws of pmt.sample, not counted here",
    }
    for name in args.models:
        rows += rows_of(name, *models()[name](), args.seed)
        save("annealed", rows, args.out, "Estimators from independent runs", settings)


if __name__ == "__main__":
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    main()
