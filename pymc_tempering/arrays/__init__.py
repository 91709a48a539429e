"""Tempering of densities over arrays: many chains in lockstep, given by functions of arrays."""

from pymc_tempering.arrays.array_annealing import ArrayAnnealing, DataBounds, annealing
from pymc_tempering.arrays.array_density import ArrayDensity
from pymc_tempering.arrays.array_run import ArrayRun, LearnedRounds, temper
from pymc_tempering.arrays.tracker import PartitionTracker

__all__ = [
    "ArrayAnnealing",
    "ArrayDensity",
    "ArrayRun",
    "DataBounds",
    "LearnedRounds",
    "PartitionTracker",
    "annealing",
    "temper",
]
