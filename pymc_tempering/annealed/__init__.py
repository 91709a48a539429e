"""Evidence from independent runs over the path of a model: annealed and related estimators."""

from pymc_tempering.annealed.ais import ais, hais, reverse_ais, sandwich
from pymc_tempering.annealed.raise_ import raise_
from pymc_tempering.annealed.smc import smc
from pymc_tempering.annealed.thermodynamic_integration import thermodynamic_integration
from pymc_tempering.evidence.bracket import Sandwich

__all__ = [
    "Sandwich",
    "ais",
    "hais",
    "raise_",
    "reverse_ais",
    "sandwich",
    "smc",
    "thermodynamic_integration",
]
