"""Variables on a circle: brought back to [-pi, pi) after they moved."""

import numpy as np
from numba import int64, types

from pymc_tempering.model.compiled import VECTOR
from pymc_tempering.model.jit import njit


@njit(types.void(VECTOR, int64[::1]), error_model="numpy")
def wrap(x, circular):  # type: ignore[no-untyped-def]
    """Bring the elements `circular` of a state back to [-pi, pi)."""
    for j in circular:
        x[j] = (x[j] + np.pi) % (2.0 * np.pi) - np.pi
