"""The stages of a fit: tempered, trials at T = 1 beside it, and the end at T = 1."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, isnan

import numpy as np
from pymc.variational.opvi import Approximation
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.variational.assess import UntemperedModel, assess, elbo_drift
from pymc_tempering.variational.fit_step import FitStep
from pymc_tempering.variational.local_likelihood import inverse_temperatures
from pymc_tempering.variational.methods import FitPlan
from pymc_tempering.variational.temperatures import ColdTemperature, StageTemperature
from pymc_tempering.variational.tempered_fit import ColdTrials, TemperedFit, TemperedOptimum

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


COMPARED = 100
"""Last iterations of a fit, over which the median of its ELBO is taken."""

Moving = list[FloatArray | None]
"""Values of what a step changes; none for generators, which run on."""


def moving_values(step: FitStep) -> Moving:
    """Copy what a step changes."""
    return [
        None if isinstance(shared.type, RandomGeneratorType) else np.array(shared.get_value())
        for shared in step.moving
    ]


def put_moving(step: FitStep, values: Moving) -> None:
    """Put copies back."""
    for shared, value in zip(step.moving, values, strict=True):
        if value is not None:
            shared.set_value(value.astype(shared.dtype))


def moved_to(location: FloatArray, start: Moving, step: FitStep, approx: Approximation) -> Moving:
    """Values of a start, with another mean of the approximation."""
    mean = approx.groups[0].shared_params["mu"]
    return [location if v is mean else value for v, value in zip(step.moving, start, strict=True)]


def halvings(starts: int, n: int) -> Iterator[tuple[int, int]]:
    """Yield how many fits go on in each round, half of those before, and the iterations of each.

    All rounds have about as many iterations; the last one has the rest.
    """
    n_round = n // ((starts - 1).bit_length() + 1)
    while starts > 1:
        yield starts, n_round // starts
        starts, n = (starts + 1) // 2, n - n_round // starts * starts
    yield 1, n


def run_trials(
    run: FitState,
    starts: Sequence[Moving],
    cold: ColdTemperature,
    n: int,
    block: int,
    callbacks: Sequence[Callable[..., None]],
    show: Callable[[FitState], None],
) -> ColdTrials:
    """Run ``n`` iterations at T = 1 from all starts; keep the best of all ends, the present too."""
    hot, begin = (_median(run.elbo[: run.n]), moving_values(run.step)), run.n
    pool = [(0.0, start) for start in starts]
    for count, n_each in halvings(len(starts), n):
        ended: list[tuple[float, Moving]] = []
        for _, values in sorted(pool, key=lambda fit: -fit[0])[:count]:
            put_moving(run.step, values)
            run.last = None  # the copies before this are not on the way to what follows
            first = run.n
            advance(run, cold, n_each, cold=True, block=block, callbacks=callbacks, show=show)
            lost = run.stopped == "not finite"
            elbo = -np.inf if lost else _median(run.elbo[first : run.n])
            ended.append((elbo, moving_values(run.step)))
            if run.stopped == "interrupted":
                break
        pool = ended
        if run.stopped == "interrupted":
            break
    best = max(pool, key=lambda fit: fit[0])
    trials = ColdTrials(len(starts), run.n - begin, best[0], hot[0])
    put_moving(run.step, (best if trials.won else hot)[1])
    run.last = None
    run.stopped = "" if run.stopped == "not finite" else run.stopped
    return trials


def _median(elbo: FloatArray) -> float:
    """Median over the last iterations: single values of an ELBO may be far down."""
    return float(np.median(elbo[-COMPARED:])) if elbo.size else -np.inf


COLD_BLOCK = 100
"""Iterations at T = 1 between two updates of the progress bar and of the kept parameters."""

Callbacks = Sequence[Callable[..., None]]
Show = Callable[[FitState], None]


@dataclass
class Session:
    """A fit between two calls.

    Attributes
    ----------
    method : str
    run : FitState
    plan : FitPlan
    target : UntemperedModel
        The untempered model.
    rng : Generator
        For the draws of the assessment.
    n_tempered : int
        Iterations of the tempered stage.
    trials : ColdTrials, optional
    tempered : TemperedOptimum, optional
    local : dict of ndarray
        E[1/T] of each datum at the tempered optimum.
    others : sequence of ndarray
        Means where further trials start (unconstrained space).
    """

    method: str
    run: FitState
    plan: FitPlan
    target: UntemperedModel
    rng: np.random.Generator
    n_tempered: int = 0
    trials: ColdTrials | None = None
    tempered: TemperedOptimum | None = None
    local: dict[str, np.ndarray] = field(default_factory=dict)
    others: Sequence[FloatArray] = ()

    @property
    def n_before(self) -> int:
        """Iterations before the last stage."""
        return self.n_tempered + (self.trials.n if self.trials else 0)


def run_tempered(session: Session, block: int, callbacks: Callbacks, show: Show) -> None:
    """Run the tempered stage, if there is one, and the trials beside it; keep where it ended."""
    plan, run = session.plan, session.run
    if plan.temperature is None or plan.n_tempered == 0:
        return
    stage = plan.temperature(run.step)
    start = moving_values(run.step)

    def finished(run: FitState, temperature: StageTemperature, begin: int) -> bool:
        settled = plan.settles and temperature.settled
        since = begin + temperature.free_from
        return settled and elbo_drift(-run.losses[since : run.n]).converged

    temperature = advance(
        run,
        stage,
        plan.n_tempered,
        cold=False,
        block=block,
        callbacks=callbacks,
        show=show,
        finished=finished,
    )
    session.n_tempered = run.n
    if plan.settles and run.n and run.stopped != "not finite":
        session.tempered = TemperedOptimum(
            params=parameters(run.approx),
            iteration=run.n,
            inverse_temperature=float(run.inverse_temperature[run.n - 1]),
            loss=float(np.median(run.losses[max(0, run.n - COLD_BLOCK) : run.n])),
            settled=finished(run, temperature, 0),
        )
        session.local = inverse_temperatures(plan.temperatures, run.step.log_q)
    if plan.n_trials and run.stopped not in ("interrupted", "not finite"):
        others = [moved_to(place, start, run.step, run.approx) for place in session.others]
        session.trials = run_trials(
            run, [start, *others], plan.cold, plan.n_trials, COLD_BLOCK, callbacks, show
        )


def run_cold(session: Session, n: int, most: int, callbacks: Callbacks, show: Show) -> None:
    """Run at T = 1 up to ``n`` iterations in all, and on to ``most`` while the ELBO moves."""
    run = session.run
    if run.stopped in ("interrupted", "not finite"):
        return
    goal = max(n, run.n)
    while True:
        if goal > run.n:
            advance(
                run,
                session.plan.cold,
                goal - run.n,
                cold=True,
                block=COLD_BLOCK,
                callbacks=callbacks,
                show=show,
            )
        drift = elbo_drift(run.elbo[session.n_before : run.n])
        if run.stopped or drift.converged or run.n >= most:
            return
        goal = min(most, run.n + max(n // 4, 1))


def finish(session: Session) -> TemperedFit:
    """Judge the approximation and gather the history of the fit."""
    run, plan = session.run, session.plan
    stopped = _stop_sentence(session)
    drift = elbo_drift(run.elbo[session.n_before : run.n])
    converged = drift.converged and not stopped
    worth = assess(run.approx, session.target, session.rng)
    sentences = [*stopped, *worth.warnings]
    if not converged and not stopped:
        sentences.append(
            f"The fit is not at rest: {drift}. Go on with pmt.refine(approx, n), or take an "
            "optimizer with larger steps (obj_optimizer=)."
        )
    return TemperedFit(
        method=session.method,
        elbo=worth.elbo,
        elbo_mcse=worth.elbo_mcse,
        khat=worth.khat,
        evidence=worth.evidence,
        converged=converged,
        drift=drift,
        n_tempered=session.n_tempered,
        trials=session.trials,
        elbo_history=run.elbo[: run.n].copy(),
        inverse_temperature=run.inverse_temperature[: run.n].copy(),
        temperatures=plan.temperatures,
        q=np.array(run.q).reshape(len(run.q), plan.temperatures.size),
        q_iteration=np.array(run.q_iteration, dtype=int),
        tempered=session.tempered,
        local=session.local,
        log_c=plan.log_c,
        log_c_mcse=plan.log_c_mcse,
        warnings=tuple(sentences),
    )


def _stop_sentence(session: Session) -> list[str]:
    """Say why the fit ended early; after a loss that is not finite, go back to the best."""
    run = session.run
    hot = run.at < 1.0
    if run.stopped == "not finite":
        best = restore_best(run)
        kept = "best so far" if best.cold else "those of the tempered model, before T = 1"
        return [
            f"The ELBO was not finite at iteration {run.n + 1}, at temperature T = {1 / run.at:.3g}"
            f" (1 / E[1/T]): the fit stopped and keeps the parameters after iteration "
            f"{best.iteration}, {kept}. Take smaller steps (obj_optimizer=), bound the gradient "
            "(total_grad_norm_constraint=), or restrict the priors."
        ]
    if run.stopped == "interrupted":
        what = "approximates the tempered model" if hot else "has not been judged at rest"
        return [
            f"The fit was interrupted at iteration {run.n}, at T = {1 / run.at:.3g}: the "
            f"approximation {what}. Go on with pmt.refine(approx, n)."
        ]
    return []
