"""Fresh runs of a model with another value of a data container."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.sampling.sample import sample


def rerun_with(
    model: pm.Model,
    container: str,
    value: np.ndarray,
    rng: np.random.Generator,
    settings: Mapping[str, Any],
) -> tuple[xr.DataTree, Evidence]:
    """Sample a model with another value of one ``pm.Data``.

    Values of one shape use the same compiled code. Warnings are left to the evidence.

    Parameters
    ----------
    model : pymc.Model
    container : str
    value : ndarray
    rng : Generator
    settings : mapping
        Arguments of :func:`pymc_tempering.sample`.
    """
    handle = CompiledModel(model).with_data(**{container: value})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        idata = sample(**{"random_seed": rng, "quiet": True, "model": handle, **settings})
        return idata, estimate_quietly(idata)


def settings_of(idata: xr.DataTree, cores: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a fresh run: as many draws and chains as a run has, and what was given.

    Raises
    ------
    ValueError
        For an argument that is set elsewhere.
    """
    taken = sorted(
        {"model", "random_seed", "progressbar", "quiet", "tempered", "var_names", "cores"}
        & set(given)
    )
    if taken:
        raise ValueError(f"sample_kwargs may not hold {', '.join(taken)}")
    sizes = idata["posterior"].sizes
    return {"draws": sizes["draw"], "chains": sizes["chain"], "cores": cores} | dict(given)
