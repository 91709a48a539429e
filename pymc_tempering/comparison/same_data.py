"""Whether models were given the same observed data."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pymc.backends.arviz import find_observations

from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.model.check import is_model


def check_same_data(
    runs: Mapping[str, Any], models: Mapping[str, pm.Model | None] | None = None
) -> None:
    """Raise an error if runs, by what messages call them, have different observed data.

    `models` are those that are known, by the same names, for draws that hold no data.

    Raises
    ------
    DataMismatchError
    """
    found = {name: _observed(run, (models or {}).get(name)) for name, run in runs.items()}
    data = {name: values for name, values in found.items() if values is not None}
    names = list(data)
    for other in names[1:]:
        odd = _unmatched(data[names[0]], data[other])
        if odd:
            raise DataMismatchError(
                f"{names[0]} and {other} have different observed data in {odd}, so their evidence "
                "cannot be compared; check_data=False overrides this for data that are the same "
                "in another shape"
            )


def _observed(run: Any, model: pm.Model | None) -> dict[str, np.ndarray] | None:
    """Observed data by name; None for what holds none, as an ``Evidence``."""
    own = getattr(run, "model", None)  # that of a fit
    if is_model(own):
        model = own
    if isinstance(run, xr.DataTree):
        if "observed_data" in run.children:
            variables = run["observed_data"].to_dataset().data_vars
            return {str(name): np.ravel(values.values) for name, values in variables.items()}
        if model is None:  # results that were stored may lack the data, draws may not
            return {} if "posterior" in run.children else None
    if model is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # symbolic data cannot be compared
        return {name: np.ravel(values) for name, values in find_observations(model).items()}


def _unmatched(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Return the variables of one that equal no variable of the other, by name if possible."""
    rest = dict(b)
    odd = []
    for name, values in sorted(a.items(), key=lambda item: item[0] not in b):
        twins = [name] if name in b else [other for other in rest if other not in a]
        twin = next((t for t in twins if t in rest and _same(values, rest[t])), None)
        if twin is None:
            odd.append(name)
        else:
            del rest[twin]
    return sorted({*odd, *rest})


def _same(a: ArrayLike, b: ArrayLike) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if not (np.issubdtype(a.dtype, np.number) and np.issubdtype(b.dtype, np.number)):
        return bool(np.array_equal(a, b))
    # Data that are standardized twice agree up to rounding, relative to their scale.
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
    return bool(np.allclose(a, b, rtol=0.0, atol=1e-9 * scale, equal_nan=True))
