"""Fit a reference to draws, and again to weighted draws of its own, until these are enough.

A draw of the reference costs one value of the density and no gradient, and is independent. Where
the reference is far off, so that few of its draws have weight, tempered trial runs give the draws.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.kernels import Compound
from pymc_tempering.references.fitted import Fitted
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.mixture_fit import MAX_FIT_DRAWS, fit_mixture
from pymc_tempering.references.prior import Prior
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, join
from pymc_tempering.sampling.setup import Options
from pymc_tempering.sampling.side_runs import run_beside
from pymc_tempering.warmup.warm_up import Warmup, warm_up

N_PROPOSED, MAX_PROPOSALS = 1000, 3
"""Draws of a reference that are weighted after a fit, and the number of such rounds."""

MIN_WEIGHT = 50
"""With an effective number of weighted draws below this a trial run gives the draws."""

N_TRIAL_CHAINS, TRIAL_DRAWS, MAX_TRIALS = 4, 500, 3
"""Chains of a trial run, draws of each, and the number of trials."""

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

    @property
    def log_ratio(self) -> np.ndarray:
        """Of the draws, under the reference."""
        return self.draws.log_ratio(self.components)

    def warm_up(
        self,
        kernel: Compound,
        options: Options,
        rng: np.random.Generator,
        cores: int,
        deadline: Deadline = NEVER,
    ) -> tuple[Warmup, int]:
        """Freeze a plan of the reference; returns it and the density evaluations that it took."""
        if self.trial is not None:
            return self.trial, 0
        n_particles = FEW_PARTICLES if self.near else PARTICLES
        warmup = _warm_up(
            self.reference, kernel, options, rng, cores, n_particles, MAX_ROUNDS, deadline
        )
        return warmup, warmup.annealed.n_evaluations


def fit_reference(
    prior: Prior,
    kernel: Compound,
    components: Mixture,
    seen: np.ndarray,
    options: Options,
    rng: np.random.Generator,
    cores: int,
    report: Callable[[str], None] = lambda line: None,
    deadline: Deadline = NEVER,
) -> ReferenceFit:
    """Improve a first fit by draws of its own.

    Parameters
    ----------
    prior : Prior
    kernel : Compound
    components : Mixture
        The first fit.
    seen : array, shape (n, d)
        Draws that it was fitted to; they count as long as there are few others.
    options : Options
    rng : numpy.random.Generator
    cores : int
    report : callable, optional
        Called with a line of progress.
    deadline : Deadline, optional
        After which no trial run starts.
    """
    parts: list[Evaluated] = []
    evaluations, log_z = 0, -np.inf
    for attempt in range(1, MAX_PROPOSALS + 1):
        report(f"Fitting the reference to {attempt} of {MAX_PROPOSALS} rounds of draws")
        reference = Fitted(prior, components)
        states = evaluate_states(prior, reference.draw(N_PROPOSED, reference.spawn(rng)))
        evaluations += N_PROPOSED
        log_w = states.log_ratio(components)
        weight = effective_number(log_w) if (log_w > -np.inf).any() else 0.0
        if weight < MIN_WEIGHT:
            return _by_trials(
                prior, kernel, components, seen, options, rng, cores, evaluations, report, deadline
            )
        log_z = float(logsumexp(log_w) - np.log(N_PROPOSED))
        w = np.exp(log_w - log_w.max())
        parts.append(states.at(rng.choice(N_PROPOSED, int(weight), p=w / w.sum())))
        draws = join(parts)
        few = draws.n < draws_needed(components)
        xs = np.concatenate([seen, draws.xs]) if few else draws.xs
        components = fit_mixture(xs, rng, components, prior.sample)
        if len(parts) > 1 and draws.n >= draws_needed(components):
            break
    return ReferenceFit(Fitted(prior, components), draws, log_z, True, evaluations)


def first_fit(prior: Prior, components: Mixture, seen: np.ndarray) -> ReferenceFit:
    """Take a first fit as it is, with the draws (n, d) that it was fitted to."""
    draws = evaluate_states(prior, np.unique(seen, axis=0))
    return ReferenceFit(Fitted(prior, components), draws, -np.inf, False, draws.n)


def _by_trials(
    prior: Prior,
    kernel: Compound,
    components: Mixture,
    seen: np.ndarray,
    options: Options,
    rng: np.random.Generator,
    cores: int,
    evaluations: int,
    report: Callable[[str], None],
    deadline: Deadline,
) -> ReferenceFit:
    """Improve a fit by tempered trial runs from it, the last of which is long enough to keep."""
    drawn, log_z, warmup = seen, -np.inf, None
    for attempt in range(1, MAX_TRIALS + 1):
        if deadline.late:
            break
        report(f"Trial run {attempt} of {MAX_TRIALS} from the fitted reference")
        last = attempt == MAX_TRIALS
        warmup = _warm_up(
            Fitted(prior, components), kernel, options, rng, cores, PARTICLES,
            MAX_ROUNDS if last else TRIAL_ROUNDS, deadline,
        )  # fmt: skip
        trial = run_beside(
            warmup.plan, rng, n_chains=N_TRIAL_CHAINS, n_draws=TRIAL_DRAWS, cores=cores,
            keep_states=True, deadline=deadline,
        )  # fmt: skip
        evaluations += warmup.annealed.n_evaluations + trial.n_steps
        drawn = trial.posterior_sample(MAX_FIT_DRAWS, rng)
        log_z = trial.evidence.log_z
        if not last and not deadline.late:
            both = np.concatenate([seen, drawn])
            components, warmup = fit_mixture(both, rng, components, prior.sample), None
            seen = drawn
    draws = evaluate_states(prior, np.unique(drawn, axis=0))
    evaluations += draws.n
    return ReferenceFit(Fitted(prior, components), draws, log_z, False, evaluations, warmup)


def _warm_up(
    reference: Fitted,
    kernel: Compound,
    options: Options,
    rng: np.random.Generator,
    cores: int,
    n_particles: int,
    max_rounds: int,
    deadline: Deadline,
) -> Warmup:
    """Warm up with the user's options."""
    return warm_up(
        reference, kernel, rng,
        ladder_move=options.ladder_move, weight_adaptation=options.weight_adaptation,
        rungs_per_barrier=options.rungs_per_barrier, cores=cores, n_particles=n_particles,
        max_rounds=max_rounds, deadline=deadline,
    )  # fmt: skip


def draws_needed(components: Mixture) -> int:
    """Draws that a fit of this many components needs."""
    dim = components.means.shape[1]
    numbers = components.n_components * (dim + 1) * (dim + 2) // 2
    return min(NUMBER_DRAWS * numbers, ENOUGH_DRAWS)
