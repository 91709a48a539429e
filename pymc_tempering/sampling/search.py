"""The search from the prior for what a fitted reference has not seen, by looks and by scouts.

A look is an independent trajectory from the prior, annealed once. It starts at a fresh prior draw,
moves once at each rung of a frozen path, and ends at beta = 1. A round trip costs the square of the
number of rungs, a look their number, and there is no resampling, so that looks are independent.

A look that ends on its way says nothing of what a fit has missed. One has arrived if its
log-likelihood and its log posterior density are those of posterior draws, or if it came home: some
transitions at beta = 1 bring it to where draws of the fit lie. These transitions show that it can
get there. No weight and no draw is taken from where they end, but one that ends elsewhere may be in
a mode that nobody knows.

Each round of the search takes fresh looks and fresh scouts. A state far above what the reference
knows is a suspect. Most were only on their way: a short chain at beta = 1 brings them home. Peaks
that may have mass become components, the reference is fitted again, and the search goes on, until a
round finds nothing new. The looks of the last round are those that count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pymc_tempering.chain.particles import Particles, place, sweep
from pymc_tempering.core.threads import Task, run_tasks
from pymc_tempering.core.weighting import log_mean
from pymc_tempering.evidence.reference_check import ARRIVAL_QUANTILE, ISLAND, MIN_ARRIVALS
from pymc_tempering.exceptions import StuckChainError
from pymc_tempering.references.labels import all_labelings, one_labeling
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.prior import Fitted, Prior
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.climbs import climb_further, scouting_of, send_scouts, spread_of
from pymc_tempering.sampling.effort import Effort, effort_of, is_wide
from pymc_tempering.sampling.evaluated import (
    Evaluated,
    can_climb,
    evaluate_states,
    join,
    states_of,
    way_of,
)
from pymc_tempering.sampling.fit_reference import Passes, ReferenceFit, fit_reference
from pymc_tempering.sampling.looks import Looks, add_looks, take_looks
from pymc_tempering.sampling.regions import (
    LET_GO,
    MAX_WEIGHED_DIM,
    Peak,
    explained_by,
    least_mass,
    weigh_regions,
)
from pymc_tempering.sampling.suspects import find_peaks, peaks_by_chains, unknown_peaks, with_mass

HOME_SWEEPS, MAX_HOME_ROUNDS = 40, 10
"""Transitions at beta = 1 in which a state may come home, and how many times as many are made at
most, as long as each time some state has come home. In many dimensions the particles of the
annealed pass can end far from where the posterior has its mass, and be long on their way to it."""

HOME_STAGES = (1.0, 0.75, 0.5, 0.25)
"""Places on the annealed path whose tuning these transitions have, one after the other. Far from
its mass the posterior looks as it did at a hotter stage, where the metric had a longer reach."""

IDLE_ROUNDS = 1, 5
"""Rounds in a row in which nobody came home, before the next step size; these in many dimensions.
There a scale near zero is a wide plateau: it takes a while until its effects lead it away."""

HOME_STEPS = (1.0, 0.3, 0.1)
"""Factors of the tuned step sizes, the next for those that the one before has left away. Outside of
the posterior's mass it can curve more strongly than where steps were tuned; a trajectory that is
too coarse for it is rejected again and again, and the state stays where it is."""

MIN_HOME_COST = 20_000
"""Density evaluations that the ways home of one group of states may take, or as many as all
annealed passes took, if that is more."""

HOME_BLOCK, WIDE_BLOCKS = (25, 1), (15, 2)
"""Looks that are moved on together, as long as some of them come home, and blocks of so many on
threads; and these in many dimensions."""

PART = 20
"""States that move between two looks at the clock."""


def has_arrived(states: Evaluated, draws: Evaluated) -> np.ndarray:
    """Whether log-likelihood and log density of states are above a low quantile of draws' (n,)."""
    floors = (
        np.quantile(each, ARRIVAL_QUANTILE) for each in (draws.log_likelihood, draws.log_target)
    )
    likely, dense = floors
    return (states.log_likelihood >= likely) & (states.log_target >= dense)


def arrived_at(states: Evaluated, fit: ReferenceFit) -> np.ndarray:
    """Whether states have arrived, and at a place that the fit covers, shape (n,).

    One of the height of the draws that the fit hardly covers may be in another mode.
    """
    return has_arrived(states, fit.draws) & ~fit.suspects(states)


