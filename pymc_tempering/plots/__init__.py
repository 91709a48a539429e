"""Pictures of a tempering run and of the evidence, one file a picture."""

from pymc_tempering.plots.barrier_curve import plot_barrier
from pymc_tempering.plots.evidence_forest import plot_evidence
from pymc_tempering.plots.ladder_panels import plot_ladder
from pymc_tempering.plots.log_z_curve import plot_log_z
from pymc_tempering.plots.look_densities import plot_looks
from pymc_tempering.plots.marks import BLUE, GRAY, GREEN, ORANGE
from pymc_tempering.plots.model_probabilities import plot_bayes_factors
from pymc_tempering.plots.path_ridges import plot_path
from pymc_tempering.plots.prior_sensitivity_curve import plot_prior_sensitivity
from pymc_tempering.plots.round_trips import plot_round_trips
from pymc_tempering.plots.run_summary import plot_summary
from pymc_tempering.plots.running_log_z import plot_running_log_z
from pymc_tempering.plots.temperature_trace import plot_temperature_trace
from pymc_tempering.plots.tour_panels import plot_tours

__all__ = [
    "BLUE",
    "GRAY",
    "GREEN",
    "ORANGE",
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
]
