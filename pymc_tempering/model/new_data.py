"""A copy of a model with other data of the same shapes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.model.fgraph import clone_model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import DataMismatchError


def copy_with_data(model: pm.Model, data: Mapping[str, Any]) -> pm.Model:
    """Copy a model, with other values of some observed variables and data containers.

    Parameters
    ----------
    model : pymc.Model
        It stays as it is.
    data : mapping of str to array_like
        By the name of an observed variable or of a `pm.Data`.

    Raises
    ------
    DataMismatchError
        A name is unknown, or values have another shape or kind than those of the model.
    """
    values = checked_data(model, data)
    copy = copy_of(model)
    for name, value in values.items():
        if isinstance(copy[name], SharedVariable):
            copy[name].set_value(value)
            continue
        rv = copy[name]
        fresh = pt.constant(value, name=copy.rvs_to_values[rv].name)
        copy.values_to_rvs.pop(copy.rvs_to_values[rv])
        copy.rvs_to_values[rv] = fresh
        copy.values_to_rvs[fresh] = rv
    return copy


def copy_of(model: pm.Model) -> pm.Model:
    """Copy a model, with its variables in their order."""
    copy = clone_model(without_initial_values(model))
    copy.check_bounds = model.check_bounds
    order_like(copy, model)
    return copy


def checked_data(model: pm.Model, data: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return new values of some data of a model, in the types of the old ones.

    Raises
    ------
    DataMismatchError
        A name is unknown, or values have another shape or kind than those of the model.
    """
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    containers = {v.name: v for v in model.data_vars if isinstance(v, SharedVariable)}
    values = {}
    for name, given in data.items():
        old = containers.get(name, observed.get(name))
        if old is None:
            known = listed([*containers, *observed]) or "none"
            raise DataMismatchError(f"The model has no data named {name!r}; its data: {known}.")
        values[name] = checked_value(name, given, _value_of(name, old))
    return values


def order_like(copy: pm.Model, model: pm.Model, first: tuple[str, ...] = ()) -> None:
    """Put the variables of a copy in the order of the model, which its raveled vector has.

    Those named `first`, which the model does not have, come before all others.
    """
    for kind in ("free_RVs", "observed_RVs", "potentials", "deterministics", "data_vars"):
        names = [*first, *(variable.name for variable in getattr(model, kind))]
        getattr(copy, kind).sort(key=lambda variable, names=names: names.index(variable.name))


def _value_of(name: str, variable: Variable) -> np.ndarray:
    """Return the present values of a variable that can get others."""
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    sources = [v.name for v in graph_inputs([variable]) if isinstance(v, SharedVariable)]
    advice = f"; give those of {listed(sources)}" if sources else ""
    raise DataMismatchError(f"The values of {name!r} are computed from others{advice}.")


def checked_value(name: str, given: Any, old: np.ndarray) -> np.ndarray:
    """Return new values in the type of the old ones.

    Raises
    ------
    DataMismatchError
    """
    try:
        array = np.asarray(given)
        if array.dtype.kind in "US":
            raise ValueError("they are text")
        new = np.asarray(array.real, dtype=old.dtype)
    except (TypeError, ValueError) as error:
        raise DataMismatchError(f"The new values of {name!r} are no numbers: {error}.") from error
    if new.shape != old.shape:
        raise DataMismatchError(
            f"The new values of {name!r} have the shape {new.shape}, those of the model "
            f"{old.shape}. With another shape it is another model: build it anew."
        )
    kept = np.can_cast(array.dtype, old.dtype, "same_kind")
    if not kept and not np.array_equal(new, array, equal_nan=True):
        raise DataMismatchError(
            f"The new values of {name!r} are {array.dtype}, and rounded as {old.dtype}, the type "
            "of those of the model."
        )
    return new


def without_initial_values(model: pm.Model) -> pm.Model:
    """Return a view of a model without initial values, which PyMC would refuse to copy.

    Chains start at draws from the prior, so that initial values do not matter.
    """
    if not any(value is not None for value in model.rvs_to_initial_values.values()):
        return model
    view = object.__new__(type(model))
    initial = dict.fromkeys(model.rvs_to_initial_values)
    view.__dict__.update(model.__dict__ | {"rvs_to_initial_values": initial})
    return view
