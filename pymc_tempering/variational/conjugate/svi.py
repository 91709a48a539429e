"""Annealed or tempered stochastic variational inference: options, the run, and the front door."""

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import softmax

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.exceptions import DataError, TemperatureError, TemperingWarning
from pymc_tempering.variational.conjugate.protocol import ConjugateModel, Globals, Local
from pymc_tempering.variational.conjugate.svi_fit import Fit, elbo
from pymc_tempering.variational.temperatures import (
    annealing_schedule,
    check_damping,
    check_grid,
    elbo_of_temperatures,
    exponential_grid,
    inverse_grid,
)

METHODS = ("vi", "annealed", "variational_tempering", "local_variational_tempering")
TEMPERED = METHODS[2:]
STARTS = ("hot", "uniform")

ScheduleOption = str | Callable[[float], float]

LOCAL_GRID = inverse_grid(100, 100.0)
"""Temperatures of LVT, as in Section 4 of Mandt et al. (2016)."""


LEAST = {
    "iterations": 1,
    "untempered": 0,
    "batch_size": 1,
    "update_every": 1,
    "cores": 1,
    "elbo_every": 0,
}
"""Smallest value of options that are whole numbers, or None."""


@dataclass(frozen=True)
class SviOptions:
    """What the user asked for, checked, for data of `n_data` points; see :func:`svi`."""

    n_data: int
    method: str
    iterations: int
    untempered: int | None
    batch_size: int | None
    tau: float
    kappa: float
    temperatures: Any
    log_partition: Any
    start: str
    update_every: int
    damping: float
    schedule: ScheduleOption
    hottest: float
    anneal_passes: float | None
    jitter: float
    tol: float
    elbo_every: int | None
    cores: int | None
    callback: Callable[[int, Globals], None] | None

    def __post_init__(self) -> None:
        """Raise an error for options that make no sense, alone or together.

        Raises
        ------
        TemperatureError
            If temperatures are below 1, do not start at 1, or do not increase.
        ValueError
            If another option is out of its range.
        """
        check_choice("method", self.method, METHODS)
        check_choice("start", self.start, STARTS)
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None:
                check_whole(least, **{name: value})
        if not (self.callback is None or callable(self.callback)):
            raise ValueError(f"callback must be callable, not {self.callback!r}.")
        if self.batch_size is not None and self.batch_size > self.n_data:
            raise ValueError(
                f"batch_size is {self.batch_size} and there are {self.n_data} data points: leave "
                "it out to use all of them in every iteration."
            )
        check_damping(self.damping, "q(T)")
        if not 0.5 < self.kappa <= 1.0:
            raise ValueError(
                f"kappa must be above 0.5 and at most 1 for the steps to converge "
                f"(Robbins and Monro), not {self.kappa!r}."
            )
        if not self.tau >= 0.0:
            raise ValueError(f"tau must not be negative, got {self.tau!r}.")
        if not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"jitter must be at least 0 and below 1, not {self.jitter!r}.")
        if not self.tol >= 0.0:
            raise ValueError(f"tol must not be negative, got {self.tol!r}.")
        self._check_temperatures()

    def _check_temperatures(self) -> None:
        annealing_schedule(self.schedule, self.hottest, 1)
        if self.temperatures is not None:
            check_grid(self.temperatures)
        if self.temperatures is not None and self.method not in TEMPERED:
            raise ValueError(
                f'temperatures are for the methods {TEMPERED}, not for "{self.method}"'
                + ("; give hottest or schedule." if self.method == "annealed" else ".")
            )
        shape = np.shape(self.log_partition)
        if self.log_partition is not None and shape != self.grid.shape:
            raise ValueError(
                f"log_partition has shape {shape}; it needs one value for each of the "
                f"{self.grid.size} temperatures."
            )
        if self.method != "annealed":
            return
        if not (np.isfinite(self.hottest) and self.hottest >= 1.0):
            raise TemperatureError(f"hottest must be at least 1, not {self.hottest!r}")
        if not 0.0 < self.n_annealed < self.iterations:
            raise ValueError(
                f"anneal_passes is {self.anneal_passes:g}; it must be above 0 and below the "
                f"{self.iterations * self.size / self.n_data:g} passes that {self.iterations} "
                "iterations make, so that the fit ends at T = 1."
            )

    @property
    def grid(self) -> np.ndarray:
        """Temperatures 1 = T_1 < ... < T_M, shape (M,); 1 alone where none are random."""
        if self.method not in TEMPERED:
            return np.ones(1)
        if self.temperatures is not None:
            return check_grid(self.temperatures)
        return exponential_grid() if self.method == "variational_tempering" else LOCAL_GRID

    @property
    def size(self) -> int:
        """Data points of a batch."""
        return self.batch_size or self.n_data

    @property
    def n_untempered(self) -> int:
        """Largest number of iterations at T = 1 after tempered ones."""
        return self.iterations // 4 if self.untempered is None else self.untempered

    @property
    def n_annealed(self) -> float:
        """Iterations of the annealing."""
        passes = self.anneal_passes
        return self.iterations / 2.0 if passes is None else passes * self.n_data / self.size

    @property
    def n_cores(self) -> int:
        """Threads of the local step."""
        return self.cores or os.cpu_count() or 1

    @property
    def temperature_step(self) -> float:
        """Share of the new q(T) in an update of VT."""
        return round(1.0 - self.damping, 15)  # 1 - 0.95 is 0.05 up to its last bits

    @property
    def n_elbo_every(self) -> int:
        """Iterations between entries of the ELBO's history; 0 for none."""
        if self.batch_size is None:
            return 1
        return -(-self.n_data // self.batch_size) if self.elbo_every is None else self.elbo_every

    @property
    def first_weights(self) -> np.ndarray:
        """First q(T) of VT, shape (M,)."""
        n_temps = self.grid.size
        return np.eye(n_temps)[-1] if self.start == "hot" else np.full(n_temps, 1.0 / n_temps)


COLD = 1.0 - 1e-6
"""Inverse temperature above which nothing is tempered."""


@dataclass
class SviRun:
    """One fit: model, data and options, which stay, and what changes while it runs.

    `lam` is updated in place. `history` holds the tempered ELBO, that at T = 1 and E[1/T] of each
    iteration, `weight_history` q(T), `log_joint` what the next update of q(T) sees. `table` is what
    LVT's normalizers need of lambda.
    """

    model: ConjugateModel
    data: Any
    options: SviOptions
    rng: np.random.Generator
    lam: Globals
    log_partition: np.ndarray = field(default_factory=lambda: np.zeros(1))
    iteration: int = 0
    inv_temp: float = 1.0
    weights: np.ndarray = field(default_factory=lambda: np.ones(1))
    log_joint: list[float] = field(default_factory=list)
    history: list[tuple[float, float, float]] = field(default_factory=list)
    weight_history: list[np.ndarray] = field(default_factory=list)
    local_inv_temp: np.ndarray | None = None
    local_state: np.ndarray | None = None
    table: np.ndarray | None = None

    @property
    def n_data(self) -> int:
        """Number of data points."""
        return self.options.n_data

    @property
    def batch(self) -> bool:
        """Whether each iteration takes all data."""
        return self.options.batch_size is None

    @cached_property
    def inv_temps(self) -> np.ndarray:
        """Inverse temperatures of the grid, shape (M,)."""
        return np.asarray(1.0 / self.options.grid)

    @property
    def log_prior(self) -> float:
        """Log prior probability of each temperature."""
        return float(-np.log(self.inv_temps.size))

    def fit(self) -> Fit:
        """Run all stages."""
        options, batches = self.options, self._batches()
        self._start_temperatures()
        converged = self._stage(batches, options.iterations, options.method)
        tempered_lam, local = tuple(map(np.array, self.lam)), self.local_inv_temp
        n_tempered = self.iteration if options.method in TEMPERED else 0
        if n_tempered and options.n_untempered:
            self._part()
            self.inv_temp, self.weights = 1.0, np.eye(1, self.inv_temps.size)[0]
            converged = self._stage(batches, options.n_untempered, "vi")
        if self.batch and not converged:
            warnings.warn(
                f"the ELBO of {self.model.name} had not converged after {self.iteration} "
                "iterations: raise iterations or untempered, or tol",
                TemperingWarning,
                stacklevel=3,
            )
        final = np.nan
        if options.elbo_every != 0:
            cores, local_state = options.n_cores, self.local_state
            final = elbo(self.model, self.lam, self.data, cores=cores, state=local_state)
        history = np.array(self.history)
        return Fit(
            model=self.model,
            method=options.method,
            lam=self.lam,
            tempered_lam=tempered_lam,
            elbo=final,
            elbo_history=history[:, 0],
            untempered_elbo_history=history[:, 1],
            inverse_temperature=history[:, 2],
            temperatures=options.grid,
            temperature_weights=np.array(self.weight_history),
            local_inverse_temperature=local,
            n_tempered=n_tempered,
            converged=converged,
        )

    def _start_temperatures(self) -> None:
        """Set the first q(T) of VT, with its log C(T), or the first E[1/T_i] of LVT."""
        options = self.options
        if options.method == "local_variational_tempering":
            self.local_inv_temp = np.full(self.n_data, self.inv_temps.mean())
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
        self.weights = options.first_weights
        self.inv_temp = float(self.weights @ self.inv_temps)

    def _batches(self) -> Iterator[np.ndarray]:
        if self.batch:
            while True:
                yield np.arange(self.n_data)
        size = int(self.options.batch_size or 0)
        while True:
            order = self.rng.permutation(self.n_data)
            for first in range(0, self.n_data, size):
                yield order[first : first + size]

    def _stage(self, batches: Iterator[np.ndarray], n_iterations: int, method: str) -> bool:
        """Iterate until the ELBO converges or the iterations are used up."""
        before, parted, options = (-np.inf, 0.0, -np.inf), False, self.options
        schedule = annealing_schedule(options.schedule, options.hottest, options.n_annealed)
        period = options.update_every if method in TEMPERED else 1
        for i in range(n_iterations):
            if method == "annealed":
                self.inv_temp = schedule.inverse_temperature(i)
                if i % -(-self.n_data // options.size) == 0:
                    self._part()
            self._iterate(next(batches), method)
            if not self.batch or (i + 1) % period:
                continue
            now = self.history[-1]
            if self._settled(before, now, method):
                if parted or method not in TEMPERED or not self._part():
                    return True
                parted = True
            before = now
        return False

    def _part(self) -> bool:
        """Perturb lambda if it is tempered now; return whether it was perturbed.

        At high temperatures all components become the same: a saddle point that no step leaves.
        """
        share = self.options.jitter
        hot = self.history[-1][2] < COLD if self.history else self.inv_temp < COLD
        if hot and share:
            self.model.perturb(self.lam, self.data, share, self.rng)
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

    def _iterate(self, rows: np.ndarray, method: str) -> None:
        """Do the local step, the update of q(T), and the global step: equations (8) to (11)."""
        options, scale = self.options, self.n_data / len(rows)
        data = self.data if self.batch else self.model.take(self.data, rows)
        if self.local_state is None or not self.batch:
            first = self.model.start_local(data)
        else:
            first = self.local_state
        inv_temp = np.full(len(rows), self.inv_temp)
        if method == "local_variational_tempering" and self.local_inv_temp is not None:
            inv_temp = self.local_inv_temp[rows]
        local = self.model.local_step(self.lam, data, inv_temp, first, options.n_cores)
        if self.batch:
            self.local_state = local.state
        joint = scale * float(local.log_joint.sum())
        if not np.isfinite(joint):
            raise DataError(
                f"E[log p(x, z)] of {self.model.name} is {joint} in iteration {self.iteration}: "
                "the data are too far from the prior for floating-point numbers; rescale them, or "
                "give initial parameters near them"
            )
        fixed = scale * float(local.rest.sum()) + self._global_elbo()
        terms = 0.0
        if method == "variational_tempering":
            self._update_weights(joint)
            inv_temp = np.full(len(rows), self.inv_temp)
            terms = float(elbo_of_temperatures(self.weights, self.log_partition, self.log_prior))
        elif method == "local_variational_tempering" and self.local_inv_temp is not None:
            inv_temp, terms = self._update_local(rows, data, local)
            terms *= scale
        tempered = scale * float(inv_temp @ local.log_joint)
        self.history.append((tempered + fixed + terms, joint + fixed, float(inv_temp.mean())))
        self.weight_history.append(self.weights)
        self.iteration += 1
        rho = 1.0 if self.batch else (options.tau + self.iteration) ** -options.kappa
        for lam, alpha in zip(self.lam, self.model.prior(self.data), strict=True):
            lam *= 1.0 - rho
            lam += rho * alpha
        local.add_statistics(rho * scale * inv_temp, self.lam)
        if options.callback is not None:
            options.callback(self.iteration, self.lam)

    def _global_elbo(self) -> float:
        """Return the global terms of the ELBO, or NaN where they are not asked for."""
        every = self.options.n_elbo_every
        if not every or self.iteration % every:
            return np.nan
        return self.model.global_elbo(self.lam, self.data)

    def _update_weights(self, joint: float) -> None:
        """Move q(T) toward equation (9), given the joint's mean since the last update."""
        self.log_joint.append(joint)
        if len(self.log_joint) < self.options.update_every:
            return
        best = softmax(np.mean(self.log_joint) * self.inv_temps - self.log_partition)
        self.log_joint.clear()
        step = self.options.temperature_step
        self.weights = (1.0 - step) * self.weights + step * best
        self.inv_temp = float(self.weights @ self.inv_temps)

    def _update_local(self, rows: np.ndarray, data: Any, local: Local) -> tuple[np.ndarray, float]:
        """Update q(T_i) of the batch by equation (10); return E[1/T_i] and its ELBO terms."""
        assert self.local_inv_temp is not None
        if self.table is None or self.iteration % self.options.update_every == 0:
            self.table = self.model.normalizer_table(self.lam, self.data, self.inv_temps)
        norm = self.model.log_normalizers(self.table, data, local.state, self.inv_temps)
        weights = softmax(local.log_joint[:, None] * self.inv_temps - norm, axis=-1)
        self.weights = weights.mean(axis=0)
        self.local_inv_temp[rows] = weights @ self.inv_temps
        return self.local_inv_temp[rows], float(
            elbo_of_temperatures(weights, norm, self.log_prior).sum()
        )


def svi(
    model: ConjugateModel,
    data: Any,
    method: str = "variational_tempering",
    *,
    iterations: int = 500,
    untempered: int | None = None,
    batch_size: int | None = None,
    tau: float = 1024.0,
    kappa: float = 0.7,
    temperatures: Any = None,
    log_partition: Any = None,
    start: str = "hot",
    update_every: int = 1,
    damping: float = 0.95,
    schedule: ScheduleOption = "linear",
    hottest: float = 10.0,
    anneal_passes: float | None = None,
    jitter: float = 1e-3,
    tol: float = 1e-7,
    elbo_every: int | None = None,
    initial: Globals | None = None,
    cores: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    callback: Callable[[int, Globals], None] | None = None,
) -> Fit:
    """Fit a conjugate model by variational inference, plain, annealed or tempered.

    Algorithm 1 of Mandt et al. (2016), in batches or minibatches: a local step at inverse
    temperature E[1/T], the update of q(T), then the global step ``lam = (1 - rho) * lam + rho *
    (alpha + N / B * sum of E[1/T] E[t])`` with ``rho = (tau + t)^-kappa``, or 1 when the batch is
    all data. A tempered fit ends with iterations at T = 1, so that what it returns approximates
    the posterior of the model itself; its tempered optimum is kept beside it.

    Parameters
    ----------
    model : LDA, FactorialMixture, GaussianMixture, or another ConjugateModel
        The model.
    data : array_like or scipy.sparse array
        What the model describes, one data point a row.
    method : str, default "variational_tempering"
        ``"vi"``: T = 1. ``"annealed"`` (AVI): T follows `schedule`. ``"variational_tempering"``
        (VT): one random temperature, updated by equation (9).
        ``"local_variational_tempering"`` (LVT): one for each data point, equation (10).
    iterations : int, default 500
        Largest number of iterations, annealed or tempered ones included.
    untempered : int, optional
        Largest number of further iterations at T = 1 that end VT and LVT; a fourth of
        `iterations` by default.
    batch_size : int, optional
        Data points in a minibatch, drawn without replacement within a pass; all by default.
    tau : float, default 1024.0
        Delay of the learning rate. Ignored without minibatches.
    kappa : float, default 0.7
        Its forgetting rate, above 0.5 and at most 1.
    temperatures : array_like, shape (M,), optional
        1 = T_1 < ... < T_M. By default 100 of them: exponential from 1 to 10 for VT, and with 1/T
        in even steps from 1 down to 0.01 for LVT.
    log_partition : array_like, shape (M,), optional
        log C(T) of VT at each temperature in nats; by default the model's own.
    start : {"hot", "uniform"}, default "hot"
        First q(T) of VT: all mass on T_M, or uniform as in the paper.
    update_every : int, default 1
        Iterations between updates of q(T) in VT, and between updates of the normalizers in LVT.
    damping : float, default 0.95
        Share of the old q(T) that an update of VT keeps; in [0, 1), and 0 is no damping. q becomes
        ``damping * q + (1 - damping) * q_new`` with q_new from equation (9), which never lowers
        the T-ELBO. (:func:`pymc_tempering.fit` mixes log q in the same shares.)
    schedule : {"linear", "exponential"} or callable, default "linear"
        Temperature of AVI; a callable takes the share of the annealing that is done.
    hottest : float, default 10.0
        First temperature of AVI with a named schedule.
    anneal_passes : float, optional
        Length of the annealing in passes over the data (tA of the paper). By default half of
        `iterations`.
    jitter : float, default 0.001
        Relative size of a random change of the global parameters, so that components that became
        equal at high temperatures can separate again: AVI, once a pass while T > 1; VT
        and LVT, where they settle above T = 1 and before the iterations at T = 1.
    tol : float, default 1e-7
        Batch only: stop where the relative change of the ELBO is smaller, and the temperature is
        at rest.
    elbo_every : int, optional
        Iterations between entries of the ELBO's history, which are NaN in between; 1 by default,
        and one pass with minibatches. 0: no history with minibatches, and no final ELBO.
    initial : tuple of ndarray, optional
        First global parameters; random by default.
    cores : int, optional
        Threads of the local step; all cores by default. It does not change the result.
    random_seed : int or numpy.random.Generator, optional
        Seed of the first parameters and of the minibatches.
    callback : callable, optional
        Called after each iteration with the number of iterations so far and the global
        parameters. The next iteration writes over these: copy what you keep.

    Returns
    -------
    Fit
        Global parameters, ELBO in nats, and the history of both ELBO and temperature.

    Raises
    ------
    TemperatureError
        If a temperature is below 1, or a grid does not start at 1 or does not increase.
    DataError
        If the model cannot describe the data.
    ValueError
        If an option is out of its range.

    Warns
    -----
    TemperingWarning
        If the ELBO in batch mode has not converged.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_tempering as pmt
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(200, 1)) + 4.0 * rng.integers(2, size=(200, 1))
    >>> model = pmt.variational.conjugate.GaussianMixture(2, sd=1.0, prior_sd=5.0)
    >>> fit = pmt.variational.conjugate.svi(model, x, random_seed=1)
    >>> np.sort(fit.posterior["mean"].values.ravel()).round()
    array([-0.,  4.])
    """
    given = locals()
    data = model.check(data)
    given["n_data"] = model.n_data(data)
    options = SviOptions(**{field.name: given[field.name] for field in fields(SviOptions)})
    rng = np.random.default_rng(random_seed)
    if initial is None:
        lam = model.initialize(data, rng)
    else:
        lam = _given(initial, model.initialize(data, np.random.default_rng(0)), model.name)
    return SviRun(model, data, options, rng, lam).fit()


def _given(initial: Globals, like: Globals, name: str) -> Globals:
    """Return a copy of the user's first parameters, shaped like the model's own."""
    given = tuple(np.array(part, dtype=float, order="C") for part in initial)
    shapes, needed = [part.shape for part in given], [part.shape for part in like]
    if shapes != needed:
        raise ValueError(f"initial has arrays of shapes {shapes}; {name} needs {needed} here.")
    if not all(np.isfinite(part).all() for part in given):
        raise ValueError("initial holds a value that is not finite.")
    return given
