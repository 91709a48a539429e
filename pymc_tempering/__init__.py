"""Simulated tempering for PyMC: posterior draws and evidence with an error bar."""

from pymc_tempering import testsystems
from pymc_tempering.bridge import bridge_sampling, importance_sampling
from pymc_tempering.crosscheck import CrossCheck, cross_check
from pymc_tempering.datatree import convert
from pymc_tempering.diagnostics import Diagnosis, diagnose
from pymc_tempering.evidence import (
    BayesFactor,
    Evidence,
    bayes_factor,
    compare,
    log_marginal_likelihood,
)
from pymc_tempering.exceptions import (
    DataMismatchError,
    DiscreteVariableError,
    ImproperPriorError,
    LadderError,
    LikelihoodError,
    ModelError,
    NotTemperedError,
    StuckChainError,
    TemperingError,
    TemperingWarning,
)
from pymc_tempering.kernels import HMC
from pymc_tempering.plots import (
    plot_evidence,
    plot_ladder,
    plot_log_z,
    plot_temperature_trace,
)
from pymc_tempering.sampling import sample
from pymc_tempering.step import SimulatedTempering

__version__ = "0.1.0"

__all__ = [
    "HMC",
    "BayesFactor",
    "CrossCheck",
    "DataMismatchError",
    "Diagnosis",
    "DiscreteVariableError",
    "Evidence",
    "ImproperPriorError",
    "LadderError",
    "LikelihoodError",
    "ModelError",
    "NotTemperedError",
    "SimulatedTempering",
    "StuckChainError",
    "TemperingError",
    "TemperingWarning",
    "bayes_factor",
    "bridge_sampling",
    "compare",
    "convert",
    "cross_check",
    "diagnose",
    "importance_sampling",
    "log_marginal_likelihood",
    "plot_evidence",
    "plot_ladder",
    "plot_log_z",
    "plot_temperature_trace",
    "sample",
    "testsystems",
]
