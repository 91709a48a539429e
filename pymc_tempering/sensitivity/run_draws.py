"""The draws of a run as a changed density needs them: weighted, and in the unconstrained space."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.datatree import has_states, read_cycles, read_states
from pymc_tempering.evidence.reweight import Draws, WeightedDraws, posterior_draws
from pymc_tempering.exceptions import DataMismatchError, ModelError
from pymc_tempering.model.constrain import Point
from pymc_tempering.model.density_change import DensityChange
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.unconstrain import unconstrained_values


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
