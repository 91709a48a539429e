"""The result of `svi`: a frozen value that knows its history and becomes a DataTree."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.status import text_as_html
from pymc_tempering.variational.conjugate.protocol import ConjugateModel, Globals

ROWS = 1024
MAX_STEPS = 100
TOL = 1e-7


def elbo(
    model: ConjugateModel,
    lam: Globals,
    data: Any,
    *,
    inv_temp: float = 1.0,
    state: np.ndarray | None = None,
) -> float:
    """Return the ELBO of checked data at one temperature, local steps converged, in nats.

    The local steps start from `state`, local parameters of all data, or afresh.
    """
    total = model.global_elbo(lam, data)
    for first in range(0, data.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        part = data[rows]
        current = model.start_local(part) if state is None else state[rows]
        inv_temps, old, new = np.full(part.shape[0], inv_temp), -np.inf, 0.0
        for _ in range(MAX_STEPS):
            local = model.local_step(lam, part, inv_temps, current)
            current, new = local.state, float((inv_temp * local.log_joint + local.rest).sum())
            if abs(new - old) <= TOL * abs(new):
                break
            old = new
        total += new
    return total


@dataclass(frozen=True, repr=False, eq=False)
class Fit:
    """A variational fit of a conjugate model.

    Attributes
    ----------
    model : LDA, FactorialMixture, GaussianMixture, or another ConjugateModel
        The model.
    method : str
        ``"vi"``, ``"annealed"``, ``"variational_tempering"`` or
        ``"local_variational_tempering"``.
    lam : tuple of ndarray
        Natural parameters of q(beta), in the order of the model.
    tempered_lam : tuple of ndarray
        Those at the end of the tempered iterations of VT and LVT; else the same as `lam`.
    elbo : float
        ELBO of all data at T = 1 (nats), local steps converged; NaN with ``elbo_every=0``.
    elbo_history : ndarray, shape (iteration,)
        Objective of each iteration (nats): ELBO, annealed ELBO (4), or T-ELBO (5). With
        minibatches an unbiased estimate, which is noisy, and NaN where it was not asked for.
    untempered_elbo_history : ndarray, shape (iteration,)
        ELBO at T = 1 of the same variational parameters (nats).
    inverse_temperature : ndarray, shape (iteration,)
        1/T, E[1/T], or its mean over the data of the batch.
    temperatures : ndarray, shape (M,)
        Grid of VT or LVT.
    temperature_weights : ndarray, shape (iteration, M)
        q(T), or its mean over the data of the batch.
    local_inverse_temperature : ndarray, shape (N,), or None
        LVT: E[1/T_i] of each datum at the end of the tempered iterations. Outliers are low.
    n_tempered : int
        Iterations before those at T = 1 that end VT and LVT.
    converged : bool
        Whether the ELBO settled within `tol`; always False with minibatches.
    posterior : Dataset
        Parameters and moments of q(beta) at T = 1 with named dimensions.
    """

    model: ConjugateModel
    method: str
    lam: Globals
    tempered_lam: Globals
    elbo: float
    elbo_history: np.ndarray
    untempered_elbo_history: np.ndarray
    inverse_temperature: np.ndarray
    temperatures: np.ndarray
    temperature_weights: np.ndarray
    local_inverse_temperature: np.ndarray | None
    n_tempered: int
    converged: bool

    @property
    def posterior(self) -> xr.Dataset:
        """Parameters and moments of q(beta) at T = 1 with named dimensions."""
        return self.model.describe(self.lam)

    def log_predictive(self, data: Any, *, tempered: bool = False) -> np.ndarray:
        """Return the log predictive likelihood of held-out data at T = 1.

        Parameters
        ----------
        data : array_like or scipy.sparse array
            Data points that the fit has not seen.
        tempered : bool, default False
            Predict with `tempered_lam` in place of `lam`.

        Returns
        -------
        ndarray, shape (n,)
            Nats, for each datum. What exactly, the model's ``log_predictive`` says.
        """
        lam = self.tempered_lam if tempered else self.lam
        return self.model.log_predictive(lam, self.model.check(data))

    def to_datatree(self) -> xr.DataTree:
        """Return groups ``variational``, ``tempered`` (VT, LVT) and ``history``.

        Returns
        -------
        DataTree
            q(beta) with named dimensions; ELBO, E[1/T] and q(T) by iteration.
        """
        attributes = {
            "model": self.model.name,
            "method": self.method,
            "elbo": self.elbo,
            "converged": int(self.converged),
            "n_tempered": self.n_tempered,
        }
        history = xr.Dataset(
            {
                "elbo": ("iteration", self.elbo_history),
                "untempered_elbo": ("iteration", self.untempered_elbo_history),
                "inverse_temperature": ("iteration", self.inverse_temperature),
                "temperature_weight": (("iteration", "temperature"), self.temperature_weights),
            },
            coords={
                "iteration": np.arange(self.elbo_history.size),
                "temperature": self.temperatures,
            },
        )
        groups = {"variational": self.posterior.assign_attrs(attributes), "history": history}
        if self.n_tempered:
            groups["tempered"] = self.model.describe(self.tempered_lam)
        if self.local_inverse_temperature is not None:
            groups["data_temperature"] = xr.Dataset(
                {"inverse_temperature": ("datum", self.local_inverse_temperature)},
                coords={"datum": np.arange(self.local_inverse_temperature.size)},
            )
        return xr.DataTree.from_dict(groups)

    def __repr__(self) -> str:
        steps = f"{self.elbo_history.size} iterations"
        if self.n_tempered:
            steps += f", {self.n_tempered} of them tempered"
        return f"Fit({self.model.name}, {self.method}: ELBO {self.elbo:.6g} nats at T = 1, {steps})"

    _repr_html_ = text_as_html
