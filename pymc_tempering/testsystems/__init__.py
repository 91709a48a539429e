"""PyMC models whose log Z(beta) and moments are known exactly at every inverse temperature."""

from pymc_tempering.testsystems.binomial import (
    beta_binomial,
    logistic_regression,
    unidentifiable_binomial,
)
from pymc_tempering.testsystems.hierarchical import (
    eight_schools,
    hierarchical_normal,
    varying_intercepts,
)
from pymc_tempering.testsystems.linear import (
    conjugate_regression,
    gaussian,
    gaussian_posterior,
    normal_inverse_gamma_regression,
)
from pymc_tempering.testsystems.local_scales import funnel, scale_mixture
from pymc_tempering.testsystems.modes import gaussian_mixture, gaussian_shells, spike, twenty_modes
from pymc_tempering.testsystems.system import TestSystem

__all__ = [
    "TestSystem",
    "beta_binomial",
    "conjugate_regression",
    "eight_schools",
    "funnel",
    "gaussian",
    "gaussian_mixture",
    "gaussian_posterior",
    "gaussian_shells",
    "hierarchical_normal",
    "logistic_regression",
    "normal_inverse_gamma_regression",
    "scale_mixture",
    "spike",
    "twenty_modes",
    "unidentifiable_binomial",
    "varying_intercepts",
]
