"""Which share of the prior has a likelihood: what a path down to beta = 0 comes to."""

import numpy as np

from pymc_tempering.references.prior import Reference, evaluate_draws

N_SHARE = 20_000
"""Prior draws that tell the share."""


def prior_log_ratios(reference: Reference, n: int, rng: np.random.Generator) -> np.ndarray:
    """log_ratio at n exact, independent prior draws, shape (n,), in nats."""
    draws = reference.draw(n, reference.spawn(rng))
    return np.asarray(evaluate_draws(reference.path, draws)[1])


def log_share_alive(reference: Reference, rng: np.random.Generator) -> tuple[float, float]:
    """Log of the share of the prior with a positive likelihood, and its error (nats).

    At any beta above 0 a path stays on this part of the prior. So what goes down to beta = 0 comes
    to the prior on this part, whose normalizing constant is the share.
    """
    log_ratio = prior_log_ratios(reference, N_SHARE, rng)
    share = float(np.mean(np.isfinite(log_ratio)))  # NaN and infinity count as none, as in a run
    if share in (0.0, 1.0):
        return (0.0, 0.0) if share else (-np.inf, np.inf)
    return float(np.log(share)), float(np.sqrt((1.0 - share) / (share * N_SHARE)))
