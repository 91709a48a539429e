"""Simulated tempering for PyMC: posterior draws and evidence with an error bar.

Front doors and pictures are names of the package itself. Kernels, results and exceptions live in
their modules: ``pmt.kernels.NUTS``, ``pmt.evidence.Evidence``, ``pmt.exceptions.ModelError``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pymc_tempering import exceptions
from pymc_tempering.exceptions import TemperingError, TemperingWarning

if TYPE_CHECKING:
    from pymc_tempering import (
        annealed as annealed,
        arrays as arrays,
        evidence as evidence,
        kernels as kernels,
        testsystems as testsystems,
        variational as variational,
    )
    from pymc_tempering.annealed import (
        ais as ais,
        reverse_ais as reverse_ais,
        sandwich as sandwich,
        smc as smc,
        thermodynamic_integration as thermodynamic_integration,
    )
    from pymc_tempering.bridge.bridge_sampling import bridge_sampling as bridge_sampling
    from pymc_tempering.bridge.importance_sampling import importance_sampling as importance_sampling
    from pymc_tempering.comparison.compare import bayes_factor as bayes_factor, compare as compare
    from pymc_tempering.comparison.inclusion import (
        inclusion_probabilities as inclusion_probabilities,
    )
    from pymc_tempering.comparison.marginal_likelihood import (
        log_marginal_likelihood as log_marginal_likelihood,
    )
    from pymc_tempering.comparison.model_average import average as average
    from pymc_tempering.crosscheck.cross_check import cross_check as cross_check
    from pymc_tempering.evidence import expectation as expectation
    from pymc_tempering.evidence.datatree import convert as convert
    from pymc_tempering.evidence.diagnostics import diagnose as diagnose
    from pymc_tempering.many.calibrate import calibrate as calibrate
    from pymc_tempering.many.sample_many import sample_many as sample_many
    from pymc_tempering.nested import savage_dickey as savage_dickey
    from pymc_tempering.plots.calibrated import plot_calibration as plot_calibration
    from pymc_tempering.plots.estimates import (
        plot_bayes_factors as plot_bayes_factors,
        plot_evidence as plot_evidence,
        plot_inclusion as plot_inclusion,
        plot_prior_sensitivity as plot_prior_sensitivity,
    )
    from pymc_tempering.plots.ladder import (
        plot_barrier as plot_barrier,
        plot_ladder as plot_ladder,
        plot_path as plot_path,
    )
    from pymc_tempering.plots.log_z import (
        plot_log_z as plot_log_z,
        plot_running_log_z as plot_running_log_z,
    )
    from pymc_tempering.plots.looks import plot_looks as plot_looks
    from pymc_tempering.plots.movement import (
        plot_round_trips as plot_round_trips,
        plot_temperature_trace as plot_temperature_trace,
        plot_tours as plot_tours,
    )
    from pymc_tempering.plots.summary import plot_summary as plot_summary
    from pymc_tempering.sampling.precompile import compile as compile
    from pymc_tempering.sampling.restart import extend as extend, resume as resume
    from pymc_tempering.sampling.sample import sample as sample
    from pymc_tempering.sampling.step_method import SimulatedTempering as SimulatedTempering
    from pymc_tempering.sampling.to_bambi import to_bambi as to_bambi
    from pymc_tempering.sensitivity.prior_sensitivity import prior_sensitivity as prior_sensitivity
    from pymc_tempering.variational import (
        fit as fit,
        plot_annealing as plot_annealing,
        refine as refine,
        to_datatree as to_datatree,
    )

__version__ = "0.1.0"

_HOMES = {
    "annealed": ("ais", "reverse_ais", "sandwich", "smc", "thermodynamic_integration"),
    "bridge.bridge_sampling": ("bridge_sampling",),
    "bridge.importance_sampling": ("importance_sampling",),
    "comparison.compare": ("bayes_factor", "compare"),
    "comparison.inclusion": ("inclusion_probabilities",),
    "comparison.marginal_likelihood": ("log_marginal_likelihood",),
    "comparison.model_average": ("average",),
    "crosscheck.cross_check": ("cross_check",),
    "evidence": ("expectation",),
    "evidence.datatree": ("convert",),
    "evidence.diagnostics": ("diagnose",),
    "many.calibrate": ("calibrate",),
    "many.sample_many": ("sample_many",),
    "nested": ("savage_dickey",),
    "plots.calibrated": ("plot_calibration",),
    "plots.estimates": (
        "plot_bayes_factors",
        "plot_evidence",
        "plot_inclusion",
        "plot_prior_sensitivity",
    ),
    "plots.ladder": ("plot_barrier", "plot_ladder", "plot_path"),
    "plots.log_z": ("plot_log_z", "plot_running_log_z"),
    "plots.looks": ("plot_looks",),
    "plots.movement": ("plot_round_trips", "plot_temperature_trace", "plot_tours"),
    "plots.summary": ("plot_summary",),
    "sampling.precompile": ("compile",),
    "sampling.restart": ("extend", "resume"),
    "sampling.sample": ("sample",),
    "sampling.step_method": ("SimulatedTempering",),
    "sampling.to_bambi": ("to_bambi",),
    "sensitivity.prior_sensitivity": ("prior_sensitivity",),
    "variational": ("fit", "plot_annealing", "refine", "to_datatree"),
}
"""Where the names are that load when first touched."""

_MODULES = ("annealed", "arrays", "evidence", "kernels", "testsystems", "variational")
"""Modules that load when first touched; further ones are found, too."""

__all__ = [
    "TemperingError",
    "TemperingWarning",
    "exceptions",
    *_MODULES,
    *(name for names in _HOMES.values() for name in names),
]


def __getattr__(name: str) -> Any:
    """Load what is touched for the first time, see PEP 562."""
    home = next((home for home, names in _HOMES.items() if name in names), "")
    try:
        module = import_module(f"{__name__}.{home or name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=import_module(__name__)) from None
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
