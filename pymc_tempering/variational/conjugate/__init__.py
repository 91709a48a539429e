"""Conditionally conjugate models in closed form: SVI, annealed, tempered and locally tempered."""

from pymc_tempering.variational.conjugate.lda import LDA, document_completion
from pymc_tempering.variational.conjugate.mixtures import FactorialMixture, GaussianMixture
from pymc_tempering.variational.conjugate.svi import svi
from pymc_tempering.variational.conjugate.svi_fit import Fit

__all__ = [
    "LDA",
    "FactorialMixture",
    "Fit",
    "GaussianMixture",
    "document_completion",
    "svi",
]
