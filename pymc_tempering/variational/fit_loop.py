"""The loop of a fit: stages of compiled steps, with history, callbacks and the best parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, isnan

import numpy as np
from pymc.variational.opvi import Approximation

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.variational.objective import FitStep
from pymc_tempering.variational.stage_temperature import StageTemperature

KEEP_EVERY = 100
"""Iterations between two copies of the parameters."""

Parameters = dict[str, FloatArray]


@dataclass(frozen=True)
class KeptParameters:
    """A copy of the parameters, and how good the iterations after it were.

    Attributes
    ----------
    cold : bool
        Whether they come from the stage at T = 1.
    iteration : int
    params : dict of ndarray
    loss : float
        Median of the losses that followed; infinite as long as none did.
    """

    cold: bool
    iteration: int
    params: Parameters
    loss: float = float("inf")


@dataclass
class FitState:
    """What changes while a fit runs.

    Attributes
    ----------
    approx : Approximation
    step : FitStep
        The compiled step, which takes the temperatures.
    losses, elbo, inverse_temperature : ndarray
        History, filled up to ``n``.
    q, q_iteration : list
        q(T) and the iterations from which on it was in force.
    best, last : KeptParameters, optional
    stopped : str
        "" or why the last stage ended early: "callback", "interrupted", "not finite".
    at : float
        E[1/T] of the latest iteration.
    """

    approx: Approximation
    step: FitStep
    losses: FloatArray = field(default_factory=lambda: np.empty(0))
    elbo: FloatArray = field(default_factory=lambda: np.empty(0))
    inverse_temperature: FloatArray = field(default_factory=lambda: np.empty(0))
    n: int = 0
    q: list[FloatArray] = field(default_factory=list)
    q_iteration: list[int] = field(default_factory=list)
    best: KeptParameters | None = None
    last: KeptParameters | None = None
    stopped: str = ""
    at: float = 1.0


def advance(
    run: FitState,
    temperature: StageTemperature,
    n: int,
    *,
    cold: bool,
    block: int,
    callbacks: Sequence[Callable[..., None]] = (),
    show: Callable[[FitState], None] = lambda run: None,
    finished: Callable[[FitState, StageTemperature, int], bool] = lambda run, temperature, begin: (
        False
    ),
) -> StageTemperature:
    """Run one stage of up to ``n`` iterations and return its temperatures.

    Parameters
    ----------
    run : FitState
        Changed in place.
    temperature : StageTemperature
        Temperatures of the stage, updated after every ``block`` iterations.
    n : int
        Iterations.
    cold : bool
        Whether this is the stage at T = 1. Its best parameters are kept; of a tempered stage, whose
        objective changes, the last ones.
    block : int
        Iterations between two updates of the temperatures.
    callbacks : sequence of callable
        As PyMC's: (approx, losses, i); StopIteration ends the stage.
    show : callable
        Called after each block.
    finished : callable
        Of (run, temperature, first iteration of the stage): whether the stage may end early.
    """
    run.stopped = ""
    begin, end = run.n, run.n + n
    _reserve(run, end)
    try:
        while run.n < end:
            _keep(run, cold)
            setting = temperature.setting(run.n - begin)
            run.step.set_weights(setting.weights)
            if (q := temperature.q) is not None and not (cold and run.n > begin):
                run.q.append(q)
                run.q_iteration.append(run.n)
            energies = []
            for _ in range(min(block, end - run.n)):
                loss, elbo, *energy = run.step()
                inverse = setting.inverse_temperature
                if energy:
                    energies.append(np.atleast_1d(energy[0]))
                    inverse = float(energies[-1][0]) if isnan(inverse) else inverse
                value, run.at = float(loss) - setting.offset, inverse
                if not isfinite(value):
                    run.stopped = "not finite"
                    return temperature
                run.losses[run.n], run.elbo[run.n] = value, elbo
                run.inverse_temperature[run.n] = inverse
                run.n += 1
                for callback in callbacks:
                    callback(run.approx, run.losses[: run.n], run.n)
            temperature = temperature.after(np.array(energies))
            show(run)
            if finished(run, temperature, begin):
                break
    except StopIteration:
        run.stopped = "callback"
    except KeyboardInterrupt:
        run.stopped = "interrupted"
    if not _finite(parameters(run.approx)):
        run.stopped = "not finite"
    return temperature


def _reserve(run: FitState, size: int) -> None:
    for name in ("losses", "elbo", "inverse_temperature"):
        old = getattr(run, name)[: run.n]
        setattr(run, name, np.concatenate([old, np.full(size - run.n, np.nan)]))


def parameters(approx: Approximation) -> Parameters:
    """Copy the parameters of an approximation, by name."""
    return {name: np.array(p.get_value()) for name, p in approx.groups[0].shared_params.items()}


def set_parameters(approx: Approximation, params: Parameters) -> None:
    """Put parameters into an approximation."""
    for name, shared in approx.groups[0].shared_params.items():
        shared.set_value(params[name].astype(shared.dtype))


def _finite(params: Parameters) -> bool:
    return all(np.isfinite(value).all() for value in params.values())


def _judged(run: FitState, kept: KeptParameters) -> KeptParameters:
    since = run.losses[kept.iteration : run.n]
    loss = float(np.median(since)) if since.size else float("inf")
    return replace(kept, loss=loss)


def _better(new: KeptParameters, old: KeptParameters | None) -> bool:
    """Losses can be compared only at T = 1; before that, later parameters count as better."""
    return old is None or not (new.cold and old.cold) or new.loss < old.loss


def _keep(run: FitState, cold: bool) -> None:
    """Copy the parameters every 100 iterations; judge the last copy by the losses since then."""
    last = run.last
    if last is not None:
        if last.cold == cold and run.n - last.iteration < KEEP_EVERY:
            return
        if _better(judged := _judged(run, last), run.best):
            run.best = judged
    run.last = KeptParameters(cold, run.n, parameters(run.approx))


def restore_best(run: FitState) -> KeptParameters:
    """Go back to the best parameters so far, after a loss that is not finite.

    Raises
    ------
    LikelihoodError
        If the very first loss was not finite, so there are none.
    """
    best = run.best
    if run.last is not None:
        last = _judged(run, run.last)
        if np.isfinite(last.loss) and _finite(last.params) and _better(last, best):
            best = last
    if best is None:
        raise LikelihoodError(
            "The ELBO is not finite at the first iteration, so there are no parameters to keep. "
            "Look at the model's terms with model.debug(), or pass start= with values inside "
            "their support, and a small start_sigma=."
        )
    set_parameters(run.approx, best.params)
    return best
