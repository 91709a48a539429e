"""What is changed in a model: the factor on a prior's scale, or the values of a `pm.Data`."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.model.density_change import DensityChange, density_change
from pymc_tempering.model.new_data import checked_value
from pymc_tempering.model.prior_scales import OpenModel, scaled_model


@dataclass(frozen=True, eq=False)
class PriorChange:
    """Values of one number of a prior, and what they do to the density.

    Attributes
    ----------
    name : str
        Of the variable or the ``pm.Data``.
    kind : {"scale", "data"}
    values : ndarray, shape (V, ...)
    default : ndarray, shape (...)
    opened : OpenModel
        A model with a ``pm.Data`` for the number.
    effect : DensityChange
        The part of its density that depends on it.
    """

    name: str
    kind: str
    values: np.ndarray
    default: np.ndarray
    opened: OpenModel
    effect: DensityChange


def change_of_scale(model: pm.Model, name: str, factors: ArrayLike) -> PriorChange:
    """Multiply the scale of a variable's prior.

    Raises
    ------
    ValueError
        A factor is not positive and finite.
    ImproperPriorError, ModelError
        There is no such prior, or it has no scale.
    """
    scaled = scaled_model(model, name)
    try:
        values = np.atleast_1d(np.asarray(factors, dtype=float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"scale of {name!r} must be positive numbers: {error}") from error
    if values.ndim != 1 or not values.size:
        raise ValueError(f"scale of {name!r} must be a list of factors, got shape {values.shape}")
    if not np.all((values > 0.0) & np.isfinite(values)):
        bad = values[~((values > 0.0) & np.isfinite(values))][0]
        raise ValueError(
            f"scale of {name!r} holds {bad:g}: a factor must be positive and finite, for no other "
            "gives a proper prior."
        )
    effect = density_change(scaled.model, scaled.container)
    return PriorChange(name, "scale", values, np.array(1.0), scaled, effect)


def change_of_data(model: pm.Model, name: str, values: ArrayLike) -> PriorChange:
    """Set a `pm.Data` of a model.

    Raises
    ------
    DataMismatchError
        There is no such ``pm.Data``, or a value has another shape or kind.
    ModelError
        The density does not depend on it, or it holds observed values.
    """
    density_change(model, name)  # raises an error for a name that means nothing
    container = model[name]
    assert isinstance(container, SharedVariable)
    default = np.asarray(container.get_value())
    given = np.asarray(values)
    if given.ndim == default.ndim:
        given = given[None]
    if given.shape[1:] != default.shape or not len(given):
        raise DataMismatchError(
            f"data of {name!r} must be a list of values of shape {default.shape}, that of the "
            f"pm.Data; got the shape {given.shape}."
        )
    checked = np.stack([checked_value(name, value, default) for value in given])
    effect = density_change(model, name)
    return PriorChange(name, "data", checked, default, OpenModel(model, name), effect)
