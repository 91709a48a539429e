"""Variational tempering: fits on top of ``pm.variational``, and the normalizers that they need."""

from pymc_tempering.variational import conjugate
from pymc_tempering.variational.front import fit, refine
from pymc_tempering.variational.monte_carlo import MonteCarloNormalizer, monte_carlo_normalizer
from pymc_tempering.variational.normalizers import (
    log_tempered_normalizer,
    normalizer_method,
    temperature_limit,
)
from pymc_tempering.variational.output import to_datatree
from pymc_tempering.variational.partition import LogPartition, log_partition
from pymc_tempering.variational.plots import plot_annealing
from pymc_tempering.variational.result import TemperedFit, TemperedOptimum
from pymc_tempering.variational.terms import (
    check_temperatures,
    local_log_normalizer,
    log_normalizers,
)

__all__ = [
    "LogPartition",
    "MonteCarloNormalizer",
    "TemperedFit",
    "TemperedOptimum",
    "check_temperatures",
    "conjugate",
    "fit",
    "local_log_normalizer",
    "log_normalizers",
    "log_partition",
    "log_tempered_normalizer",
    "monte_carlo_normalizer",
    "normalizer_method",
    "plot_annealing",
    "refine",
    "temperature_limit",
    "to_datatree",
]
