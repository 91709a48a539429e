"""A reference fitted to annealed passes, and to weighted draws of its own until these are enough.

A pass follows its own particles: where phases part it may end in the wrong one, with all its
weight, and nothing in it shows that. Passes that know nothing of each other do not fail together as
often. Their number is fixed before they are made; where they differ there are more, and agreement
never makes them fewer.

A draw of the reference costs one value of the density and no gradient, and is independent. Where
the reference is far off, so that few of its draws have weight, tempered trial runs give the draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Event
from typing import Any

import numpy as np

from pymc_tempering.chain.chains import ChainRun, run_chains, start_runs
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.deadline import annealing_lines
from pymc_tempering.core.threads import Task, run_tasks
from pymc_tempering.core.weighting import effective_number, kish, log_mean
from pymc_tempering.evidence.reference_check import suspect_above
from pymc_tempering.evidence.rts import rts
from pymc_tempering.exceptions import LikelihoodError, StuckChainError, TimeLimitError
from pymc_tempering.kernels import Compound
from pymc_tempering.references.curved_fit import fit_by_curvature
from pymc_tempering.references.labels import one_labeling, relabeled
from pymc_tempering.references.mixture import Mixture, nearest_component
from pymc_tempering.references.mixture_fit import MAX_FIT_DRAWS, fit_mixture
from pymc_tempering.references.prior import Fitted, Reference
from pymc_tempering.references.warp_fit import find_followers
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.effort import effort_of, is_wide
from pymc_tempering.sampling.evaluated import (
    Evaluated,
    can_climb,
    evaluate_states,
    home_radius,
    join,
    target_scores,
    terms_of,
    way_of,
)
from pymc_tempering.sampling.recorded import cycles_of, steps_of
from pymc_tempering.warmup.annealed_pass import AnnealedPass, anneal, kernel_for
from pymc_tempering.warmup.warm_up import Warmup, warm_up

HOME_DRAWS = 5
"""Draws for each number of its mean and one, with which a component of a fit is a home. One with
fewer may be far too narrow for its mode: what is left of copies of a particle that hardly moved."""

HOPELESS = 12.0
"""Nats by which the mass of an island may lie below that of the largest before it is left out."""

MAX_PROPOSALS = 2
"""References of which draws are weighted at most."""

MIN_SHARE, BY_DIM = 0.05, 3
"""Trial runs give the draws where weighted ones are worth a smaller share than the first, or fewer
than the second for each dimension: a fit to so few makes the reference worse."""

NEAR_SHARE = 0.2
"""Effective share of the weights from which on the fit to the draws of a reference is the last."""

MAX_BATCHES = 4
"""How many times so many draws of one reference there are at most. In many dimensions a thousand of
them cost less than a tenth of a fit."""

N_TRIAL_CHAINS, TRIAL_DRAWS, MAX_TRIALS = 4, 500, 3
"""Chains of a trial run, draws of each, and the number of trials at most. The one after a fit to
draws enough is the last: a further fit makes the reference no better."""

NUMBER_DRAWS, ENOUGH_DRAWS = 10, 2000
"""A mixture needs this many draws for each of its parameters; and no more than these."""

STRETCH, STRETCHED_SHARE = 4.0, 0.2
"""What a field depends on are mostly logs of scales, which have exponential tails: for each of them
there are copies of the components so many times as wide along it, and this share is theirs."""

CURVED_DRAWS, CURVED_BATCHES = 100, 24
"""Effective draws of a fit by curvature that are enough, since no fit is made to them; and how many
batches of draws there are at most."""

MAX_RAGGED, CURVED_DIM = 20.0, 4000
"""Standard deviation of log_ratio (nats) at draws of a fit by curvature above which it is none, and
dimensions at most: the factors are dense while it is made."""

WARP_DIM = 200
"""Dimensions up to which the search for a warp takes less than a second."""

TRIAL_ROUNDS, MAX_ROUNDS = 2, 8
"""Rounds in which the weights of a trial's ladder are learned, and those of a ladder to keep."""

