"""The evidence of whatever a user has, and comparison of models by it."""

from pymc_tempering.comparison.compare import bayes_factor, compare
from pymc_tempering.comparison.marginal_likelihood import log_marginal_likelihood

__all__ = ["bayes_factor", "compare", "log_marginal_likelihood"]