def is_above(states: Evaluated, draws: Evaluated) -> np.ndarray:
    """Whether log-likelihood and log density of states are both above those of all draws, (n,)."""
    likely, dense = draws.log_likelihood.max(), draws.log_target.max()
    return (states.log_likelihood > likely) & (states.log_target > dense)


@dataclass(frozen=True, eq=False)
class Away:
    """States that were moved on and did not come home.

    Attributes
    ----------
    at : array of int, shape (m,)
        Which of those that set out they are.
    ends : Evaluated
        Where they are now.
    ended : bool
        Whether the deadline or the bound in evaluations ended their way.
    """

    at: np.ndarray
    ends: Evaluated
    ended: bool


def bring_home(
    job: Job, passes: Passes, fit: ReferenceFit, looks: Evaluated
) -> tuple[np.ndarray, Away]:
    """Move looks that are on their way at beta = 1, in blocks, while that brings some home.

    Returns
    -------
    arrived : array of bool, shape (n,)
        Whether each of the looks has arrived, by itself or by these moves.
    away : Away
        Those that were moved and have not.
    """
    arrived = arrived_at(looks, fit)
    idle, none = np.flatnonzero(~arrived), np.zeros(0, dtype=int)
    away = Away(none, looks.at(none), ended=False)
    size, at_once = WIDE_BLOCKS if is_wide(job.prior.path) else HOME_BLOCK
    for start in range(0, idle.size, size * at_once):
        if arrived.sum() >= MIN_ARRIVALS:
            break
        end = min(start + size * at_once, idle.size)
        blocks = [idle[i : min(i + size, end)] for i in range(start, end, size)]
        more = _moved_on(job, passes, fit, looks, blocks)
        home = np.setdiff1d(np.concatenate(blocks), more.at)
        arrived[home] = True
        away = _together([away, more])
        if home.size == 0 or more.ended:
            break
    return arrived, away


def _moved_on(
    job: Job, passes: Passes, fit: ReferenceFit, looks: Evaluated, blocks: Sequence[np.ndarray]
) -> Away:
    """Tell which looks of some blocks do not come home; on threads."""

    def one(job: Job, block: np.ndarray) -> Away:
        away = way_home(job, passes, fit, looks.xs[block], patient=False)
        return replace(away, at=block[away.at])

    if len(blocks) == 1:
        return one(job, blocks[0])
    jobs = [replace(job, rng=own) for own in job.rng.spawn(len(blocks))]
    tasks: list[Task[Away]] = [
        lambda stop, own=own, block=block: one(own, block)
        for own, block in zip(jobs, blocks, strict=True)
    ]
    every, interrupted = run_tasks(tasks, job.cores)
    if interrupted:
        raise KeyboardInterrupt("Interrupted while looks were brought home.")
    return _together(every)


def _together(parts: Sequence[Away]) -> Away:
    """Put those of several ways into one."""
    at = np.concatenate([away.at for away in parts])
    return Away(at, join([away.ends for away in parts]), any(away.ended for away in parts))


def way_home(
    job: Job, passes: Passes, fit: ReferenceFit, xs: np.ndarray, *, patient: bool = True
) -> Away:
    """Move states at beta = 1 in blocks of `HOME_SWEEPS` transitions until they are home.

    Parameters
    ----------
    xs : array, shape (n, d)
        Unconstrained.
    patient : bool, default True
        Whether those that stay away are tried with smaller steps too.

    Returns
    -------
    Away
        Those that did not come home.
    """
    at = np.arange(len(xs))
    way = way_of(job)
    particles = place(way, job.kernel, way.inner(xs), job.rng)
    bound = max(MIN_HOME_COST, passes.n_evaluations)
    rounds = IDLE_ROUNDS[patient and is_wide(job.prior.path)]

    def ended() -> bool:
        return particles.n_evaluations > bound or job.deadline.late

    for factor in HOME_STEPS if patient else HOME_STEPS[:1]:
        tuning = passes.best.tuning
        tuned = replace(tuning, step_sizes=factor * tuning.step_sizes).pack(job.kernel)
        stages = [tuned[round(share * (len(tuned) - 1))] for share in HOME_STAGES]
        idle = 0
        for _ in range(MAX_HOME_ROUNDS):
            before = at.size
            for params in stages:
                if at.size == 0 or ended():
                    break
                at = _still_away(job, way, particles, at, params, fit)
            idle = idle + 1 if at.size == before else 0
            if at.size == 0 or ended() or idle == rounds:
                break
    job.tally.work["looks"] += len(xs) + particles.n_evaluations
    return Away(at, states_of(job, way, particles), at.size > 0 and ended())


