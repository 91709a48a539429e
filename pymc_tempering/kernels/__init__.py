"""Transitions that leave `pi_beta` invariant.

A kernel is a compiled function
`kernel(density, point, beta, block, params, scratch, rng, info)`: it moves the coordinates
`block` of `point` in place, takes all randomness from `rng`, and writes `info[ACCEPTANCE]`,
`info[N_EVALUATIONS]` and `info[DIVERGED]`. When it returns, `point.values` are those of `point.x`,
and so are `point.grads` if it uses gradients. `params` is the row of tuning numbers of this rung,
which the kernel's `pack` made; `scratch` has `n_scratch` rows of length d.
"""

from pymc_tempering.kernels.contract import (
    ACCEPTANCE,
    DIVERGED,
    N_EVALUATIONS,
    N_INFO,
    Block,
    Compound,
    Kernel,
    on_all,
)
from pymc_tempering.kernels.custom import CustomKernel, StepKernel
from pymc_tempering.kernels.discrete import DiscreteLangevin, Gibbs
from pymc_tempering.kernels.gradient_free import RandomWalkMetropolis, Slice
from pymc_tempering.kernels.hmc import HMC
from pymc_tempering.kernels.nuts import NUTS

__all__ = [
    "ACCEPTANCE",
    "DIVERGED",
    "HMC",
    "NUTS",
    "N_EVALUATIONS",
    "N_INFO",
    "Block",
    "Compound",
    "CustomKernel",
    "DiscreteLangevin",
    "Gibbs",
    "Kernel",
    "RandomWalkMetropolis",
    "Slice",
    "StepKernel",
    "on_all",
]
