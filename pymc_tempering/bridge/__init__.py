"""Evidence from posterior draws of any sampler: bridge sampling and importance sampling."""

from pymc_tempering.bridge.bridge_sampling import BridgedDraws, bridge_draws, bridge_sampling
from pymc_tempering.bridge.importance_sampling import importance_sampling

__all__ = ["BridgedDraws", "bridge_draws", "bridge_sampling", "importance_sampling"]
