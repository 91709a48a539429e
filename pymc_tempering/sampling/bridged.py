"""A bridge to the draws of a run from the prior, where binary variables allow no fitted reference.

The chains know log Z by their tours, of which there are few. Draws of a density that is fitted to
the posterior draws know it better, and the run tells whether both agree.
"""

import numpy as np

from pymc_tempering.model.layout import is_binary, is_discrete
from pymc_tempering.references.prior import Reference

MOST_DRAWS = 1000
"""Draws of each chain that the bridge goes to, evenly over all of them."""

LEAST_DRAWS = 100
"""With fewer there is none."""

MOST_BINARY = 64
"""Binary elements at most: their regressions take the cube of the number."""

PER_STATE, MOST_SHARE = 6, 2.0
"""Times that the density is evaluated along each continuous variable for each state of the binary
ones among the draws, and the most evaluations of the bridge, in those of the run."""


def can_bridge(reference: Reference) -> bool:
    """Whether runs from a reference get a bridge: from a normalized prior, with binary variables.

    All other variables are continuous, and the density has gradients with respect to them.
    """
    path = reference.path
    discrete = [is_binary(rv) for rv in path.model.free_RVs if is_discrete(rv)]
    normalized = path.terms.normalized_prior and reference.prior_constant == (0.0, 0.0)
    known = path.has_gradient or bool(path.layout.whole_numbers.all())
    return reference.name == "prior" and bool(discrete) and all(discrete) and normalized and known


def bridged(
    reference: Reference, states: np.ndarray, cores: int, n_evaluations: int
) -> tuple[float, float] | None:
    """Log Z by a bridge to posterior draws of shape (chain, draw, d), and its error (nats).

    None where it would take much longer than the run with its `n_evaluations`, where draws are few,
    and where the bridge states no error.
    """
    path = reference.path
    binary = path.layout.whole_numbers
    continuous = path.dim - int(binary.sum())
    if states.shape[1] < LEAST_DRAWS:
        return None
    from pymc_tempering.bridge.bridge_sampling import bridge_states  # most runs need none
    from pymc_tempering.bridge.target import Target

    few = np.linspace(0, states.shape[1] - 1, min(states.shape[1], MOST_DRAWS)).astype(int)
    states = np.ascontiguousarray(states[:, few])
    n_states = len(np.unique(states[..., binary].reshape(-1, int(binary.sum())), axis=0))
    work = PER_STATE * n_states * (continuous + 1)
    if binary.sum() > MOST_BINARY or work > MOST_SHARE * n_evaluations:
        return None
    bits = np.frombuffer(states[0, -1].tobytes(), dtype=np.uint32)  # of no stream of the run
    found = bridge_states(Target(path, cores), states, rng=np.random.default_rng(bits)).evidence
    known = np.isfinite(found.mcse) and found.verdict != "disagreed"
    return (found.log_z, found.mcse) if known else None
