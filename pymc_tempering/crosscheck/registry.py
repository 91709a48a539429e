"""The one table of estimators: those that read a run, and those that evaluate a model."""

import warnings
from collections import ChainMap
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering import annealed
from pymc_tempering.annealed.ais import ais_with_ends
from pymc_tempering.annealed.schedule import compile_movers, prior_log_ratios
from pymc_tempering.annealed.smc import smc_with_ends
from pymc_tempering.arguments import has_group
from pymc_tempering.bridge.bridge_sampling import bridge_sampling
from pymc_tempering.bridge.importance_sampling import importance_sampling
from pymc_tempering.core.cycles import LADDER_STATS, RUNG_STATS, SCALAR_STATS, FloatArray
from pymc_tempering.core.weighting import FINITE_VARIANCE_KHAT, MIN_TAIL, pareto_khat
from pymc_tempering.evidence import ESTIMATORS, Estimator, Evidence
from pymc_tempering.evidence.estimators import MODEL, OWN, POSTERIOR, estimate_quietly
from pymc_tempering.exceptions import TemperingError, TemperingWarning

N_PRIOR_DRAWS = 4000
"""Prior draws that show whether log_ratio has a finite variance."""

NO_RUN = "they read a tempering run, which these draws are not"
"""Why methods are left out of the check of draws of another sampler."""


def _row(
    run: Callable[..., Any], summary: str, draws: str = OWN, *, sends: bool = True, **more: Any
) -> Estimator:
    """Return the row of a front door, which takes posterior draws or makes its own.

    ``sends`` says whether it can send its work to an executor.
    """

    def estimate(
        idata: xr.DataTree, model: pm.Model, rng: np.random.Generator, cores: Any, executor: Any
    ) -> Any:
        given = (model,) if draws == OWN else (idata, model)
        workers = {"executor": executor} if sends else {}
        return run(*given, random_seed=rng, cores=cores, progressbar=False, **workers)

    return Estimator(MODEL, estimate, summary, draws, **more)


def _both_bounds(*given: Any, **settings: Any) -> Mapping[str, Evidence]:
    both = annealed.sandwich(*given, **settings)
    return {"sandwich lower": both.lower, "sandwich upper": both.upper}


MODEL_ESTIMATORS: dict[str, Estimator] = {
    "bridge_sampling": _row(
        bridge_sampling,
        "Bridge between the posterior draws and a fitted density, Meng & Wong (1996).",
        POSTERIOR,
        sends=False,
    ),
    "importance_sampling": _row(
        importance_sampling,
        "Draws from a density fitted to the posterior draws, equation (18.44) of Goodfellow et "
        "al. (2016).",
        POSTERIOR,
        sends=False,
    ),
    "ais": _row(annealed.ais, "Annealed importance sampling, Neal (2001).", looks=ais_with_ends),
    "hais": _row(
        annealed.hais,
        "Hamiltonian annealed importance sampling, Sohl-Dickstein & Culpepper (2011).",
        by_default=False,  # AIS again, and slower here
    ),
    "thermodynamic_integration": _row(
        annealed.thermodynamic_integration,
        "Thermodynamic integration with chains at each rung, Gelman & Meng (1998).",
        averages=True,
    ),
    "smc": _row(
        annealed.smc,
        "Sequential Monte Carlo samplers, Del Moral, Doucet & Jasra (2006).",
        looks=lambda call, most: smc_with_ends(call),  # its islands need no long schedule
    ),
    "reverse_ais": _row(
        annealed.reverse_ais,
        "Annealing from posterior draws to the prior, an upper bound, Grosse et al. (2015).",
        POSTERIOR,
        like="backward",
    ),
    "sandwich": _row(
        _both_bounds,
        "Both bounds of bidirectional Monte Carlo, Grosse et al. (2015).",
        POSTERIOR,
        by_default=False,
    ),
}
"""The estimators that evaluate a model, by name. A new one is one file and one row here."""

ALL_ESTIMATORS = ChainMap(MODEL_ESTIMATORS, ESTIMATORS)
"""Every estimator by name, those that read a run first; a view of the two tables."""


def run_estimator(
    name: str,
    idata: xr.DataTree,
    model: pm.Model | None,
    rng: np.random.Generator,
    cores: int | None,
    executor: Executor | None = None,
) -> Mapping[str, Evidence]:
    """Run one estimator of the table; what it warns about is in what it returns, by name."""
    row = ALL_ESTIMATORS[name]
    if row.reads != MODEL:
        return {name: estimate_quietly(idata, name)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        found = row.estimate(idata, model, rng, cores, executor)
    return found if isinstance(found, Mapping) else {name: found}


def is_tempered(thing: Any) -> bool:
    """Whether a DataTree has statistics of a tempering run, be it not all of them."""
    if not has_group(thing, "sample_stats"):
        return False
    # The ladder becomes a coordinate when a run is converted.
    names = set(map(str, thing["sample_stats"].to_dataset().variables))
    return bool(names & {*RUNG_STATS, *SCALAR_STATS, *LADDER_STATS} - {"beta"})


def unfit_methods(
    idata: xr.DataTree, model: pm.Model | None, names: list[str], rng: np.random.Generator
) -> dict[str, str]:
    """Say which of some methods do not suit the run or the model, and why."""
    unfit = {}
    tempered = is_tempered(idata)
    heavy = _heavy_run(idata) if tempered else ""
    for name in names:
        row, why = ALL_ESTIMATORS[name], ""
        if row.reads != MODEL:
            why = heavy if row.averages else ""
            why = why if tempered or model is None else NO_RUN
        elif tempered and row.like:
            why = f'the run has such a bound of its own, "{row.like}", without new evaluations'
        elif row.averages and model is not None:
            why = _heavy_prior(model, rng)
        if why:
            unfit[name] = why
    return unfit


def _heavy_prior(model: pm.Model, rng: np.random.Generator) -> str:
    """Say why log_ratio has no variance to rely on at prior draws; nothing if it has."""
    try:
        movers = compile_movers(model, None, lambda line: None)
        return _heavy_tail(prior_log_ratios(movers.reference, N_PRIOR_DRAWS, rng))
    except TemperingError:
        return ""  # the method itself says why it does not run


def _heavy_run(idata: xr.DataTree) -> str:
    """Say why log_ratio has no variance to rely on at beta = 0 of a run; nothing if it has."""
    if "component" in idata["sample_stats"].data_vars:  # the draws of a fitted reference name it
        return (
            "the fitted reference holds some of the prior, so that log_ratio at beta = 0 has no "
            "variance to rely on"
        )
    if "tempering_trace" not in idata.children:
        return ""
    trace = idata["tempering_trace"].to_dataset()
    return _heavy_tail(trace["log_ratio"].values[trace["rung"].values == 0].astype(float))


def _heavy_tail(log_ratio: FloatArray) -> str:
    """Say why log_ratio at prior draws has no variance; nothing if it has, or they are few."""
    finite = log_ratio[np.isfinite(log_ratio)]
    below = finite.max(initial=-np.inf) - finite
    if finite.size < MIN_TAIL or not np.any(below > 0.0):
        return ""
    khat = pareto_khat(np.log(below[below > 0.0]))
    if khat <= FINITE_VARIANCE_KHAT:
        return ""
    return (
        "log_ratio at prior draws has no finite variance (the Pareto k-hat of its tail is "
        f"{khat:.1f}, above {FINITE_VARIANCE_KHAT})"
    )
