"""Fit a reference to draws, and again to weighted draws of its own, until these are enough.

A draw of the reference costs one value of the density and no gradient, and is independent. Where
the reference is far off, so that few of its draws have weight, tempered trial runs give the draws.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pymc_tempering.core.weighting import effective_number, log_mean
from pymc_tempering.references.mixture import Fitted, Mixture, nearest_component
from pymc_tempering.references.mixture_fit import MAX_FIT_DRAWS, fit_mixture
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, join
from pymc_tempering.sampling.gradients import target_scores
from pymc_tempering.sampling.known import HOME_DRAWS, Known
from pymc_tempering.sampling.passes import Passes, more_passes
from pymc_tempering.sampling.setup import Job
from pymc_tempering.sampling.side_runs import run_beside
from pymc_tempering.warmup.stage_moves import kernel_for
from pymc_tempering.warmup.warm_up import Warmup, warm_up

HOPELESS = 12.0
"""Nats by which the mass of an island may lie below that of the largest before it is left out."""

N_PROPOSED, MAX_PROPOSALS = 1000, 2
"""Draws of a reference that are weighted at a time, and the number of references at most."""

MIN_WEIGHT, BY_DIM = 50, 3
"""Trial runs give the draws where weighted ones are worth fewer than the first in `N_PROPOSED`, or
fewer than the second for each dimension: a fit to so few makes the reference worse."""

NEAR_SHARE = 0.2
"""Effective share of the weights from which on the fit to the draws of a reference is the last."""

MAX_BATCHES = 4
"""How many times `N_PROPOSED` draws of one reference there are at most. In many dimensions a
thousand of them cost less than a tenth of a fit."""

N_TRIAL_CHAINS, TRIAL_DRAWS, MAX_TRIALS = 4, 500, 3
"""Chains of a trial run, draws of each, and the number of trials at most. The one after a fit to
draws enough is the last: a further fit makes the reference no better."""

NUMBER_DRAWS, ENOUGH_DRAWS = 10, 2000
"""A mixture needs this many draws for each of its parameters; and no more than these."""

TRIAL_ROUNDS, MAX_ROUNDS = 2, 8
"""Rounds in which the weights of a trial's ladder are learned, and those of a ladder to keep."""

FEW_PARTICLES, PARTICLES = 128, 256
"""Particles of the annealed pass from a fitted reference: few where it is near the posterior."""


@dataclass(frozen=True, eq=False)
class ReferenceFit:
    """A fitted reference, and what is known of the posterior by it.

    Attributes
    ----------
    reference : Fitted
    draws : Evaluated
        Posterior draws, in good approximation.
    log_z : float
        Rough log evidence (nats).
    near : bool
        Whether weighted draws of the reference were enough, so that it is near the posterior.
    n_evaluations : int
        Density evaluations.
    trial : Warmup, optional
        Of the last trial run, if that was made with this reference.
    """

    reference: Fitted
    draws: Evaluated
    log_z: float
    near: bool
    n_evaluations: int
    trial: Warmup | None = None

    @property
    def components(self) -> Mixture:
        """Of the reference."""
        return self.reference.components

    @cached_property
    def known(self) -> Known:
        """What the reference knows."""
        return Known(self.components, self.draws, self.draws.log_ratio(self.components))

    def warm_up(self, job: Job) -> tuple[Warmup, int]:
        """Freeze a plan of the reference; returns it and the density evaluations that it took."""
        if self.trial is not None:
            return self.trial, 0
        n_particles = FEW_PARTICLES if self.near else PARTICLES
        warmup = _warm_up(job, self.reference, n_particles, MAX_ROUNDS)
        return warmup, warmup.annealed.n_evaluations


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
    log_z, evaluations = -np.inf, 0
    for attempt in range(1, MAX_PROPOSALS + 1):
        job.report(f"Fitting the reference to {attempt} of {MAX_PROPOSALS} rounds of draws")
        reference, needed = Fitted(job.prior, components), draws_needed(components)
        proposed = _propose(job, reference, needed - sum(part.n for part in parts))
        evaluations += proposed.n_evaluations
        if proposed.drawn is None:
            fit = _by_trials(job, components, seen)
            return replace(fit, n_evaluations=evaluations + fit.n_evaluations)
        log_z = proposed.log_z
        parts.append(proposed.drawn)
        draws = join(parts)
        xs = np.concatenate([seen, draws.xs]) if draws.n < needed else draws.xs
        components, gradients = fit_to(job, xs, components)
        evaluations += gradients
        if proposed.near or (len(parts) > 1 and draws.n >= draws_needed(components)):
            break
    return ReferenceFit(Fitted(job.prior, components), draws, log_z, True, evaluations)


@dataclass(frozen=True, eq=False)
class _Proposed:
    """Weighted draws of a reference, resampled; none where the weights are worth too little."""

    drawn: Evaluated | None
    log_z: float
    near: bool
    n_evaluations: int


