"""Whether a change of the code leaves every draw and estimate as it was, bit for bit.

    python benchmarks bit_identity store hashes.json     # before the change
    python benchmarks bit_identity compare hashes.json   # after it

Each task is one call through a public name on a small model with a fixed seed. What it returns is
hashed variable by variable (times apart), so that `compare` can say what changed. Hashes are of one
machine and one set of versions: they are compared, never kept.
"""

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

import pymc_tempering as pmt
from pymc_tempering.variational import conjugate

DRAWS = 100
CLOCKS = ("seconds", "time", "duration", "created_at", "performance_counter")


def regression() -> pm.Model:
    """Three coefficients, unknown noise: gradients, one mode."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.normal(size=30)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 2.0, shape=3)
        sigma = pm.HalfNormal("sigma", 2.0)
        pm.Normal("y", X @ b, sigma, observed=y)
    return model


def schools() -> pm.Model:
    """Normal hierarchy, not centered."""
    return pmt.testsystems.eight_schools().model


def two_modes() -> pm.Model:
    """Two separated modes in three dimensions."""
    rng = np.random.default_rng(2)
    y = rng.normal([1.0, 2.0, 1.5], 0.3, size=(5, 3))
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0, shape=3)
        pm.Normal("y", pm.math.abs(x), 0.5, observed=y)
    return model


def circular() -> pm.Model:
    """An angle and a concentration: no fitted reference."""
    with pm.Model() as model:
        mu = pm.VonMises("mu", 0.0, 0.5)
        kappa = pm.Gamma("kappa", 2.0, 1.0)
        pm.VonMises("y", mu, kappa, observed=[0.5, 1.0, 2.0, 0.8])
    return model


def labels() -> pm.Model:
    """A mixture with its labels: discrete and continuous variables."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0, shape=2)
        z = pm.Bernoulli("z", 0.4, shape=4)
        pm.Normal("y", mu[z], 1.0, observed=[-2.0, -1.5, 1.0, 2.2])
    return model


def binomial() -> pm.Model:
    """Two probabilities of which only the product is identified."""
    with pm.Model() as model:
        p = pm.Beta("p", 1.0, 1.0, shape=2)
        pm.Binomial("y", n=100, p=p[0] * p[1], observed=30)
    return model


MODELS: dict[str, Callable[[], pm.Model]] = {
    function.__name__: function
    for function in (regression, schools, two_modes, circular, labels, binomial)
}
REAL = ("regression", "schools", "two_modes", "binomial")

quiet = {"progressbar": False, "random_seed": 3}


def sample(model: pm.Model, **options: Any) -> Any:
    """One run by the compiled front door, and its estimators."""
    idata = pmt.sample(DRAWS, chains=2, cores=1, model=model, random_seed=3, quiet=True, **options)
    return idata, pmt.log_marginal_likelihood(idata), pmt.diagnose(idata)


def estimators(model: pm.Model) -> Any:
    """Every estimator from one run, and the cross-check of it."""
    idata = pmt.sample(
        400, chains=2, cores=1, model=model, random_seed=3, quiet=True, keep="states"
    )
    names = sorted(pmt.evidence.ESTIMATORS)
    found = {name: pmt.log_marginal_likelihood(idata, method=name) for name in names}
    found["check"] = pmt.cross_check(idata, model=model, random_seed=3)
    found["overlap"] = pmt.evidence.overlap(idata)
    return found


def step(model: pm.Model) -> Any:
    """The step method under `pm.sample`."""
    with model:
        return pm.sample(
            DRAWS, step=pmt.SimulatedTempering(random_seed=3), chains=2, cores=1, random_seed=4,
            progressbar=False, quiet=True,
        )  # fmt: skip


def bridge(model: pm.Model) -> Any:
    """Bridge and importance sampling from draws of NUTS."""
    idata = pm.sample(
        400, tune=300, chains=2, cores=1, model=model, random_seed=3, progressbar=False, quiet=True
    )
    return (
        pmt.bridge_sampling(idata, model, random_seed=3),
        pmt.importance_sampling(idata, model, random_seed=3),
    )


def reverse(model: pm.Model) -> Any:
    """Methods that start from posterior draws."""
    idata = pmt.sample(400, chains=2, cores=1, model=model, random_seed=3, quiet=True)
    small = {"n_particles": 100, "model": model, "cores": 1} | quiet
    return pmt.reverse_ais(idata, **small), pmt.sandwich(idata, **small)


def fit(model: pm.Model, method: str) -> Any:
    """A fit, its assessment and draws from it."""
    # By default the draws for C(T) are as many as the machine does in half a minute.
    few = {"normalizer_draws": 640, "random_seed": 3, "progressbar": False}
    approx = pmt.fit(400, method=method, model=model, **few)
    return {
        "history": approx.hist,
        "params": [param.get_value() for param in approx.params],
        "tempering": approx.tempering,
    }


