"""Whether draws of the prior that overflow carry evidence, by the largest finite draws."""

import warnings

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.exceptions import PriorDrawsError, TemperingWarning
from pymc_tempering.model.path import Path
from pymc_tempering.references.prior import Prior, evaluate_draws

MAX_OVERFLOW_SHARE, MAX_ZERO_OVERFLOW = 1e-3, 0.05
"""Largest shares of the draws that may have no finite unconstrained value: without a further look,
and as states of zero likelihood."""

N_TAIL, TAIL_SEED, N_LARGEST = 10_000, 1, 20
"""Draws among which the largest are looked for, their seed, and how many these are."""

MAX_CARRIED = 1e-3
"""Largest share of the evidence that draws may carry which count as none."""


def kept_draws(path: Path, draws: np.ndarray) -> np.ndarray:
    """Return which draws (n, d) have finite unconstrained values; refuse where many have none."""
    overflow = ~np.isfinite(draws)
    if (share := overflow.any(axis=1).mean()) > 0:
        worst = path.layout.label(int(overflow.mean(axis=0).argmax()))
        message = (
            f"{share:.1%} of the prior draws have no finite unconstrained value (worst: {worst}): "
            "the prior puts mass where floating point, or a transform narrower than the prior's "
            "own support, cannot follow."
        )
        if share > MAX_ZERO_OVERFLOW:
            raise PriorDrawsError(message + " Use a less extreme prior, or its own transform.")
        warnings.warn(
            message + " These draws count as states of zero likelihood.",
            TemperingWarning,
            stacklevel=4,
        )
    return np.asarray(~overflow.any(axis=1))


def may_be_missed(
    prior: Prior, kept: np.ndarray, log_ratio: np.ndarray, deadline: Deadline = NEVER
) -> bool:
    """Whether draws that overflow may carry evidence, where they are more than a few.

    Parameters
    ----------
    prior : Prior
    kept : ndarray of bool
        Which of some draws are finite.
    log_ratio : ndarray, shape (n,)
        Log-likelihood at finite draws (nats).
    deadline : Deadline, optional
    """
    few = 1.0 - kept.mean() <= MAX_OVERFLOW_SHARE
    return not few and not carry_none(prior, log_ratio, deadline)


def carry_none(prior: Prior, log_ratio: np.ndarray, deadline: Deadline = NEVER) -> bool:
    """Whether the likelihood falls to nothing over the largest finite draws, toward the overflow.

    The draws that are lost must have an infinite coordinate, which says in which direction they
    lie. If their likelihood were as large as the largest one of the finite draws that lie farthest
    in that direction, they would carry `MAX_CARRIED` of the evidence at most.

    Parameters
    ----------
    prior : Prior
    log_ratio : ndarray, shape (n,)
        Log-likelihood at finite draws (nats).
    deadline : Deadline, optional
        After which nothing is known.
    """
    known = log_ratio[np.isfinite(log_ratio)]
    if deadline.late or not known.size:
        return False
    draws = prior.draw(N_TAIL, prior.spawn(np.random.default_rng(TAIL_SEED)))
    lost = ~np.isfinite(draws).all(axis=1)
    infinite = np.isinf(draws[lost])
    if not infinite.any(axis=1).all():
        return False
    finite = draws[~lost]
    limit = np.log(MAX_CARRIED) + logsumexp(known) - np.log(log_ratio.size)
    for i in np.flatnonzero(infinite.any(axis=0)):  # the farthest of one are not those of another
        for sign in np.unique(np.sign(draws[lost, i][infinite[:, i]])):
            largest = finite[np.argsort(sign * finite[:, i])[-N_LARGEST:]]
            _, level = evaluate_draws(prior.path, largest)
            level = np.where(np.isnan(level), np.inf, level)
            if not np.log(max(lost.mean(), 1.0 / N_TAIL)) + level.max() < limit:
                return False
    return True
