"""PyMC models whose log Z(beta) and moments are known exactly at every inverse temperature."""

from pymc_tempering.testsystems.binomial import beta_binomial, unidentifiable_binomial
from pymc_tempering.testsystems.box import eggbox, gaussian_shells
from pymc_tempering.testsystems.gaussian_mixtures import gaussian_mixture, spike, twenty_modes
from pymc_tempering.testsystems.hierarchical import eight_schools, hierarchical_normal
from pymc_tempering.testsystems.linear import (
    conjugate_regression,
    gaussian,
    gaussian_posterior,
    normal_inverse_gamma_regression,
)
from pymc_tempering.testsystems.local_scales import funnel, scale_mixture
from pymc_tempering.testsystems.logistic import logistic_regression
from pymc_tempering.testsystems.scaled_priors import (
    ScaledSystem,
    jzs_t_test,
    scaled_regression,
)
from pymc_tempering.testsystems.system import TestSystem
from pymc_tempering.testsystems.varying_intercepts import varying_intercepts

__all__ = [
    "ScaledSystem",
    "TestSystem",
    "beta_binomial",
    "conjugate_regression",
    "eggbox",
    "eight_schools",
    "funnel",
    "gaussian",
    "gaussian_mixture",
    "gaussian_posterior",
    "gaussian_shells",
    "hierarchical_normal",
    "jzs_t_test",
    "logistic_regression",
    "normal_inverse_gamma_regression",
    "scale_mixture",
    "scaled_regression",
    "spike",
    "twenty_modes",
    "unidentifiable_binomial",
    "varying_intercepts",
]
