"""The estimators that need a model, by name, for cross-checks: one line each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

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


MODEL_ESTIMATORS: dict[str, ModelEstimator] = {
    "bridge_sampling": ModelEstimator(
        lambda idata, model, rng: estimate_by_bridge(idata, model, rng=rng), POSTERIOR
    ),
    "importance_sampling": ModelEstimator(
        lambda idata, model, rng: estimate_by_importance(idata, model, rng=rng), POSTERIOR
    ),
}
"""Every estimator that takes a model, by name; a new one is one file and one line here."""
