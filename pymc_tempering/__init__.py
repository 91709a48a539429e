"""Simulated tempering for PyMC: posterior draws and evidence with an error bar."""

from pymc_tempering import testsystems
from pymc_tempering.annealed import (
    Sandwich,
    ais,
    hais,
    linked_importance_sampling,
    raise_,
    reverse_ais,
    sandwich,
    smc,
    thermodynamic_integration,
)
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
from pymc_tempering.plots import plot_ladder, plot_temperature_trace
from pymc_tempering.sampling import sample
from pymc_tempering.step import SimulatedTempering

__version__ = "0.1.0"

__all__ = [
    "HMC",
    "BayesFactor",
    "DataMismatchError",
    "Diagnosis",
    "DiscreteVariableError",
    "Evidence",
    "ImproperPriorError",
    "LadderError",
    "LikelihoodError",
    "ModelError",
    "NotTemperedError",
    "Sandwich",
    "SimulatedTempering",
    "StuckChainError",
    "TemperingError",
    "TemperingWarning",
    "ais",
    "bayes_factor",
    "compare",
    "convert",
    "diagnose",
    "hais",
    "linked_importance_sampling",
    "log_marginal_likelihood",
    "plot_ladder",
    "plot_temperature_trace",
    "raise_",
    "reverse_ais",
    "sample",
    "sandwich",
    "smc",
    "testsystems",
    "thermodynamic_integration",
]
