"""The same evidence by several estimators, side by side, with a verdict."""

from pymc_tempering.crosscheck.judge import DrawCheck
from pymc_tempering.crosscheck.result import CrossCheck

__all__ = ["CrossCheck", "DrawCheck"]
