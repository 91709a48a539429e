"""The search from the prior for what a fitted reference has not seen.

Each round takes fresh looks and fresh scouts. A state far above what the reference knows is a
suspect. Most were only on their way: a short chain at beta = 1 brings them home. Peaks that may
have mass become components, the reference is fitted again, and the search goes on, until a round
finds nothing new. The looks of the last round are those that count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from pymc_tempering.chain.particles import Particles, place, sweep
from pymc_tempering.core.time_left import time_left
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, join
from pymc_tempering.sampling.fit_reference import ReferenceFit, fit_reference
from pymc_tempering.sampling.gradients import can_climb
from pymc_tempering.sampling.looks import Looks, states_of, take_looks
from pymc_tempering.sampling.scouts import ascend
from pymc_tempering.sampling.setup import Job
from pymc_tempering.sampling.suspects import (
    Peak,
    find_peaks,
    peaks_by_chains,
    seen,
    with_mass,
)
from pymc_tempering.warmup.annealed_pass import AnnealedPass

N_SCOUTS, SCOUT_BATCH, MAX_SCOUTING = 4000, 500, 10_000
"""Scouts of a round, how many go at a time, and evaluations after which no more are sent."""

MAX_SEARCHES = 4
"""Rounds of a search, the last of which must find nothing new."""

PEAK_DRAWS, PEAK_SHARE = 20, (0.05, 0.5)
"""Draws of a peak for each dimension that its component is made from, and the bounds of the share
that it gets in the reference, before weighted draws tell its own."""

HOME_SWEEPS, MAX_HOME_ROUNDS = 40, 10
"""Transitions at beta = 1 in which a suspect may come home, and how many times as many are made at
most, as long as each time some suspect has come home. In many dimensions the particles of the
annealed pass can end far from where the posterior has its mass, and be long on their way to it."""

HOME_STAGES = (1.0, 0.75, 0.5, 0.25)
"""Places on the annealed path whose tuning these transitions have, one after the other. Far from
its mass the posterior looks as it did at a hotter stage, where the metric had a longer reach."""

HOME_STEPS = (1.0, 0.3, 0.1)
"""Factors of the tuned step sizes, the next for those that the one before has left away. Outside of
the posterior's mass it can curve more strongly than where steps were tuned; a trajectory that is
too coarse for it is rejected again and again, and the state stays where it is."""

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
    scouts : Evaluated
        Where scouts ended outside of the known regions.
    heavy : list of Peak
        New peaks that may have mass.
    complete : bool
        Whether all suspects were followed up.
    """

    looks: Looks
    strange: np.ndarray
    scouts: Evaluated
    heavy: list[Peak]
    complete: bool


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
        Particles of the annealed pass, and where the scouts of all rounds ended outside of the
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


def search(job: Job, annealed: AnnealedPass, fit: ReferenceFit) -> Search:
    """Look for what a fit has missed, and fit again, until a round finds nothing new."""
    work = {"looks": 0, "scouts": 0, "fit": 0}
    let_go: list[Peak] = []
    hints = evaluate_states(job.prior, np.unique(annealed.particles, axis=0))
    work["scouts"] += hints.n
    scouts, last, rounds, settled, interrupted = hints, None, 0, False, False
    try:
        while not settled and rounds < MAX_SEARCHES and not (rounds and job.deadline.late):
            if last is not None and last.heavy:
                n_new = len(last.heavy)
                job.report(f"Search {rounds}: fitting the reference with {n_new} new component(s)")
                fit = _refit(job, fit, last.heavy)
                work["fit"] += fit.n_evaluations
                found = fit.draws.xs
                let_go += [peak for peak in last.heavy if peak.holds(found).mean() < NO_SHARE]
            rounds += 1
            looks = take_looks(job, annealed, job.options.check_looks)
            last = _follow_up(job, annealed, fit, looks, hints, let_go, work)
            scouts = join([scouts, last.scouts])
            settled = last.complete and not last.heavy
    except KeyboardInterrupt:
        interrupted = True
    return Search(fit, last, scouts, let_go, settled, interrupted, rounds, work)


def _follow_up(
    job: Job,
    annealed: AnnealedPass,
    fit: ReferenceFit,
    looks: Looks,
    hints: Evaluated,
    let_go: list[Peak],
    work: dict[str, int],
) -> SearchRound:
    """Follow up the suspects of looks, hints and scouts; adds to `let_go` and `work`."""
    states = join([looks.ends, hints, fit.draws])
    strange, cost = strangers(job, states, fit, annealed, let_go)
    work["looks"] += looks.n_evaluations + cost
    if can_climb(job):
        scale = _spread(job.prior.sample)
        scouts, cost = _send_scouts(job, fit, scale)
        suspects = join([states.at(strange), scouts.at(is_suspect(scouts, fit))])
        found = find_peaks(job.prior.path, suspects, scale, let_go, fit.known.home)
    else:
        scouts, cost = states.at(np.zeros(0, dtype=int)), 0
        found = peaks_by_chains(job, annealed, states.at(strange))
    work["scouts"] += cost + found.n_evaluations
    heavy, light = with_mass(found.peaks, fit.log_z)
    heavy = _unknown(heavy, fit)
    let_go += light
    for peak in light:
        strange &= ~peak.holds(states.xs)
    return SearchRound(looks, strange[: looks.n], scouts, heavy, found.complete)


