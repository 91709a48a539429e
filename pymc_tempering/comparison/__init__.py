"""The evidence of whatever a user has, comparison of models by it, and averages over them."""

from pymc_tempering.comparison.compare import bayes_factor, compare
from pymc_tempering.comparison.marginal_likelihood import log_marginal_likelihood
from pymc_tempering.comparison.model_average import average

__all__ = ["average", "bayes_factor", "compare", "log_marginal_likelihood"]
