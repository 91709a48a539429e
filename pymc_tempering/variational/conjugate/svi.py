"""Annealed or tempered stochastic variational inference: options, the run, and the front door."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import softmax

from pymc_tempering.arguments import RandomSeed, check_choice, check_whole, rng_of
from pymc_tempering.exceptions import DataError, TemperatureError, warn_user
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


LEAST = {"iterations": 1, "untempered": 0, "batch_size": 1, "update_every": 1, "elbo_every": 0}
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
            if (value := getattr(self, name)) is not None:
                check_whole(least, **{name: value})
        for name in ("tau", "tol"):
            if not (value := getattr(self, name)) >= 0.0:
                raise ValueError(f"{name} must not be negative, got {value!r}.")
        if not (self.callback is None or callable(self.callback)):
            raise ValueError(f"callback must be callable, not {self.callback!r}.")
        if self.size > self.n_data:
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
        if not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"jitter must be at least 0 and below 1, not {self.jitter!r}.")
        self._check_temperatures()

    def _check_temperatures(self) -> None:
        annealing_schedule(self.schedule, self.hottest, 1)
        if self.temperatures is not None:
            check_grid(self.temperatures)
            if self.method not in TEMPERED:
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
    def a_pass(self) -> int:
        """Iterations of a pass over the data."""
        return -(-self.n_data // self.size)

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
    def n_elbo_every(self) -> int:
        """Iterations between entries of the ELBO's history; 0 for none."""
        given = self.batch_size is not None and self.elbo_every is not None
        return int(self.elbo_every or 0) if given else self.a_pass


COLD = 1.0 - 1e-6
"""Inverse temperature above which nothing is tempered."""


