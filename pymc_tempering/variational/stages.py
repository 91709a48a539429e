"""The stages of a fit: tempered, trials at T = 1 beside it, and the end at T = 1.

Heat helps where a start is bad, and harms where it merges parts of a model that have to find
different places: as they cool, all may take the largest one. Which of the two it was, the ELBO
tells. So fits at T = 1, from its start and others, compete with the tempered stage.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np
from pymc.variational.opvi import Approximation

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.variational.assess import UntemperedModel, assess, elbo_drift
from pymc_tempering.variational.fit_step import FitStep, Values, inverse_temperatures
from pymc_tempering.variational.methods import FitPlan
from pymc_tempering.variational.temperatures import Setting, StageTemperature
from pymc_tempering.variational.tempered_fit import ColdTrials, TemperedFit, TemperedOptimum

KEEP_EVERY = 100
"""Iterations between two copies of the parameters."""

COLD_BLOCK = 100
"""Iterations at T = 1 between two updates of the progress bar and of the kept parameters."""

COMPARED = 100
"""Last iterations of a trial, over which the median of its ELBO is taken."""

Callbacks = Sequence[Callable[..., None]]


@dataclass(frozen=True)
class KeptValues:
    """Values of a fit at an iteration, and how good the iterations after it were.

    Attributes
    ----------
    cold : bool
        Whether they come from the stage at T = 1.
    iteration : int
    values : tuple of ndarray
    loss : float
        Median of the losses that followed; infinite as long as none did.
    """

    cold: bool
    iteration: int
    values: Values
    loss: float = float("inf")


@dataclass
class FitRun:
    """A fit, and all of it that changes while it runs; it can be continued.

    Attributes
    ----------
    approx : Approximation
        Has the latest parameters whenever someone else may look.
    step : FitStep
        The compiled step, which takes the temperatures.
    plan : FitPlan
    target : UntemperedModel
    values : tuple of ndarray
        What the step changes.
    generators : sequence of Generator
        What the step draws with.
    rng : Generator
        For the draws of the assessment.
    others : sequence of ndarray
        Means where further trials start (unconstrained space).
    losses, elbo, inverse_temperature : ndarray
        History, filled up to ``n``.
    q, q_iteration : list
        q(T) and the iterations from which on it was in force.
    best, last : KeptValues, optional
    stopped : str
        "" or why the last stage ended early: "callback", "interrupted", "not finite".
    at : float
        E[1/T] of the latest iteration.
    n_tempered : int
        Iterations of the tempered stage.
    trials : ColdTrials, optional
    tempered : TemperedOptimum, optional
    local : dict of ndarray
        E[1/T] of each datum at the tempered optimum.
    """

    approx: Approximation
    step: FitStep
    plan: FitPlan
    target: UntemperedModel
    values: Values
    generators: Sequence[np.random.Generator]
    rng: np.random.Generator
    others: Sequence[FloatArray] = ()
    losses: FloatArray = field(default_factory=lambda: np.empty(0))
    elbo: FloatArray = field(default_factory=lambda: np.empty(0))
    inverse_temperature: FloatArray = field(default_factory=lambda: np.empty(0))
    n: int = 0
    q: list[FloatArray] = field(default_factory=list)
    q_iteration: list[int] = field(default_factory=list)
    best: KeptValues | None = None
    last: KeptValues | None = None
    stopped: str = ""
    at: float = 1.0
    n_tempered: int = 0
    trials: ColdTrials | None = None
    tempered: TemperedOptimum | None = None
    local: dict[str, FloatArray] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, FloatArray]:
        """Parameters of the approximation, by name."""
        return dict(zip(self.step.params, self.values, strict=False))

    def publish(self) -> None:
        """Put the parameters into the approximation."""
        for name, shared in self.approx.groups[0].shared_params.items():
            shared.set_value(self.params[name])

    @property
    def n_before(self) -> int:
        """Iterations before the last stage."""
        return self.n_tempered + (self.trials.n if self.trials else 0)


Show = Callable[[FitRun], None]


def advance(
    run: FitRun,
    temperature: StageTemperature,
    n: int,
    *,
    cold: bool,
    block: int,
    callbacks: Callbacks = (),
    show: Show = lambda run: None,
    finished: Callable[[StageTemperature], bool] = lambda temperature: False,
) -> StageTemperature:
    """Run one stage of up to ``n`` iterations and return its temperatures.

    Parameters
    ----------
    run : FitRun
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
        Whether the stage may end early, from its temperatures.
    """
    run.stopped = ""
    begin, end = run.n, run.n + n
    for name in ("losses", "elbo", "inverse_temperature"):
        history = getattr(run, name)[: run.n]
        setattr(run, name, np.concatenate([history, np.full(end - run.n, np.nan)]))
    try:
        while run.n < end:
            _keep(run, cold)
            if (q := temperature.q) is not None and not (cold and run.n > begin):
                run.q.append(q)
                run.q_iteration.append(run.n)
            setting = temperature.setting(run.n - begin)
            energies = _run_block(run, setting, min(block, end - run.n), callbacks)
            if run.stopped:
                break
            temperature = temperature.after(np.array(energies))
            show(run)
            if finished(temperature):
                break
    except StopIteration:
        run.stopped = "callback"
    except KeyboardInterrupt:
        run.stopped = "interrupted"
    if not _finite(run.values[: len(run.step.params)]):
        run.stopped = "not finite"
    run.publish()
    return temperature


def _run_block(run: FitRun, setting: Setting, n: int, callbacks: Callbacks) -> list[FloatArray]:
    """Do some iterations at one setting; return their energies."""
    weights = np.asarray(setting.weights, dtype=run.step.dtype)
    energies = []
    for _ in range(n):
        told, run.values, run.generators = run.step(weights, run.values, run.generators)
        loss, elbo, energy = told
        energies.append(np.atleast_1d(energy))
        inverse = setting.inverse_temperature
        run.at = float(energy @ (1.0 / run.plan.temperatures)) if inverse is None else inverse
        value = float(loss) - setting.offset
        if not isfinite(value):
            run.stopped = "not finite"
            break
        run.losses[run.n], run.elbo[run.n], run.inverse_temperature[run.n] = value, elbo, run.at
        run.n += 1
        if callbacks:
            run.publish()
        for callback in callbacks:
            callback(run.approx, run.losses[: run.n], run.n)
    return energies


def _finite(values: Values) -> bool:
    return all(np.isfinite(value).all() for value in values)


def _judged(run: FitRun, kept: KeptValues) -> KeptValues:
    since = run.losses[kept.iteration : run.n]
    loss = float(np.median(since)) if since.size else float("inf")
    return replace(kept, loss=loss)


def _better(new: KeptValues, old: KeptValues | None) -> bool:
    """Losses can be compared only at T = 1; before that, later values count as better."""
    return old is None or not (new.cold and old.cold) or new.loss < old.loss


def _keep(run: FitRun, cold: bool) -> None:
    """Keep the values every 100 iterations; judge the last ones by the losses since then."""
    last = run.last
    if last is not None:
        if last.cold == cold and run.n - last.iteration < KEEP_EVERY:
            return
        if _better(judged := _judged(run, last), run.best):
            run.best = judged
    run.last = KeptValues(cold, run.n, run.values)


def restore_best(run: FitRun) -> KeptValues:
    """Go back to the best values so far, after a loss that is not finite.

    Raises
    ------
    LikelihoodError
        If the very first loss was not finite, so there are none.
    """
    best = run.best
    if run.last is not None:
        last = _judged(run, run.last)
        if np.isfinite(last.loss) and _finite(last.values) and _better(last, best):
            best = last
    if best is None:
        raise LikelihoodError(
            "The ELBO is not finite at the first iteration, so there are no parameters to keep. "
            "Look at the model's terms with model.debug(), or pass start= with values inside "
            "their support, and a small start_sigma=."
        )
    run.values = best.values
    run.publish()
    return best


def run_fit(run: FitRun, callbacks: Callbacks = (), show: Show = lambda run: None) -> None:
    """Run all stages of a fit."""
    run_tempered(run, callbacks, show)
    run_cold(run, run.plan.options.n, run.plan.options.most, callbacks, show)


def run_tempered(run: FitRun, callbacks: Callbacks, show: Show) -> None:
    """Run the tempered stage, if there is one, and the trials beside it; keep where it ended."""
    plan, start = run.plan, run.values
    if plan.temperature is None or plan.n_tempered == 0:
        return

    def finished(temperature: StageTemperature) -> bool:
        since = temperature.at_rest_from
        return since is not None and elbo_drift(-run.losses[since : run.n]).converged

    temperature = advance(
        run,
        plan.temperature,
        plan.n_tempered,
        cold=False,
        block=plan.options.update_every,
        callbacks=callbacks,
        show=show,
        finished=finished,
    )
    run.n_tempered = run.n
    if plan.settles and run.n and run.stopped != "not finite":
        run.tempered = TemperedOptimum(
            params=run.params,
            iteration=run.n,
            inverse_temperature=float(run.inverse_temperature[run.n - 1]),
            loss=float(np.median(run.losses[max(0, run.n - COLD_BLOCK) : run.n])),
            settled=finished(temperature),
        )
        run.local = inverse_temperatures(plan.temperatures, run.step.log_q, run.values)
    if plan.n_trials and run.stopped not in ("interrupted", "not finite"):
        starts = [start, *(moved_to(place, start, run.step) for place in run.others)]
        run.trials = run_trials(run, starts, plan.n_trials, callbacks, show)


def moved_to(location: FloatArray, start: Values, step: FitStep) -> Values:
    """Values of a start, with another mean of the approximation."""
    place = step.params.index("mu")
    mean = np.asarray(location, dtype=start[place].dtype)
    return (*start[:place], mean, *start[place + 1 :])


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
    run: FitRun, starts: Sequence[Values], n: int, callbacks: Callbacks, show: Show
) -> ColdTrials:
    """Run ``n`` iterations at T = 1 from all starts; keep the best of all ends, the present too."""
    hot, begin, how = (_median(run.elbo[: run.n]), run.values), run.n, (callbacks, show)
    pool = [(0.0, start) for start in starts]
    for count, n_each in halvings(len(starts), n):
        ended: list[tuple[float, Values]] = []
        for _, values in sorted(pool, key=lambda fit: -fit[0])[:count]:
            run.values = values
            run.last = None  # the values before this are not on the way to what follows
            first = run.n
            _run_cold_stage(run, n_each, *how)
            lost = run.stopped == "not finite"
            elbo = -np.inf if lost else _median(run.elbo[first : run.n])
            ended.append((elbo, run.values))
            if run.stopped == "interrupted":
                break
        pool = ended
        if run.stopped == "interrupted":
            break
    best = max(pool, key=lambda fit: fit[0])
    trials = ColdTrials(len(starts), run.n - begin, best[0], hot[0])
    run.values = (best if trials.won else hot)[1]
    run.publish()
    run.last = None
    run.stopped = "" if run.stopped == "not finite" else run.stopped
    return trials


def _median(elbo: FloatArray) -> float:
    """Median over the last iterations: single values of an ELBO may be far down."""
    return float(np.median(elbo[-COMPARED:])) if elbo.size else -np.inf


def _run_cold_stage(run: FitRun, n: int, callbacks: Callbacks, show: Show) -> None:
    cold, block = run.plan.cold, COLD_BLOCK
    advance(run, cold, n, cold=True, block=block, callbacks=callbacks, show=show)


def run_cold(run: FitRun, n: int, most: int, callbacks: Callbacks, show: Show) -> None:
    """Run at T = 1 up to ``n`` iterations in all, and on to ``most`` while the ELBO moves."""
    if run.stopped in ("interrupted", "not finite"):
        return
    goal = max(n, run.n)
    while True:
        if goal > run.n:
            _run_cold_stage(run, goal - run.n, callbacks, show)
        drift = elbo_drift(run.elbo[run.n_before : run.n])
        if run.stopped or drift.converged or run.n >= most:
            return
        goal = min(most, run.n + max(n // 4, 1))


def finish(run: FitRun) -> TemperedFit:
    """Judge the approximation and gather the history of the fit."""
    plan = run.plan
    stopped = _stop_sentence(run)
    drift = elbo_drift(run.elbo[run.n_before : run.n])
    converged = drift.converged and not stopped
    worth = assess(run.approx, run.target, run.rng)
    sentences = [*stopped, *worth.warnings]
    if not converged and not stopped:
        sentences.append(
            f"The fit is not at rest: {drift}. Go on with pmt.refine(approx, n), or take an "
            "optimizer with larger steps (obj_optimizer=)."
        )
    return TemperedFit(
        method=plan.options.method,
        elbo=worth.elbo,
        elbo_mcse=worth.elbo_mcse,
        khat=worth.khat,
        evidence=worth.evidence,
        converged=converged,
        drift=drift,
        n_tempered=run.n_tempered,
        trials=run.trials,
        elbo_history=run.elbo[: run.n].copy(),
        inverse_temperature=run.inverse_temperature[: run.n].copy(),
        temperatures=plan.temperatures,
        q=np.array(run.q).reshape(len(run.q), plan.temperatures.size),
        q_iteration=np.array(run.q_iteration, dtype=int),
        tempered=run.tempered,
        local=run.local,
        log_c=plan.log_c,
        log_c_mcse=plan.log_c_mcse,
        warnings=tuple(sentences),
    )


def _stop_sentence(run: FitRun) -> list[str]:
    """Say why the fit ended early; after a loss that is not finite, go back to the best."""
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
        what = "approximates the tempered model" if run.at < 1.0 else "has not been judged at rest"
        return [
            f"The fit was interrupted at iteration {run.n}, at T = {1 / run.at:.3g}: the "
            f"approximation {what}. Go on with pmt.refine(approx, n)."
        ]
    return []
