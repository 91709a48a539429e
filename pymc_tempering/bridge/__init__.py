"""Evidence from posterior draws of any sampler: bridge sampling and importance sampling."""

from pymc_tempering.bridge.importance import estimate_by_importance, importance_sampling
from pymc_tempering.bridge.sampler import bridge_sampling, estimate_by_bridge

__all__ = [
    "bridge_sampling",
    "estimate_by_bridge",
    "estimate_by_importance",
    "importance_sampling",
]
