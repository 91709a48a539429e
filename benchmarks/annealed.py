"""All estimators from independent runs on models with a known evidence: value, error, cost.

Radiata pine (closed form) and Pima Indians (importance sampling, 200,000 draws), two models each,
as in Friel & Wyse (2012); where `$PMT_DATA` or `../shared/data` does not hold them, test systems.

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

import pymc_tempering as pmt
from pymc_tempering import testsystems

RESULTS = Path(__file__).parent / "results"
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
    "hais": lambda model, idata, **kwargs: pmt.hais(model, **kwargs),
    "reverse_ais": lambda model, idata, **kwargs: pmt.reverse_ais(idata, model, **kwargs),
    "linked": lambda model, idata, **kwargs: pmt.linked_importance_sampling(model, **kwargs),
    "smc": lambda model, idata, **kwargs: pmt.smc(model, **kwargs),
    "thermodynamic": lambda model, idata, **kwargs: pmt.thermodynamic_integration(model, **kwargs),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    lines = [
        "# Estimators from independent runs\n",
        f"`python benchmarks/annealed.py --seed {args.seed}`, default settings; CPU seconds "
        "without compilation, and posterior draws for `reverse_ais` by `pmt.sample` not "
        "counted. `z` is the distance from the exact value in stated errors.\n",
        "| model | method | log Z | exact | mcse | z | evaluations | CPU s |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, build in models().items():
        model, exact = build()
        idata = pmt.sample(1000, model=model, random_seed=args.seed, quiet=True, progressbar=False)
        for method, run in METHODS.items():
            run(model, idata, betas=9, random_seed=0, progressbar=False)  # compile
            began = process_time()
            evidence = run(model, idata, random_seed=args.seed, progressbar=False)
            seconds = process_time() - began
            z = (evidence.log_z - exact) / evidence.mcse
            lines.append(
                f"| {name} | {method} | {evidence.log_z:.3f} | {exact:.3f} | {evidence.mcse:.3f} | "
                f"{z:+.1f} | {evidence.n_evaluations:,} | {seconds:.1f} |"
            )
            print(lines[-1], *evidence.warnings, flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "annealed.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    main()