N_PASSES, MORE_PASSES = 3, 3
"""Passes of every search, and how many more there are where these differ."""

MAX_SPREAD, MODE_SHARE = 2.0, 0.1
"""Passes differ if one has no particle in a mode that holds the second share of all, or if their
log Z do by more than the first (nats). With the few particles of dear values, or in many dimensions
it is off by more than that without any modes: by 3 nats, by hundreds in 1,800 dimensions."""

STAGE_COST = 20.0
"""Gradients for each particle after which a stage of a pass does not go on to tune its step
sizes. In the funnel of a centered prior they are tiny, and stages near the prior took nearly all
evaluations of the pass: they have little to do there, as their particles are nearly exact."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Annealed passes that are independent of each other.

    Attributes
    ----------
    each : tuple of AnnealedPass
        At least one.
    """

    each: tuple[AnnealedPass, ...]

    @cached_property
    def best(self) -> AnnealedPass:
        """The pass of the largest log Z: a pass misses what it misses, and states less."""
        return max(self.each, key=lambda one: float(one.log_z[-1]))

    @property
    def particles(self) -> np.ndarray:
        """Of all passes at beta = 1, shape (n, d), unconstrained."""
        return np.concatenate([one.particles for one in self.each])

    @property
    def log_z(self) -> np.ndarray:
        """Of each pass, in nats, shape (P,)."""
        return np.array([one.log_z[-1] for one in self.each])

    @property
    def n_evaluations(self) -> int:
        """Density evaluations of all passes."""
        return sum(one.n_evaluations for one in self.each)

    @property
    def complete(self) -> bool:
        """Whether no deadline cut one of them short."""
        return all(one.complete for one in self.each)

    def shares(self, marked: np.ndarray) -> np.ndarray:
        """Share of the particles of each pass that are marked, shape (P,); `marked` is (n,)."""
        sizes = np.cumsum([len(one.particles) for one in self.each])[:-1]
        return np.array([part.mean() for part in np.split(marked, sizes)])


def make_passes(job: Job) -> Passes:
    """Anneal particles from the prior, several times.

    Raises
    ------
    LikelihoodError, TimeLimitError
        No pass has come to its end.
    KeyboardInterrupt
    """
    return Passes(tuple(_make(job, N_PASSES, annealing_lines(job.report))))


def more_passes(job: Job, passes: Passes, mode: np.ndarray) -> Passes:
    """Make more passes where these differ: in log Z, or in the modes where their particles are.

    Parameters
    ----------
    job : Job
    passes : Passes
    mode : array of int, shape (n,)
        Of each particle.
    """
    here = np.array([passes.shares(mode == j) for j in range(mode.max() + 1)])
    lacking = (here.mean(axis=1) >= MODE_SHARE) & (here.min(axis=1) == 0.0)
    rough = job.prior.path.dear or is_wide(job.prior.path)
    differ = lacking.any() or (np.ptp(passes.log_z) > MAX_SPREAD and not rough)
    if job.deadline.late or not differ:
        return passes
    job.report(f"Annealed passes differ: {MORE_PASSES} more of them")
    try:
        more = _make(job, MORE_PASSES, lambda beta: None)
    except (LikelihoodError, TimeLimitError):
        return passes
    return Passes((*passes.each, *(one for one in more if one.complete)))