def _still_away(
    job: Job,
    way: Prior,
    particles: Particles,
    at: np.ndarray,
    params: np.ndarray,
    fit: ReferenceFit,
) -> np.ndarray:
    """Move particles at beta = 1 until they are home; keep the others, and their part of `at`."""
    for _ in range(HOME_SWEEPS):
        for start in range(0, particles.n, PART):
            if job.deadline.late:
                return at
            sweep(particles, 1.0, params, part=slice(start, start + PART))
        away = np.flatnonzero(~fit.home(states_of(job, way, particles)))
        particles.select(away)
        at = at[away]
        if at.size == 0:
            break
    return at


GROUP = 10
"""Suspects of an annealed pass or of a fit that are moved on together."""

FINER = 4
"""How many times as many stages the path of further looks has, where those of the annealed pass
bring too few to their end."""

LOOK_BATCH, LOOKING = (50, 25), (0.0025, 0.04)
"""Further looks that are taken together, and so many where values are dear. For each look that was
asked for, after so many times the evaluations of the annealed passes they go on only if enough
would arrive within the second number of times."""

MAX_SEARCHES = 4
"""Rounds of a search, the last of which must find nothing new."""

THOROUGH = 2
"""Rounds after which what hardly has mass, less than `LET_GO` of the evidence in all, is let go:
there may be more and more of it."""

PEAK_DRAWS, PEAK_SHARE = 20, (0.05, 0.5)
"""Draws of a peak for each dimension that its component is made from, and the bounds of the share
that it gets in the reference, before weighted draws tell its own."""

WORSE = 2.0
"""A new fit is not taken if the second moment of its weights is more than so many times that of the
one before; a fit to few draws can be so."""

NO_SHARE = 1e-3
"""A peak with a smaller share of the draws than this is let go."""


@dataclass(frozen=True, eq=False)
class SearchRound:
    """What one round of a search has found.

    Attributes
    ----------
    looks : Looks
    strange : array of bool, shape (looks.n,)
        Looks that ended where the reference hardly goes, did not come home in a short chain, and
        are not at a peak without mass.
    arrived : array of bool, shape (looks.n,)
        Looks that came to where the posterior is.
    home_passes, islands : int
        Annealed passes of which particles are where the posterior is, and those with an island that
        did not come home.
    heavy : list of Peak
        New peaks that may have mass.
    complete : bool
        Whether all suspects were followed up.
    """

    looks: Looks
    strange: np.ndarray
    arrived: np.ndarray
    home_passes: int
    islands: int
    heavy: list[Peak]
    complete: bool

    @property
    def found_nothing(self) -> bool:
        """Whether there is nothing new, and nothing left to look at."""
        return self.complete and not self.heavy

    def reached(self, fit: ReferenceFit) -> float:
        """Share of the draws of a fit at components where looks have arrived."""
        return fit.share_near(self.looks.ends.at(self.arrived))

    def with_looks(self, looks: Looks, strange: np.ndarray, fit: ReferenceFit) -> "SearchRound":
        """Round with further looks."""
        return replace(
            self,
            looks=add_looks(self.looks, looks),
            strange=np.append(self.strange, strange),
            arrived=np.append(self.arrived, arrived_at(looks.ends, fit)),
        )


@dataclass(eq=False)
class Search:
    """A search under way: what it works with, and what it has come to.

    Attributes
    ----------
    job : Job
    passes : Passes
    hints : Evaluated
        Particles of the annealed passes.
    fit : ReferenceFit
        The last one.
    last : SearchRound, optional
        The last round, if one was finished.
    let_go : list of Peak
        Peaks without mass.
    dropped : float
        Share in all of the regions that were let go though they may have mass.
    rounds : int
    interrupted : bool
        Whether Ctrl-C ended the search.
    """

    job: Job
    passes: Passes
    hints: Evaluated
    fit: ReferenceFit
    last: SearchRound | None = None
    let_go: list[Peak] = field(default_factory=list)
    dropped: float = 0.0
    rounds: int = 0
    interrupted: bool = False

    @property
    def settled(self) -> bool:
        """Whether the last round found nothing new."""
        return self.last is not None and self.last.found_nothing


