"""Variational tempering: fits on top of ``pm.variational``, and the normalizers that they need."""

from pymc_tempering.variational import conjugate
from pymc_tempering.variational.fitting import fit, refine
from pymc_tempering.variational.normalizers.likelihood_terms import (
    local_log_normalizer,
    log_normalizers,
)
from pymc_tempering.variational.normalizers.log_partition import LogPartition, log_partition
from pymc_tempering.variational.normalizers.tempered_normalizer import (
    log_tempered_normalizer,
    temperature_limit,
)
from pymc_tempering.variational.temperatures import check_temperatures
from pymc_tempering.variational.tempered_fit import (
    TemperedFit,
    TemperedOptimum,
    plot_annealing,
    to_datatree,
)

__all__ = [
    "LogPartition",
    "TemperedFit",
    "TemperedOptimum",
    "check_temperatures",
    "conjugate",
    "fit",
    "local_log_normalizer",
    "log_normalizers",
    "log_partition",
    "log_tempered_normalizer",
    "plot_annealing",
    "refine",
    "temperature_limit",
    "to_datatree",
]