def _make(job: Job, n: int, report: Callable[[float], None]) -> list[AnnealedPass]:
    """Make `n` passes, each with a generator of its own; those that fail are left out."""

    def work(own: np.random.Generator, tell: Callable[[float], None], stop: Event) -> _Made:
        def tell_or_stop(beta: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            tell(beta)

        if begun and job.deadline.late:
            return None
        begun.append(1)
        try:
            made = anneal(
                way, job.kernel, own, n_particles=n_particles, report=tell_or_stop,
                deadline=job.deadline, stage_cost=STAGE_COST,
            )  # fmt: skip
        except (LikelihoodError, TimeLimitError) as error:
            return error
        except KeyboardInterrupt:
            return None
        return made if way.warp is None else replace(made, states=way.outer(made.particles)[None])

    way, n_particles = way_of(job), effort_of(job.prior.path).particles
    begun = list[int]()  # before the time is over
    tells = [report, *[lambda beta: None] * (n - 1)]
    tasks: list[Task[AnnealedPass | LikelihoodError | TimeLimitError]] = [
        partial(work, own, tell) for own, tell in zip(job.rng.spawn(n), tells, strict=True)
    ]
    # Three of them on two cores, one after the other, would leave one idle for half of the time.
    threads = 1 if job.cores == 1 else max(job.cores, n)
    results, interrupted = run_tasks(tasks, threads)
    if interrupted:
        raise KeyboardInterrupt("Interrupted while particles were annealed.")
    made = [one for one in results if isinstance(one, AnnealedPass)]
    job.tally.work["prior_warmup"] += sum(one.n_evaluations for one in made)
    if not made:
        raise next(one for one in results if isinstance(one, Exception))
    # What the time has cut short is of no use beside one that came to its end.
    return [one for one in made if one.complete] or made[:1]


type _Made = AnnealedPass | LikelihoodError | TimeLimitError | None


@dataclass(frozen=True, eq=False)
class ReferenceFit:
    """A fitted reference, what is known of the posterior by it, and which regions it knows.

    Attributes
    ----------
    reference : Fitted
    draws : Evaluated
        Posterior draws, in good approximation.
    log_z : float
        Rough log evidence (nats), of one labeling as the draws.
    near : bool
        Whether weighted draws of the reference were enough, so that it is near the posterior.
    trial : Warmup, optional
        Of the last trial run, if that was made with this reference.
    """

    reference: Fitted
    draws: Evaluated
    log_z: float
    near: bool
    trial: Warmup | None = None

    @property
    def components(self) -> Mixture:
        """Of the reference."""
        return self.reference.components

    @cached_property
    def limit(self) -> float:
        """Value of log_ratio above which a state is a suspect."""
        return suspect_above(self.draws.log_ratio(self.components), self.draws.log_likelihood)

    @cached_property
    def lived_in(self) -> np.ndarray:
        """Whether draws enough have come from a mode of the reference, shape (J,)."""
        modes, first = self.components.modes, one_labeling(self.components)
        nearest = nearest_component(first, np.unique(self.draws.xs, axis=0))
        n_draws = np.bincount(nearest, minlength=first.n_components)
        needed = HOME_DRAWS * (modes.means.shape[1] + 1)
        own = n_draws >= min(needed, n_draws.max())
        return np.tile(own, modes.n_labelings)

    def relabeled(self, states: Evaluated) -> Evaluated:
        """States with the labels that the draws have, where these can be exchanged."""
        return replace(states, xs=relabeled(self.components, states.xs))

    def suspects(self, states: Evaluated) -> np.ndarray:
        """Whether log_ratio of states is far above that of all draws, shape (n,)."""
        return states.log_ratio(self.components) > self.limit

    def share_near(self, states: Evaluated) -> float:
        """Share of the draws that belong to a component to which some of the states do."""
        first = one_labeling(self.components)
        own = nearest_component(first, self.draws.xs)
        theirs = nearest_component(first, relabeled(self.components, states.xs))
        return float(np.isin(own, theirs).mean())

    def locate(self, states: Evaluated) -> tuple[np.ndarray, np.ndarray]:
        """Tell where states are.

        Returns
        -------
        home : array of bool, shape (n,)
            Whether they are no suspects, and lie where draws have come from.
        distance : array, shape (n,)
            Least squared distance, in standard deviations, from where draws have come from.
        """
        squares = self.components.modes.squares(states.xs)[:, self.lived_in]
        distance = np.asarray(squares.min(axis=1))
        home = distance < home_radius(self.components.dim)
        at = np.flatnonzero(home)
        home[at] = ~self.suspects(states.at(at))
        return home, distance

    def home(self, states: Evaluated) -> np.ndarray:
        """Whether states are no suspects, and lie where draws have come from, shape (n,)."""
        return self.locate(states)[0]

    def warm_up(self, job: Job) -> Warmup:
        """Freeze a plan of the reference."""
        if self.trial is not None:
            return self.trial
        near, far = effort_of(job.prior.path).trial_particles
        return _warm_up_fitted(job, self.reference, near if self.near else far, MAX_ROUNDS)


def fit_reference(job: Job, components: Mixture, seen: np.ndarray) -> ReferenceFit:
    """Improve a first fit by draws of its own.

    Parameters
    ----------
    job : Job
    components : Mixture
        The first fit.
    seen : array, shape (n, d)
        Draws that it was fitted to; they count as long as there are few others.
    """
    parts: list[Evaluated] = []
    for attempt in range(1, MAX_PROPOSALS + 1):
        job.report(f"Fitting the reference to {attempt} of {MAX_PROPOSALS} rounds of draws")
        reference, needed = Fitted(job.prior, components), draws_needed(components)
        wanted = needed - sum(part.n for part in parts)
        if components.curved:
            drawn, log_z, near = _propose(job, reference, CURVED_DRAWS)
            if drawn is None:
                return _by_trials(job, components, seen)
            return ReferenceFit(reference, drawn, log_z, True)
        drawn, log_z, near = _propose(job, reference, wanted)
        if drawn is None and components.n_white:  # the particles tell the few others well enough
            return replace(first_fit(job, components, seen), log_z=log_z)
        if drawn is None:
            return _by_trials(job, components, seen)
        parts.append(drawn)
        draws = join(parts)
        xs = np.concatenate([seen, draws.xs]) if draws.n < needed else draws.xs
        components = fit_to(job, xs, components)
        if near or (len(parts) > 1 and draws.n >= draws_needed(components)):
            break
    log_z -= np.log(components.n_labelings)
    made = ReferenceFit(Fitted(job.prior, components), draws, log_z, True)
    return replace(made, draws=made.relabeled(draws))


def _propose(job: Job, reference: Fitted, wanted: int) -> tuple[Evaluated | None, float, bool]:
    """Draw from a reference and resample by weights, until they are worth `wanted` draws.

    Returns
    -------
    drawn : Evaluated, optional
        None where the weights are worth too little.
    log_z : float
        Rough log evidence (nats).
    near : bool
        Whether the reference is near the posterior.
    """
    prior, rng, n = job.prior, job.rng, effort_of(job.prior.path).proposed
    batches: list[Evaluated] = []
    log_w, weight = np.empty(0), 0.0
    curved = reference.components.curved
    least = CURVED_DRAWS / 4 if curved else max(MIN_SHARE * n, BY_DIM * reference.components.dim)
    share, most = (0.0, CURVED_BATCHES) if curved else (MIN_SHARE, MAX_BATCHES)
    while not batches or (weight < wanted and len(batches) < most):
        draws = reference.draw(n, reference.spawn(rng))
        batches.append(evaluate_states(prior, draws, job.value_cores))
        job.tally.work["fit"] += n
        log_w = np.append(log_w, batches[-1].log_ratio(reference.components))
        weight = effective_number(log_w)
        if most**2 * weight < least:
            break
    if weight < share * log_w.size or weight < min(least, wanted):
        return None, log_mean(log_w), False
    w = np.exp(log_w - log_w.max())
    drawn = join(batches).at(rng.choice(log_w.size, int(weight), p=w / w.sum()))
    return drawn, log_mean(log_w), weight >= NEAR_SHARE * log_w.size


def fit_to(
    job: Job, draws: np.ndarray, start: Mixture | None = None, *, rough: bool = False
) -> Mixture:
    """Fit a mixture to draws, shape (n, d); once it is late, without a long search for a warp.

    White coordinates stay what they are.
    """
    if n_white := job.prior.path.n_white:
        inner = None if start is None else replace(start, n_white=0)
        made = fit_mixture(draws[:, :-n_white], job.rng, inner, rough=rough)
        every = np.arange(made.dim)
        made = made.with_stretched(every, STRETCHED_SHARE / max(1, made.dim), STRETCH)
        return replace(made, n_white=n_white)
    if is_wide(job.prior.path) and not job.deadline.late:
        curved = _by_curvature(job, draws, start, rough=rough)
        if curved is not None:
            return curved
    late = job.deadline.late and job.prior.path.dim > WARP_DIM
    screened = None if late else job.prior.screened
    return fit_mixture(
        draws, job.rng, start, screened, target_scores(job), rough, job.prior.labelings
    )


def _by_curvature(
    job: Job, draws: np.ndarray, start: Mixture | None, *, rough: bool
) -> Mixture | None:
    """Fit a single component by curvature, if there is one that is near the target.

    What is known to have several modes is not.
    """
    path = job.prior.path
    climbs = can_climb(path, job.kernel)
    if not climbs or path.density.data.evaluator is not None or path.dim > CURVED_DIM:
        return None
    if start is not None and start.modes.n_components > 1:
        return None
    rows = find_followers(job.prior.screened, draws, None if start is None else start.warp)
    if not rows:
        return None
    made = fit_by_curvature(draws, rows, terms_of(job), job.rng, rough=rough)
    if made is None or made[1].std() > MAX_RAGGED:
        return None
    return made[0]


def fit_to_passes(job: Job, passes: Passes) -> tuple[Passes, Mixture, np.ndarray]:
    """Fit a mixture to the particles of annealed passes, and make more where there are modes.

    A pass that ended in the wrong place has all its particles there. The mass of an island is told
    by its component: where that has the shape of the target, log target less log density of the
    component is the log of the mass. Hopeless islands are left out here; the search follows up all.

    Returns
    -------
    passes : Passes
    components : Mixture
    kept : array, shape (m, d)
        The particles that it is fitted to.
    """
    first = fit_to(job, passes.particles, rough=True)
    alike = relabeled(first, passes.particles)
    more = more_passes(job, passes, nearest_component(one_labeling(first), alike))
    if more is not passes:
        passes = more
        first = fit_to(job, passes.particles, rough=True)
    particles, modes = passes.particles, first.modes
    if modes.n_components == 1:
        return passes, first, particles
    states = evaluate_states(job.prior, particles, job.value_cores)
    job.tally.work["fit"] += states.n
    kept = particles[_hopeful(modes, states)]
    return passes, fit_to(job, kept, rough=True) if len(kept) < len(particles) else first, kept


def _hopeful(modes: Mixture, states: Evaluated) -> np.ndarray:
    """Whether states belong to an island whose mass is not far below that of the largest, (n,).

    An island of few states does not know its mass, and so is not the one that others are held to.
    """
    log_t = modes.log_t(states.xs)
    nearest = log_t.argmax(axis=1)
    own = log_t.max(axis=1) - np.log(modes.weights[nearest])
    n_states = np.bincount(nearest, minlength=modes.n_components)
    masses = np.full(modes.n_components, -np.inf)
    for j in np.unique(nearest):
        masses[j] = np.median((states.log_target - own)[nearest == j])
    needed = min(HOME_DRAWS * (states.xs.shape[1] + 1), n_states.max())
    return (masses >= masses[n_states >= needed].max() - HOPELESS)[nearest]


def first_fit(job: Job, components: Mixture, seen: np.ndarray) -> ReferenceFit:
    """Take a fit as it is, with draws (n, d) from about the posterior."""
    seen = relabeled(components, np.unique(seen, axis=0))
    draws = evaluate_states(job.prior, seen, job.value_cores)
    job.tally.work["fit"] += draws.n
    return ReferenceFit(Fitted(job.prior, components), draws, -np.inf, False)


def _by_trials(job: Job, components: Mixture, seen: np.ndarray) -> ReferenceFit:
    """Improve a fit by tempered trial runs from it, the last of which is long enough to keep."""
    drawn, log_z, warmup, enough = seen, -np.inf, None, False
    _, n_particles = effort_of(job.prior.path).trial_particles
    for attempt in range(1, MAX_TRIALS + 1):
        if job.deadline.late:
            break
        job.report(f"Trial run {attempt} of {MAX_TRIALS} from the fitted reference")
        last = enough or attempt == MAX_TRIALS
        rounds = MAX_ROUNDS if last else TRIAL_ROUNDS
        warmup = _warm_up_fitted(job, Fitted(job.prior, components), n_particles, rounds)
        runs = trial_run(job, warmup.plan)
        job.tally.work["fit"] += steps_of(runs)
        drawn = posterior_sample(warmup.plan, runs, MAX_FIT_DRAWS, job.rng)
        log_z = rts(cycles_of(warmup.plan, runs)).log_z - float(np.log(components.n_labelings))
        if last or job.deadline.late:
            break
        enough = len(drawn) >= draws_needed(components)
        both = np.concatenate([seen, drawn])
        components = fit_to(job, both, components, rough=True)
        warmup, seen = None, drawn
    return replace(first_fit(job, components, drawn), log_z=log_z, trial=warmup)


def warm_up_for(job: Job, reference: Reference, kernel: Compound, **more: Any) -> Warmup:
    """Warm up with the user's options."""
    options = job.options
    return warm_up(
        reference, kernel, job.rng, ladder_move=options.ladder_move, cores=job.cores,
        weight_adaptation=options.weight_adaptation, deadline=job.deadline,
        rungs_per_barrier=options.rungs_per_barrier, **more,
    )  # fmt: skip


def _warm_up_fitted(job: Job, reference: Fitted, n_particles: int, max_rounds: int) -> Warmup:
    kernel = kernel_for(reference, job.kernel)
    made = warm_up_for(job, reference, kernel, n_particles=n_particles, max_rounds=max_rounds)
    job.tally.work["fit"] += made.annealed.n_evaluations
    return made


def draws_needed(components: Mixture) -> int:
    """Draws that a fit of this many components needs."""
    dim = components.means.shape[1]
    numbers = components.n_components * (dim + 1) * (dim + 2) // 2
    return min(NUMBER_DRAWS * numbers, ENOUGH_DRAWS)


def trial_run(job: Job, plan: Plan) -> list[ChainRun]:
    """Run chains on a plan before the main run has begun, and keep the states of all iterations.

    At the deadline they stop, once each has a few draws; at the end of the overtime without them.

    Returns
    -------
    list of ChainRun
        Those that have a draw.

    Raises
    ------
    KeyboardInterrupt
    StuckChainError
        A chain does not come back.
    TimeLimitError
        No chain had a draw when the overtime was over.
    """
    n, final = N_TRIAL_CHAINS, job.deadline.last.rest(1.0)
    runs = start_runs(plan, TRIAL_DRAWS, job.rng.spawn(n), True, keep_states=True)
    if run_chains(
        plan, runs, TRIAL_DRAWS, cores=job.cores, deadline=job.deadline, pause=lambda: final.late
    ):
        for run in runs:
            if run.hangs:
                raise StuckChainError(run.hangs)
        raise KeyboardInterrupt("Interrupted before sampling began.")
    drawn = [run for run in runs if run.state.n_draws > 0]
    if not drawn:
        raise TimeLimitError(
            f"max_time was over before one of {n} chains of a trial run had come from "
            f"beta = 0 to 1, on {plan.ladder.n_rungs} rungs: give it several times as long, or "
            "leave it out."
        )
    return drawn


def posterior_sample(
    plan: Plan, runs: Sequence[ChainRun], n: int, rng: np.random.Generator
) -> np.ndarray:
    """Resample states of all rungs by q(beta_K | x) to `n` draws at most, shape (m, d).

    There are no more draws than the effective sample size of the weights (Kish). They stay in
    the order of the chains.
    """
    parts = [part for run in runs for part in run.trace]
    log_ratio, _, states = map(np.concatenate, zip(*parts, strict=True))
    weights = plan.ladder.probabilities(log_ratio)[-1]
    ess = float(kish(weights))
    index = rng.choice(len(weights), int(min(n, max(ess, 1))), p=weights / weights.sum())
    return states[np.sort(index)]
