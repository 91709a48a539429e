"""Conditionally conjugate models in closed form: SVI, annealed, tempered and locally tempered."""

from pymc_tempering.variational.conjugate.lda import LDA, document_completion, lda_log_partition
from pymc_tempering.variational.conjugate.mixtures import FactorialMixture, GaussianMixture
from pymc_tempering.variational.conjugate.svi import svi
from pymc_tempering.variational.conjugate.svi_fit import Fit
from pymc_tempering.variational.conjugate.word_counts import open_counts, save_counts

__all__ = [
    "LDA",
    "FactorialMixture",
    "Fit",
    "GaussianMixture",
    "document_completion",
    "lda_log_partition",
    "open_counts",
    "save_counts",
    "svi",
]
