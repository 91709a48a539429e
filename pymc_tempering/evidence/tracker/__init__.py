"""Running log Z while the parameters of a density change."""

from pymc_tempering.evidence.tracker.track import PartitionTracker

__all__ = ["PartitionTracker"]
