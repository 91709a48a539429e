"""Comparison of models by their evidence, and averages over them."""

from pymc_tempering.comparison.model_average import average

__all__ = ["average"]
