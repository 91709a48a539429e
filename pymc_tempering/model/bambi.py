"""Draws of a Bambi model: between the variables of its `fit` and those of PyMC's model.

Bambi centers predictors. Its `fit` takes mean(x) b from each intercept afterwards, and leaves out
the offsets of groups; `predict` needs the former, a density needs both as they were.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import has_group
from pymc_tempering.exceptions import DataMismatchError, ModelError, NotTemperedError
from pymc_tempering.model.check import NO_DRAWS, find_model, is_model, model_inside

MARK = ("modeling_interface", "bambi")
"""Attribute that Bambi gives to the draws of its `fit`."""

NOTED = "bambi"
"""Attribute of draws of a Bambi model that are not those of its `fit`: it says so."""

NOTE = (
    "Draws of the PyMC model inside a Bambi model, with centered predictors: call "
    "pymc_tempering.to_bambi(idata, model) before model.predict."
)

HINT = (
    " These draws are of Bambi's fit, which shifts intercepts and leaves out the offsets of "
    "groups: pass the Bambi model itself, not its backend.model; or fit with omit_offsets=False, "
    "and with center_predictors=False in bmb.Model."
)


def is_bambi(model: Any) -> bool:
    """Whether something is a Bambi model that is built."""
    return model_inside(model) is not None


def is_of_bambi(idata: Any) -> bool:
    """Whether draws have the variables of Bambi's `fit`."""
    return has_group(idata, "posterior") and bool(hint_of(idata["posterior"]))


def hint_of(posterior: Any) -> str:
    """Return what a message adds for draws of Bambi's `fit`; nothing for others."""
    return HINT if posterior.attrs.get(MARK[0]) == MARK[1] else ""


def noted(idata: xr.DataTree, model: Any) -> xr.DataTree:
    """Note in fresh draws of a Bambi model that they are not those of its `fit`."""
    if is_bambi(model):
        idata["posterior"].attrs[NOTED] = NOTE
    return idata


def pymc_draws(idata: Any, model: Any) -> Any:
    """Return draws of Bambi's `fit` in the variables of its PyMC model.

    All other draws are returned as they are, so that each function that takes draws and a model
    can begin with this one.

    Raises
    ------
    NotTemperedError
        A model stands in the place of the draws.
    DataMismatchError
        The draws lack a variable of the Bambi model.
    """
    if is_model(idata) or is_bambi(idata):
        raise NotTemperedError(f"{NO_DRAWS}.")
    if not (is_bambi(model) and is_of_bambi(idata)):
        return idata
    posterior = shifted(idata["posterior"].to_dataset(), model, 1.0)
    free = {rv.name for rv in find_model(model).free_RVs}
    for component in _components(model):
        for term in component.group_specific_terms.values():
            name = _name(term)
            offset, scale = f"{name}_offset", term.hyperprior_alias.get("sigma", "sigma")
            if offset in free and offset not in posterior:
                posterior[offset] = _of(posterior, name) / _of(posterior, f"{name}_{scale}")
    del posterior.attrs[MARK[0]]
    return with_posterior(idata, posterior)


def shifted(posterior: xr.Dataset, model: Any, sign: float) -> xr.Dataset:
    """Add mean(x) b, times a sign, to each intercept beside predictors that Bambi centers."""
    posterior, each = posterior.copy(), ("chain", "draw", *model.response_term.coords)
    for component in _components(model) if model.center_predictors else ():
        if component.intercept_term is None:
            continue
        name = _name(component.intercept_term)
        for term in component.common_terms.values():
            slope = _of(posterior, _name(term))
            dims = [dim for dim in slope.dims if dim not in each]
            mean = np.reshape(np.mean(term.data, axis=0), [slope.sizes[dim] for dim in dims])
            shift = (slope * xr.DataArray(mean, dims=dims)).sum(dims)
            posterior[name] = _of(posterior, name) + sign * shift
    return posterior


def with_posterior(idata: xr.DataTree, posterior: xr.Dataset) -> xr.DataTree:
    """Return a copy of a DataTree with another posterior."""
    result = idata.copy()
    result["posterior"] = xr.DataTree(posterior)
    return result


def _components(model: Any) -> Iterator[Any]:
    """Parameters of the likelihood that have a formula."""
    if not hasattr(model, "conditional_parameters"):
        raise ModelError(
            f"This {type(model).__name__} does not say how its draws differ from those of PyMC: "
            "that takes a model of Bambi 0.21 or newer."
        )
    yield from model.conditional_parameters.values()


def _name(term: Any) -> str:
    return str(term.alias or term.name)


def _of(posterior: xr.Dataset, name: str) -> xr.DataArray:
    if name not in posterior:
        raise DataMismatchError(
            f"The posterior lacks {name!r}, a variable of the Bambi model: pass the model that it "
            "was drawn from, and draws of all its variables."
        )
    return posterior[name]
