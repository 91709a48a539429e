"""The report of a tempered fit: history, convergence, evidence and temperatures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.status import text_as_html
from pymc_tempering.evidence.result import Evidence, plus_minus
from pymc_tempering.variational.cold_trials import ColdTrials
from pymc_tempering.variational.convergence import Drift


@dataclass(frozen=True, repr=False, eq=False)
class TemperedOptimum:
    """Where the tempered stage of VT or LVT ended: an optimum of the *tempered* model.

    It approximates the posterior of the model with the temperature as a further variable, not
    that of the user's model.

    Attributes
    ----------
    params : dict of ndarray
        Parameters of the approximation there, by name (unconstrained space).
    iteration : int
        Iterations before it.
    inverse_temperature : float
        E[1/T] there, averaged over data for LVT.
    loss : float
        Negative tempered ELBO there, median of the last iterations, in the scale of
        ``approx.hist``.
    settled : bool
        Whether q(T) and the ELBO had come to rest, or the stage ran out of iterations.
    """

    params: Mapping[str, FloatArray]
    iteration: int
    inverse_temperature: float
    loss: float
    settled: bool

    def __repr__(self) -> str:
        state = "settled" if self.settled else "not settled"
        return (
            f"TemperedOptimum({state} after {self.iteration} iterations at "
            f"E[1/T] = {self.inverse_temperature:.3g})"
        )

    def _repr_html_(self) -> str:
        return text_as_html(self)


@dataclass(frozen=True, repr=False, eq=False)
class TemperedFit:
    """History and quality of a fit by :func:`pymc_tempering.fit`: its ``approx.tempering``.

    Attributes
    ----------
    method : str
    elbo, elbo_mcse : float
        ELBO of the final approximation at T = 1 on all data, and its standard error (nats).
    khat : float
        Pareto k-hat of the importance weights of the final approximation.
    evidence : Evidence or None
        log Z by Pareto smoothed importance sampling from the approximation, method "psis_vi";
        None where the model has no evidence (an improper prior).
    converged : bool
        Whether the ELBO came to rest at T = 1.
    drift : Drift
        The numbers behind ``converged``.
    n_tempered : int
        Iterations of the tempered stage.
    elbo_history : ndarray, shape (iteration,)
        Untempered ELBO, one noisy estimate an iteration (nats, full data).
    inverse_temperature : ndarray, shape (iteration,)
        E[1/T]; for LVT averaged over data.
    temperatures : ndarray, shape (M,)
        Grid of temperatures; of length 1 for "advi", empty for "annealed".
    q : ndarray, shape (update, M)
        q(T) in force from each update on; for LVT averaged over data.
    q_iteration : ndarray, shape (update,)
        First iteration at which it was in force.
    tempered : TemperedOptimum or None
        Where VT or LVT left the tempered model.
    local : dict of ndarray
        LVT: E[1/T] of each datum at the tempered optimum, by observed variable.
    log_c, log_c_mcse : ndarray, shape (M,), or None
        log C(T) of VT with global normalizers and its error (nats).
    warnings : tuple of str
        One sentence each, saying what to do.
    trials : ColdTrials or None
        The fits at T = 1 that competed with the tempered stage: how many, their iterations, the
        ELBO of the best and of the tempered stage (nats), and whether it ``won``.
    """

    method: str
    elbo: float
    elbo_mcse: float
    khat: float
    evidence: Evidence | None
    converged: bool
    drift: Drift
    n_tempered: int
    elbo_history: FloatArray
    inverse_temperature: FloatArray
    temperatures: FloatArray
    q: FloatArray
    q_iteration: FloatArray
    tempered: TemperedOptimum | None
    local: Mapping[str, FloatArray]
    log_c: FloatArray | None
    log_c_mcse: FloatArray | None
    warnings: tuple[str, ...]
    trials: ColdTrials | None = None

    @property
    def n_iterations(self) -> int:
        """Iterations in all stages."""
        return int(self.inverse_temperature.size)

    def temperature_probability(self, iteration: int) -> FloatArray:
        """q(T) in force at an iteration, shape (M,).

        Raises
        ------
        ValueError
            If there is no such iteration, or the method has no q(T).
        """
        if not 0 <= iteration < self.n_iterations:
            raise ValueError(f"iteration must be in 0..{self.n_iterations - 1}, got {iteration}")
        if not self.q_iteration.size:
            raise ValueError(f"method {self.method!r} has no distribution over temperatures")
        return self.q[int(np.searchsorted(self.q_iteration, iteration, side="right")) - 1]

    def _rows(self) -> list[tuple[str, Any]]:
        rows = [
            ("method", self.method),
            ("ELBO at T = 1", f"{plus_minus(self.elbo, self.elbo_mcse)} nats"),
            ("Pareto k-hat", f"{self.khat:.2f}"),
            ("iterations", f"{self.n_iterations}, {self.n_tempered} of them tempered"),
            ("converged", f"{'yes' if self.converged else 'no'}: {self.drift}"),
        ]
        if self.evidence is not None:
            log_z = plus_minus(self.evidence.log_z, self.evidence.mcse)
            rows.insert(2, ("log Z (psis_vi)", f"{log_z} nats"))
        if (trials := self.trials) is not None:
            values = f"ELBO {trials.elbo:.1f}, of the tempered stage {trials.tempered_elbo:.1f}"
            end = "the best goes on" if trials.won else "given up"
            count = f"{trials.starts} in {trials.n} iterations"
            rows.append(("trials at T = 1", f"{count}, {values} nats: {end}"))
        if self.tempered is not None:
            rows.append(("tempered optimum", repr(self.tempered)))
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        width = max(len(label) for label, _ in rows)
        lines = ["TemperedFit", *(f"  {label:<{width}}  {text}" for label, text in rows)]
        return "\n".join([*lines, *(f"  ! {sentence}" for sentence in self.warnings)])

    def _repr_html_(self) -> str:
        return text_as_html(self)
