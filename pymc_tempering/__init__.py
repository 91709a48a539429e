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
from pymc_tempering.bridge import bridge_sampling, importance_sampling
from pymc_tempering.crosscheck import CrossCheck, cross_check
from pymc_tempering.datatree import convert
from pymc_tempering.diagnostics import Diagnosis, diagnose
from pymc_tempering.evidence import (
    BayesFactor,
    Bracket,
    Evidence,
    bayes_factor,
    bracket,
    compare,
    expectation,
    log_marginal_likelihood,
    overlap,
)
from pymc_tempering.exceptions import (
    DataMismatchError,
    DiscreteVariableError,
    GradientError,
    ImproperPriorError,
    KernelError,
    LadderError,
    LikelihoodError,
    ModelError,
    NotTemperedError,
    SolverError,
    StuckChainError,
    TemperingError,
    TemperingWarning,
)
from pymc_tempering.kernels import (
    HMC,
    CustomKernel,
    DiscreteLangevin,
    Gibbs,
    RandomWalkMetropolis,
    Slice,
    StepKernel,
)
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
    "Bracket",
    "CrossCheck",
    "CustomKernel",
    "DataMismatchError",
    "Diagnosis",
    "DiscreteLangevin",
    "DiscreteVariableError",
    "Evidence",
    "Gibbs",
    "GradientError",
    "ImproperPriorError",
    "KernelError",
    "LadderError",
    "LikelihoodError",
    "ModelError",
    "NotTemperedError",
    "RandomWalkMetropolis",
    "Sandwich",
    "SimulatedTempering",
    "Slice",
    "SolverError",
    "StepKernel",
    "StuckChainError",
    "TemperingError",
    "TemperingWarning",
    "ais",
    "bayes_factor",
    "bracket",
    "bridge_sampling",
    "compare",
    "convert",
    "cross_check",
    "diagnose",
    "expectation",
    "hais",
    "importance_sampling",
    "linked_importance_sampling",
    "log_marginal_likelihood",
    "overlap",
    "plot_evidence",
    "plot_ladder",
    "plot_log_z",
    "plot_temperature_trace",
    "raise_",
    "reverse_ais",
    "sample",
    "sandwich",
    "smc",
    "testsystems",
    "thermodynamic_integration",
]
