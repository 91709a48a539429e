"""The path from a prior in coordinates in which effects do not depend on their scales.

In the funnel of a centered hierarchical prior a particle cannot move its scales as long as many
effects hang on them. Each effect is divided by its scale here, as in a model that is written
without centering. It is the same path, in other coordinates of the same state.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba import carray, float64

from pymc_tempering.model.compiled import (
    DENSITY_SIGNATURE,
    LOG_REFERENCE,
    Data,
    Density,
    pointer,
)
from pymc_tempering.model.jit import borrowing
from pymc_tempering.references.warp import (
    A0,
    FIRST,
    INDEX,
    LAST,
    MAX_LOG,
    P0,
    REGRESSORS,
    SCALE,
    FunnelWarp,
    scale_at,
)
from pymc_tempering.references.warp_fit import KINDS, Effect, to_warp

FACTOR = P0
"""Column of a packed warp that has exp(delta) here."""


def multiples(effects: list[Effect], variables: Sequence[slice]) -> list[Effect]:
    """Return the effects of variables all of whose effects are multiples of their scales."""
    kept = []
    for part in variables:
        own = [each for each in effects if part.start <= each.index < part.stop]
        if all((each.gamma, each.bounded) in KINDS for each in own):
            kept += own
    return kept


def straight_warp(effects: list[Effect]) -> FunnelWarp:
    """Warp of effects by their prior alone."""
    rows = sorted(effects, key=lambda effect: effect.index)
    width = max(1, *(len(row.regressors) for row in rows))
    parameters = np.zeros((len(rows), 3 + width))
    parameters[:, 0], parameters[:, 1] = MAX_LOG, -MAX_LOG
    return to_warp(rows, parameters)


@borrowing
def _stretch(x, rows, scales, slopes):  # type: ignore[no-untyped-def]
    """Turn u into x, in place; write exp(s) and its slope of each row, and return log |dx / du|."""
    total, width = 0.0, (rows.shape[1] - REGRESSORS) // 3
    for k in range(rows.shape[0]):
        first = int(rows[k, FIRST])
        if first == k:
            s, slopes[k] = scale_at(x, rows, k)
            scales[k] = np.exp(s)
        mean = rows[k, A0]
        for r in range(REGRESSORS, REGRESSORS + int(rows[k, LAST])):
            mean += rows[k, r + width] * x[int(rows[k, r])]
        scales[k], slopes[k] = scales[first], slopes[first]
        i, factor = int(rows[k, INDEX]), rows[k, FACTOR] * scales[k]
        x[i] = mean + x[i] * factor
        total += np.log(factor)
    return total


@borrowing
def _turn(slope, u, rows, scales, slopes, share):  # type: ignore[no-untyped-def]
    """Turn the gradient of log p(x) into that along u of log p(x) + share * log |dx / du|."""
    width = (rows.shape[1] - REGRESSORS) // 3
    for k in range(rows.shape[0] - 1, -1, -1):
        i, factor = int(rows[k, INDEX]), rows[k, FACTOR] * scales[k]
        own = slope[i]
        for r in range(REGRESSORS, REGRESSORS + int(rows[k, LAST])):
            slope[int(rows[k, r])] += own * rows[k, r + width]
        slope[int(rows[k, SCALE])] += (own * u[i] * factor + share) * slopes[k]
        slope[i] = own * factor


def straight_density(density: Density, warp: FunnelWarp) -> Density:
    """Compile the density of u of a warp by the prior alone, from that of x.

    The log determinant belongs to the prior.
    """
    inner, address, packed = density.code, int(density.data), warp.packed.copy()
    packed[:, FACTOR] = np.exp(warp.log_sd)
    shape = packed.shape

    @numba.cfunc(DENSITY_SIGNATURE, nogil=True, error_model="numpy")
    def code(u: Any, values: Any, grads: Any, data: Any) -> None:
        rows = carray(pointer(data), shape, float64)
        x, scratch = u.copy(), np.empty((2, shape[0]))
        log_det = _stretch(x, rows, scratch[0], scratch[1])
        inner(x, values, grads, address)
        values[LOG_REFERENCE] += log_det
        for row in range(grads.shape[0]):
            share = 1.0 if row == LOG_REFERENCE else 0.0
            _turn(grads[row], u, rows, scratch[0], scratch[1], share)

    return Density(code, Data.of(packed))
