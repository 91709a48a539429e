"""Simulated tempering for PyMC: posterior draws and evidence with an error bar."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pymc_tempering.exceptions import (
    ArgumentError,
    CheckpointError,
    DataError,
    DataMismatchError,
    DiscreteVariableError,
    GradientError,
    ImproperPriorError,
    KernelError,
    LadderError,
    LikelihoodError,
    ModelError,
    NormalizerError,
    NotTemperedError,
    NullError,
    PriorDrawsError,
    SolverError,
    StuckChainError,
    TemperatureError,
    TemperingError,
    TemperingWarning,
    TimeLimitError,
    WorkerError,
)

if TYPE_CHECKING:
    from pymc_tempering import arrays, testsystems, variational
    from pymc_tempering.annealed import (
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
    from pymc_tempering.comparison import average, log_marginal_likelihood
    from pymc_tempering.comparison.compare import bayes_factor, compare
    from pymc_tempering.crosscheck import CrossCheck
    from pymc_tempering.crosscheck.cross_check import cross_check
    from pymc_tempering.evidence import (
        BayesFactor,
        Bracket,
        Evidence,
        PosteriorOdds,
        bracket,
        expectation,
        overlap,
    )
    from pymc_tempering.evidence.bracket import Sandwich
    from pymc_tempering.evidence.datatree import convert
    from pymc_tempering.evidence.diagnostics import Diagnosis, diagnose
    from pymc_tempering.evidence.prior_curves import PriorSensitivity, SensitivityCurve
    from pymc_tempering.evidence.tracker import PartitionTracker
    from pymc_tempering.kernels import (
        HMC,
        NUTS,
        CustomKernel,
        DiscreteLangevin,
        Gibbs,
        RandomWalkMetropolis,
        Slice,
        StepKernel,
    )
    from pymc_tempering.many.sample_many import sample_many
    from pymc_tempering.model.handle import CompiledModel
    from pymc_tempering.nested import SavageDickey, savage_dickey
    from pymc_tempering.plots import (
        plot_barrier,
        plot_bayes_factors,
        plot_evidence,
        plot_ladder,
        plot_log_z,
        plot_looks,
        plot_path,
        plot_prior_sensitivity,
        plot_round_trips,
        plot_running_log_z,
        plot_summary,
        plot_temperature_trace,
        plot_tours,
    )
    from pymc_tempering.restart.extend import extend
    from pymc_tempering.restart.resume import resume
    from pymc_tempering.sampling.precompile import compile
    from pymc_tempering.sampling.sample import sample
    from pymc_tempering.sampling.step_method import SimulatedTempering
    from pymc_tempering.sensitivity.prior_sensitivity import prior_sensitivity
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

# fmt: off
_HOMES = {
    "annealed": (
        "ais",
        "hais",
        "linked_importance_sampling",
        "raise_",
        "reverse_ais",
        "sandwich",
        "smc",
        "thermodynamic_integration",
    ),
    "bridge": ("bridge_sampling", "importance_sampling"),
    "comparison": ("average", "log_marginal_likelihood"),
    "comparison.compare": ("bayes_factor", "compare"),
    "crosscheck": ("CrossCheck",),
    "crosscheck.cross_check": ("cross_check",),
    "evidence": (
        "BayesFactor",
        "Bracket",
        "Evidence",
        "PosteriorOdds",
        "bracket",
        "expectation",
        "overlap",
    ),
    "evidence.bracket": ("Sandwich",),
    "evidence.datatree": ("convert",),
    "evidence.diagnostics": ("Diagnosis", "diagnose"),
    "evidence.prior_curves": ("PriorSensitivity", "SensitivityCurve"),
    "evidence.tracker": ("PartitionTracker",),
    "kernels": (
        "HMC",
        "NUTS",
        "CustomKernel",
        "DiscreteLangevin",
        "Gibbs",
        "RandomWalkMetropolis",
        "Slice",
        "StepKernel",
    ),
    "many.sample_many": ("sample_many",),
    "model.handle": ("CompiledModel",),
    "nested": ("SavageDickey", "savage_dickey"),
    "plots": (
        "plot_barrier", "plot_bayes_factors", "plot_evidence", "plot_ladder", "plot_log_z",
        "plot_looks", "plot_path", "plot_prior_sensitivity", "plot_round_trips",
        "plot_running_log_z", "plot_summary", "plot_temperature_trace", "plot_tours",
    ),
    "restart.extend": ("extend",),
    "restart.resume": ("resume",),
    "sampling.precompile": ("compile",),
    "sampling.sample": ("sample",),
    "sampling.step_method": ("SimulatedTempering",),
    "sensitivity.prior_sensitivity": ("prior_sensitivity",),
    "variational": (
        "LogPartition",
        "TemperedFit",
        "TemperedOptimum",
        "fit",
        "log_partition",
        "log_tempered_normalizer",
        "plot_annealing",
        "refine",
        "to_datatree",
    ),
}
"""Where the public names are that load when first touched."""

_MODULES = (
    "annealed", "arguments", "arrays", "borrowed", "bridge", "chain", "comparison", "core",
    "crosscheck", "evidence", "executors", "kernels", "many", "model", "nested", "plots",
    "references", "restart", "sampling", "sensitivity", "storage", "testsystems", "variational",
    "warmup",
)
# fmt: on

__all__ = [
    "HMC",
    "NUTS",
    "ArgumentError",
    "BayesFactor",
    "Bracket",
    "CheckpointError",
    "CompiledModel",
    "CrossCheck",
    "CustomKernel",
    "DataError",
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
    "LogPartition",
    "ModelError",
    "NormalizerError",
    "NotTemperedError",
    "NullError",
    "PartitionTracker",
    "PosteriorOdds",
    "PriorDrawsError",
    "PriorSensitivity",
    "RandomWalkMetropolis",
    "Sandwich",
    "SavageDickey",
    "SensitivityCurve",
    "SimulatedTempering",
    "Slice",
    "SolverError",
    "StepKernel",
    "StuckChainError",
    "TemperatureError",
    "TemperedFit",
    "TemperedOptimum",
    "TemperingError",
    "TemperingWarning",
    "TimeLimitError",
    "WorkerError",
    "ais",
    "arrays",
    "average",
    "bayes_factor",
    "bracket",
    "bridge_sampling",
    "compare",
    "compile",
    "convert",
    "cross_check",
    "diagnose",
    "expectation",
    "extend",
    "fit",
    "hais",
    "importance_sampling",
    "linked_importance_sampling",
    "log_marginal_likelihood",
    "log_partition",
    "log_tempered_normalizer",
    "overlap",
    "plot_annealing",
    "plot_barrier",
    "plot_bayes_factors",
    "plot_evidence",
    "plot_ladder",
    "plot_log_z",
    "plot_looks",
    "plot_path",
    "plot_prior_sensitivity",
    "plot_round_trips",
    "plot_running_log_z",
    "plot_summary",
    "plot_temperature_trace",
    "plot_tours",
    "prior_sensitivity",
    "raise_",
    "refine",
    "resume",
    "reverse_ais",
    "sample",
    "sample_many",
    "sandwich",
    "savage_dickey",
    "smc",
    "testsystems",
    "thermodynamic_integration",
    "to_datatree",
    "variational",
]


def __getattr__(name: str) -> Any:
    """Load what is touched for the first time, see PEP 562."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=import_module(__name__))
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
