"""Pictures of a tempering run and of the evidence, one file a picture."""

from pymc_tempering.plots.axes import BLUE, GRAY, GREEN, ORANGE
from pymc_tempering.plots.evidence_forest import plot_evidence
from pymc_tempering.plots.ladder_panels import plot_ladder
from pymc_tempering.plots.log_z_curve import plot_log_z
from pymc_tempering.plots.prior_sensitivity_curve import plot_prior_sensitivity
from pymc_tempering.plots.temperature_trace import plot_temperature_trace

__all__ = [
    "BLUE",
    "GRAY",
    "GREEN",
    "ORANGE",
    "plot_evidence",
    "plot_ladder",
    "plot_log_z",
    "plot_prior_sensitivity",
    "plot_temperature_trace",
]
