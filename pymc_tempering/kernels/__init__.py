"""Transitions that leave `pi_beta` invariant, one file each.

A kernel is a compiled function `kernel(density, point, beta, params, scratch, rng, info)`:
it moves `point` in place (x, values and grads stay consistent), draws from `rng` alone, and
writes `info[ACCEPTANCE]`, `info[N_EVALUATIONS]` and `info[DIVERGED]`. `params` is the row of
tuning numbers of this rung, whose first entry is the kernel's step size; `scratch` has
`n_scratch` rows of length d.
"""

from pymc_tempering.kernels.base import ACCEPTANCE, DIVERGED, N_EVALUATIONS, N_INFO, Kernel
from pymc_tempering.kernels.hmc import HMC

__all__ = ["ACCEPTANCE", "DIVERGED", "HMC", "N_EVALUATIONS", "N_INFO", "Kernel"]