@dataclass
class SviRun:
    """One fit: model, data and options, which stay, and what changes while it runs.

    `lam` is updated in place. `inv_temp` (N,) holds 1/T or E[1/T] of each datum, `weights` (M,)
    q(T), and `history` the tempered ELBO, that at T = 1, and the mean of E[1/T] over the batch of
    each iteration. `log_joint` is what the next update of q(T) sees, `table` what LVT's
    normalizers need of lambda, and `local_state` where the next local step of a batch starts.
    """

    model: ConjugateModel
    data: Any
    options: SviOptions
    rng: np.random.Generator
    lam: Globals
    inv_temp: np.ndarray
    weights: np.ndarray = field(default_factory=lambda: np.ones(1))
    log_partition: np.ndarray = field(default_factory=lambda: np.zeros(1))
    log_joint: list[float] = field(default_factory=list)
    history: list[tuple[float, float, float]] = field(default_factory=list)
    weight_history: list[np.ndarray] = field(default_factory=list)
    local_state: np.ndarray | None = None
    table: np.ndarray | None = None

    @property
    def iteration(self) -> int:
        """Iterations so far."""
        return len(self.history)

    @property
    def batch(self) -> bool:
        """Whether each iteration takes all data."""
        return self.options.batch_size is None

    @cached_property
    def inv_temps(self) -> np.ndarray:
        """Inverse temperatures of the grid, shape (M,)."""
        return 1.0 / self.options.grid

    @property
    def log_prior(self) -> float:
        """Log prior probability of each temperature."""
        return float(-np.log(self.inv_temps.size))

    def fit(self) -> Fit:
        """Run all stages."""
        options, batches = self.options, self._batches()
        self._start_temperatures()
        converged = self._stage(batches, options.iterations, options.method)
        tempered_lam, tempered_inv = tuple(map(np.array, self.lam)), self.inv_temp.copy()
        n_tempered = self.iteration if options.method in TEMPERED else 0
        if n_tempered and options.n_untempered:
            self._part()
            self._set_weights(np.eye(1, self.inv_temps.size)[0])
            converged = self._stage(batches, options.n_untempered, "vi")
        if self.batch and not converged:
            warn_user(
                f"the ELBO of {self.model.name} had not converged after {self.iteration} "
                "iterations: raise iterations or untempered, or tol"
            )
        final = np.nan
        if options.elbo_every != 0:
            final = elbo(self.model, self.lam, self.data, state=self.local_state)
        history = np.array(self.history)
        local = options.method == "local_variational_tempering"
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
            local_inverse_temperature=tempered_inv if local else None,
            n_tempered=n_tempered,
            converged=converged,
        )

    def _set_weights(self, weights: np.ndarray) -> None:
        """Set q(T), the same for all data."""
        self.weights = weights
        self.inv_temp[:] = weights @ self.inv_temps

    def _start_temperatures(self) -> None:
        """Set the first q(T), and log C(T) of VT."""
        options, n_temps = self.options, self.inv_temps.size
        hot = options.method == "variational_tempering" and options.start == "hot"
        self._set_weights(np.eye(n_temps)[-1] if hot else np.full(n_temps, 1.0 / n_temps))
        if options.method != "variational_tempering":
            return
        given = options.log_partition
        log_c = self.model.log_partition(self.data, options.grid) if given is None else given
        self.log_partition = np.asarray(log_c, dtype=float)
        infinite = options.grid[~np.isfinite(self.log_partition)]
        if infinite.size:
            raise TemperatureError(
                f"log C(T) of {self.model.name} is not finite at T = {infinite[0]:g}: take lower "
                'temperatures, or method="annealed", which needs no C(T)'
            )

    def _batches(self) -> Iterator[np.ndarray]:
        n_data, size = self.options.n_data, self.options.size
        while True:
            order = np.arange(n_data) if self.batch else self.rng.permutation(n_data)
            for first in range(0, n_data, size):
                yield order[first : first + size]

    def _stage(self, batches: Iterator[np.ndarray], n_iterations: int, method: str) -> bool:
        """Iterate until the ELBO converges or the iterations are used up."""
        before, parted, options = (-np.inf, 0.0, -np.inf), False, self.options
        schedule = annealing_schedule(options.schedule, options.hottest, options.n_annealed)
        period = options.update_every if method in TEMPERED else 1
        for i in range(n_iterations):
            if method == "annealed":
                self.inv_temp[:] = schedule.inverse_temperature(i)
                if i % options.a_pass == 0:
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
        hot = (self.history[-1][2] if self.history else self.inv_temp[0]) < COLD
        if hot and share:
            self.model.perturb(self.lam, self.data, share, self.rng)
        return bool(hot and share)

    def _settled(self, before: tuple[float, ...], now: tuple[float, ...], method: str) -> bool:
        """Return whether ELBO and temperature are at rest; never before the annealing ends."""
        if method == "annealed" and now[2] < COLD:
            return False
        tol = self.options.tol
        if method == "variational_tempering":
            tol *= 1.0 - self.options.damping
        still = abs(now[2] - before[2]) <= 10.0 * tol
        return still and abs(now[0] - before[0]) <= tol * abs(now[0])

    def _iterate(self, rows: np.ndarray, method: str) -> None:
        """Do the local step, the update of q(T), and the global step: equations (8) to (11)."""
        options, scale = self.options, self.options.n_data / len(rows)
        data = self.data if self.batch else self.data[rows]
        first = self.model.start_local(data) if self.local_state is None else self.local_state
        local = self.model.local_step(self.lam, data, self.inv_temp[rows], first)
        if self.batch:
            self.local_state = local.state
        joint = scale * float(local.log_joint.sum())
        if not np.isfinite(joint):
            raise DataError(
                f"E[log p(x, z)] of {self.model.name} is {joint} in iteration {self.iteration}: "
                "the data are too far from the prior for floating-point numbers; rescale them, or "
                "give initial parameters near them"
            )
        fixed, terms = scale * float(local.rest.sum()) + self._global_elbo(), 0.0
        if method == "variational_tempering":
            terms = self._update_weights(joint)
        elif method == "local_variational_tempering":
            terms = scale * self._update_local(rows, data, local)
        inv_temp = self.inv_temp[rows]
        tempered = scale * float(inv_temp @ local.log_joint) + fixed + terms
        self.history.append((tempered, joint + fixed, float(inv_temp.mean())))
        self.weight_history.append(self.weights)
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

    def _update_weights(self, joint: float) -> float:
        """Move q(T) toward equation (9), given the joint; return the ELBO's terms of q(T).

        The update takes the joint's mean since the last one.
        """
        damping = self.options.damping
        self.log_joint.append(joint)
        if len(self.log_joint) == self.options.update_every:
            best = softmax(np.mean(self.log_joint) * self.inv_temps - self.log_partition)
            self.log_joint.clear()
            self._set_weights(damping * self.weights + (1.0 - damping) * best)
        return float(elbo_of_temperatures(self.weights, self.log_partition, self.log_prior))

    def _update_local(self, rows: np.ndarray, data: Any, local: Local) -> float:
        """Update q(T_i) of the batch by equation (10); return its ELBO terms."""
        if self.table is None or self.iteration % self.options.update_every == 0:
            self.table = self.model.normalizer_table(self.lam, self.data, self.inv_temps)
        norm = self.model.log_normalizers(self.table, data, local.state, self.inv_temps)
        weights = softmax(local.log_joint[:, None] * self.inv_temps - norm, axis=-1)
        self.weights = weights.mean(axis=0)
        self.inv_temp[rows] = weights @ self.inv_temps
        return float(elbo_of_temperatures(weights, norm, self.log_prior).sum())


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
    random_seed: RandomSeed = None,
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
    given["n_data"] = data.shape[0]
    options = SviOptions(**{field.name: given[field.name] for field in fields(SviOptions)})
    rng = rng_of(random_seed)
    if initial is None:
        lam = model.initialize(data, rng)
    else:
        lam = _given(initial, model.initialize(data, np.random.default_rng(0)), model.name)
    return SviRun(model, data, options, rng, lam, np.ones(options.n_data)).fit()


def _given(initial: Globals, like: Globals, name: str) -> Globals:
    """Return a copy of the user's first parameters, shaped like the model's own."""
    given = tuple(np.array(part, dtype=float, order="C") for part in initial)
    shapes, needed = [part.shape for part in given], [part.shape for part in like]
    if shapes != needed:
        raise ValueError(f"initial has arrays of shapes {shapes}; {name} needs {needed} here.")
    if not all(np.isfinite(part).all() for part in given):
        raise ValueError("initial holds a value that is not finite.")
    return given
