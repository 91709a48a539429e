"""How the evidence of a model depends on its priors."""

from pymc_tempering.sensitivity.prior_sensitivity import prior_sensitivity

__all__ = ["prior_sensitivity"]
