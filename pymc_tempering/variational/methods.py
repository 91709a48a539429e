"""From the arguments of a fit to its likelihood and its stages, one function a method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pymc as pm
from pymc.variational.opvi import Approximation

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.variational.fit_step import (
    FitStep,
    Likelihood,
    batches_per_pass,
    global_likelihood,
)
from pymc_tempering.variational.local_likelihood import datum_likelihood, one_hot, shared_likelihood
from pymc_tempering.variational.normalizers.log_partition import log_partition
from pymc_tempering.variational.temperatures import (
    LARGEST,
    AnnealedTemperature,
    ColdTemperature,
    LearnedLocalTemperatures,
    LearnedTemperature,
    StageTemperature,
    annealing_schedule,
    beta_grid,
    check_grid,
    exponential_grid,
    inverse_grid,
    uniform_posterior,
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
class Request:
    """The arguments of :func:`pymc_tempering.fit` that concern the temperatures, checked.

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
    restarts: int = 1
    trials: int | None = None
    log_c: tuple[FloatArray, FloatArray] | None = None

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
        if not 0.0 <= self.damping < 1.0:
            raise ValueError(
                "damping is the share of the old log q(T) that an update keeps: it must be at "
                f"least 0 (no damping) and below 1, not {self.damping!r}"
            )
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
        return TRIALS if tempered and hot and self.first_temperatures == "annealed" else 0

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
    likelihood : callable
        Builds the likelihood term of an approximation.
    temperature : callable or None
        From the compiled step to the temperatures of the tempered stage; None without one.
    n_tempered : int
        Its largest number of iterations.
    cold : ColdTemperature
        The stage at T = 1.
    settles : bool
        Whether the tempered stage has an optimum, and ends when it is found.
    temperatures : ndarray, shape (M,)
    log_c, log_c_mcse : ndarray, shape (M,), or None
        log C(T) and its error (nats).
    n_trials : int
        Iterations of the fits at T = 1 that compete with the tempered stage; 0 without them.
    """

    likelihood: Callable[[Approximation], Likelihood]
    temperature: Callable[[FitStep], StageTemperature] | None
    n_tempered: int
    cold: ColdTemperature
    settles: bool = False
    temperatures: FloatArray = field(default_factory=lambda: np.empty(0))
    log_c: FloatArray | None = None
    log_c_mcse: FloatArray | None = None
    n_trials: int = 0


def tempered_iterations(request: Request, batches: float) -> tuple[int, int]:
    """Count the iterations of the tempered stage, and those of the trials beside it.

    Raises
    ------
    ValueError
        If ``tA`` asks for more than ``n``.
    """
    iterations = request.n // 2 if request.tA is None else int(np.ceil(request.tA * batches))
    if iterations > request.n:
        raise ValueError(
            f"tA = {request.tA:g} passes over the data are {iterations} iterations, more than n = "
            f"{request.n}; raise n or lower tA"
        )
    n_trials = int(TRIALS_SHARE * iterations) if request.n_trials else 0
    return iterations - n_trials, n_trials


def plan_advi(request: Request, model: pm.Model) -> FitPlan:
    """T = 1 from the first iteration on."""
    return FitPlan(
        global_likelihood, None, 0, ColdTemperature(q=np.ones(1)), temperatures=np.ones(1)
    )


def plan_annealed(request: Request, model: pm.Model) -> FitPlan:
    """AVI: Section 2.2 of Mandt et al. (2016)."""
    start = LARGEST if request.temperatures is None else float(request.temperatures[-1])
    n_tempered, n_trials = tempered_iterations(request, batches_per_pass(model))
    # with trials its end at T = 1 is what they are compared with
    n_annealed = int(ANNEALED_SHARE * n_tempered) if n_trials else n_tempered
    temperature = AnnealedTemperature(annealing_schedule(request.schedule, start, n_annealed))
    return FitPlan(
        global_likelihood,
        lambda step: temperature,
        n_tempered,
        ColdTemperature(),
        n_trials=n_trials,
    )


def plan_tempered(request: Request, model: pm.Model) -> FitPlan:
    """VT: Section 2.3 of Mandt et al. (2016), with global or local normalizers."""
    grid = request.temperatures
    temperatures = exponential_grid() if grid is None else check_grid(grid)
    batches = batches_per_pass(model)
    n_tempered, n_trials = tempered_iterations(request, batches)
    posterior, top = uniform_posterior(temperatures), one_hot(temperatures)
    log_c = mcse = np.zeros(temperatures.size)
    floor = None
    if request.first_temperatures == "annealed":
        n_floor = int(ANNEALED_SHARE * n_tempered)
        floor = annealing_schedule(request.schedule, float(temperatures[-1]), n_floor)
    if request.normalizer == "local":
        likelihood = partial(
            shared_likelihood, temperatures=temperatures, obj_n_mc=request.obj_n_mc
        )
        by_rung = LearnedTemperature(posterior, log_c, request.damping, True, batches, floor)
        return FitPlan(
            likelihood,
            lambda step: by_rung,
            n_tempered,
            ColdTemperature(top, top),
            True,
            temperatures,
            n_trials=n_trials,
        )
    if request.log_c is not None:
        log_c, mcse = request.log_c
    elif temperatures.size > 1:
        partition = log_partition(
            model, temperatures, draws=request.normalizer_draws, random_seed=PARTITION_SEED
        )
        log_c, mcse = partition.log_c, partition.mcse
    temperature = LearnedTemperature(posterior, log_c, request.damping, False, batches, floor)
    return FitPlan(
        global_likelihood,
        lambda step: temperature,
        n_tempered,
        ColdTemperature(1.0, top),
        True,
        temperatures,
        log_c,
        mcse,
        n_trials=n_trials,
    )


def plan_local(request: Request, model: pm.Model) -> FitPlan:
    """LVT: Section 2.4 of Mandt et al. (2016)."""
    if request.inverse_temperature_prior is not None:
        temperatures, prior = beta_grid(*request.inverse_temperature_prior)
    else:
        grid = request.temperatures
        temperatures = inverse_grid() if grid is None else check_grid(grid)
        prior = np.full(temperatures.size, 1.0 / temperatures.size)
    with np.errstate(divide="ignore"):
        log_prior = np.log(prior)
    n_tempered, n_trials = tempered_iterations(request, batches_per_pass(model))
    likelihood = partial(
        datum_likelihood,
        temperatures=temperatures,
        log_prior=log_prior,
        damping=request.damping ** (1.0 / request.update_every),
        obj_n_mc=request.obj_n_mc,
    )
    cold = ColdTemperature(0.0, one_hot(temperatures))
    return FitPlan(
        likelihood,
        lambda step: LearnedLocalTemperatures(step.mean_q),
        n_tempered,
        cold,
        True,
        temperatures,
        n_trials=n_trials,
    )


METHODS: dict[str, Callable[[Request, pm.Model], FitPlan]] = {
    "advi": plan_advi,
    "annealed": plan_annealed,
    "variational_tempering": plan_tempered,
    "local_variational_tempering": plan_local,
}
"""Every method by name; a new one is one function and one line here."""
