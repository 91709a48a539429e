"""One run of a method on a real model, in a process of its own with a limit of CPU seconds.

Called by `real_models.py`, as `--child METHOD/MODEL --seeds SEED --limit SECONDS`. Compiling comes
first and is not counted: a small model takes the compiled parts that all models share from the
disk, then the model itself is compiled.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import arviz as az
import numpy as np
import nutpie
import pymc as pm

import pymc_tempering as pmt
from benchmarks.fresh_runs import print_runs
from benchmarks.models.real_models_list import all_models
from benchmarks.private import compile_constrain, model_layout
from benchmarks.truths.real_truth_methods import TRUTHS

QUICK = 10.0
"""CPU seconds below which a run is repeated, so that nothing that is compiled late is counted."""

type Found = dict[str, Any]
type Prepared = Callable[[int], Found]


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


def said_of(evidence: Any, idata: Any, model: pm.Model) -> Found:
    """Collect the answer, least bulk or tail ESS, and largest R-hat, of all free variables."""
    draws = idata["posterior"].to_dataset()[[rv.name for rv in model.free_RVs]]
    kinds: tuple[Any, ...] = ("bulk", "tail")
    least = [az.ess(draws, method=kind) for kind in kinds]
    return {
        "log_z": evidence.log_z, "mcse": evidence.mcse, "verdict": evidence.verdict,
        "ess": min(float(np.nanmin(v)) for each in least for v in each.data_vars.values()),
        "rhat": max(float(np.nanmax(v)) for v in az.rhat(draws).data_vars.values()),
        "warnings": list(evidence.warnings),
    }  # fmt: skip


def tempering(name: str) -> Prepared:
    """Sample by `pmt.sample` by default, on one core."""

    def run(model: pm.Model, seed: int, **options: Any) -> Any:
        idata = pmt.sample(
            model=model, cores=1, random_seed=seed, quiet=True, progressbar=False, **options
        )
        return idata, pmt.log_marginal_likelihood(idata)

    run(toy(), 1, draws=50)
    model = all_models()[name].build()
    pmt.compile(model, progressbar=False)
    layout = model_layout(model)
    compile_constrain(model, layout)(np.zeros((2, layout.dim)))

    def prepared(seed: int) -> Found:
        (idata, evidence), cpu = timed(lambda: run(model, seed))
        attrs, work = idata["tempering"].attrs, int(idata["sample_stats"]["n_steps"].sum())
        sizes, kinds = idata["posterior"].sizes, ("annealing", "warmup", "sampling")
        return said_of(evidence, idata, model) | {
            "cpu": cpu,
            "draws": int(sizes["chain"] * sizes["draw"]),
            "reference": attrs["reference"],
            "evaluations": json.loads(attrs["evaluations"]) | {"run": work},
            "seconds": {kind: attrs[f"{kind}_seconds"] for kind in kinds},
            "rungs": int(idata["tempering"].sizes["rung"]),
        }

    return prepared


def nuts_bridge(name: str) -> Prepared:
    """Sample by nutpie, 4 x 1,000 draws after 1,000, and take bridge sampling to the evidence."""
    model = all_models()[name].build()
    if model.discrete_value_vars:
        raise TypeError("does not apply: discrete variables")
    compiled = nutpie.compile_pymc_model(model)
    pmt.compile(model, progressbar=False)
    options: Any = {"draws": 1000, "tune": 1000, "chains": 4, "cores": 1, "progress_bar": False}

    def prepared(seed: int) -> Found:
        idata, cpu_nuts = timed(lambda: nutpie.sample(compiled, seed=seed, **options))
        evidence, cpu_bridge = timed(
            lambda: pmt.bridge_sampling(idata, model, cores=1, random_seed=seed)
        )
        stats = idata["sample_stats"]
        return said_of(evidence, idata, model) | {
            "cpu": cpu_nuts + cpu_bridge,
            "draws": 4000,
            "evaluations": {"nuts": int(stats["n_steps"].sum()), "bridge": evidence.n_evaluations},
            "seconds": {"nuts": cpu_nuts, "bridge": cpu_bridge},
            "warnings": [f"{int(stats['diverging'].sum())} divergences", *evidence.warnings],
        }

    return prepared


def truth(method: str) -> Callable[[str], Prepared]:
    """Make a long run a method of this script, all of its CPU seconds counted."""

    def run(name: str, seed: int) -> Found:
        before = process_time()
        return TRUTHS[method](name, seed) | {"cpu": process_time() - before}

    return lambda name: partial(run, name)


METHODS: dict[str, Callable[[str], Prepared]] = {
    "tempering": tempering,
    "nuts_bridge": nuts_bridge,
    **{method: truth(method) for method in TRUTHS},
}
"""Methods by name: compile a model, and return what makes a run of a seed."""


def prepare(method: str, name: str) -> Prepared:
    """Compile, and return what makes a run and keeps its warnings."""
    run = METHODS[method](name)

    def warned(seed: int) -> Found:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", pmt.TemperingWarning)
            found = run(seed)
        said = {str(w.message) for w in caught if w.category is pmt.TemperingWarning}
        return found | {"warnings": sorted({*found["warnings"], *said})}

    return warned


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--child", required=True, metavar="METHOD/MODEL")
    arguments.add_argument("--seeds", type=int, nargs="+", required=True)
    arguments.add_argument("--limit", type=float, required=True, help="CPU seconds of a run")
    args = arguments.parse_args()
    print_runs(partial(prepare, *args.child.split("/")), args.seeds, args.limit)


if __name__ == "__main__":
    main()
