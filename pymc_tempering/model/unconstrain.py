"""Unconstrained draws of any posterior, rebuilt through the model's transforms where needed."""

import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np
import pymc as pm
import xarray as xr
from pymc.backends.arviz import find_observations
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs

from pymc_tempering.arguments import has_group
from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.model.bambi import hint_of
from pymc_tempering.model.constrain import compile_over_draws
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.model.layout import Layout, known_shapes
from pymc_tempering.model.origin import whole_model
from pymc_tempering.model.python_mode import python_mode

SAVED_IN = "unconstrained_posterior"
"""Group in which a sampler may have saved transformed variables, if not in ``posterior``."""

EACH = ("chain", "draw")
"""Dimensions of whatever has a value for each draw."""


def unconstrained_draws(idata: xr.DataTree, model: pm.Model, layout: Layout) -> np.ndarray:
    """Return the posterior draws of a model in its unconstrained space.

    A variable that was saved in its transformed form (``sigma_log__``, in the group
    ``unconstrained_posterior`` or in ``posterior``) is read; any other is sent through its
    transform, whose arguments may depend on other variables.

    Parameters
    ----------
    idata : DataTree
        From ``pm.sample``, nutpie or ``pmt.sample``, with the group ``posterior``.
    model : pymc.Model
        The model that it was drawn from.
    layout : Layout
        Where the variables lie in the raveled vector.

    Returns
    -------
    ndarray, shape (chain, draw, d)

    Raises
    ------
    DataMismatchError
        There is no posterior or it has no draws; a free variable of the model is not in it, or has
        another shape there; a draw has no finite unconstrained value; or the stored observed data
        are not those of the model.
    """
    draws = unconstrained_values(idata, model, layout, model.free_RVs)
    flat = [draws[name].reshape(*draws[name].shape[:2], -1) for name in layout.names]
    result = np.concatenate(flat, axis=2).astype(float)
    bad = ~np.isfinite(result)
    if bad.any():
        raise DataMismatchError(
            f"{bad.any(axis=2).mean():.2%} of the posterior draws have no finite unconstrained "
            f"value (worst: {layout.label(int(bad.mean(axis=(0, 1)).argmax()))}): they were "
            "rounded to the edge of their support, or are NaN. Sample again and save the "
            "unconstrained values: idata_kwargs={'include_transformed': True} of pm.sample, "
            "store_unconstrained=True of nutpie."
        )
    return np.ascontiguousarray(result)


def unconstrained_values(
    idata: xr.DataTree, model: pm.Model, layout: Layout, rvs: Sequence[Variable]
) -> dict[str, np.ndarray]:
    """Return posterior draws of some free variables in their unconstrained spaces.

    Returns
    -------
    dict of str to ndarray, shape (chain, draw, ...)
        By name of the value variable; not finite where a draw is at the edge of its support.

    Raises
    ------
    DataMismatchError
        As :func:`unconstrained_draws`, for variables that are needed.
    """
    posterior = _in_order(posterior_of(idata), model)
    check_observed(idata, whole_model(model))
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    draws: dict[str, np.ndarray] = {}
    rebuilt = []
    groups = [posterior]
    if SAVED_IN in idata.children:
        other = idata[SAVED_IN].to_dataset()
        # A Laplace fit of pymc-extras saves its mode alone there.
        if all(other.sizes.get(dim) == posterior.sizes[dim] for dim in EACH):
            groups.insert(0, other)
    for rv in rvs:
        name = model.rvs_to_values[rv].name
        saved = next((group[name] for group in groups if name in group), None)
        if saved is None:
            rebuilt.append(rv)
        else:
            draws[name] = _values(saved, shapes[name])
    return draws | _rebuild(posterior, model, rebuilt)


def check_observed(idata: xr.DataTree, model: pm.Model) -> None:
    """Raise an error if the stored observed data are not those of the model.

    Raises
    ------
    DataMismatchError
    """
    if "observed_data" not in idata.children:
        return
    stored = idata["observed_data"].to_dataset()
    odd = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of data that are symbolic, and not compared
        observations = find_observations(model)
    for name, values in observations.items():
        own = np.ma.filled(np.ma.asarray(values).astype(float), np.nan)
        if name not in stored:
            continue
        theirs = np.asarray(stored[name].values, dtype=float)
        if own.shape != theirs.shape or not np.allclose(own, theirs, rtol=1e-6, equal_nan=True):
            odd.append(name)
    if odd:
        raise DataMismatchError(
            f"the observed data of {odd} in the DataTree are not those of the model: pass the "
            "model that the posterior was drawn from."
        )


def unconstrained_graphs(
    model: pm.Model, rvs: Sequence[Variable]
) -> tuple[dict[Variable, Variable], list[Variable]]:
    """Build the graphs that turn constrained values into the unconstrained ones of some variables.

    A transform may depend on other variables (the bounds of an interval). These enter with their
    constrained values, observed ones with the data.

    Returns
    -------
    stand_in : dict
        The input for the constrained value of each free variable.
    graphs : list of Variable
        Unconstrained values of ``rvs``, in their order.
    """
    stand_in = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    replaced = stand_in | {
        rv: model.rvs_to_values[rv].astype(rv.type.dtype) for rv in model.observed_RVs
    }
    graphs = []
    for rv in rvs:
        transform = model.rvs_to_transforms[rv]
        value = stand_in[rv]
        if transform is not None:
            arguments = graph_replace(list(rv.owner.inputs), replaced, strict=False)
            value = transform.forward(value, *arguments)
        graphs.append(value)
    return stand_in, freeze_shared(graphs)


