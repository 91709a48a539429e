"""Simulated tempering for PyMC: posterior draws and evidence with an error bar."""

from pymc_tempering import testsystems
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
    GradientError,
    ImproperPriorError,
    LadderError,
    LikelihoodError,
    ModelError,
    NotTemperedError,
    StuckChainError,
    TemperingError,
    TemperingWarning,
)
from pymc_tempering.kernels import HMC, NUTS, Gibbs, RandomWalkMetropolis, Slice
from pymc_tempering.plots import plot_ladder, plot_temperature_trace
from pymc_tempering.sampling import sample
from pymc_tempering.step import SimulatedTempering

__version__ = "0.1.0"

__all__ = [
    "HMC",
    "NUTS",
    "BayesFactor",
    "DataMismatchError",
    "Diagnosis",
    "DiscreteVariableError",
    "Evidence",
    "Gibbs",
    "GradientError",
    "ImproperPriorError",
    "LadderError",
    "LikelihoodError",
    "ModelError",
    "NotTemperedError",
    "RandomWalkMetropolis",
    "SimulatedTempering",
    "Slice",
    "StuckChainError",
    "TemperingError",
    "TemperingWarning",
    "bayes_factor",
    "compare",
    "convert",
    "diagnose",
    "log_marginal_likelihood",
    "plot_ladder",
    "plot_temperature_trace",
    "sample",
    "testsystems",
]
