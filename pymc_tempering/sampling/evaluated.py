"""States with the two terms of the target at each, so that no model is asked twice about them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_tempering.evidence.reference_check import suspect_above
from pymc_tempering.model.compiled import NO_MIXTURE
from pymc_tempering.model.path import Path
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.mixture import Mixture, nearest_component
from pymc_tempering.references.prior import Prior, evaluate_draws
from pymc_tempering.sampling.call import Job


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


def evaluate_states(prior: Prior, xs: np.ndarray) -> Evaluated:
    """Evaluate the target of a model at states, shape (n, d)."""
    return Evaluated(xs, *evaluate_draws(prior.path, xs))


def join(parts: Sequence[Evaluated]) -> Evaluated:
    """Put several sets of states behind each other."""
    return Evaluated(
        np.concatenate([part.xs for part in parts]),
        np.concatenate([part.log_prior for part in parts]),
        np.concatenate([part.log_likelihood for part in parts]),
    )


def can_climb(job: Job) -> bool:
    """Whether the density has gradients in all variables."""
    path, pairs = job.prior.path, zip(job.kernel.kernels, job.kernel.blocks, strict=True)
    moved = sum(block.size for each, block in pairs if each.uses_gradient)
    return path.has_gradient and moved == path.dim


def target_scores(job: Job) -> Callable[[np.ndarray], np.ndarray] | None:
    """Gradients of the log target at states, both of shape (n, d); None where there are none.

    They are NaN where the target or its gradient is not finite.
    """
    if not can_climb(job):
        return None
    path = job.prior.path

    def scores(xs: np.ndarray) -> np.ndarray:
        values, slopes = slopes_at(path, xs, np.ones(path.dim))
        slopes[~np.isfinite(values).all(axis=1)] = np.nan
        return slopes

    return scores


def slopes_at(path: Path, xs: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate the target at states (n, d); where it is not finite, it is minus infinity.

    Returns
    -------
    values : array, shape (n, 2)
        Log prior and log likelihood.
    slopes : array, shape (n, d)
        Gradient of their sum, in units of `scale`; 0 where not finite.
    """
    xs = np.ascontiguousarray(xs)
    values, grads = np.empty((len(xs), 2)), np.empty((len(xs), 2, path.dim))
    evaluate_rows(path.density, xs, values, grads, NO_MIXTURE)
    slopes = grads.sum(axis=1) * scale
    bad = ~(np.isfinite(values).all(axis=1) & np.isfinite(slopes).all(axis=1))
    values[bad], slopes[bad] = -np.inf, 0.0
    return values, slopes


HOME_DRAWS = 5
"""Draws for each number of its mean and one, with which a component of a fit is a home. One with
fewer may be far too narrow for its mode: what is left of copies of a particle that hardly moved."""

type Region = Callable[[Evaluated], tuple[np.ndarray, np.ndarray]]
"""Tells of n states whether they are home, and how far from it: see `Known.locate`."""


def home_radius(dim: int) -> float:
    """Squared distance in standard deviations within which a state belongs to a component."""
    return dim + 5.0 * float(np.sqrt(2.0 * dim))


@dataclass(frozen=True, eq=False)
class Known:
    """Regions that a fitted reference knows.

    Attributes
    ----------
    components : Mixture
        Of the reference.
    draws : Evaluated
        Posterior draws, in good approximation.
    log_ratio : array, shape (draws.n,)
        Of these.
    """

    components: Mixture
    draws: Evaluated
    log_ratio: np.ndarray

    @cached_property
    def limit(self) -> float:
        """Value of log_ratio above which a state is a suspect."""
        return suspect_above(self.log_ratio)

    @cached_property
    def lived_in(self) -> np.ndarray:
        """Whether draws enough have come from a mode of the reference, shape (J,)."""
        modes = self.components.modes
        nearest = nearest_component(modes, np.unique(self.draws.xs, axis=0))
        n_draws = np.bincount(nearest, minlength=modes.n_components)
        needed = HOME_DRAWS * (modes.means.shape[1] + 1)
        return np.asarray(n_draws >= min(needed, n_draws.max()))

    def suspects(self, states: Evaluated) -> np.ndarray:
        """Whether log_ratio of states is far above that of all draws, shape (n,)."""
        return np.asarray(states.log_ratio(self.components) > self.limit)

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
        home = distance < home_radius(states.xs.shape[1])
        at = np.flatnonzero(home)
        home[at] = ~self.suspects(states.at(at))
        return home, distance

    def home(self, states: Evaluated) -> np.ndarray:
        """Whether states are no suspects, and lie where draws have come from, shape (n,)."""
        return self.locate(states)[0]
