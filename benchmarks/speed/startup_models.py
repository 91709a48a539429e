"""Compiling, side by side: tempering, `pm.sample` and nutpie, in fresh processes.

Each process builds the same models in the same order and samples each shortly, so that CPU seconds
are those of imports and compilation. One process starts with empty folders for the caches of
PyTensor and of Numba, the next one with what that one has left there, and with other data.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

DRAWS = 20
"""Draws, and tuning steps, of `pm.sample` and nutpie; tempering takes as many draws."""

METHODS = ("pmt.sample", "pm.sample", "nutpie")


def regression(covariates: int = 3, seed: int = 0) -> Any:
    """Linear regression on 200 rows."""
    import numpy as np
    import pymc as pm

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, covariates))
    y = X @ np.ones(covariates) + np.random.default_rng(seed).normal(size=200)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=covariates)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", X @ b, sigma, observed=y)
    return model


def logistic() -> Any:
    """Logistic regression on 200 rows."""
    import numpy as np
    import pymc as pm

    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=3)
        pm.Bernoulli("y", logit_p=X @ b, observed=rng.random(200) < 0.5)
    return model


def schools() -> Any:
    """Eight schools."""
    from pymc_tempering import testsystems

    return testsystems.eight_schools().model


def slopes() -> Any:
    """Varying intercepts and slopes with an LKJ prior: 85 groups, 176 dimensions."""
    import numpy as np
    import pymc as pm

    rng = np.random.default_rng(2)
    group, x = np.repeat(np.arange(85), 10), rng.normal(size=850)
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
        effect = mean + pm.Normal("z", shape=(85, 2)) @ chol.T
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal(
            "y", effect[group, 0] + effect[group, 1] * x, sigma, observed=rng.normal(size=850)
        )
    return model


STEPS: dict[str, Callable[..., Any]] = {
    "first regression": regression,
    "the same, built again": regression,
    "other y": regression,
    "one covariate more": lambda: regression(covariates=4),
    "logistic regression": logistic,
    "eight schools": schools,
    "slopes with LKJ, 176-D": slopes,
}


def sample_with(method: str, model: Any) -> Any:
    """Sample shortly; returns what a second call can use."""
    if method == "nutpie":
        import nutpie

        compiled = nutpie.compile_pymc_model(model)
        return nutpie.sample(
            compiled, draws=DRAWS, tune=DRAWS, chains=2, cores=1, progress_bar=False
        )
    options: dict[str, Any] = {"draws": DRAWS, "chains": 2, "cores": 1, "random_seed": 1}
    options |= {"compute_convergence_checks": False, "progressbar": False}
    if method == "pm.sample":
        import pymc as pm

        return pm.sample(tune=DRAWS, model=model, quiet=True, **options)
    import pymc_tempering as pmt

    return pmt.sample(model=model, quiet=True, reference="prior", **options)


def child(method: str, n_steps: int, seed: int) -> dict[str, float]:
    """CPU seconds of each step in this process; `seed` makes the other y."""
    seconds = {}
    before = process_time()
    import pymc  # noqa: F401

    if method == "nutpie":
        import nutpie  # noqa: F401
    if method == "pmt.sample":
        import pymc_tempering  # noqa: F401
    seconds["import"] = process_time() - before
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    for name, build in list(STEPS.items())[:n_steps]:
        model = build(seed=seed) if name == "other y" else build()
        before = process_time()
        sample_with(method, model)
        seconds[name] = process_time() - before
        if method == "pmt.sample":
            before = process_time()
            idata = sample_with(method, model)
            seconds[f"{name}: same object"] = process_time() - before
            took: dict[str, float] = json.loads(idata["tempering"].attrs["seconds"])
            sampling = sum(took.values()) - took["compiling"]
            seconds[f"{name}: beyond sampling"] = seconds[f"{name}: same object"] - sampling
    return seconds


def in_fresh_process(
    method: str, caches: str, *arguments: str, script: str = __file__
) -> dict[str, Any]:
    """Run `child` of a script in a new process with these folders for its caches."""
    flags = f"base_compiledir={caches}/pytensor"
    environment = os.environ | {"NUMBA_CACHE_DIR": f"{caches}/numba", "PYTENSOR_FLAGS": flags}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # one core, for all
    command = [sys.executable, str(Path(script).resolve()), "--child", method, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def wanted(found: dict[tuple[str, str], dict[str, float]]) -> dict[str, str]:
    """Figures that the package is held to, of the process with empty caches unless it says so."""
    ours, theirs = found["empty", "pmt.sample"], found["empty", "pm.sample"]
    first, *further = [name for name in STEPS if name in ours]
    if "other y" not in further:
        return {}
    ratios = {name: ours[name] / theirs[name] for name in [first, *further]}
    largest = max(further, key=ratios.__getitem__)
    sums = [sum(seconds[name] for name in further) for seconds in (ours, theirs)]
    new_data = [
        found[state, "pmt.sample"]["other y"] - found[state, "pmt.sample"]["other y: same object"]
        for state in ("empty", "warm")
    ]
    beyond = [
        seconds
        for (_, method), all_ in found.items()
        for name, seconds in all_.items()
        if method == "pmt.sample" and name.endswith(": beyond sampling")
    ]
    return {
        "first model, over pm.sample": f"{ratios[first]:.2f} (wanted <= 0.5)",
        "further models in the sum, over pm.sample": (
            f"{sums[0]:.1f} / {sums[1]:.1f} = {sums[0] / sums[1]:.2f} (wanted <= 0.5); largest "
            f"{ratios[largest]:.2f}, {largest} (wanted <= 1)"
        ),
        "new data of the same shapes, beyond the sampling": (
            f"{', '.join(f'{value:.2f}' for value in new_data)} s, in the same and in another "
            "process (wanted < 0.5)"
        ),
        "the same model again, beyond its sampling": f"at most {max(beyond):.2f} s (wanted < 0.1)",
    }


def main() -> None:
    from benchmarks.common import Row, parser, save

    arguments = parser(__doc__, 1)
    arguments.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments.add_argument("--steps", type=int, default=len(STEPS), help="how many of the models")
    args = arguments.parse_args()
    found: dict[tuple[str, str], dict[str, float]] = {}
    for method in args.methods:
        with tempfile.TemporaryDirectory() as caches:
            for seed, state in enumerate(("empty", "warm"), start=7):
                given = (str(args.steps), str(seed))
                found[state, method] = in_fresh_process(method, caches, *given)
                print(state, method, found[state, method], flush=True)
    names = ["import", *list(STEPS)[: args.steps]]
    rows: list[Row] = []
    for state in ("empty", "warm"):
        for name in names:
            row: Row = {"disk caches": state, "step": name}
            row |= {method: found[state, method][name] for method in args.methods}
            ours = found[state, args.methods[0]]
            row["pmt.sample again, same object"] = ours.get(f"{name}: same object", "")
            row["of it beyond sampling"] = ours.get(f"{name}: beyond sampling", "")
            rows.append(row)
    figures = wanted(found) if {"pmt.sample", "pm.sample"} <= set(args.methods) else {}
    save(
        "startup_models",
        rows,
        args.out,
        "Imports and compilation in fresh processes, CPU seconds",
        {
            **figures,
            "threads": "one, that of linear algebra too",
            "sampling": f"{DRAWS} draws and 2 chains, counted too; tempering from the prior, with "
            "its warm-up",
            "again": "a second call on the same model object: the sampling itself, nearly",
            "load average at the end": f"{os.getloadavg()[0]:.2f}",
        },
    )


if __name__ == "__main__":
    if "--child" in sys.argv:
        at = sys.argv.index("--child")
        method, *numbers = sys.argv[at + 1 :]
        print(json.dumps(child(method, *map(int, numbers))))
    else:
        main()
