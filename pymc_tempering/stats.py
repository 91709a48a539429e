"""One schema for both front doors: a recorded cycle as PyMC's statistics of a draw."""

from typing import Any

import numpy as np

from pymc_tempering.engine import LOWEST, RUNG_STATS, SCALAR_STATS
from pymc_tempering.ladder import Ladder

SCALAR_DTYPES: dict[str, type] = {
    "tempering_steps": int,
    "beta_min": float,
    "tour_start": bool,
    "n_steps": int,
    "n_divergences": int,
    "diverging": bool,
    "n_zero_likelihood": int,
    "model_logp": float,  # PyMC renames it to `lp`
}
LADDER_STATS = ("beta", "log_z_ladder", "log_weight")


def dtypes_and_shapes(n_rungs: int) -> dict[str, tuple[type, list[int]]]:
    """`stats_dtypes_shapes` of a PyMC step method on `n_rungs` rungs."""
    scalars: dict[str, tuple[type, list[int]]] = {
        name: (dtype, []) for name, dtype in SCALAR_DTYPES.items()
    }
    vectors: dict[str, tuple[type, list[int]]] = {
        name: (float, [n_rungs]) for name in (*LADDER_STATS, *RUNG_STATS)
    }
    return scalars | vectors


def subarray_dtypes(n_rungs: int) -> dict[str, Any]:
    """`stats_dtypes` of an instance: vectors as subarrays, which PyMC's trace then keeps."""
    return {
        name: np.dtype((dtype, tuple(shape))) if shape else dtype
        for name, (dtype, shape) in dtypes_and_shapes(n_rungs).items()
    }


def draw_stats(ladder: Ladder, per_rung: np.ndarray, scalars: np.ndarray) -> dict[str, Any]:
    """Statistics of one draw, of what its cycle accumulated.

    Parameters
    ----------
    ladder : Ladder
    per_rung : array, shape (len(RUNG_STATS), K)
    scalars : array, shape (len(SCALAR_STATS),)
    """
    named = dict(zip(SCALAR_STATS, scalars.tolist(), strict=True))
    stats: dict[str, Any] = {
        "beta": ladder.betas,
        "log_z_ladder": ladder.log_z,
        "log_weight": ladder.log_weights,
        **dict(zip(RUNG_STATS, per_rung, strict=True)),
    }
    for name, dtype in SCALAR_DTYPES.items():
        if name == "beta_min":
            stats[name] = float(ladder.betas[int(scalars[LOWEST])])
        else:
            stats[name] = dtype(named["lp" if name == "model_logp" else name])
    return stats