def posterior_of(idata: xr.DataTree) -> xr.Dataset:
    """Return the posterior of a DataTree.

    Raises
    ------
    DataMismatchError
        There is none, or it has no draws.
    """
    if not has_group(idata, "posterior"):
        held = f" with {sorted(idata.children)}" if isinstance(idata, xr.DataTree) else ""
        raise DataMismatchError(
            f"expected an xarray.DataTree with the group 'posterior', got "
            f"{type(idata).__name__}{held}: pass what pm.sample, nutpie or pymc_tempering.sample "
            "returned, or pymc_tempering.to_datatree(fit) of a fit."
        )
    posterior = idata["posterior"].to_dataset()
    missing = [dim for dim in EACH if not posterior.sizes.get(dim)]
    if missing:
        raise DataMismatchError(
            f"the posterior has no draws along {missing}: select with lists, as in "
            "isel(chain=[0]), to keep both dimensions."
        )
    return posterior


def _in_order(posterior: xr.Dataset, model: pm.Model) -> xr.Dataset:
    """Return draws with their dimensions in the order of the model, where both name the same."""
    return posterior.assign(
        {
            name: posterior[name].transpose(*EACH, *dims)
            for name, dims in model.named_vars_to_dims.items()
            if name in posterior and set(posterior[name].dims) == {*EACH, *dims}
        }
    )


def _values(array: xr.DataArray, shape: tuple[int, ...]) -> np.ndarray:
    """Values of shape (chain, draw, *shape)."""
    if not set(EACH) <= set(array.dims):
        raise DataMismatchError(
            f"{array.name!r} has dimensions {array.dims} in the posterior but needs 'chain' "
            "and 'draw'."
        )
    values = array.transpose(*EACH, ...).values
    if values.shape[2:] != tuple(shape):
        raise DataMismatchError(
            f"{array.name!r} has the shape {values.shape[2:]} in the posterior and "
            f"{tuple(shape)} in the model: pass the model that the posterior was drawn from."
        )
    return values


def _rebuild(
    posterior: xr.Dataset, model: pm.Model, rvs: Sequence[Variable]
) -> dict[str, np.ndarray]:
    """Transform the constrained draws of some variables; returns them by value variable."""
    stand_in, values = unconstrained_graphs(model, rvs)
    if not values:
        return {}
    used = set(graph_inputs(values))
    needed = [rv for rv in model.free_RVs if stand_in[rv] in used]
    missing = [rv.name for rv in needed if rv.name not in posterior]
    if missing:
        raise DataMismatchError(
            f"the posterior lacks {missing}, free variables of the model: it holds "
            f"{sorted(map(str, posterior.data_vars))}. Pass the model that the posterior was drawn "
            "from, and sample without leaving variables out (var_names)."
            f"{hint_of(posterior)}"
        )
    shapes = known_shapes(model, needed)
    draws = [_values(posterior[rv.name], shape) for rv, shape in zip(needed, shapes, strict=True)]
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    inputs = [stand_in[rv] for rv in needed]
    evaluate = compile_over_draws(model, inputs, values, mode=python_mode())
    columns = [x.reshape(-1, *x.shape[2:]) for x in draws]
    rows = evaluate([x.astype(rv.dtype) for x, rv in zip(columns, needed, strict=True)])
    return {
        model.rvs_to_values[rv].name: row.reshape(n_chains, n_draws, *row.shape[1:])
        for rv, row in zip(rvs, rows, strict=True)
    }


def rounded_draws(model: pm.Model, layout: Layout, draws: np.ndarray) -> dict[str, np.ndarray]:
    """Tell for each free variable at which draws its constrained value is rounded.

    The constrained value of a log of 800 is infinity, and that of -800 zero; the way back from
    there leads to no finite number.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
        Of this model.
    draws : array, shape (n, dim)
        Finite unconstrained values.

    Returns
    -------
    dict of str to array of bool, shape (n,)
        By the name of the variable.
    """
    stand_in, ways_back = unconstrained_graphs(model, model.free_RVs)
    ways_there = model.replace_rvs_by_values(model.free_RVs)
    # As two functions: in one of them log(exp(x)) would be x.
    one_by_one = partial(compile_over_draws, model, together=False, mode=python_mode())
    constrain = one_by_one(model.value_vars, ways_there)
    unconstrain = one_by_one(list(stand_in.values()), ways_back)
    with np.errstate(all="ignore"):
        back = unconstrain(constrain(list(layout.unravel(draws).values())))
    return {
        rv.name: ~np.isfinite(values.reshape(len(draws), -1)).all(axis=1)
        for rv, values in zip(model.free_RVs, back, strict=True)
    }
