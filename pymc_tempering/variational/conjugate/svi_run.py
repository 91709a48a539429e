"""One run of Algorithm 1 of Mandt et al. (2016): its stages, its steps, its state."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pymc_tempering.exceptions import DataError, TemperatureError, TemperingWarning
from pymc_tempering.variational.conjugate.evaluate import elbo
from pymc_tempering.variational.conjugate.protocol import ConjugateModel, Globals, Local
from pymc_tempering.variational.conjugate.svi_fit import Fit
from pymc_tempering.variational.conjugate.svi_options import TEMPERED, SviOptions
from pymc_tempering.variational.conjugate.temperature_grid import (
    annealed_temperature,
    elbo_of_temperatures,
    temperature_posterior,
)

COLD = 1.0 - 1e-6
"""Inverse temperature above which nothing is tempered."""


@dataclass
class _State:
    """What changes while a fit runs."""

    lam: Globals  # its own arrays, updated in place
    iteration: int = 0
    inv_temp: float = 1.0
    weights: np.ndarray = field(default_factory=lambda: np.ones(1))
    log_joint: list[float] = field(default_factory=list)  # since the last update of q(T)
    history: list[tuple[float, float, float]] = field(default_factory=list)
    weight_history: list[np.ndarray] = field(default_factory=list)
    local_inv_temp: np.ndarray | None = None
    local_state: np.ndarray | None = None
    table: np.ndarray | None = None


@dataclass(frozen=True)
class _Tempered:
    """Where the tempered iterations ended."""

    lam: Globals
    local_inv_temp: np.ndarray | None
    n_iterations: int


class SviRun:
    """One fit: the model, its data and the options, which stay; the state is passed along."""

    def __init__(
        self, model: ConjugateModel, data: Any, options: SviOptions, rng: np.random.Generator
    ) -> None:
        self.model, self.data, self.options, self.rng = model, data, options, rng
        self.n_data = model.n_data(data)
        self.prior = model.prior(data)
        self.batch = options.batch_size is None
        self.inv_temps = 1.0 / options.grid
        self.log_partition = np.zeros(1)

    def fit(self, lam: Globals) -> Fit:
        """Run all stages from `lam`, which is updated in place."""
        options = self.options
        state = _State(lam)
        batches = self._batches()
        self._start_temperatures(state)
        converged = self._stage(state, batches, options.iterations, options.method)
        tempered = _Tempered(
            tuple(map(np.array, state.lam)),
            state.local_inv_temp,
            state.iteration if options.method in TEMPERED else 0,
        )
        if options.method in TEMPERED and options.n_untempered:
            self._part(state)
            state = replace(state, inv_temp=1.0, weights=np.eye(1, self.inv_temps.size)[0])
            converged = self._stage(state, batches, options.n_untempered, "vi")
        if self.batch and not converged:
            warnings.warn(
                f"the ELBO of {self.model.name} had not converged after {state.iteration} "
                "iterations: raise iterations or untempered, or tol",
                TemperingWarning,
                stacklevel=3,
            )
        return self._result(state, tempered, converged)

    def _start_temperatures(self, state: _State) -> None:
        """Set the first q(T) of VT, with its log C(T), or the first E[1/T_i] of LVT."""
        options = self.options
        if options.method == "local_variational_tempering":
            state.local_inv_temp = np.full(self.n_data, self.inv_temps.mean())
        if options.method != "variational_tempering":
            return
        self.log_partition = (
            self.model.log_partition(self.data, options.grid)
            if options.log_partition is None
            else np.asarray(options.log_partition, dtype=float)
        )
        if not np.isfinite(self.log_partition).all():
            at = options.grid[~np.isfinite(self.log_partition)][0]
            raise TemperatureError(
                f"log C(T) of {self.model.name} is not finite at T = {at:g}: take lower "
                'temperatures, or method="annealed", which needs no C(T)'
            )
        state.weights = options.first_weights()
        state.inv_temp = float(state.weights @ self.inv_temps)

    def _result(self, state: _State, tempered: _Tempered, converged: bool) -> Fit:
        """Compute the final ELBO, and gather what the fit leaves."""
        final = np.nan
        if self.options.elbo_every != 0:
            cores, local_state = self.options.n_cores, state.local_state
            final = elbo(self.model, state.lam, self.data, cores=cores, state=local_state)
        history = np.array(state.history)
        return Fit(
            model=self.model,
            method=self.options.method,
            lam=state.lam,
            tempered_lam=tempered.lam,
            elbo=final,
            elbo_history=history[:, 0],
            untempered_elbo_history=history[:, 1],
            inverse_temperature=history[:, 2],
            temperatures=self.options.grid,
            temperature_weights=np.array(state.weight_history),
            local_inverse_temperature=tempered.local_inv_temp,
            n_tempered=tempered.n_iterations,
            converged=converged,
        )

    def _batches(self) -> Iterator[np.ndarray]:
        if self.batch:
            while True:
                yield np.arange(self.n_data)
        size = int(self.options.batch_size or 0)
        while True:
            order = self.rng.permutation(self.n_data)
            for first in range(0, self.n_data, size):
                yield order[first : first + size]

    def _stage(
        self, state: _State, batches: Iterator[np.ndarray], n_iterations: int, method: str
    ) -> bool:
        """Iterate until the ELBO converges or the iterations are used up."""
        before, parted = (-np.inf, 0.0, -np.inf), False
        size = self.options.batch_size or self.n_data
        period = self.options.update_every if method in TEMPERED else 1
        for i in range(n_iterations):
            if method == "annealed":
                progress = i * size / self.n_data / self.options.passes(self.n_data)
                state.inv_temp = 1.0 / annealed_temperature(
                    self.options.schedule, self.options.hottest, progress
                )
                if i % -(-self.n_data // size) == 0:
                    self._part(state)
            self._iterate(state, next(batches), method)
            if not self.batch or (i + 1) % period:
                continue
            now = state.history[-1]
            if self._settled(before, now, method):
                if parted or method not in TEMPERED or not self._part(state):
                    return True
                parted = True
            before = now
        return False

    def _part(self, state: _State) -> bool:
        """Perturb lambda if it is tempered now; return whether it was perturbed.

        At high temperatures all components become the same: a saddle point that no step leaves.
        """
        share = self.options.jitter
        hot = state.history[-1][2] < COLD if state.history else state.inv_temp < COLD
        if hot and share:
            self.model.perturb(state.lam, self.data, share, self.rng)
        return bool(hot and share)

    def _settled(self, before: tuple[float, ...], now: tuple[float, ...], method: str) -> bool:
        """Return whether ELBO and temperature are at rest; never before the annealing ends."""
        if method == "annealed" and now[2] < COLD:
            return False
        tol = self.options.tol
        if method == "variational_tempering":
            tol *= self.options.temperature_step
        still = abs(now[2] - before[2]) <= 10.0 * tol
        return still and abs(now[0] - before[0]) <= tol * abs(now[0])

    def _iterate(self, state: _State, rows: np.ndarray, method: str) -> None:
        """Do the local step, the update of q(T), and the global step: equations (8) to (11)."""
        options, scale = self.options, self.n_data / len(rows)
        data = self.data if self.batch else self.model.take(self.data, rows)
        if state.local_state is None or not self.batch:
            first = self.model.start_local(data)
        else:
            first = state.local_state
        inv_temp = np.full(len(rows), state.inv_temp)
        if method == "local_variational_tempering" and state.local_inv_temp is not None:
            inv_temp = state.local_inv_temp[rows]
        local = self.model.local_step(state.lam, data, inv_temp, first, options.n_cores)
        if self.batch:
            state.local_state = local.state
        joint = scale * float(local.log_joint.sum())
        if not np.isfinite(joint):
            raise DataError(
                f"E[log p(x, z)] of {self.model.name} is {joint} in iteration {state.iteration}: "
                "the data are too far from the prior for floating-point numbers; rescale them, or "
                "give initial parameters near them"
            )
        fixed = scale * float(local.rest.sum()) + self._global_elbo(state)
        terms = 0.0
        if method == "variational_tempering":
            self._update_weights(state, joint)
            inv_temp = np.full(len(rows), state.inv_temp)
            terms = float(elbo_of_temperatures(state.weights, self.log_partition))
        elif method == "local_variational_tempering" and state.local_inv_temp is not None:
            inv_temp, terms = self._update_local(state, rows, data, local)
            terms *= scale
        tempered = scale * float(inv_temp @ local.log_joint)
        state.history.append((tempered + fixed + terms, joint + fixed, float(inv_temp.mean())))
        state.weight_history.append(state.weights)
        state.iteration += 1
        rho = 1.0 if self.batch else (options.tau + state.iteration) ** -options.kappa
        for lam, alpha in zip(state.lam, self.prior, strict=True):
            lam *= 1.0 - rho
            lam += rho * alpha
        local.add_statistics(rho * scale * inv_temp, state.lam)
        if options.callback is not None:
            options.callback(state.iteration, state.lam)

    def _global_elbo(self, state: _State) -> float:
        """Return the global terms of the ELBO, or NaN where they are not asked for."""
        every = self.options.n_elbo_every(self.n_data)
        if not every or state.iteration % every:
            return np.nan
        return self.model.global_elbo(state.lam, self.data)

    def _update_weights(self, state: _State, joint: float) -> None:
        """Move q(T) toward equation (9), given the joint's mean since the last update."""
        state.log_joint.append(joint)
        if len(state.log_joint) < self.options.update_every:
            return
        best = temperature_posterior(
            np.array(np.mean(state.log_joint)), self.inv_temps, self.log_partition
        )
        state.log_joint.clear()
        step = self.options.temperature_step
        state.weights = (1.0 - step) * state.weights + step * best
        state.inv_temp = float(state.weights @ self.inv_temps)

    def _update_local(
        self, state: _State, rows: np.ndarray, data: Any, local: Local
    ) -> tuple[np.ndarray, float]:
        """Update q(T_i) of the batch by equation (10); return E[1/T_i] and its ELBO terms."""
        assert state.local_inv_temp is not None
        if state.table is None or state.iteration % self.options.update_every == 0:
            state.table = self.model.normalizer_table(state.lam, self.data, self.inv_temps)
        norm = self.model.log_normalizers(state.table, data, local.state, self.inv_temps)
        weights = temperature_posterior(local.log_joint, self.inv_temps, norm)
        state.weights = weights.mean(axis=0)
        state.local_inv_temp[rows] = weights @ self.inv_temps
        return state.local_inv_temp[rows], float(elbo_of_temperatures(weights, norm).sum())
