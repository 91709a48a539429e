"""A model's unnormalized posterior, which a bridge leads to, and whether draws are of it."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.exceptions import DataMismatchError, ModelError
from pymc_tempering.model.check import check_proper
from pymc_tempering.model.compiled import NO_MIXTURE, Mixing
from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time
from pymc_tempering.model.layout import (
    is_binary,
    is_discrete,
    model_layout,
    unconstrained_shapes,
)
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import log_orderings_of, unknown_orders
from pymc_tempering.model.origin import origin_of
from pymc_tempering.model.path import Path, compile_path
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.unconstrain import unconstrained_draws, unconstrained_values
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.prior import evaluate_draws
from pymc_tempering.summed.sum_out import without_sums

STORED_LOG_DENSITY = ("lp", "logp")
"""Statistics in which samplers keep the log density of a draw."""

N_FIRST = 100
"""Posterior draws of each chain at which the model's density is checked."""

MAX_STORED_SCATTER = 1e-3
"""Nats by which a stored and the model's log density may differ, beyond a constant."""

N_CHECKED = 20
"""Draws at which the run's log density is compared with the model's."""

MAX_SCATTER = 1e-3
"""Nats by which the two may differ, beyond a constant."""


@dataclass(frozen=True)
class Target:
    """A model's log prior plus log likelihood, without what is summed out, and with circles cut.

    Attributes
    ----------
    path : Path
    cores : int
        Number of threads that evaluate it.
    """

    path: Path
    cores: int

    @property
    def binary(self) -> np.ndarray:
        """Which raveled elements are binary, shape (d,); the others are continuous."""
        return self.path.layout.whole_numbers

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Log of prior times likelihood, shape (n,), at states of shape (n, d); may be NaN."""
        reference, ratio = self.parts(x, NO_MIXTURE)
        with np.errstate(invalid="ignore"):
            return np.where(reference == -np.inf, -np.inf, reference + ratio)

    def gradients(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density, shape (n,), and its gradient, shape (n, d), zero for discrete variables."""
        values, grads = np.empty((len(x), 2)), np.zeros((len(x), 2, x.shape[1]))
        evaluate_rows(self.path.density, np.ascontiguousarray(x), values, grads, NO_MIXTURE)
        return values.sum(axis=1), grads.sum(axis=1)

    def parts(self, x: np.ndarray, mixture: Mixing) -> tuple[np.ndarray, np.ndarray]:
        """Log reference and log ratio at states, shape (n, d)."""
        blocks = [b for b in np.array_split(x, max(1, min(self.cores, len(x) // 100))) if len(b)]
        if len(blocks) < 2:
            values = [evaluate_draws(self.path, x, mixture)]
        else:
            with ThreadPoolExecutor(len(blocks)) as pool:
                values = list(
                    pool.map(lambda block: evaluate_draws(self.path, block, mixture), blocks)
                )
        reference, ratio = (np.concatenate(part) for part in zip(*values, strict=True))
        return reference, ratio


def find_target(
    idata: xr.DataTree, model: pm.Model, cores: int | None
) -> tuple[Target, np.ndarray]:
    """Compile a model, and return its target with its posterior draws, shape (chain, draw, d).

    Raises
    ------
    ModelError, ImproperPriorError, DiscreteVariableError
        The model has no evidence, or cannot be evaluated.
    DataMismatchError, TemperingError
        The posterior is not one of this model; see :func:`unconstrained_draws`.
    """
    check_proper(model.free_RVs)
    if unknown := unknown_orders(model):
        raise ModelError(
            f"The prior of {', '.join(map(repr, unknown))} is ordered, and its probability of that "
            "order, which normalizes it, takes a run of its own: pymc_tempering.sample makes one."
        )
    model = without_sums(model)
    discrete = [rv for rv in model.free_RVs if is_discrete(rv)]
    if discrete and all(map(is_binary, discrete)):
        others = [model.rvs_to_values[rv].name for rv in model.free_RVs if rv not in discrete]
        path = compile_path(model, gradient=others, values=True)
    else:  # others than binary ones are refused
        path = compile_path(model)
    draws = unconstrained_draws(idata, model, path.layout)
    origin = origin_of(model)
    if origin is not None:
        origin.check(draws.reshape(-1, path.dim)[:N_FIRST])
    return Target(path, cores or os.cpu_count() or 1), draws


def check_log_density(log_density: np.ndarray, path: Path, draws: np.ndarray) -> None:
    """Raise an error if the model's density, shape (n,), is not finite at draws, shape (n, d).

    Raises
    ------
    DataMismatchError
    """
    bad = ~np.isfinite(log_density)
    if bad.any():
        where = path.layout.unravel(draws[int(bad.argmax())])
        raise DataMismatchError(
            f"the model's density is zero or not a number at {bad.mean():.2%} of the posterior "
            f"draws (unconstrained, the first: {where}): pass the model that the posterior was "
            "drawn from, with the data it was drawn with."
        )


def check_states(idata: xr.DataTree, target: Target, states: np.ndarray) -> list[str]:
    """Check at some draws that they are of this model; warn if the sampler stored another density.

    Raises
    ------
    DataMismatchError
    """
    some = states[:, :N_FIRST]
    flat = some.reshape(-1, states.shape[2])
    log_density = target.log_density(flat)
    check_log_density(log_density, target.path, flat)
    return stored_density_warnings(idata, log_density.reshape(some.shape[:2]))


def stored_density_warnings(idata: xr.DataTree, log_density: np.ndarray) -> list[str]:
    """Warn if the log density that the sampler stored differs from the model's.

    A constant may differ, and the sign, because some samplers store the potential energy.

    Parameters
    ----------
    idata : DataTree
    log_density : ndarray, shape (chain, draw)
        The model's, at the first draws of each chain (nats).
    """
    name, stored = _stored_log_density(idata)
    if stored is None or stored[:, : log_density.shape[1]].shape != log_density.shape:
        return []
    stored = stored[:, : log_density.shape[1]]
    scatter = min(float((log_density - sign * stored).std()) for sign in (1.0, -1.0))
    if scatter <= MAX_STORED_SCATTER + 1e-6 * float(np.abs(stored).max()):  # single precision
        return []
    return [
        f"sample_stats['{name}'] and the model's log density differ by {scatter:.2g} nats from "
        "draw to draw, so the mcse is infinite: the posterior was drawn from another model (other "
        "priors, other data); pass its own, or drop the statistic if it does not belong to these "
        "draws."
    ]


def untold_model(idata: xr.DataTree) -> list[str]:
    """Say so where no log density was stored, and nothing tells whose draws these are."""
    if _stored_log_density(idata)[1] is not None:
        return []
    return [
        f"The draws come without their log density ({' or '.join(STORED_LOG_DENSITY)} in "
        "sample_stats), so nothing shows that they are draws of this model: with another prior log "
        "Z would be wrong, and nobody would see it."
    ]


def _stored_log_density(idata: xr.DataTree) -> tuple[str, np.ndarray | None]:
    """Name and values (chain, draw) of the log density that a sampler stored, if it did."""
    stats = idata["sample_stats"].to_dataset() if "sample_stats" in idata.children else {}
    for name in STORED_LOG_DENSITY:
        if name in stats and set(stats[name].dims) == {"chain", "draw"}:
            values = stats[name].transpose("chain", "draw").values
            return name, values if np.isfinite(values).all() else None
    return "", None


def without_lost(log_ratio: np.ndarray) -> tuple[np.ndarray, float]:
    """Give states with a ratio of NaN or +inf zero density, and return their share as well."""
    lost = np.isnan(log_ratio) | (log_ratio == np.inf)
    return np.where(lost, -np.inf, log_ratio), float(lost.mean())


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