def search(job: Job, passes: Passes, fit: ReferenceFit) -> Search:
    """Look for what a fit has missed, and fit again, until a round finds nothing new.

    What the last round found enters a last fit all the same.
    """
    hints = evaluate_states(job.prior, passes.particles, job.value_cores)
    at = Search(job, passes, hints, fit)
    job.tally.work.update(looks=0, scouts=hints.n)
    try:
        while not at.settled and not (at.rounds and job.deadline.late):
            if at.last is not None and at.last.heavy:
                job.report(
                    f"Search {at.rounds}: fitting the reference with {len(at.last.heavy)} new"
                )
                try:
                    at.fit, gone = refit(job, at.fit, at.last.heavy)
                    at.let_go += gone
                except StuckChainError:  # a narrow peak is what sticks: the last fit stands
                    break
            if at.rounds == MAX_SEARCHES:
                break
            at.rounds += 1
            at.last = _round(at)
    except KeyboardInterrupt:
        at.interrupted = True
    return at


def first_looks(job: Job) -> int:
    """Return how many looks there are at first: as many as are asked for, fewer where dear."""
    asked = job.options.check_looks
    return effort_of(job.prior.path).looks if asked == Effort.looks else asked


def _round(at: Search) -> SearchRound:
    """Take looks, send scouts and follow up what they find, with the particles of the passes."""
    looks = take_looks(at.job, at.passes.best, first_looks(at.job))
    states = join([looks.ends, at.hints, at.fit.draws])
    strange, heavy, complete = _follow_up(at, states, looks.n, scouting=True)
    at.job.tally.work["looks"] += looks.n_evaluations
    islands = at.passes.shares(strange[looks.n : looks.n + at.hints.n]) >= ISLAND
    home = at.passes.shares(at.fit.home(at.hints)) >= ISLAND
    first = SearchRound(
        looks, strange[: looks.n], arrived_at(looks.ends, at.fit), int(home.sum()),
        int(islands.sum()), heavy, complete,
    )  # fmt: skip
    return _until_they_arrive(at, first) if first.found_nothing else first


def _follow_up(
    at: Search, states: Evaluated, n_looks: int, *, scouting: bool
) -> tuple[np.ndarray, list[Peak], bool]:
    """Follow up the suspects among states, of which some are looks, and those that scouts find.

    Returns
    -------
    strange : array of bool, shape (n,)
        Which of the states are neither at home nor at a peak without mass.
    heavy, complete
        As in `SearchRound`.
    """
    job, fit = at.job, at.fit
    states = fit.relabeled(states)
    strange = strangers(job, states, fit, at.passes, at.let_go, n_looks)
    suspects = states.at(strange)
    if can_climb(job.prior.path, job.kernel):
        scale = spread_of(job.prior.sample)
        if scouting:
            found = join([send_scouts(job, fit, scale), climb_further(job, fit, scale)])
            found = fit.relabeled(found)
            suspects = join([suspects, found.at(fit.suspects(found))])
        least, most = least_mass(fit.log_z), scouting_of(job)
        peaks, complete = find_peaks(job, suspects, scale, at.let_go, fit.locate, most, least)
    else:
        peaks, complete = peaks_by_chains(job, at.passes.best, suspects, fit)
    heavy, light = with_mass(job, at.passes.best, peaks, fit.log_z, fit)
    heavy = unknown_peaks(heavy, fit, job.rng)
    share = sum(peak.share(fit.log_z) for peak in heavy)
    few = not is_wide(job.prior.path, MAX_WEIGHED_DIM)
    if few and at.rounds > THOROUGH and at.dropped + share < LET_GO:
        heavy, light, at.dropped = [], [*light, *heavy], at.dropped + share
    at.let_go += light
    strange &= ~explained_by(light, states)
    stuck = np.flatnonzero(strange[:n_looks])
    stuck = stuck[~explained_by(heavy, states.at(stuck))]
    bound = max(MIN_HOME_COST, at.passes.n_evaluations)
    more, light, explained = weigh_regions(
        job, at.passes.best, states.xs[stuck], fit.log_z, bound, at.dropped, fit
    )
    at.dropped += sum(region.share(fit.log_z) for region in light)
    at.let_go += light
    strange &= ~explained_by(light, states)
    strange[stuck[explained]] = False
    return strange, heavy + more, complete


