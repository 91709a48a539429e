"""States with the two terms of the target at each, so that no model is asked twice about them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.prior import Prior, evaluate_draws


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
