"""Pictures of a tempering run and of the evidence."""

from pymc_tempering.plots.estimates import plot_bayes_factors, plot_evidence, plot_prior_sensitivity
from pymc_tempering.plots.ladder import plot_barrier, plot_ladder, plot_path
from pymc_tempering.plots.log_z import plot_log_z, plot_running_log_z
from pymc_tempering.plots.looks import plot_looks
from pymc_tempering.plots.movement import plot_round_trips, plot_temperature_trace, plot_tours
from pymc_tempering.plots.sheet import BLUE, GRAY, GREEN, ORANGE
from pymc_tempering.plots.summary import plot_summary

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
