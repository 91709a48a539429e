"""Whether draws are of a model, as far as their variables, data and stored log density tell."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.model.bambi import hint_of
from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time
from pymc_tempering.model.layout import circular_indices, model_layout, unconstrained_shapes
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import log_orderings_of, unknown_orders
from pymc_tempering.model.origin import whole_model
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.unconstrain import check_observed, posterior_of, unconstrained_values

STORED_LOG_DENSITY = ("lp", "logp")
"""Statistics in which samplers keep the log density of a draw."""

MAX_SCATTER = 1e-3
"""Nats by which a stored and the model's log density may differ, beyond a constant."""

FITS = ("fit", "pathfinder", "variational")
"""Groups that fits keep beside their draws, those of pymc-extras and ``pmt.to_datatree``."""

N_CHECKED = 20
"""Draws at which the two are compared where no more are evaluated anyway."""


def stored_density_warnings(idata: xr.DataTree, log_density: np.ndarray) -> list[str]:
    """Warn if the log density that the sampler stored differs from the model's.

    Parameters
    ----------
    idata : DataTree
    log_density : ndarray, shape (chain, draw)
        The model's, at the first draws of each chain (nats).
    """
    name, stored = _log_density_of_draws(idata)
    if stored is None or stored[:, : log_density.shape[1]].shape != log_density.shape:
        return []
    apart = _apart(log_density, stored[:, : log_density.shape[1]])
    if apart == 0.0:
        return []
    return [
        f"sample_stats['{name}'] and the model's log density differ by {apart:.2g} nats from "
        "draw to draw, so the mcse is infinite: the posterior was drawn from another model (other "
        "priors, other data); pass its own, or drop the statistic if it does not belong to these "
        f"draws.{hint_of(idata['posterior'])}"
    ]


def _apart(own: np.ndarray, stored: np.ndarray) -> float:
    """Nats by which log densities of the same draws differ beyond a constant; 0 if by rounding.

    The sign may differ, because some samplers store the potential energy.
    """
    scatter = min(float((own - sign * stored).std()) for sign in (1.0, -1.0))
    rounding = MAX_SCATTER + 1e-6 * float(np.abs(stored).max())  # single precision
    return 0.0 if scatter <= rounding else scatter


def untold_model(idata: xr.DataTree) -> list[str]:
    """Say so where no log density was stored, and nothing tells whose draws these are."""
    if _stored_log_density(idata)[1] is not None:
        return []
    return [
        f"The draws come without their log density ({' or '.join(STORED_LOG_DENSITY)} in "
        "sample_stats), so nothing shows that they are draws of this model: with another prior the "
        "result would be wrong, and nobody would see it."
    ]


def is_fitted(idata: xr.DataTree) -> bool:
    """Whether draws are of a fit, and so of a density near the posterior."""
    return any(name in idata.children for name in FITS)


def _stored_log_density(idata: xr.DataTree) -> tuple[str, np.ndarray | None]:
    """Name and values (chain, draw) of the log density that a sampler stored, if it did."""
    stats = idata["sample_stats"].to_dataset() if "sample_stats" in idata.children else {}
    for name in STORED_LOG_DENSITY:
        if name in stats and set(stats[name].dims) == {"chain", "draw"}:
            values = stats[name].transpose("chain", "draw").values
            return name, values if np.isfinite(values).all() else None
    return "", None


def _log_density_of_draws(idata: xr.DataTree) -> tuple[str, np.ndarray | None]:
    """Return the same where it is that of the draws, which it need not be with whole numbers.

    Step methods that take turns store it before the last of them has moved, and a run in which
    whole numbers are summed out stores that of the others.
    """
    posterior = idata["posterior"].data_vars.values()
    whole = any(values.dtype.kind in "iub" for values in posterior)
    return ("", None) if whole else _stored_log_density(idata)


def check_same_model(idata: xr.DataTree, model: pm.Model) -> None:
    """Raise an error if draws are of another model, as far as it can be told.

    Compared are the free variables, the observed data, the values of each ``pm.Data``, and the log
    density that the sampler stored at some of the draws.

    Raises
    ------
    DataMismatchError
    """
    posterior = posterior_of(idata)
    lacking = [rv.name for rv in model.free_RVs if rv.name not in posterior]
    unknown = [str(name) for name in posterior.data_vars if name not in model.named_vars]
    if lacking and unknown:
        raise DataMismatchError(
            f"The run has draws of {listed(unknown)}, and the model has "
            f"{listed(lacking)} in their place: pass the model that the run was made "
            f"with.{hint_of(idata['posterior'])}"
        )
    _check_data(idata, model)
    if lacking:
        return
    layout = model_layout(model)
    if "tempering" in idata.children and circular_indices(model, layout).size:
        return  # a run cuts circles open, and stores that density
    few = max(1, N_CHECKED // posterior.sizes["chain"])
    part = idata.isel(draw=np.arange(min(few, posterior.sizes["draw"])))
    _, stored = _log_density_of_draws(part)
    if stored is None:
        return
    points = unconstrained_values(part, model, layout, model.free_RVs)
    function = remembered(model, "plain log density", lambda: _log_density(model))
    names = [value.name for value in model.value_vars]
    shape = next(iter(points.values())).shape[:2]
    own = np.array([function(*(points[n][at] for n in names)) for at in np.ndindex(shape)])
    known = np.isfinite(own)  # not where a draw was rounded to the edge of its support
    if known.any() and (apart := _apart(own[known], stored.ravel()[known])):
        raise DataMismatchError(
            f"The run's log density and the model's differ by {apart:.2g} nats from draw to "
            "draw: pass the model that the run was made with (same priors, same data)."
            f"{hint_of(idata['posterior'])}"
        )


def _check_data(idata: xr.DataTree, model: pm.Model) -> None:
    """Raise an error if observed data, or the values of a ``pm.Data``, are others.

    Raises
    ------
    DataMismatchError
    """
    check_observed(idata, whole_model(model))
    if "constant_data" not in idata.children:
        return
    held = idata["constant_data"].to_dataset()
    for variable in model.data_vars:
        if variable.name not in held or not isinstance(variable, SharedVariable):
            continue
        theirs, own = held[variable.name].values, variable.get_value()
        if theirs.shape != own.shape or not np.array_equal(theirs, own, equal_nan=True):
            raise DataMismatchError(
                f"The pm.Data {variable.name!r} has other values in the model than in the run: "
                "pass the model as it was when it was sampled."
            )


def _log_density(model: pm.Model) -> Callable[..., float]:
    """Compile the log density of a point, given by the values of the value variables."""
    orders = log_orderings_of(model, unconstrained_shapes(model), unknown_orders(model))
    with model:
        function = compile_exactly(
            model.value_vars, model.logp() + orders, mode=python_mode(), on_unused_input="ignore"
        )
    return one_thread_at_a_time(lambda *values: float(function(*values)))
