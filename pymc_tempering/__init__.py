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
    ImproperPriorError,
    LadderError,
    LikelihoodError,
    ModelError,
    NormalizerError,
    NotTemperedError,
    StuckChainError,
    TemperingError,
    TemperingWarning,
)
from pymc_tempering.kernels import HMC
from pymc_tempering.plots import plot_ladder, plot_temperature_trace
from pymc_tempering.sampling import sample
from pymc_tempering.step import SimulatedTempering
from pymc_tempering.variational import (
    LogPartition,
    TemperedFit,
    TemperedOptimum,
    fit,
    log_partition,
    log_tempered_normalizer,
    plot_annealing,
    refine,
    to_datatree,
)

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
    "LogPartition",
    "ModelError",
    "NormalizerError",
    "NotTemperedError",
    "SimulatedTempering",
    "StuckChainError",
    "TemperedFit",
    "TemperedOptimum",
    "TemperingError",
    "TemperingWarning",
    "bayes_factor",
    "compare",
    "convert",
    "diagnose",
    "fit",
    "log_marginal_likelihood",
    "log_partition",
    "log_tempered_normalizer",
    "plot_annealing",
    "plot_ladder",
    "plot_temperature_trace",
    "refine",
    "sample",
    "testsystems",
    "to_datatree",
]
