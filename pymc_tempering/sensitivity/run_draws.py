"""The draws of a run as a changed density needs them: weighted, and in the unconstrained space."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.kept_states import has_states, read_states
from pymc_tempering.evidence.reweight import Draws, WeightedDraws, posterior_draws
from pymc_tempering.exceptions import DataMismatchError, ModelError
from pymc_tempering.model.constrain import Point
from pymc_tempering.model.density_change import DensityChange
from pymc_tempering.model.exactly import one_thread_at_a_time
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.numba_mode import compile_exactly
from pymc_tempering.model.unconstrain import unconstrained_values

N_CHECKED = 20
"""Draws at which the run's log density is compared with the model's."""

MAX_SCATTER = 1e-3
"""Nats by which the two may differ, beyond a constant."""


@dataclass(frozen=True, eq=False)
class RunDraws:
    """Draws of a run: all weighted states where they were kept, else those of the posterior.

    Attributes
    ----------
    draws : Draws
    keep : ndarray of bool, shape (chain, draw or state)
        Which of the stored draws these n are.
    variables : Dataset
        The stored draws, by (chain, draw, ...), in the constrained space.
    idata : DataTree
        What they come from, with the group ``posterior``.
    """

    draws: Draws
    keep: np.ndarray
    variables: xr.Dataset
    idata: xr.DataTree

    def point(self, model: pm.Model, names: Sequence[str]) -> Point:
        """Unconstrained values of free variables, (n, ...) each, by name of the value variable."""
        rvs = [model[name] for name in names]
        found = unconstrained_values(self.idata, model, model_layout(model), rvs)
        return {name: values[self.keep] for name, values in found.items()}

    def table(self, name: str) -> tuple[xr.DataArray, FloatArray]:
        """Return one draw of a variable, and all that count as a table (n, M)."""
        ordered = self.variables[name].transpose("chain", "draw", ...)
        table = np.asarray(ordered.values, dtype=float)[self.keep]
        return ordered.isel(chain=0, draw=0, drop=True), table.reshape(len(table), -1)


def read_draws(idata: xr.DataTree) -> RunDraws:
    """Read the draws of a tempering run.

    Raises
    ------
    NotTemperedError, LadderError
        If ``idata`` holds no complete tempering run.
    """
    if has_states(idata):
        states = read_states(idata)
        draws = WeightedDraws(states.run.stats, states.run.pieces, states.weight, states.piece)
        variables = states.variables.rename(state="draw")
        groups = {"posterior": variables}
        if "observed_data" in idata.children:
            groups["observed_data"] = idata["observed_data"].to_dataset()
        return RunDraws(draws, states.keep, variables, xr.DataTree.from_dict(groups))
    draws, keep = posterior_draws(read_cycles(idata))
    return RunDraws(draws, keep, idata["posterior"].to_dataset(), idata)


def check_same_model(idata: xr.DataTree, model: pm.Model) -> None:
    """Raise an error if a run was made with another model, as far as it can be told.

    Compared are the values of each ``pm.Data``, the observed data, and the log density that the
    run stored at some of its draws.

    Raises
    ------
    DataMismatchError
    """
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
    posterior = idata["posterior"].to_dataset()
    stats = idata["sample_stats"].data_vars if "sample_stats" in idata.children else ()
    if any(rv.name not in posterior for rv in model.free_RVs) or "lp" not in stats:
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


def change_at(
    run: RunDraws, model: pm.Model, change: DensityChange, values: FloatArray, default: np.ndarray
) -> FloatArray:
    """Log ratio of the changed density to that of the run's model at its draws, (n, V) (nats).

    Raises
    ------
    DataMismatchError
        The density is not a number somewhere, or zero under the model of the run.
    ModelError
        The density is zero at all draws with some value.
    """
    point = run.point(model, change.needs)
    now = change.evaluate(point, default)
    columns = [change.evaluate(point, value) - now for value in values]
    table = np.column_stack([np.broadcast_to(c, len(run.draws.weight)) for c in columns])
    nowhere = np.all(table == -np.inf, axis=0)
    if nowhere.any() and not change.moves_support:
        raise ModelError(
            f"At all draws of the run the density of {', '.join(change.terms)} is zero with the "
            f"value {values[nowhere.argmax()]}: it is outside of the range of this number."
        )
    odd = np.isnan(table) | (table == np.inf)
    if odd.any():
        raise DataMismatchError(
            f"The log density of {', '.join(change.terms)} is not a number at "
            f"{odd.any(axis=1).sum()} draws, or has no density there under the model that was "
            "passed: pass the model that the run was made with."
        )
    return table


def _log_density(model: pm.Model) -> Callable[..., float]:
    """Compile the log density of a point, given by the values of the value variables."""
    with model:
        function = compile_exactly(
            model.value_vars, model.logp(), mode="FAST_COMPILE", on_unused_input="ignore"
        )
    return one_thread_at_a_time(lambda *values: float(function(*values)))
