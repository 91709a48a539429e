"""Runs from the prior whose particles are looks: where the posterior is, seen from there."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.annealed.ais import ais_with_ends
from pymc_tempering.annealed.schedule import WeightedEnds
from pymc_tempering.annealed.smc import smc_with_ends
from pymc_tempering.bridge.proposals import PROPOSALS
from pymc_tempering.bridge.target import check_log_density, find_target
from pymc_tempering.crosscheck.draw_check import DrawCheck, compare_draws
from pymc_tempering.evidence import Evidence
from pymc_tempering.exceptions import TemperingError

LOOKING: dict[str, Callable[..., tuple[Evidence, WeightedEnds]]] = {
    "smc": smc_with_ends,
    "ais": ais_with_ends,
}
"""Estimators whose particles are looks, by name; those of the first that runs are compared."""

MIN_DRAWS = 50
"""Draws of a chain below which draws are not compared."""


def check_from_prior(
    idata: xr.DataTree,
    model: pm.Model,
    ends: WeightedEnds,
    method: str,
    rng: np.random.Generator,
    cores: int | None,
) -> DrawCheck:
    """Compare posterior draws with looks from the prior.

    A mixture of t's with 5 % prior is fitted to the first half of each chain. The second half
    tells the quantiles of the log ratio of the posterior to it.

    Raises
    ------
    ModelError, DataMismatchError, TemperingError
        The draws cannot be seen in the unconstrained space, or are too few.
    """
    target, states = find_target(idata, model, cores)
    chains, draws, dim = states.shape
    if draws < MIN_DRAWS:
        raise TemperingError(f"{draws} draws a chain are too few, {MIN_DRAWS} are needed")
    first, second = states[:, : draws // 2], states[:, draws // 2 :].reshape(-1, dim)
    check_log_density(target.log_density(second), target.path, second)
    density = PROPOSALS["mixture"](target)(first.reshape(-1, dim), rng)
    own, _ = density.log_ratio(target, second)
    looks, _ = density.log_ratio(target, target.wrap(ends.states))
    if not np.isfinite(ends.log_w).any():
        raise TemperingError(f"all looks by {method} have weight zero")
    log_w = np.where(np.isfinite(ends.states).all(axis=1), ends.log_w, -np.inf)
    return compare_draws(own.reshape(chains, -1), looks, log_w, ends.group, method=method)
