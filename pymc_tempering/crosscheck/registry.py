"""The estimators that need a model, by name, for cross-checks: one line each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering import annealed
from pymc_tempering.bridge import estimate_by_bridge, estimate_by_importance
from pymc_tempering.crosscheck.judge import OWN, POSTERIOR
from pymc_tempering.evidence import Evidence

type Estimate = Callable[
    [xr.DataTree, pm.Model, np.random.Generator], Evidence | Mapping[str, Evidence]
]


@dataclass(frozen=True)
class ModelEstimator:
    """An estimator that evaluates a model.

    Attributes
    ----------
    estimate : callable
        ``(idata, model, rng)`` to an ``Evidence``, or to several by name (two bounds). What it
        warns about by way of ``TemperingWarning`` must be in ``Evidence.warnings`` too.
    draws : {"own", "posterior"}
        "posterior" if its error depends on the draws in ``idata``, "own" if it is independent.
    by_default : bool
        Whether a cross-check without ``methods`` runs it.
    """

    estimate: Estimate
    draws: str = OWN
    by_default: bool = True


def _independent(run: Callable[..., Evidence], *, by_default: bool = True) -> ModelEstimator:
    """Enter an estimator that runs anew over the path."""
    return ModelEstimator(
        lambda idata, model, rng: run(model, random_seed=rng, progressbar=False),
        by_default=by_default,
    )


def _sandwich(
    idata: xr.DataTree, model: pm.Model, rng: np.random.Generator
) -> Mapping[str, Evidence]:
    both = annealed.sandwich(idata, model, random_seed=rng, progressbar=False)
    return {"sandwich lower": both.lower, "sandwich upper": both.upper}


MODEL_ESTIMATORS: dict[str, ModelEstimator] = {
    "bridge_sampling": ModelEstimator(
        lambda idata, model, rng: estimate_by_bridge(idata, model, rng=rng), POSTERIOR
    ),
    "importance_sampling": ModelEstimator(
        lambda idata, model, rng: estimate_by_importance(idata, model, rng=rng), POSTERIOR
    ),
    "ais": _independent(annealed.ais),
    "hais": _independent(annealed.hais, by_default=False),  # AIS again, and slower here
    "linked_importance_sampling": _independent(annealed.linked_importance_sampling),
    "thermodynamic_integration": _independent(annealed.thermodynamic_integration),
    "smc": _independent(annealed.smc),
    "reverse_ais": ModelEstimator(
        lambda idata, model, rng: annealed.reverse_ais(
            idata, model, random_seed=rng, progressbar=False
        ),
        POSTERIOR,
    ),
    "sandwich": ModelEstimator(_sandwich, POSTERIOR, by_default=False),
}
"""Every estimator that takes a model, by name; a new one is one file and one line here."""
