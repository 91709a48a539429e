"""Evidence of a model from its tempering run, and comparison of models by it."""

from pymc_tempering.cycles import CycleStats
from pymc_tempering.evidence.agreement import homogeneity_pvalue
from pymc_tempering.evidence.compare import bayes_factor, compare
from pymc_tempering.evidence.front import ESTIMATORS, Estimator, log_marginal_likelihood
from pymc_tempering.evidence.result import BayesFactor, Evidence
from pymc_tempering.evidence.rts import rts, rts_log_z
from pymc_tempering.evidence.tours import Tours, tour_sums

__all__ = [
    "ESTIMATORS",
    "BayesFactor",
    "CycleStats",
    "Estimator",
    "Evidence",
    "Tours",
    "bayes_factor",
    "compare",
    "homogeneity_pvalue",
    "log_marginal_likelihood",
    "rts",
    "rts_log_z",
    "tour_sums",
]