def svi(name: str, method: str) -> Any:
    """Stochastic variational inference in closed form."""
    rng = np.random.default_rng(5)
    if name == "lda":
        model: Any = conjugate.LDA(3)
        data: Any = rng.multinomial(30, np.ones(20) / 20, size=50)
    elif name == "factorial":
        model = conjugate.FactorialMixture(3, sd=0.3, prior_sd=1.0, probability=0.4)
        data = rng.normal(size=(50, 4))
    else:
        model = conjugate.GaussianMixture(2, sd=1.0, prior_sd=4.0)
        data = rng.normal(size=(50, 2)) + rng.choice([-2.0, 2.0], size=(50, 1))
    return conjugate.svi(model, data, method, iterations=60, batch_size=10, random_seed=3)


def tasks() -> dict[str, Callable[[], Any]]:
    """Every task by name."""
    found: dict[str, Callable[[], Any]] = {}
    for name, build in MODELS.items():
        found[f"sample/{name}"] = lambda build=build: sample(build())
        found[f"step/{name}"] = lambda build=build: step(build())
    small = {"cores": 1} | quiet
    for name in REAL:
        build = MODELS[name]
        for call, more in (
            (pmt.ais, {"n_particles": 200}),
            (pmt.annealed.hais, {"n_particles": 200}),
            (pmt.smc, {"n_particles": 50, "islands": 10}),
            (pmt.thermodynamic_integration, {}),
        ):
            options = small | more
            found[f"{call.__name__}/{name}"] = lambda build=build, call=call, options=options: call(
                build(), **options
            )
        found[f"bridge/{name}"] = lambda build=build: bridge(build())
        found[f"reverse/{name}"] = lambda build=build: reverse(build())
        for method in ("annealed", "variational_tempering"):
            found[f"fit-{method}/{name}"] = lambda build=build, method=method: fit(build(), method)
    found["estimators/two_modes"] = lambda: estimators(two_modes())
    for kernel in ("nuts", "slice", "metropolis"):
        found[f"sample-{kernel}/regression"] = lambda kernel=kernel: sample(
            regression(), kernel=kernel
        )
    found["sample-prior/schools"] = lambda: sample(schools(), reference="prior")
    found["sample-sams/schools"] = lambda: sample(schools(), weight_adaptation="sams")
    found["sample-target/two_modes"] = lambda: sample(two_modes(), target_mcse=0.02)
    found["sample-tempered/regression"] = lambda: sample(regression(), tempered=["y"])
    for name in ("lda", "factorial", "gaussian"):
        for method in ("annealed", "variational_tempering", "local_variational_tempering"):
            found[f"svi-{method}/{name}"] = partial(svi, name, method)
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Every number and text in a result, by its path; clocks are left out."""
    if any(clock in path.rsplit("/", 1)[-1] for clock in CLOCKS):
        return
    if isinstance(value, xr.DataTree):
        for group in value.subtree:
            data = group.to_dataset()
            for name in sorted(map(str, data.variables)):
                yield from leaves(data[name].values, f"{path}{group.path}/{name}")
            yield from leaves(dict(group.attrs), f"{path}{group.path}/attrs")
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield path, str((value.dtype, value.shape)).encode() + np.ascontiguousarray(value).tobytes()
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            yield from leaves(value[name], f"{path}/{name}")
    elif isinstance(value, list | tuple | np.ndarray):
        for i, item in enumerate(value):
            yield from leaves(item, f"{path}/{i}")
    elif is_dataclass(value):
        for item in fields(value):
            yield from leaves(getattr(value, item.name), f"{path}/{item.name}")
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):  # a pandas frame
        yield from leaves(value.to_dict("list"), path)
    elif value is None or isinstance(value, str | int | float | bool | np.generic):
        yield path, repr(value).encode()
    else:
        yield path, type(value).__name__.encode()


def hashes(run: Callable[[], Any]) -> dict[str, str]:
    """Hash of every leaf of what a task returns, or of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = run()
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            return {"error": text[:120]}
    return {path: sha256(data).hexdigest()[:16] for path, data in leaves(result)}


def main() -> int:
    """Store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["store", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="tasks whose name holds this text")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    chosen = {name: run for name, run in tasks().items() if options.only in name}
    known = json.loads(options.file.read_text()) if options.file.exists() else {}
    changed = 0
    for name, run in chosen.items():
        found = hashes(run)
        if options.action == "store":
            known[name] = found
            options.file.write_text(json.dumps(known, indent=1))
            print(f"{name}: {len(found)} hashes, {found.get('error', 'ok')}", flush=True)
            continue
        paths = known[name].keys() | found.keys()
        odd = sorted(path for path in paths if known[name].get(path) != found.get(path))
        changed += bool(odd)
        print(f"{name}: {'same' if not odd else f'{len(odd)} of {len(paths)} differ: {odd[:6]}'}",
              flush=True)  # fmt: skip
    if options.action == "compare":
        print(f"{len(chosen) - changed} of {len(chosen)} tasks as before, {changed} changed")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