def _unknown(peaks: list[Peak], fit: ReferenceFit) -> list[Peak]:
    """Peaks that draws of the fit have not seen, or that its reference hardly covers."""
    if not peaks:
        return []
    tops = evaluate_states(fit.reference.prior, np.array([peak.mean for peak in peaks]))
    known = seen(peaks, fit.log_z, fit.draws.xs) & ~is_suspect(tops, fit)
    return [peak for peak, is_known in zip(peaks, known, strict=True) if not is_known]


def is_suspect(states: Evaluated, fit: ReferenceFit) -> np.ndarray:
    """Whether log_ratio of states is far above that of all posterior draws of the fit."""
    return fit.known.suspects(states)


def strangers(
    job: Job,
    states: Evaluated,
    fit: ReferenceFit,
    annealed: AnnealedPass,
    let_go: Sequence[Peak] = (),
) -> tuple[np.ndarray, int]:
    """Whether states are suspects that do not come home in a short chain at beta = 1.

    Returns
    -------
    strange : array of bool, shape (n,)
    n_evaluations : int
    """
    strange = is_suspect(states, fit)
    for peak in let_go:
        strange &= ~peak.holds(states.xs)
    at = np.flatnonzero(strange)
    if at.size == 0:
        return strange, 0
    particles = place(job.prior, job.kernel, states.xs[at], job.rng)
    evaluations = at.size
    for factor in HOME_STEPS:
        if at.size == 0:
            break
        tuned = annealed.tuning.with_steps(factor).pack(job.kernel)
        stages = [tuned[round(share * (len(tuned) - 1))] for share in HOME_STAGES]
        for _ in range(MAX_HOME_ROUNDS):
            before = at.size
            for params in stages:
                at = _still_away(particles, at, params, fit)
            if at.size in (0, before):
                break
    strange[:] = False
    strange[at] = True
    return strange, evaluations + particles.n_evaluations


def _still_away(
    particles: Particles, at: np.ndarray, params: np.ndarray, fit: ReferenceFit
) -> np.ndarray:
    """Move particles at beta = 1 until they are home; keep the others, and their part of `at`."""
    for _ in range(HOME_SWEEPS):
        if at.size == 0:
            break
        sweep(particles, 1.0, params)
        away = np.flatnonzero(~fit.known.home(states_of(particles)))
        particles.select(away)
        at = at[away]
    return at


def _send_scouts(job: Job, fit: ReferenceFit, scale: np.ndarray) -> tuple[Evaluated, int]:
    """Where scouts ended outside of the known regions, and their density evaluations."""
    prior, evaluations, began = job.prior, 0, perf_counter()
    ends: list[Evaluated] = []
    for _ in range(N_SCOUTS // SCOUT_BATCH):
        left = time_left(evaluations / MAX_SCOUTING, began)
        job.report(f"Scouts from the prior: {SCOUT_BATCH * len(ends)} of {N_SCOUTS} at most{left}")
        starts = prior.draw(SCOUT_BATCH, prior.spawn(job.rng))
        ascent = ascend(prior.path, starts, scale, fit.known.home, deadline=job.deadline)
        ends.append(ascent.ends)
        evaluations += ascent.n_evaluations
        if evaluations >= MAX_SCOUTING or job.deadline.late:
            break
    return join(ends), evaluations


def _spread(xs: np.ndarray) -> np.ndarray:
    """Width of each variable between its quartiles, as a standard deviation; safe in any tail."""
    xs = xs[np.isfinite(xs).all(axis=1)]
    low, high = np.quantile(xs, [0.25, 0.75], axis=0)
    width = (high - low) / 1.349
    return np.where(np.isfinite(width) & (width > 0), width, 1.0)


def _refit(job: Job, fit: ReferenceFit, peaks: list[Peak]) -> ReferenceFit:
    """Add a component for each peak, and fit again to weighted draws."""
    components, n = fit.components.modes, PEAK_DRAWS * (job.prior.path.dim + 1)
    masses = np.array([peak.log_mass for peak in peaks])
    total = np.logaddexp(np.logaddexp.reduce(masses), fit.log_z)
    for peak, mass in zip(peaks, masses, strict=True):
        share = float(np.clip(np.exp(mass - total), *PEAK_SHARE))
        components = components.with_cluster(peak.draw(n, job.rng), share)
    return fit_reference(job, components, fit.draws.xs)
