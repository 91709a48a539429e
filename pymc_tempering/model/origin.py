"""The model that a user gave, where a run has one from which some variables are summed out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm


@dataclass(frozen=True, eq=False)
class Origin:
    """What a model without some variables was made of.

    Attributes
    ----------
    model : pymc.Model
        A copy of the whole model.
    whole : callable
        Of raveled draws of the model without them, shape (n, d), it returns those of the whole
        model, shape (n, D): the variables that were summed out are drawn given the others. A row
        has the same draws whenever it is asked for.
    check : callable
        Raises an error, or warns, where sums are not exact at raveled draws, shape (n, d).
    n_white : int
        Number of its last coordinates that are standard normal, or nearly so.
    log_volume : callable, optional
        Log density of the whole model less that of the model without them, at raveled draws, where
        that is a change of variables: shape (n,), nats.
    kernels : dict of str to Kernel
        Kernels of variables, by name, where they are others than by default.
    """

    model: pm.Model
    whole: Callable[[np.ndarray], np.ndarray]
    check: Callable[[np.ndarray], None]
    n_white: int = 0
    log_volume: Callable[[np.ndarray], np.ndarray] | None = None
    kernels: dict[str, Any] = field(default_factory=dict)


def origin_of(model: pm.Model) -> Origin | None:
    """Return what a model was made of by summing out; None if it was not."""
    return getattr(model, "summed_from", None)


def whole_model(model: pm.Model) -> pm.Model:
    """Return the model with all variables that the user named."""
    origin = origin_of(model)
    return model if origin is None else origin.model
