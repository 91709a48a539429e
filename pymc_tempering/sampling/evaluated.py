"""States with the two terms of the target at each, so that no model is asked twice about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_tempering.chain.particles import Particles
from pymc_tempering.kernels import Compound
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.path import Path
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.prior import Prior, evaluate_draws, evaluate_terms
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.effort import is_wide

STRAIGHT_DIM = 100
"""Dimensions above which passes and looks divide effects by their scales, also where values are
cheap: 150 groups with answers of yes and no take a quarter of the evaluations so."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """States, and log prior and log likelihood of each.

    Attributes
    ----------
    xs : array, shape (n, d)
        Unconstrained.
    log_prior, log_likelihood : array, shape (n,)
        In nats, Jacobians included; their sum is minus infinity where one is not a number.
    """

    xs: np.ndarray
    log_prior: np.ndarray
    log_likelihood: np.ndarray

    @property
    def n(self) -> int:
        """Number of states."""
        return len(self.xs)

    @property
    def log_target(self) -> np.ndarray:
        """Log of prior times likelihood, shape (n,)."""
        with np.errstate(invalid="ignore"):
            total = self.log_prior + self.log_likelihood
        return np.where(np.isfinite(total), total, -np.inf)

    def log_ratio(self, components: Mixture) -> np.ndarray:
        """Log of target over a fitted reference, shape (n,)."""
        target, result = self.log_target, np.full(self.n, -np.inf)
        inside = np.flatnonzero(target > -np.inf)
        if inside.size:
            share, log_t = components.prior_share, components.log_t(self.xs[inside])
            reference = np.logaddexp(
                np.log1p(-share) + np.logaddexp.reduce(log_t, axis=1),
                np.log(share) + self.log_prior[inside],
            )
            result[inside] = target[inside] - reference
        return result

    def at(self, index: np.ndarray) -> "Evaluated":
        """Return the states with these indices, or where a mask is True."""
        return Evaluated(self.xs[index], self.log_prior[index], self.log_likelihood[index])


def evaluate_states(prior: Prior, xs: np.ndarray, cores: int = 1) -> Evaluated:
    """Evaluate the target of a model at states, shape (n, d)."""
    return Evaluated(xs, *evaluate_draws(prior.path, xs, cores=cores))


def join(parts: Sequence[Evaluated]) -> Evaluated:
    """Put several sets of states behind each other."""
    return Evaluated(
        np.concatenate([part.xs for part in parts]),
        np.concatenate([part.log_prior for part in parts]),
        np.concatenate([part.log_likelihood for part in parts]),
    )


def can_climb(path: Path, kernel: Compound) -> bool:
    """Whether the density has gradients in all variables, and the kernel moves by them."""
    moved = sum(block.size for each, block in kernel.pairs if each.uses_gradient)
    return path.has_gradient and moved == path.dim


def way_of(job: Job) -> Prior:
    """Return the prior that annealed passes and looks begin at, in the coordinates of their path.

    Workers have those of the model: compiled code is not sent.
    """
    prior = job.prior
    many = prior.path.dear or is_wide(prior.path, STRAIGHT_DIM)
    straight = many and can_climb(job.prior.path, job.kernel) and job.crew is None
    return prior.straight if straight else prior


def states_of(job: Job, way: Prior, particles: Particles) -> Evaluated:
    """States of particles in the coordinates of a path, with the terms of the target at each."""
    if way.warp is None:
        return Evaluated(particles.xs, *particles.values[:, [LOG_REFERENCE, LOG_RATIO]].T)
    return evaluate_states(job.prior, way.outer(particles.xs), job.value_cores)


def target_scores(job: Job) -> Callable[[np.ndarray], np.ndarray] | None:
    """Gradients of the log target at states, both of shape (n, d); None where there are none.

    They are NaN where the target or its gradient is not finite, and count as work of the fit.
    """
    if not can_climb(job.prior.path, job.kernel):
        return None
    path = job.prior.path

    def scores(xs: np.ndarray) -> np.ndarray:
        job.tally.work["fit"] += len(xs)
        values, slopes = slopes_at(path, xs, np.ones(path.dim), job.value_cores)
        slopes[~np.isfinite(values).all(axis=1)] = np.nan
        return slopes

    return scores


def terms_of(job: Job) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Log prior and log likelihood, shape (n, 2), and their gradients, (n, 2, d), at states (n, d).

    They count as work of the fit.
    """
    path = job.prior.path

    def terms(xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        job.tally.work["fit"] += len(xs)
        return evaluate_terms(path, xs, job.value_cores)

    return terms


def slopes_at(
    path: Path, xs: np.ndarray, scale: np.ndarray, cores: int = 1, first: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate the target at states (n, d); where it is not finite, it is minus infinity.

    Returns
    -------
    values : array, shape (n, 2)
        Log prior and log likelihood.
    slopes : array, shape (n, d)
        Gradient of their sum, or of the second alone with `first=1`, in units of `scale`; 0 where
        not finite.
    """
    values, grads = evaluate_terms(path, xs, cores)
    slopes = grads[:, first:].sum(axis=1) * scale
    bad = ~(np.isfinite(values).all(axis=1) & np.isfinite(slopes).all(axis=1))
    values[bad], slopes[bad] = -np.inf, 0.0
    return values, slopes


type Region = Callable[[Evaluated], tuple[np.ndarray, np.ndarray]]
"""Tells of n states whether they are home, and how far from it: see `ReferenceFit.locate`."""


def home_radius(dim: int) -> float:
    """Squared distance in standard deviations within which a state belongs to a component."""
    return dim + 5.0 * float(np.sqrt(2.0 * dim))
