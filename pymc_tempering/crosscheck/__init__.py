"""The same evidence by several estimators, side by side, with a verdict."""

from pymc_tempering.crosscheck.cross_check import cross_check
from pymc_tempering.crosscheck.draw_check import DrawCheck
from pymc_tempering.crosscheck.judge import Entry, judge
from pymc_tempering.crosscheck.registry import ALL_ESTIMATORS, MODEL_ESTIMATORS
from pymc_tempering.crosscheck.result import CrossCheck, assemble, read_cross_check

__all__ = [
    "ALL_ESTIMATORS",
    "MODEL_ESTIMATORS",
    "CrossCheck",
    "DrawCheck",
    "Entry",
    "assemble",
    "cross_check",
    "judge",
    "read_cross_check",
]
