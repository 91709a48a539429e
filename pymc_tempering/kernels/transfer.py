"""Transfer of units between two cells, for vectors of counts whose sum is fixed."""

from functools import partial

import numpy as np
import pymc as pm

from pymc_tempering.kernels.contract import (
    ACCEPTANCE,
    DIVERGED,
    FIXED_SUM,
    N_EVALUATIONS,
    Block,
    Kernel,
    log_density_at,
)
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.jit import njit
from pymc_tempering.model.layout import Layout

FIRST = 0
"""Layout of the tuning numbers: where the vector of each coordinate begins in the block, then how
many cells it has, each of length b."""

PROPOSALS = 2
"""Proposals of a transition for each cell."""


@njit(KERNEL_SIGNATURE, error_model="numpy")
def transfer_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Move units from one cell to another of its vector, a few times, each accepted by Metropolis.

    The cells and the number of units are drawn without a look at what the cells hold, so that the
    way back is as likely. That number is of all scales up to the sum of the vector.
    """
    n = block.size
    accepted, taken = 0.0, 0
    for _ in range(PROPOSALS * n):
        i = int(rng.random() * n)
        first, length = int(params[FIRST + i]), int(params[FIRST + n + i])
        if length < 2:
            continue
        k = first + int(rng.random() * (length - 1))
        k += k >= i  # any other cell
        total = 0.0
        for j in range(first, first + length):
            total += point.x[block[j]]
        scales = 1.0 + np.floor(np.log2(max(total, 1.0)))
        units = 1.0 + np.floor(rng.random() * 2.0 ** np.floor(rng.random() * scales))
        if point.x[block[i]] < units:
            continue
        log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
        point.x[block[i]] -= units
        point.x[block[k]] += units
        taken += 1
        level = log_density_at(density, point, beta)
        chance = min(1.0, np.exp(level - (log_reference + beta * log_ratio)))
        accepted += chance
        if not rng.random() < chance:
            point.x[block[i]] += units
            point.x[block[k]] -= units
            point.values[LOG_REFERENCE] = log_reference
            point.values[LOG_RATIO] = log_ratio
    info[ACCEPTANCE] = accepted / (PROPOSALS * n)
    info[N_EVALUATIONS] = taken
    info[DIVERGED] = 0.0


def _pack(
    step_size: float, scale: np.ndarray, block: Block, lengths: tuple[int, ...] | None
) -> np.ndarray:
    n = np.array(lengths or (block.size,))
    return np.concatenate([np.repeat(np.cumsum(n) - n, n), np.repeat(n, n)]).astype(float)


def Transfer(lengths: tuple[int, ...] | None = None) -> Kernel:
    """Transfer of units between cells of vectors with a fixed sum, as of a multinomial law.

    Parameters
    ----------
    lengths : tuple of int, optional
        Cells of each vector; by default those that the model says, and one vector where there is
        no model.

    Returns
    -------
    Kernel
    """
    return Kernel(
        name="transfer",
        transition=transfer_transition,
        n_scratch=0,
        pack=partial(_pack, lengths=lengths),
        rebuild=(Transfer, (lengths,)),
        reversal="self",
        kinds=frozenset({FIXED_SUM}),
        bind=_bind if lengths is None else None,
    )


def _bind(model: pm.Model, layout: Layout, block: Block) -> Kernel:
    """Give the kernel the vectors of its variables, which lie along their last axes."""
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    own = [shapes[name] for name in block.names]
    return Transfer(
        tuple(shape[-1] for shape in own for _ in range(int(np.prod(shape[:-1], dtype=int))))
    )
