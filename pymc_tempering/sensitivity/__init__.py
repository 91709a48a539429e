"""How the evidence of a model depends on its priors."""

from pymc_tempering.evidence.prior_curves import PriorSensitivity, SensitivityCurve
from pymc_tempering.sensitivity.prior_sensitivity import prior_sensitivity

__all__ = ["PriorSensitivity", "SensitivityCurve", "prior_sensitivity"]