def _propose(job: Job, reference: Fitted, wanted: int) -> _Proposed:
    """Draw from a reference and resample by weights, until they are worth `wanted` draws."""
    prior, rng = job.prior, job.rng
    batches: list[Evaluated] = []
    log_w, weight = np.empty(0), 0.0
    least = max(MIN_WEIGHT, BY_DIM * prior.path.dim)
    while not batches or (weight < wanted and len(batches) < MAX_BATCHES):
        batches.append(evaluate_states(prior, reference.draw(N_PROPOSED, reference.spawn(rng))))
        log_w = np.append(log_w, batches[-1].log_ratio(reference.components))
        weight = effective_number(log_w)
        if MAX_BATCHES**2 * weight < least:
            break
    if weight < MIN_WEIGHT * len(batches) or weight < min(least, wanted):
        return _Proposed(None, -np.inf, False, log_w.size)
    w = np.exp(log_w - log_w.max())
    drawn = join(batches).at(rng.choice(log_w.size, int(weight), p=w / w.sum()))
    return _Proposed(drawn, log_mean(log_w), weight >= NEAR_SHARE * log_w.size, log_w.size)


def fit_to(
    job: Job, draws: np.ndarray, start: Mixture | None = None, *, rough: bool = False
) -> tuple[Mixture, int]:
    """Fit a mixture to draws (n, d); returns it, and the gradients that it took."""
    scores, taken = target_scores(job), [0]

    def counted(xs: np.ndarray) -> np.ndarray:
        assert scores is not None
        taken.append(len(xs))
        return scores(xs)

    components = fit_mixture(
        draws, job.rng, start, job.prior.screened, None if scores is None else counted, rough
    )
    return components, sum(taken)


def fit_to_passes(job: Job, passes: Passes) -> tuple[Passes, Mixture, np.ndarray, int]:
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
    n_evaluations : int
        Without those of the passes.
    """
    first, spent = fit_to(job, passes.particles, rough=True)
    more = more_passes(job, passes, nearest_component(first.modes, passes.particles))
    if more is not passes:
        passes = more
        first, gradients = fit_to(job, passes.particles, rough=True)
        spent += gradients
    particles, modes = passes.particles, first.modes
    if modes.n_components == 1:
        return passes, first, particles, spent
    states = evaluate_states(job.prior, particles)
    kept = particles[_hopeful(modes, states)]
    spent += states.n
    if len(kept) < len(particles):
        first, gradients = fit_to(job, kept, rough=True)
        spent += gradients
    return passes, first, kept, spent


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
    return np.asarray((masses >= masses[n_states >= needed].max() - HOPELESS)[nearest])


def first_fit(prior: Prior, components: Mixture, seen: np.ndarray) -> ReferenceFit:
    """Take a fit as it is, with draws (n, d) from about the posterior."""
    draws = evaluate_states(prior, np.unique(seen, axis=0))
    return ReferenceFit(Fitted(prior, components), draws, -np.inf, False, draws.n)


def _by_trials(job: Job, components: Mixture, seen: np.ndarray) -> ReferenceFit:
    """Improve a fit by tempered trial runs from it, the last of which is long enough to keep."""
    prior, rng, deadline = job.prior, job.rng, job.deadline
    drawn, log_z, warmup, evaluations, enough = seen, -np.inf, None, 0, False
    for attempt in range(1, MAX_TRIALS + 1):
        if deadline.late:
            break
        job.report(f"Trial run {attempt} of {MAX_TRIALS} from the fitted reference")
        last = enough or attempt == MAX_TRIALS
        rounds = MAX_ROUNDS if last else TRIAL_ROUNDS
        warmup = _warm_up(job, Fitted(prior, components), PARTICLES, rounds)
        trial = run_beside(
            warmup.plan, rng, n_chains=N_TRIAL_CHAINS, n_draws=TRIAL_DRAWS, cores=job.cores,
            keep_states=True, deadline=deadline,
        )  # fmt: skip
        evaluations += warmup.annealed.n_evaluations + trial.n_steps
        drawn = trial.posterior_sample(MAX_FIT_DRAWS, rng)
        log_z = trial.evidence.log_z
        if last or deadline.late:
            break
        enough = len(drawn) >= draws_needed(components)
        both = np.concatenate([seen, drawn])
        components, gradients = fit_to(job, both, components, rough=True)
        evaluations += gradients
        warmup, seen = None, drawn
    fit = first_fit(prior, components, drawn)
    evaluations += fit.n_evaluations
    return replace(fit, log_z=log_z, n_evaluations=evaluations, trial=warmup)


def _warm_up(job: Job, reference: Fitted, n_particles: int, max_rounds: int) -> Warmup:
    """Warm up with the user's options."""
    options = job.options
    return warm_up(
        reference, kernel_for(reference, job.kernel), job.rng,
        ladder_move=options.ladder_move, weight_adaptation=options.weight_adaptation,
        rungs_per_barrier=options.rungs_per_barrier, cores=job.cores, n_particles=n_particles,
        max_rounds=max_rounds, deadline=job.deadline,
    )  # fmt: skip


def draws_needed(components: Mixture) -> int:
    """Draws that a fit of this many components needs."""
    dim = components.means.shape[1]
    numbers = components.n_components * (dim + 1) * (dim + 2) // 2
    return min(NUMBER_DRAWS * numbers, ENOUGH_DRAWS)
