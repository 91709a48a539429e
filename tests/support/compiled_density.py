"""A density written by hand, as the compiled loops take it."""

import numba
import numpy as np

from pymc_tempering.model.compiled import DENSITY_SIGNATURE, Data, Density


def compiled_density(function):
    """Density of a function of (x, values, grads), which Numba can compile, or has compiled."""
    called = function if hasattr(function, "py_func") else numba.njit(function)

    @numba.cfunc(DENSITY_SIGNATURE, nogil=True)
    def code(x, values, grads, data):
        called(x, values, grads)

    return Density(code, Data.of(np.zeros(1)))
