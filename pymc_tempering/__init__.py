"""Simulated tempering for PyMC: posterior draws and evidence with an error bar."""

from pymc_tempering import testsystems, variational
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
    DataError,
    DataMismatchError,
    DiscreteVariableError,
    ImproperPriorError,
    LadderError,
    LikelihoodError,
    ModelError,
    NotTemperedError,
    StuckChainError,
    TemperatureError,
    TemperingError,
    TemperingWarning,
)
from pymc_tempering.kernels import HMC
from pymc_tempering.plots import plot_ladder, plot_temperature_trace
from pymc_tempering.sampling import sample
from pymc_tempering.step import SimulatedTempering

__version__ = "0.1.0"

__all__ = [
    "HMC",
    "BayesFactor",
    "DataError",
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
    "TemperatureError",
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
    "variational",
]
