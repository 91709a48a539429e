"""The stages of a fit that can be continued, and the report at its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.variational.assess import UntemperedModel, assess
from pymc_tempering.variational.cold_trials import (
    ColdTrials,
    moved_to,
    moving_values,
    run_trials,
)
from pymc_tempering.variational.convergence import elbo_drift
from pymc_tempering.variational.fit_loop import FitState, advance, parameters, restore_best
from pymc_tempering.variational.local_likelihood import inverse_temperatures
from pymc_tempering.variational.methods import FitPlan
from pymc_tempering.variational.stage_temperature import StageTemperature
from pymc_tempering.variational.tempered_fit import TemperedFit, TemperedOptimum

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
