"""A point null inside a model: its Bayes factor from the draws of the model alone."""

from pymc_tempering.nested.savage_dickey import SavageDickey, savage_dickey

__all__ = ["SavageDickey", "savage_dickey"]
