"""Rounds of doubling length, until draws suffice and the evidence is as precise as asked.

Everything is frozen before the first round, and the lengths are fixed before they begin, so that
all draws since then count, and stopping at a small error causes almost no bias. Where draws have to
suffice and no more is asked, their effective sample size decides, and log Z is not looked at. If
the check finds fault with the fitted reference, the reference is fitted again and the rounds start
anew.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
from pymc.progress_bar import ProgressBarManager

from pymc_tempering.chain.chains import (
    ChainRun,
    extend_runs,
    have_few_draws,
    run_chains,
    start_runs,
)
from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.record import N_STEPS
from pymc_tempering.chain.sent_chains import send_chains
from pymc_tempering.core.deadline import NEVER
from pymc_tempering.evidence.alarms import MIN_TOURS
from pymc_tempering.evidence.pooled import pooled
from pymc_tempering.evidence.reference_check import compare_looks, with_check
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.evidence.rungs import cumulative_barrier, neighbor_rejection
from pymc_tempering.sampling.choose_plan import ChosenPlan, more_looks, search_again
from pymc_tempering.sampling.enough_draws import LeastEss, least_ess
from pymc_tempering.sampling.goal import MAX_ROUNDS, NO_DRAWS, Goal, Outcome, Round
from pymc_tempering.sampling.held_memory import too_large
from pymc_tempering.sampling.recorder import NoRecorder, Recorder, Standing
from pymc_tempering.sampling.reference_draws import (
    Beside,
    begin_beside,
    draw_beside,
    traced_run,
)
from pymc_tempering.sampling.setup import Job
from pymc_tempering.sampling.side_runs import cycles_of

FIRST_PART, PART_GROWTH = 50, 1.25
"""Draws of the first part of a round before a deadline where chains wait for cores, and how many
times as many there are after each further part."""

type Watch = Callable[[ChosenPlan, list[ChainRun], int], ProgressBarManager]


def estimate(
    chosen: ChosenPlan,
    runs: list[ChainRun],
    reference: np.ndarray = NO_DRAWS,
    n_undefined: int = 0,
) -> Evidence:
    """Estimate log Z from recorded runs and reference draws, with the verdict of the check."""
    leg = evidence = rts(cycles_of(chosen.plan, runs))
    if reference.size:
        evidence = pooled(traced_run(chosen.plan, runs, reference, n_undefined))
    fresh = chosen.fresh
    if fresh is None:
        return evidence
    return with_check(evidence, compare_looks(leg, fresh))


def run_rounds(
    job: Job,
    chosen: ChosenPlan,
    goal: Goal,
    *,
    draws: int,
    chains: int,
    keep_trace: bool,
    watch: Watch,
    keep_hot: bool = False,
    tune: int = 0,
    reference_draws: int | None = None,
    recorder: Recorder = NoRecorder(),  # noqa: B008 (frozen, and without content)
    standing: Standing | None = None,
) -> Outcome:
    """Run the chains for `draws` draws each, and on in doubling rounds while the goal is unmet.

    Parameters
    ----------
    job : Job
        Its `report` is called with a line after each round, where there can be several. At its
        deadline the chains stop, once each has a few draws.
    chosen : ChosenPlan
    goal : Goal
    draws, chains : int
    keep_trace : bool
    watch : callable
        `watch(chosen, runs, n_draws)` gives a progress bar for that round.
    keep_hot : bool, default False
        Whether to keep states of all rungs beside the trace.
    tune : int, default 0
        How many of the draws are thrown away in the end.
    reference_draws : int, optional
        Further draws of the reference; by default `begin_beside` says how many. Without a trace
        there are none.
    recorder : Recorder, optional
        Told where the run stands: before the first draw, whenever it asks for it, and when chains
        have stopped.
    standing : Standing, optional
        Where an earlier process left the run, which then goes on from there.
    """
    deadline, silent = job.deadline, replace(job, report=lambda line: None)
    asked = reference_draws if keep_trace else 0

    def start(chosen: ChosenPlan, n: int) -> tuple[list[ChainRun], Beside]:
        runs = start_runs(chosen.plan, n, job.rng.spawn(chains), keep_trace, keep_hot=keep_hot)
        return runs, begin_beside(chosen.plan, asked, sum(chosen.work.values()), job.rng)

    def end(interrupted: bool = False, unmet: str = "", least: LeastEss | None = None) -> Outcome:
        work = at.chosen.work | at.beside.work
        parts = (at.runs, at.rounds, interrupted, unmet, least, *at.beside.found)
        return Outcome(replace(at.chosen, work=work), *parts)

    at = standing or Standing(chosen, *start(chosen, draws), draws)
    while True:
        chosen, runs, begun = at.chosen, at.runs, perf_counter()
        beside, interrupted = _draw_beside(job, at, recorder)
        at = replace(at, beside=beside)
        save = partial(recorder.save, job, at)
        interrupted = interrupted or _run_to(
            job, at.total, chosen, runs, watch, recorder.due, save
        )  # fmt: skip
        if interrupted or chosen.interrupted:
            return end(interrupted=True)
        enough = deadline.left > perf_counter() - begun
        repeat = bool(at.repeats_left) and enough and _outgrown(chosen, runs)
        if goal.single and not repeat:
            return end()
        try:
            if repeat:
                job.report("The run met a region that its reference hardly covers: fitting again")
                at = replace(at, repeats_left=at.repeats_left - 1)
            else:
                least = _least(goal, chosen, runs, tune)
                more = goal.goes_on_for(least, at.total / draws)
                if goal.ess_alone and not (more or at.rounds):
                    return end(least=least)
                if not (goal.ess_alone or deadline.late):
                    chosen = more_looks(silent, chosen, _steps(runs) // 2)
                evidence = estimate(chosen, runs, *beside.found)
                line = _line(chosen, runs, evidence, least, perf_counter() - deadline.began)
                at = replace(at, chosen=chosen, rounds=(*at.rounds, line))
                job.report(f"{line}{goal.wanted()}")
                unmet = "" if goal.ess_alone else goal.unmet(evidence)
                steps = sum(chosen.work.values()) + beside.log_ratio.size + _steps(runs)
                spent = goal.spent(steps) or len(at.rounds) >= MAX_ROUNDS
                over = deadline.late or spent or too_large(runs, at.total)
                # Without a target the whole budget is used.
                if over or not (more or unmet or goal.uses_all):
                    return end(unmet=unmet, least=least)
                repeat = not goal.ess_alone and bool(at.fits_left) and _contradicted(evidence)
                at = replace(at, fits_left=at.fits_left - repeat)
            if repeat:
                chosen = _fitted_again(job, chosen, runs, beside)
                runs, beside = start(chosen, at.total)
                at = replace(at, chosen=chosen, runs=runs, beside=beside)
                continue
        except KeyboardInterrupt:
            return end(interrupted=True)
        at = replace(at, total=2 * at.total)
        extend_runs(runs, at.total)


def _draw_beside(job: Job, at: Standing, recorder: Recorder) -> tuple[Beside, bool]:
    """Go on to the reference draws that a round wants; it is kept where that was begun."""
    draws = at.total * len(at.runs)
    try:
        if at.beside.number(draws) > at.beside.log_ratio.size:
            recorder.save(job, at)
    except KeyboardInterrupt:
        return at.beside, True
    return draw_beside(job, at.beside, draws)


def _fitted_again(job: Job, chosen: ChosenPlan, runs: list[ChainRun], beside: Beside) -> ChosenPlan:
    """Fit the reference again to the draws of runs, whose work counts to that fit."""
    own = _steps(runs) + beside.log_ratio.size
    drawn = np.concatenate([run.record.x[: run.state.n_draws] for run in runs])
    chosen = search_again(job, chosen, drawn)
    fit = chosen.work.get("fit", 0) + own
    return replace(chosen, work=chosen.work | {"fit": fit})


def _least(goal: Goal, chosen: ChosenPlan, runs: list[ChainRun], tune: int) -> LeastEss | None:
    """Least effective sample size, where draws have to suffice."""
    if goal.target_ess is None:
        return None
    return least_ess(chosen.plan.reference.path, runs, tune, goal.target_ess)


def _run_to(
    job: Job,
    total: int,
    chosen: ChosenPlan,
    runs: list[ChainRun],
    watch: Watch,
    due: Callable[[], bool] = lambda: False,
    save: Callable[[], None] = lambda: None,
) -> bool:
    """Run the chains to `total` draws; before a deadline in parts, so that none is far behind.

    They pause when a recording is `due`; `save` is called before they start, then, and when they
    have stopped.

    Returns
    -------
    bool
        Whether Ctrl-C cut the run short.
    """
    deadline, cores = job.deadline, job.cores
    # Without a limit the workers do pieces of all chains in turn, so that none is far behind.
    enough = cores >= len(runs) if job.crew is None else deadline.at == np.inf
    whole = deadline == NEVER or enough
    goal = total if whole else FIRST_PART
    paused = False

    def pause() -> bool:
        nonlocal paused
        paused = paused or due()
        return paused

    with watch(chosen, runs, total) as progress:
        try:
            save()
            while not (deadline.late and have_few_draws(runs)):
                goal, paused = min(goal, total), False
                interrupted = _advance(job, chosen.plan, runs, goal, progress.update, pause)
                over = goal == total or deadline.late
                if interrupted or paused or over:
                    progress.update()
                    save()
                if interrupted:
                    return True
                if paused and min(run.state.n_draws for run in runs) < goal:
                    continue
                if over:
                    return False
                goal = int(PART_GROWTH * goal) + 1
        except KeyboardInterrupt:  # while it was saved
            return True
    return False


def _advance(
    job: Job,
    plan: Plan,
    runs: list[ChainRun],
    goal: int,
    update: Callable[[], None],
    pause: Callable[[], bool],
) -> bool:
    """Run the chains here or on the workers; whether Ctrl-C cut it short."""
    deadline = job.deadline
    if job.crew is not None:
        return send_chains(job.crew, plan, runs, goal, watch=update, deadline=deadline, pause=pause)
    return run_chains(
        plan, runs, goal, cores=job.cores, watch=update, deadline=deadline, pause=pause
    )


def _steps(runs: list[ChainRun]) -> int:
    """Density evaluations of recorded runs."""
    return sum(int(run.record.scalars[: run.state.n_draws, N_STEPS].sum()) for run in runs)


def _outgrown(chosen: ChosenPlan, runs: list[ChainRun]) -> bool:
    """Whether a run from a checked reference has tours enough and yet states no error.

    Then one tour outweighs all others: it met a region that the reference hardly covers. A fit to
    the draws of this run will cover it. A new run of the same length then replaces this one, so
    that its draws do not depend on this alarm.
    """
    if chosen.last is None or chosen.fitted is None:
        return False
    cycles = cycles_of(chosen.plan, runs)
    evidence = rts(replace(cycles, n_undefined=None))  # no reference helps against those
    return evidence.n_tours >= MIN_TOURS and not np.isfinite(evidence.mcse)


def _contradicted(evidence: Evidence) -> bool:
    """Whether looks disagree with an estimate."""
    return evidence.check is not None and evidence.check.verdict == "disagreed"


def _line(
    chosen: ChosenPlan,
    runs: list[ChainRun],
    evidence: Evidence,
    least: LeastEss | None,
    seconds: float,
) -> Round:
    """Line of the report after a round."""
    check, cycles = evidence.check, cycles_of(chosen.plan, runs)
    return Round(
        draws=sum(run.state.n_draws for run in runs),
        tours=evidence.n_tours,
        barrier=float(cumulative_barrier(neighbor_rejection(cycles))[-1]),
        acceptance=float(cycles.accept_sum[..., 1:].sum() / cycles.visits[..., 1:].sum()),
        log_z=evidence.log_z,
        mcse=evidence.mcse,
        check_log_z=np.nan if check is None else check.log_z,
        check_mcse=np.nan if check is None else check.mcse,
        least_ess=np.nan if least is None else least.ess,
        seconds=seconds,
    )
