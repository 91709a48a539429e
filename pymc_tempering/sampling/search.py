"""The search from the prior for what a fitted reference has not seen.

Each round takes fresh looks and fresh scouts. A state far above what the reference knows is a
suspect. Most were only on their way: a short chain at beta = 1 brings them home. Peaks that may
have mass become components, the reference is fitted again, and the search goes on, until a round
finds nothing new. The looks of the last round are those that count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pymc_tempering.evidence.reference_check import ISLAND, MIN_ARRIVALS
from pymc_tempering.exceptions import StuckChainError
from pymc_tempering.sampling.arrivals import (
    MIN_HOME_COST,
    bring_home,
    has_arrived,
    is_above,
    way_home,
)
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, join
from pymc_tempering.sampling.fit_reference import ReferenceFit
from pymc_tempering.sampling.gradients import can_climb
from pymc_tempering.sampling.looks import Looks, add_looks, take_looks
from pymc_tempering.sampling.passes import Passes
from pymc_tempering.sampling.refit import refit
from pymc_tempering.sampling.regions import peaks_by_chains, weigh_regions
from pymc_tempering.sampling.scouts import scouting_of, send_scouts, spread_of
from pymc_tempering.sampling.setup import Job
from pymc_tempering.sampling.suspects import (
    Peak,
    find_peaks,
    holds_any,
    least_mass,
    unknown_peaks,
    with_mass,
)

GROUP = 10
"""Suspects of an annealed pass or of a fit that are moved on together."""

FINER = 4
"""How many times as many stages the path of further looks has, where those of the annealed pass
bring too few to their end."""

LOOK_BATCH, LOOKING = 50, (0.0025, 0.04)
"""Further looks that are taken together. For each look that was asked for, after so many times the
evaluations of the annealed passes they go on only if enough would arrive within the second number
of times."""

MAX_SEARCHES = 4
"""Rounds of a search, the last of which must find nothing new."""


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
    scouts : Evaluated
        Where scouts ended outside of the known regions.
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
    scouts: Evaluated
    heavy: list[Peak]
    complete: bool

    @property
    def found_nothing(self) -> bool:
        """Whether there is nothing new, and nothing left to look at."""
        return self.complete and not self.heavy


@dataclass(frozen=True, eq=False)
class Search:
    """What a search came to.

    Attributes
    ----------
    fit : ReferenceFit
        The last one.
    last : SearchRound, optional
        The last round, if one was finished.
    scouts : Evaluated
        Particles of the annealed passes, and where the scouts of all rounds ended outside of the
        known regions.
    let_go : list of Peak
        Peaks without mass.
    settled : bool
        Whether the last round found nothing new.
    interrupted : bool
        Whether Ctrl-C ended the search.
    rounds : int
    n_evaluations : dict
        Density evaluations of looks, scouts and new fits.
    """

    fit: ReferenceFit
    last: SearchRound | None
    scouts: Evaluated
    let_go: list[Peak]
    settled: bool
    interrupted: bool
    rounds: int
    n_evaluations: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _FollowedUp:
    """What came of states that were followed up, and of scouts; as in `SearchRound`.

    `strange` is of all the states, shape (n,).
    """

    strange: np.ndarray
    scouts: Evaluated
    heavy: list[Peak]
    complete: bool


@dataclass(eq=False)
class _Searcher:
    """One search under way: what it works with, and what it has let go and spent so far.

    `dropped` is the share in all of the regions that looks were stuck in and that were let go.
    """

    job: Job
    passes: Passes
    hints: Evaluated
    let_go: list[Peak] = field(default_factory=list)
    dropped: float = 0.0
    work: dict[str, int] = field(default_factory=lambda: {"looks": 0, "scouts": 0, "fit": 0})


def search(job: Job, passes: Passes, fit: ReferenceFit) -> Search:
    """Look for what a fit has missed, and fit again, until a round finds nothing new.

    What the last round found enters a last fit all the same.
    """
    hints = evaluate_states(job.prior, passes.particles)
    at = _Searcher(job, passes, hints)
    at.work["scouts"] += hints.n
    scouts, last, rounds, interrupted = hints, None, 0, False
    try:
        while not (last and last.found_nothing) and not (rounds and job.deadline.late):
            if last is not None and last.heavy:
                job.report(f"Search {rounds}: fitting the reference with {len(last.heavy)} new")
                try:
                    fit, gone = refit(job, fit, last.heavy)
                    at.work["fit"] += fit.n_evaluations
                    at.let_go += gone
                except StuckChainError:  # a narrow peak is what sticks: the last fit stands
                    break
            if rounds == MAX_SEARCHES:
                break
            rounds += 1
            last = _round(at, fit)
            scouts = join([scouts, last.scouts])
    except KeyboardInterrupt:
        interrupted = True
    settled = last is not None and last.found_nothing
    return Search(fit, last, scouts, at.let_go, settled, interrupted, rounds, at.work)


def _round(at: _Searcher, fit: ReferenceFit) -> SearchRound:
    """Take looks, send scouts and follow up what they find, with the particles of the passes."""
    job = at.job
    looks = take_looks(job, at.passes.best, job.options.check_looks)
    states = join([looks.ends, at.hints, fit.draws])
    found = _follow_up(at, fit, states, looks.n, scouting=True)
    at.work["looks"] += looks.n_evaluations
    islands = at.passes.shares(found.strange[looks.n : looks.n + at.hints.n]) >= ISLAND
    home = at.passes.shares(fit.known.home(at.hints)) >= ISLAND
    first = SearchRound(
        looks,
        found.strange[: looks.n],
        has_arrived(looks.ends, fit.draws),
        int(home.sum()),
        int(islands.sum()),
        found.scouts,
        found.heavy,
        found.complete,
    )
    return _until_they_arrive(at, fit, first) if first.found_nothing else first


def _follow_up(
    at: _Searcher, fit: ReferenceFit, states: Evaluated, n_looks: int, *, scouting: bool
) -> _FollowedUp:
    """Follow up the suspects among states, of which some are looks, and those that scouts find.

    In the result no state is strange that is at home or at a peak without mass.
    """
    job = at.job
    strange, cost = strangers(job, states, fit, at.passes, at.let_go, n_looks)
    at.work["looks"] += cost
    none = states.at(np.zeros(0, dtype=int))
    if can_climb(job):
        scale = spread_of(job.prior.sample)
        scouts, cost = send_scouts(job, fit.known, scale) if scouting else (none, 0)
        suspects = join([states.at(strange), scouts.at(is_suspect(scouts, fit))])
        least, most = least_mass(fit.log_z), scouting_of(job)
        found = find_peaks(job, suspects, scale, at.let_go, fit.known.locate, most, least)
    else:
        scouts, cost = none, 0
        found = peaks_by_chains(job, at.passes.best, states.at(strange))
    heavy, light, weighed = with_mass(job, found.peaks, fit.log_z)
    at.work["scouts"] += cost + found.n_evaluations + weighed
    heavy = unknown_peaks(heavy, fit, job.rng)
    at.let_go += light
    strange &= ~holds_any(light, states.xs)
    stuck = np.flatnonzero(strange[:n_looks])
    stuck = stuck[~holds_any(heavy, states.xs[stuck])]
    bound = max(MIN_HOME_COST, at.passes.n_evaluations)
    regions = weigh_regions(job, at.passes.best, states.xs[stuck], fit.log_z, bound, at.dropped)
    at.work["fit"] += regions.n_evaluations
    at.dropped += sum(region.share(fit.log_z) for region in regions.light)
    at.let_go += regions.light
    strange &= ~holds_any(regions.light, states.xs)
    strange[stuck[regions.explained]] = False
    return _FollowedUp(strange, scouts, heavy + regions.heavy, found.complete)


def _until_they_arrive(at: _Searcher, fit: ReferenceFit, last: SearchRound) -> SearchRound:
    """Move looks on, and take further ones, until enough have arrived or their bound is met.

    Further looks are followed up like the first ones. The bound is in evaluations, and told by
    what it took so far.
    """
    job, passes = at.job, at.passes
    arrived, cost = bring_home(job, passes, fit, last.looks.ends)
    at.work["looks"] += cost
    last, spent = replace(last, arrived=arrived), last.looks.n_evaluations
    own = job.options.check_looks * passes.n_evaluations
    patience, most = (factor * own for factor in LOOKING)
    while (n := int(last.arrived.sum())) < MIN_ARRIVALS and not job.deadline.late:
        needed = spent * MIN_ARRIVALS / (n + np.sqrt(n) + 1.0)  # at a rate an error higher
        if spent > patience and needed > most:
            break
        job.report(f"Looks from the prior: {n} of {last.looks.n} have arrived")
        before = at.work["looks"] + at.work["scouts"]
        looks = take_looks(job, passes.best, LOOK_BATCH, finer=FINER)
        at.work["looks"] += looks.n_evaluations
        found = _follow_up(at, fit, looks.ends, looks.n, scouting=False)
        spent += at.work["looks"] + at.work["scouts"] - before
        last = replace(
            last,
            looks=add_looks(last.looks, looks),
            strange=np.append(last.strange, found.strange),
            arrived=np.append(last.arrived, has_arrived(looks.ends, fit.draws)),
            heavy=found.heavy,
            complete=found.complete,
        )
        if not last.found_nothing:
            break
    return last


def is_suspect(states: Evaluated, fit: ReferenceFit) -> np.ndarray:
    """Whether log_ratio of states is far above that of all posterior draws of the fit."""
    return fit.known.suspects(states)


def strangers(
    job: Job,
    states: Evaluated,
    fit: ReferenceFit,
    passes: Passes,
    let_go: Sequence[Peak] = (),
    n_looks: int | None = None,
) -> tuple[np.ndarray, int]:
    """Whether states are suspects that do not come home by transitions at beta = 1.

    Suspects are states where the target is far above the reference, and those above all draws.
    After the first `n_looks` states, by default all, they go in small groups in any order, until
    none of a group comes home: the others of an island will not either.

    Returns
    -------
    strange : array of bool, shape (n,)
    n_evaluations : int
    """
    strange = is_suspect(states, fit) | is_above(states, fit.draws)
    strange &= ~holds_any(let_go, states.xs)
    at, n_looks = np.flatnonzero(strange), states.n if n_looks is None else n_looks
    others = job.rng.permutation(at[at >= n_looks])
    groups = [at[at < n_looks], *np.split(others, range(GROUP, others.size, GROUP))]
    evaluations = 0
    for i, group in enumerate(groups):
        if group.size == 0:
            continue
        ways = way_home(job, passes, fit, states.xs[group])
        evaluations += ways.n_evaluations
        strange[np.delete(group, ways.away)] = False
        if ways.ended or (i > 0 and ways.away.size == group.size):
            break
    return strange, evaluations
