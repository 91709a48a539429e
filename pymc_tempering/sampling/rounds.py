"""Rounds of doubling length, until draws suffice and the evidence is as precise as asked.

Everything is frozen before the first round, and the lengths are fixed before they begin, so that
all draws since then count, and stopping at a small error causes almost no bias. By default draws
suffice by their effective sample size and the error of log Z, whatever its value. If the check
finds fault with the fitted reference, the reference is fitted again and the rounds start anew.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

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
from pymc_tempering.chain.sent_chains import send_chains
from pymc_tempering.core.deadline import NEVER, laps
from pymc_tempering.evidence.reference_check import compare_looks, with_check
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import pooled, rts
from pymc_tempering.sampling.choose_plan import ChosenPlan, more_looks, search_again
from pymc_tempering.sampling.goal import (
    DEFAULT_MCSE,
    MAX_ROUNDS,
    MOST_GROWTH,
    NO_DRAWS,
    Goal,
    Outcome,
)
from pymc_tempering.sampling.held_memory import too_large
from pymc_tempering.sampling.recorder import NoRecorder, Recorder, Standing
from pymc_tempering.sampling.reference_draws import (
    Beside,
    begin_beside,
    draw_beside,
    traced_run,
)
from pymc_tempering.sampling.round_results import (
    contradicted,
    cut_of,
    drawn_in_all,
    draws_of,
    least_of,
    line_of,
    outgrown,
    pace_of,
    steps_of,
)
from pymc_tempering.sampling.setup import PLAN_SHARE, Job
from pymc_tempering.sampling.side_runs import cycles_of

FIRST_PART, PART_GROWTH = 50, 1.25
"""Draws of the first part of a round before a deadline where chains wait for cores, and how many
times as many there are after each further part."""

LAST_SHARE, LAST_SECONDS = 1.1, 1.0
"""How many times the time of a call is over when its chains stop in any case, and the seconds that
they have at least: those without a few draws get so much longer."""

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

    def start(chosen: ChosenPlan, n: int) -> tuple[list[ChainRun], Beside]:
        runs = start_runs(chosen.plan, n, job.rng.spawn(chains), keep_trace, keep_hot=keep_hot)
        asked = reference_draws if keep_trace else 0
        return runs, begin_beside(chosen.plan, asked, chosen.spent, job.rng, deadline)

    def end(*, interrupted: bool = False, **found: Any) -> Outcome:
        plan = replace(at.chosen, work=at.chosen.work | at.beside.work)
        draws, lost = at.beside.found
        return Outcome(
            plan, at.runs, at.rounds, interrupted, reference=draws, n_undefined=lost, **found
        )

    at, pace = standing or Standing(chosen, *start(chosen, draws), draws), np.nan
    while True:
        chosen, runs, begun = at.chosen, at.runs, perf_counter()
        at, interrupted = _with_draws_beside(job, at, recorder)
        before, lap, save = drawn_in_all(runs), laps(), partial(recorder.save, job, at)
        interrupted = interrupted or run_to(job, at.total, chosen, runs, watch, recorder.due, save)
        if interrupted or chosen.interrupted:
            return end(interrupted=True)
        pace = pace_of(lap(), runs, before, pace)
        told = partial(cut_of, deadline, goal, draws, draws_of(runs), pace)
        if draws_of(runs) < at.total and not have_few_draws(runs):
            return end(cut=told())
        repeat = bool(at.repeats_left) and deadline.left > perf_counter() - begun
        repeat = repeat and outgrown(chosen, runs)
        if goal.single and not repeat:
            return end(cut=told())
        try:
            if repeat:
                job.report("The run met a region that its reference hardly covers: fitting again")
                at = replace(at, repeats_left=at.repeats_left - 1)
            else:
                least, growth = least_of(goal, chosen, runs, tune, deadline), at.total / draws
                more = goal.goes_on_for(least, growth) or _imprecise(goal, at, growth)
                if goal.ess_alone and not (more or at.rounds):
                    return end(least=least, cut=told(least=least))
                if not (goal.ess_alone or deadline.late):
                    chosen = more_looks(silent, chosen, steps_of(runs) // 2)
                evidence = estimate(chosen, runs, *at.beside.found)
                line = line_of(chosen, runs, evidence, least, perf_counter() - deadline.began)
                at = replace(at, chosen=chosen, rounds=(*at.rounds, line))
                job.report(f"{line}{goal.wanted()}")
                unmet = "" if goal.ess_alone else goal.unmet(evidence)
                if not (more or unmet) or _is_over(job, goal, at):
                    return end(unmet=unmet, least=least, cut=told(least=least, mcse=evidence.mcse))
                repeat = not goal.ess_alone and bool(at.fits_left) and contradicted(evidence)
                at = replace(at, fits_left=at.fits_left - repeat)
            if repeat:
                chosen = _fitted_again(job, chosen, runs, at.beside)
                runs, beside = start(chosen, at.total)
                at = replace(at, chosen=chosen, runs=runs, beside=beside)
                continue
        except KeyboardInterrupt:
            return end(interrupted=True)
        at = replace(at, total=2 * at.total)
        extend_runs(runs, at.total)


def _imprecise(goal: Goal, at: Standing, growth: float) -> bool:
    """Whether log Z has a finite error above `DEFAULT_MCSE`, and chains may still grow for it.

    Who asks for another error, or for effective draws, gets these alone.
    """
    if not (goal.by_default and goal.ess_alone) or growth >= MOST_GROWTH:
        return False
    if rts(cycles_of(at.chosen.plan, at.runs)).mcse <= DEFAULT_MCSE:
        return False
    return DEFAULT_MCSE < estimate(at.chosen, at.runs, *at.beside.found).mcse < np.inf


def _is_over(job: Job, goal: Goal, at: Standing) -> bool:
    """Whether a limit allows no further round."""
    steps = at.chosen.spent + at.beside.log_ratio.size + steps_of(at.runs)
    spent = goal.spent(steps) or len(at.rounds) >= MAX_ROUNDS
    return job.deadline.late or spent or too_large(at.runs, at.total)


def _with_draws_beside(job: Job, at: Standing, recorder: Recorder) -> tuple[Standing, bool]:
    """Go on to the reference draws that a round wants; it is kept where that was begun.

    Returns
    -------
    at : Standing
    interrupted : bool
        Whether Ctrl-C came.
    """
    draws = at.total * len(at.runs)
    try:
        if at.beside.number(draws) > at.beside.log_ratio.size:
            recorder.save(job, at)
    except KeyboardInterrupt:
        return at, True
    beside, interrupted = draw_beside(job, at.beside, draws)
    return replace(at, beside=beside), interrupted


def _fitted_again(job: Job, chosen: ChosenPlan, runs: list[ChainRun], beside: Beside) -> ChosenPlan:
    """Fit the reference again to the draws of runs, whose work counts to that fit."""
    own = steps_of(runs) + beside.log_ratio.size
    drawn = np.concatenate([run.record.x[: run.state.n_draws] for run in runs])
    job = replace(job, deadline=job.deadline.rest(PLAN_SHARE))
    chosen = search_again(job, chosen, drawn)
    fit = chosen.work.get("fit", 0) + own
    return replace(chosen, work=chosen.work | {"fit": fit})


def run_to(
    job: Job,
    total: int,
    chosen: ChosenPlan,
    runs: list[ChainRun],
    watch: Watch,
    due: Callable[[], bool] = lambda: False,
    save: Callable[[], None] = lambda: None,
) -> bool:
    """Run the chains to `total` draws; before a deadline in parts, so that none is far behind.

    They stop at the deadline, or a little later where some has few draws. They pause when a
    recording is `due`; `save` is called before they start, then, and when they have stopped.

    Returns
    -------
    bool
        Whether Ctrl-C cut the run short.
    """
    deadline = job.deadline
    final = deadline.part(LAST_SHARE).after(LAST_SECONDS)
    # Without a limit the workers do pieces of all chains in turn, so that none is far behind.
    enough = job.cores >= len(runs) if job.crew is None else not deadline.limited
    goal = total if deadline == NEVER or enough else FIRST_PART
    paused = False

    def pause() -> bool:
        nonlocal paused
        paused = paused or due() or final.late
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
                if paused and draws_of(runs) < goal and not final.late:
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
