"""From the arguments of a fit to its likelihood and its stages, one function a method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pymc.variational.opvi import Approximation

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.variational.fit_step import (
    FAMILIES,
    Likelihood,
    batches_per_pass,
    datum_likelihood,
    global_likelihood,
    one_hot,
    shared_likelihood,
)
from pymc_tempering.variational.normalizers.log_partition import log_partition
from pymc_tempering.variational.temperatures import (
    LARGEST,
    GivenTemperature,
    LearnedLocalTemperatures,
    LearnedTemperature,
    StageTemperature,
    annealing_schedule,
    beta_grid,
    check_damping,
    check_grid,
    exponential_grid,
    inverse_grid,
)

PARTITION_SEED = 1
"""C(T) belongs to the model, not to a fit: one seed, so that it is computed once for all fits."""

NORMALIZERS = ("global", "local")

FIRST_TEMPERATURES = ("annealed", "uniform")

ANNEALED_SHARE = 0.8
"""Share of the tempered stage of VT over which an annealed start bounds q(T) from below."""

TRIALS, TRIALS_SHARE = 8, 2.0 / 3.0
"""Fits at T = 1 beside the tempered stage of VT, and the share of its iterations that they take."""


@dataclass(frozen=True)
class FitOptions:
    """What all starts of a call of :func:`pymc_tempering.fit` have in common, checked; see there.

    `log_c` is log C(T) with its error (nats), shape (M,) each, where another fit has it already.
    """

    n: int
    method: str
    temperatures: Sequence[float] | None
    schedule: str | Callable[[float], float]
    tA: float | None
    max_n: int | None
    normalizer: str
    normalizer_draws: int | None
    inverse_temperature_prior: tuple[float, float] | None
    update_every: int
    damping: float
    first_temperatures: str
    obj_n_mc: int
    restarts: int
    trials: int | None
    log_c: tuple[FloatArray, FloatArray] | None
    approx: str
    start_sigma: dict[str, Any] | None
    obj_optimizer: Callable[..., Any]
    total_grad_norm_constraint: float | None
    backend: str | None
    compile_kwargs: dict[str, Any] | None

    def __post_init__(self) -> None:
        """Raise an error for options that make no sense, alone or together.

        Raises
        ------
        ValueError
            Naming the argument and its value.
        """
        for name in ("n", "update_every", "obj_n_mc", "restarts"):
            check_whole(1, **{name: getattr(self, name)})
        if self.normalizer_draws is not None:
            check_whole(1, normalizer_draws=self.normalizer_draws)
        if self.trials is not None:
            check_whole(0, trials=self.trials)
        check_choice("method", self.method, METHODS)
        check_choice("normalizer", self.normalizer, NORMALIZERS)
        check_choice("first_temperatures", self.first_temperatures, FIRST_TEMPERATURES)
        check_choice("approx", self.approx, FAMILIES)
        if self.start_sigma is not None and self.approx != "meanfield":
            raise ValueError(f'start_sigma is for approx="meanfield", not {self.approx!r}')
        check_damping(self.damping, "log q(T)")
        if self.max_n is not None and self.max_n < self.n:
            raise ValueError(f"max_n must be at least n = {self.n}, got {self.max_n}")
        if self.tA is not None and not self.tA >= 0.0:
            raise ValueError(f"tA must be zero or positive, got {self.tA!r}")
        if self.temperatures is not None:
            check_grid(self.temperatures)
        if self.inverse_temperature_prior is not None:
            beta_grid(*self.inverse_temperature_prior)
            if self.method != "local_variational_tempering":
                raise ValueError(
                    "inverse_temperature_prior belongs to method="
                    f'"local_variational_tempering", not to {self.method!r}'
                )
            if self.temperatures is not None:
                raise ValueError("give temperatures or inverse_temperature_prior, not both")
        annealing_schedule(self.schedule, LARGEST, 1)

    @property
    def n_trials(self) -> int:
        """How many fits at T = 1 compete with the tempered stage."""
        if self.trials is not None:
            return self.trials
        tempered = self.method == "variational_tempering"
        hot = self.temperatures is None or len(self.temperatures) > 1
        if self.method == "annealed":
            return int(hot)
        return TRIALS if tempered and hot and self.first_temperatures == "annealed" else 0

    @property
    def adds_trial(self) -> bool:
        """Whether the trial comes on top of ``n``: by default annealing keeps all iterations."""
        return self.method == "annealed" and self.trials is None

    @property
    def most(self) -> int:
        """Largest number of iterations in all, if the stage at T = 1 has to go on."""
        if self.max_n is not None:
            return self.max_n
        return self.n if self.method == "advi" else 4 * self.n


@dataclass(frozen=True)
class FitPlan:
    """Likelihood and stages of a fit.

    Attributes
    ----------
    options : FitOptions
    likelihood : callable
        Builds the likelihood term of an approximation.
    cold : GivenTemperature
        The stage at T = 1.
    temperature : StageTemperature or None
        First temperatures of the tempered stage; None without one.
    settles : bool
        Whether the tempered stage has an optimum, and ends when it is found.
    temperatures : ndarray, shape (M,)
    log_c, log_c_mcse : ndarray, shape (M,), or None
        log C(T) and its error (nats).
    n_tempered : int
        Largest number of iterations of the tempered stage.
    n_trials : int
        Iterations of the fits at T = 1 that compete with the tempered stage; 0 without them.
    """

    options: FitOptions
    likelihood: Callable[[Approximation], Likelihood]
    cold: GivenTemperature
    temperature: StageTemperature | None = None
    settles: bool = False
    temperatures: FloatArray = field(default_factory=lambda: np.empty(0))
    log_c: FloatArray | None = None
    log_c_mcse: FloatArray | None = None
    n_tempered: int = 0
    n_trials: int = 0


def plan_fit(options: FitOptions, model: pm.Model) -> FitPlan:
    """Plan a fit by its method.

    Raises
    ------
    ValueError
        If ``tA`` asks for more than ``n``.
    """
    n_tempered, n_trials = 0, 0
    if options.method != "advi":
        tA, n = options.tA, options.n
        iterations = n // 2 if tA is None else int(np.ceil(tA * batches_per_pass(model)))
        if iterations > n:
            raise ValueError(
                f"tA = {tA:g} passes over the data are {iterations} iterations, more than n = "
                f"{n}; raise n or lower tA"
            )
        n_trials = int(TRIALS_SHARE * iterations) if options.n_trials else 0
        n_trials = min(n_trials, options.most - n) if options.adds_trial else n_trials
        n_tempered = iterations if options.adds_trial else iterations - n_trials
    plan = METHODS[options.method](options, model, n_tempered)
    return replace(plan, n_tempered=n_tempered, n_trials=n_trials)


def plan_advi(options: FitOptions, model: pm.Model, n_tempered: int) -> FitPlan:
    """T = 1 from the first iteration on."""
    cold = GivenTemperature(q=np.ones(1))
    return FitPlan(options, global_likelihood, cold, temperatures=np.ones(1))


def plan_annealed(options: FitOptions, model: pm.Model, n_tempered: int) -> FitPlan:
    """AVI: Section 2.2 of Mandt et al. (2016)."""
    start = LARGEST if options.temperatures is None else float(options.temperatures[-1])
    # with trials its end at T = 1 is what they are compared with
    shorter = options.n_trials and not options.adds_trial
    n_annealed = int(ANNEALED_SHARE * n_tempered) if shorter else n_tempered
    temperature = GivenTemperature(annealing_schedule(options.schedule, start, n_annealed))
    return FitPlan(options, global_likelihood, GivenTemperature(), temperature)


def plan_tempered(options: FitOptions, model: pm.Model, n_tempered: int) -> FitPlan:
    """VT: Section 2.3 of Mandt et al. (2016), with global or local normalizers."""
    grid = options.temperatures
    temperatures = exponential_grid() if grid is None else check_grid(grid)
    top = one_hot(temperatures)
    floor = None
    if options.first_temperatures == "annealed":
        n_floor = int(ANNEALED_SHARE * n_tempered)
        floor = annealing_schedule(options.schedule, float(temperatures[-1]), n_floor)
    local, even = options.normalizer == "local", np.zeros(temperatures.size)
    first = LearnedTemperature(
        temperatures,
        even,
        even,
        options.damping,
        by_temperature=local,
        scale=batches_per_pass(model),
        floor=floor,
    )
    if local:
        likelihood = partial(
            shared_likelihood, temperatures=temperatures, obj_n_mc=options.obj_n_mc
        )
        return FitPlan(
            options, likelihood, GivenTemperature(None, top, top), first, True, temperatures
        )
    log_c = mcse = first.log_c
    if options.log_c is not None:
        log_c, mcse = options.log_c
    elif temperatures.size > 1:
        partition = log_partition(
            model, temperatures, draws=options.normalizer_draws, random_seed=PARTITION_SEED
        )
        log_c, mcse = partition.log_c, partition.mcse
    first, cold = replace(first, log_c=log_c), GivenTemperature(q=top)
    return FitPlan(options, global_likelihood, cold, first, True, temperatures, log_c, mcse)


def plan_local(options: FitOptions, model: pm.Model, n_tempered: int) -> FitPlan:
    """LVT: Section 2.4 of Mandt et al. (2016)."""
    if options.inverse_temperature_prior is not None:
        temperatures, prior = beta_grid(*options.inverse_temperature_prior)
    else:
        grid = options.temperatures
        temperatures = inverse_grid() if grid is None else check_grid(grid)
        prior = np.full(temperatures.size, 1.0 / temperatures.size)
    with np.errstate(divide="ignore"):
        log_prior = np.log(prior)
    likelihood = partial(
        datum_likelihood,
        temperatures=temperatures,
        log_prior=log_prior,
        damping=options.damping ** (1.0 / options.update_every),
        obj_n_mc=options.obj_n_mc,
    )
    first = LearnedLocalTemperatures(temperatures, prior)
    cold = GivenTemperature(None, 0.0, one_hot(temperatures))
    return FitPlan(options, likelihood, cold, first, True, temperatures)


METHODS: dict[str, Callable[[FitOptions, pm.Model, int], FitPlan]] = {
    "advi": plan_advi,
    "annealed": plan_annealed,
    "variational_tempering": plan_tempered,
    "local_variational_tempering": plan_local,
}
"""Every method by name; a new one is one function and one line here."""
