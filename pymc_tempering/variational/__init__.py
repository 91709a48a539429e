"""Variational inference with temperatures: annealed, tempered, locally tempered."""

from pymc_tempering.variational import conjugate

__all__ = ["conjugate"]
