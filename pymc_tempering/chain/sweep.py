"""One move of each of many particles, compiled: what the annealed pass of the warm-up repeats."""

import numpy as np
from numba import float64, types

from pymc_tempering.chain.loop import wrap_angles
from pymc_tempering.model.compiled import (
    DENSITY,
    EXPLORE,
    INDICES,
    MATRIX,
    PARTS,
    RNG,
    VECTOR,
    Point,
)
from pymc_tempering.model.jit import njit


@njit(
    types.void(
        DENSITY,
        EXPLORE,
        PARTS,
        MATRIX,
        MATRIX,
        float64[:, :, ::1],
        MATRIX,
        float64,
        VECTOR,
        INDICES,
        MATRIX,
        RNG,
        MATRIX,
    ),
)
def sweep(  # type: ignore[no-untyped-def]
    density,
    explore,
    parts,
    xs,
    values,
    grads,
    mixture,
    beta,
    params,
    circular,
    scratch,
    rng,
    totals,
):
    """Move each of N particles once at `beta`; add up what the kernels say, shape (B, N_INFO)."""
    infos = np.zeros(totals.shape)
    for i in range(xs.shape[0]):
        point = Point(xs[i], values[i], grads[i], mixture)
        explore(density, point, beta, parts, params, scratch, rng, infos)
        wrap_angles(point, circular)
        totals += infos
