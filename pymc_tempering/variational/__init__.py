"""Variational tempering: annealed and tempered fits on top of ``pm.variational``."""

from pymc_tempering.variational.front import fit, refine
from pymc_tempering.variational.output import to_datatree
from pymc_tempering.variational.plots import plot_annealing
from pymc_tempering.variational.result import TemperedFit, TemperedOptimum

__all__ = [
    "TemperedFit",
    "TemperedOptimum",
    "fit",
    "plot_annealing",
    "refine",
    "to_datatree",
]
