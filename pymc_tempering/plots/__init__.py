"""Pictures of a tempering run and of the evidence, one file a picture."""

from pymc_tempering.plots.common import BLUE, GRAY, GREEN, ORANGE
from pymc_tempering.plots.evidence import plot_evidence
from pymc_tempering.plots.ladder import plot_ladder
from pymc_tempering.plots.log_z import plot_log_z
from pymc_tempering.plots.temperature_trace import plot_temperature_trace

__all__ = [
    "BLUE",
    "GRAY",
    "GREEN",
    "ORANGE",
    "plot_evidence",
    "plot_ladder",
    "plot_log_z",
    "plot_temperature_trace",
]
