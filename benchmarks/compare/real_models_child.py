"""One run of a method on a real model, in a process of its own with a limit of CPU seconds.

Called as `real_models_child.py METHOD MODEL SEED SECONDS`; the last line that it prints is the
result as JSON. Compiling comes first and is not counted: a small model takes the compiled parts
that all models share from the disk, then the model itself is compiled. When the CPU seconds are
over the stack is printed, which tells the phase, and the process ends.
"""

import faulthandler
import json
import logging
import math
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

import arviz as az
import numpy as np
import nutpie
import pymc as pm

import pymc_tempering as pmt
from benchmarks.models.real_models_list import all_models
from benchmarks.private import compile_constrain, model_layout
from benchmarks.truths.real_truth_methods import TRUTHS

COMPILING = 600.0
"""CPU seconds that compiling may take."""
QUICK = 10.0
"""CPU seconds below which a run is repeated, so that nothing that is compiled late is counted."""

type Found = dict[str, Any]


def limit_cpu(seconds: float) -> None:
    """Print the stack and end the process when it has used so many more CPU seconds."""
    faulthandler.register(signal.SIGXCPU, all_threads=False, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end = math.ceil(process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))


def toy() -> pm.Model:
    """Build a small model that goes through all that is compiled once for all models."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", mu, sigma, observed=[1.0, 2.0, 4.0])
    return model


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Do something in CPU seconds; twice where it is quick, and the second time counts."""
    for again in (False, True):
        before = process_time()
        result = call()
        seconds = process_time() - before
        if again or seconds > QUICK:
            return result, seconds
    raise AssertionError


def worst(idata: Any, model: pm.Model) -> tuple[float, float]:
    """Least bulk or tail ESS, and largest R-hat, of all free variables."""
    draws = idata["posterior"].to_dataset()[[rv.name for rv in model.free_RVs]]
    kinds: tuple[Any, ...] = ("bulk", "tail")
    least = [az.ess(draws, method=kind) for kind in kinds]
    rhat = az.rhat(draws)
    return (
        min(float(np.nanmin(v)) for each in least for v in each.data_vars.values()),
        max(float(np.nanmax(v)) for v in rhat.data_vars.values()),
    )


def tempering(name: str, seed: int, seconds: float) -> Found:
    """Sample by `pmt.sample` by default, on one core."""

    def run(model: pm.Model, **options: Any) -> Any:
        idata = pmt.sample(
            model=model, cores=1, random_seed=seed, quiet=True, progressbar=False, **options
        )
        return idata, pmt.log_marginal_likelihood(idata)

    run(toy(), draws=50)
    model = all_models()[name].build()
    pmt.compile(model, progressbar=False)
    layout = model_layout(model)
    compile_constrain(model, layout)(np.zeros((2, layout.dim)))
    limit_cpu(seconds)
    (idata, evidence), cpu = timed(lambda: run(model))
    ess, rhat = worst(idata, model)
    attrs = idata["tempering"].attrs
    return {
        "log_z": evidence.log_z,
        "mcse": evidence.mcse,
        "verdict": evidence.verdict,
        "cpu": cpu,
        "ess": ess,
        "rhat": rhat,
        "draws": int(idata["posterior"].sizes["chain"] * idata["posterior"].sizes["draw"]),
        "reference": attrs["reference"],
        "evaluations": json.loads(attrs["evaluations"])
        | {"run": int(idata["sample_stats"]["n_steps"].sum())},
        "seconds": {key: attrs[f"{key}_seconds"] for key in ("annealing", "warmup", "sampling")},
        "rungs": int(idata["tempering"].sizes["rung"]),
        "warnings": list(evidence.warnings),
    }


def nuts_bridge(name: str, seed: int, seconds: float) -> Found:
    """Sample by nutpie, 4 x 1,000 draws after 1,000, and take bridge sampling to the evidence."""
    model = all_models()[name].build()
    if model.discrete_value_vars:
        raise TypeError("does not apply: discrete variables")
    compiled = nutpie.compile_pymc_model(model)
    pmt.compile(model, progressbar=False)
    limit_cpu(seconds)
    idata, cpu_nuts = timed(
        lambda: nutpie.sample(
            compiled, draws=1000, tune=1000, chains=4, cores=1, seed=seed, progress_bar=False
        )
    )
    evidence, cpu_bridge = timed(
        lambda: pmt.bridge_sampling(idata, model, cores=1, random_seed=seed)
    )
    ess, rhat = worst(idata, model)
    stats = idata["sample_stats"]
    return {
        "log_z": evidence.log_z,
        "mcse": evidence.mcse,
        "verdict": evidence.verdict,
        "cpu": cpu_nuts + cpu_bridge,
        "ess": ess,
        "rhat": rhat,
        "draws": 4000,
        "evaluations": {"nuts": int(stats["n_steps"].sum()), "bridge": evidence.n_evaluations},
        "seconds": {"nuts": cpu_nuts, "bridge": cpu_bridge},
        "warnings": [f"{int(stats['diverging'].sum())} divergences", *evidence.warnings],
    }


def truth(method: str) -> Callable[[str, int, float], Found]:
    """Make a long run a method of this script, all of its CPU seconds counted."""

    def run(name: str, seed: int, seconds: float) -> Found:
        before = process_time()
        return TRUTHS[method](name, seed) | {"cpu": process_time() - before}

    return run


METHODS: dict[str, Callable[[str, int, float], Found]] = {
    "tempering": tempering,
    "nuts_bridge": nuts_bridge,
    **{method: truth(method) for method in TRUTHS},
}
"""Methods by name: (model, seed, CPU seconds) to what was found."""


def main() -> None:
    method, name, seed, seconds = sys.argv[1:]
    logging.getLogger("pymc").setLevel(logging.ERROR)
    limit_cpu(max(COMPILING, float(seconds)))  # for compiling alone; sampling starts a new one
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", pmt.TemperingWarning)
        found = METHODS[method](name, int(seed), float(seconds))
    found["warnings"] = sorted(
        {
            *found["warnings"],
            *(str(w.message) for w in caught if w.category is pmt.TemperingWarning),
        }
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