def _until_they_arrive(at: Search, last: SearchRound) -> SearchRound:
    """Move looks on, and take further ones, until enough have arrived or their bound is met.

    Further looks are followed up like the first ones. The bound is in evaluations, and told by
    what it took so far. Where values are dear, further looks come first: they are finer, and
    often cheaper than the ways of those that were too coarse; but not in many dimensions.
    """
    job, passes, fit, work = at.job, at.passes, at.fit, at.job.tally.work
    dear = job.prior.path.dear
    looks_first = dear and not is_wide(job.prior.path)
    batch, last = LOOK_BATCH[dear], last if looks_first else _brought_home(at, last)
    if not last.found_nothing:
        return last
    spent = last.looks.n_evaluations
    own = job.options.check_looks * passes.n_evaluations
    patience, most = (factor * own for factor in LOOKING)
    while (n := int(last.arrived.sum())) < MIN_ARRIVALS and not job.deadline.late:
        needed = spent * MIN_ARRIVALS / (n + np.sqrt(n) + 1.0)  # at a rate an error higher
        if spent > patience and needed > most:
            break
        job.report(f"Looks from the prior: {n} of {last.looks.n} have arrived")
        before = work["looks"] + work["scouts"]
        looks = take_looks(job, passes.best, batch, finer=FINER)
        work["looks"] += looks.n_evaluations
        strange, heavy, complete = _follow_up(at, looks.ends, looks.n, scouting=False)
        spent += work["looks"] + work["scouts"] - before
        last = replace(last.with_looks(looks, strange, fit), heavy=heavy, complete=complete)
        if not last.found_nothing:
            return last
    return _brought_home(at, last) if looks_first else last


def _brought_home(at: Search, last: SearchRound) -> SearchRound:
    """Return a round after those of its looks that are on their way were moved on.

    Those that did not come home may have come to a mode that nobody knows.
    """
    arrived, away = bring_home(at.job, at.passes, at.fit, last.looks.ends)
    strange, heavy, complete = _follow_up(at, away.ends, away.at.size, scouting=False)
    marked = last.strange.copy()
    marked[away.at[strange]] = True
    return replace(last, arrived=arrived, strange=marked, heavy=heavy, complete=complete)


def strangers(
    job: Job,
    states: Evaluated,
    fit: ReferenceFit,
    passes: Passes,
    let_go: Sequence[Peak] = (),
    n_looks: int | None = None,
) -> np.ndarray:
    """Whether states are suspects that do not come home by transitions at beta = 1.

    Suspects are states where the target is far above the reference, and those above all draws.
    After the first `n_looks` states, by default all, they go in small groups in any order, until
    none of a group comes home: the others of an island will not either.

    Returns
    -------
    array of bool, shape (n,)
    """
    strange = fit.suspects(states) | is_above(states, fit.draws)
    strange &= ~explained_by(let_go, states)
    at, n_looks = np.flatnonzero(strange), states.n if n_looks is None else n_looks
    others = job.rng.permutation(at[at >= n_looks])
    groups = [at[at < n_looks], *np.split(others, range(GROUP, others.size, GROUP))]
    for i, group in enumerate(groups):
        if group.size == 0:
            continue
        away = way_home(job, passes, fit, states.xs[group])
        strange[np.delete(group, away.at)] = False
        if away.ended or (i > 0 and away.at.size == group.size):
            break
    return strange


def refit(job: Job, fit: ReferenceFit, peaks: Sequence[Peak]) -> tuple[ReferenceFit, list[Peak]]:
    """Add a component for each peak, and fit again to weighted draws.

    Returns
    -------
    new : ReferenceFit
    let_go : list of Peak
        Those of which the new fit has hardly a draw.
    """
    components, n = one_labeling(fit.components), PEAK_DRAWS * (job.prior.path.dim + 1)
    masses = np.array([peak.log_mass for peak in peaks])
    total = np.logaddexp(np.logaddexp.reduce(masses), fit.log_z)
    for peak, mass in zip(peaks, masses, strict=True):
        share = float(np.clip(np.exp(mass - total), *PEAK_SHARE))
        components = components.with_cluster(peak.draw(n, job.rng), share)
    components = all_labelings(components, fit.components.labelings)
    new = fit_reference(job, components, fit.draws.xs)
    if new.near:
        worse = _is_worse(job, new, components)
        new = replace(new, reference=Fitted(job.prior, components)) if worse else new
    return new, [peak for peak in peaks if peak.holds(new.draws.xs).mean() < NO_SHARE]


def _is_worse(job: Job, new: ReferenceFit, old: Mixture) -> bool:
    """Whether weights of a new fit vary far more than those of an old one, or it has lost modes.

    Draws of the old one tell both second moments, since the new one does not draw what it has lost.
    """
    n = effort_of(job.prior.path).proposed
    states = evaluate_states(job.prior, old.draw(n, job.rng), job.value_cores)
    job.tally.work["fit"] += states.n
    log_w, log_new = states.log_ratio(old), states.log_ratio(new.components)
    return log_mean(log_w + log_new) > log_mean(2.0 * log_w) + np.log(WORSE)
