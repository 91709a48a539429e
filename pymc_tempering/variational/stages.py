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
from pymc_tempering.variational.assess import UntemperedModel, assess, elbo_drift, merged
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
    callbacks : sequence of callable
        As PyMC's: (approx, losses, i); StopIteration ends the stage.
    show : callable
        Called with the run after each block of iterations.
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
    callbacks: Sequence[Callable[..., None]] = ()
    show: Callable[["FitRun"], None] = lambda run: None
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


def advance(
    run: FitRun,
    temperature: StageTemperature,
    n: int,
    finished: Callable[[StageTemperature], bool] = lambda temperature: False,
) -> StageTemperature:
    """Run one stage of up to ``n`` iterations and return its temperatures.

    Parameters
    ----------
    run : FitRun
        Changed in place.
    temperature : StageTemperature
        Temperatures of the stage. At T = 1 the best parameters are kept; of a tempered stage, whose
        objective changes, the last ones.
    n : int
        Iterations.
    finished : callable
        Whether the stage may end early, from its temperatures.
    """
    run.stopped, cold = "", temperature is run.plan.cold
    block = COLD_BLOCK if cold else run.plan.options.update_every
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
            energies = _run_block(run, setting, min(block, end - run.n))
            if run.stopped:
                break
            temperature = temperature.after(np.array(energies))
            run.show(run)
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


def _run_block(run: FitRun, setting: Setting, n: int) -> list[FloatArray]:
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
        if run.callbacks:
            run.publish()
        for callback in run.callbacks:
            callback(run.approx, run.losses[: run.n], run.n)
    return energies


def _finite(values: Values) -> bool:
    return all(np.isfinite(value).all() for value in values)


def _keep(run: FitRun, cold: bool) -> None:
    """Keep the values every 100 iterations; judge the last ones by the losses since then."""
    last = run.last
    if last is None or last.cold != cold or run.n - last.iteration >= KEEP_EVERY:
        _judge_last(run)
        run.last = KeptValues(cold, run.n, run.values)


def _judge_last(run: FitRun) -> None:
    """Compare the values that were kept last with the best, by the losses since then.

    Losses can be compared only at T = 1; before that, later values count as better.
    """
    last, best = run.last, run.best
    if last is None or run.n == last.iteration or not _finite(last.values):
        return
    loss = float(np.median(run.losses[last.iteration : run.n]))
    if best is None or not (last.cold and best.cold) or loss < best.loss:
        run.best = replace(last, loss=loss)


def restore_best(run: FitRun) -> KeptValues:
    """Go back to the best values so far, after a loss that is not finite.

    Raises
    ------
    LikelihoodError
        If the very first loss was not finite, so there are none.
    """
    _judge_last(run)
    if (best := run.best) is None:
        raise LikelihoodError(
            "The ELBO is not finite at the first iteration, so there are no parameters to keep. "
            "Look at the model's terms with model.debug(), or pass start= with values inside "
            "their support, and a small start_sigma=."
        )
    run.values = best.values
    run.publish()
    return best


def run_fit(run: FitRun) -> None:
    """Run all stages of a fit."""
    run_tempered(run)
    options = run.plan.options
    added = run.n - run.n_tempered if options.adds_trial else 0
    run_cold(run, min(options.n + added, options.most), options.most)


def run_tempered(run: FitRun) -> None:
    """Run the tempered stage, if there is one, and the trials beside it; keep where it ended."""
    plan, start = run.plan, run.values
    if plan.temperature is None or plan.n_tempered == 0:
        return

    def finished(temperature: StageTemperature) -> bool:
        since = temperature.at_rest_from
        return since is not None and elbo_drift(-run.losses[since : run.n]).converged

    temperature = advance(run, plan.temperature, plan.n_tempered, finished)
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
        run.trials = run_trials(run, starts, plan.n_trials)


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


def run_trials(run: FitRun, starts: Sequence[Values], n: int) -> ColdTrials:
    """Run ``n`` iterations at T = 1 from all starts; keep the best of all ends, the present too."""
    hot, begin = (_median(run.elbo[: run.n]), run.values), run.n
    pool = [(0.0, start) for start in starts]
    for count, n_each in halvings(len(starts), n):
        ended: list[tuple[float, Values]] = []
        for _, values in sorted(pool, key=lambda fit: -fit[0])[:count]:
            run.values = values
            run.last = None  # the values before this are not on the way to what follows
            first = run.n
            advance(run, run.plan.cold, n_each)
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


def run_cold(run: FitRun, n: int, most: int) -> None:
    """Run at T = 1 up to ``n`` iterations in all, and on to ``most`` while the ELBO moves."""
    if run.stopped in ("interrupted", "not finite"):
        return
    goal = max(n, run.n)
    while True:
        if goal > run.n:
            advance(run, run.plan.cold, goal - run.n)
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
    sentences = [*stopped, *worth.warnings, *merged(run.approx)]
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
