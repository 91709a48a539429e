"""Tempered normalizers of the likelihood, which variational tempering needs."""

from pymc_tempering.variational.monte_carlo import MonteCarloNormalizer, monte_carlo_normalizer
from pymc_tempering.variational.normalizers import (
    log_tempered_normalizer,
    normalizer_method,
    temperature_limit,
)
from pymc_tempering.variational.partition import LogPartition, log_partition
from pymc_tempering.variational.terms import (
    check_temperatures,
    local_log_normalizer,
    log_normalizers,
)

__all__ = [
    "LogPartition",
    "MonteCarloNormalizer",
    "check_temperatures",
    "local_log_normalizer",
    "log_normalizers",
    "log_partition",
    "log_tempered_normalizer",
    "monte_carlo_normalizer",
    "normalizer_method",
    "temperature_limit",
]
