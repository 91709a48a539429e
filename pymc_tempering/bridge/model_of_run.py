"""Whether a run was made with a model, as far as its draws and what it stored can tell."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time
from pymc_tempering.model.layout import model_layout, unconstrained_shapes
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import log_orderings_of, unknown_orders
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.unconstrain import unconstrained_values

N_CHECKED = 20
"""Draws at which the run's log density is compared with the model's."""

MAX_SCATTER = 1e-3
"""Nats by which the two may differ, beyond a constant."""


def check_same_model(idata: xr.DataTree, model: pm.Model) -> None:
    """Raise an error if a run was made with another model, as far as it can be told.

    Compared are the free variables, the values of each ``pm.Data``, and the log density that the
    run stored at some of its draws.

    Raises
    ------
    DataMismatchError
    """
    posterior = idata["posterior"].to_dataset()
    lacking = [rv.name for rv in model.free_RVs if rv.name not in posterior]
    unknown = [str(name) for name in posterior.data_vars if name not in model.named_vars]
    if lacking and unknown:
        raise DataMismatchError(
            f"The run has draws of {', '.join(map(repr, unknown))}, and the model has "
            f"{', '.join(map(repr, lacking))} in their place: pass the model that the run was made "
            "with."
        )
    if "constant_data" in idata.children:
        stored = idata["constant_data"].to_dataset()
        for variable in model.data_vars:
            if variable.name not in stored or not isinstance(variable, SharedVariable):
                continue
            theirs, own = stored[variable.name].values, variable.get_value()
            if theirs.shape != own.shape or not np.array_equal(theirs, own, equal_nan=True):
                raise DataMismatchError(
                    f"The pm.Data {variable.name!r} has other values in the model than in the run: "
                    "pass the model as it was when it was sampled."
                )
    stats = idata["sample_stats"].data_vars if "sample_stats" in idata.children else ()
    if lacking or "lp" not in stats:
        return
    few = max(1, N_CHECKED // posterior.sizes["chain"])
    part = idata.isel(draw=np.arange(min(few, posterior.sizes["draw"])))
    points = unconstrained_values(part, model, model_layout(model), model.free_RVs)
    function = remembered(model, "plain log density", lambda: _log_density(model))
    names = [value.name for value in model.value_vars]
    shape = next(iter(points.values())).shape[:2]
    own = np.array([function(*(points[n][at] for n in names)) for at in np.ndindex(shape)])
    off = own - part["sample_stats"]["lp"].transpose("chain", "draw").values.ravel()
    if not np.ptp(off) <= MAX_SCATTER + 1e-6 * np.abs(own).max():
        raise DataMismatchError(
            f"The run's log density and the model's differ by {np.ptp(off):.2g} nats from draw to "
            "draw: pass the model that the run was made with (same priors, same data)."
        )


def _log_density(model: pm.Model) -> Callable[..., float]:
    """Compile the log density of a point, given by the values of the value variables."""
    orders = log_orderings_of(model, unconstrained_shapes(model), unknown_orders(model))
    with model:
        function = compile_exactly(
            model.value_vars, model.logp() + orders, mode=python_mode(), on_unused_input="ignore"
        )
    return one_thread_at_a_time(lambda *values: float(function(*values)))
