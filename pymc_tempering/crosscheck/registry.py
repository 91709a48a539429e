"""The full table of estimators: those that read a run, and those that evaluate a model."""

from collections import ChainMap
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering import annealed
from pymc_tempering.bridge import estimate_by_bridge, estimate_by_importance
from pymc_tempering.evidence import ESTIMATORS, Estimator, Evidence
from pymc_tempering.evidence.estimators import MODEL, OWN, POSTERIOR


def _independent(
    run: Callable[..., Evidence], summary: str, *, by_default: bool = True
) -> Estimator:
    """Return the row of an estimator that makes runs of its own over the path."""
    return Estimator(
        MODEL,
        lambda idata, model, rng, cores, executor: run(
            model, random_seed=rng, cores=cores, executor=executor, progressbar=False
        ),
        summary,
        OWN,
        by_default,
    )


def _reverse_ais(
    idata: xr.DataTree,
    model: pm.Model,
    rng: np.random.Generator,
    cores: int | None,
    executor: Executor | None,
) -> Evidence:
    return annealed.reverse_ais(
        idata, model, random_seed=rng, cores=cores, executor=executor, progressbar=False
    )


def _sandwich(
    idata: xr.DataTree,
    model: pm.Model,
    rng: np.random.Generator,
    cores: int | None,
    executor: Executor | None,
) -> Mapping[str, Evidence]:
    both = annealed.sandwich(
        idata, model, random_seed=rng, cores=cores, executor=executor, progressbar=False
    )
    return {"sandwich lower": both.lower, "sandwich upper": both.upper}


MODEL_ESTIMATORS: dict[str, Estimator] = {
    "bridge_sampling": Estimator(
        MODEL,
        lambda idata, model, rng, cores, _: estimate_by_bridge(idata, model, rng=rng, cores=cores),
        "Bridge between the posterior draws and a fitted density, Meng & Wong (1996).",
        POSTERIOR,
    ),
    "importance_sampling": Estimator(
        MODEL,
        lambda idata, model, rng, cores, _: estimate_by_importance(
            idata, model, rng=rng, cores=cores
        ),
        "Draws from a density fitted to the posterior draws, equation (18.44) of Goodfellow et "
        "al. (2016).",
        POSTERIOR,
    ),
    "ais": _independent(annealed.ais, "Annealed importance sampling, Neal (2001)."),
    "hais": _independent(
        annealed.hais,
        "Hamiltonian annealed importance sampling, Sohl-Dickstein & Culpepper (2011).",
        by_default=False,  # AIS again, and slower here
    ),
    "linked_importance_sampling": _independent(
        annealed.linked_importance_sampling,
        "Linked importance sampling, Neal (2005).",
        by_default=False,  # the way of AIS again, at a larger error for its work
    ),
    "thermodynamic_integration": _independent(
        annealed.thermodynamic_integration,
        "Thermodynamic integration with chains at each rung, Gelman & Meng (1998).",
    ),
    "smc": _independent(
        annealed.smc, "Sequential Monte Carlo samplers, Del Moral, Doucet & Jasra (2006)."
    ),
    "reverse_ais": Estimator(
        MODEL,
        _reverse_ais,
        "Annealing from posterior draws to the prior, an upper bound, Grosse et al. (2015).",
        POSTERIOR,
    ),
    "sandwich": Estimator(
        MODEL,
        _sandwich,
        "Both bounds of bidirectional Monte Carlo, Grosse et al. (2015).",
        POSTERIOR,
        by_default=False,
    ),
}
"""The estimators that evaluate a model, by name. A new one is one file and one row here."""

ALL_ESTIMATORS = ChainMap(MODEL_ESTIMATORS, ESTIMATORS)
"""Every estimator by name, those that read a run first; a view of the two tables."""
