"""A recorded cycle as PyMC's statistics of a draw, the same for both front doors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pymc_tempering.chain.loop import SCALAR_STATS
from pymc_tempering.core.cycles import LOOK_STATS, PRIOR_STATS, RUNG_STATS, FreshLooks
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.references.mixture import Mixture, nearest_component

SCALAR_DTYPES: dict[str, type] = {
    "tempering_steps": int,
    "beta_min": float,
    "tour_start": bool,
    "n_steps": int,
    "n_divergences": int,
    "diverging": bool,
    "n_zero_likelihood": int,
    "n_undefined": int,
    "log_ratio": float,
    "model_logp": float,  # PyMC renames it to `lp`
}


@dataclass(frozen=True, eq=False)
class Schema:
    """Statistics of the draws of one plan.

    Attributes
    ----------
    ladder : Ladder
    components : Mixture, optional
        Of a fitted reference.
    fresh : FreshLooks, optional
        The summary of its check. Each draw carries it, since `pm.sample` has no other place.
    prior_constant : tuple of float
        Log Z of a prior that is not normalized, and its error; each draw carries them too.
    log_volume : callable, optional
        What the log density of draws, shape (n, d), lacks to that of the user's model, shape (n,).
    """

    ladder: Ladder
    components: Mixture | None = None
    fresh: FreshLooks | None = None
    prior_constant: tuple[float, float] = (0.0, 0.0)
    log_volume: Callable[[np.ndarray], np.ndarray] | None = None

    @cached_property
    def _constants(self) -> dict[str, Any]:
        """Statistics that are the same for every draw."""
        constants: dict[str, Any] = {
            "beta": self.ladder.betas,
            "log_z_ladder": self.ladder.log_z,
            "log_weight": self.ladder.log_weights,
        }
        if self.fresh is not None:
            for name in LOOK_STATS:
                constants[name] = getattr(self.fresh, name.removeprefix("check_"))
        if self.prior_constant != (0.0, 0.0):
            constants |= dict(zip(PRIOR_STATS, self.prior_constant, strict=True))
        return constants

    @property
    def dtypes_and_shapes(self) -> dict[str, tuple[type, list[int]]]:
        """`stats_dtypes_shapes` of a PyMC step method."""
        known: dict[str, tuple[type, list[int]]] = {
            name: (dtype, []) for name, dtype in SCALAR_DTYPES.items()
        }
        if self.components is not None:
            known["component"] = (int, [])
        for name, value in self._constants.items():
            known[name] = (float, list(np.shape(value)))
        return known | {name: (float, [self.ladder.n_rungs]) for name in RUNG_STATS}

    @property
    def dtypes(self) -> dict[str, Any]:
        """`stats_dtypes` of an instance: vectors as subarrays, which PyMC's trace then keeps."""
        return {
            name: np.dtype((dtype, tuple(shape))) if shape else dtype
            for name, (dtype, shape) in self.dtypes_and_shapes.items()
        }

    def statistics(
        self, per_rung: np.ndarray, scalars: np.ndarray, xs: np.ndarray
    ) -> dict[str, Any]:
        """Statistics of one draw or of many, of what their cycles accumulated.

        Parameters
        ----------
        per_rung : array, shape (..., len(RUNG_STATS), K)
        scalars : array, shape (..., len(SCALAR_STATS))
        xs : array, shape (..., d)
            The draws, unconstrained.

        Returns
        -------
        dict
            Arrays of shape (...) or (..., K) by name, some of them views. Values that all draws
            share are repeated.
        """
        lead = scalars.shape[:-1]
        named = {name: scalars[..., i][()] for i, name in enumerate(SCALAR_STATS)}
        named["model_logp"] = named["lp"]
        if self.log_volume is not None:
            volume = self.log_volume(xs.reshape(-1, xs.shape[-1])).reshape(lead)
            named["model_logp"] = named["lp"] + volume[()]
        named["beta_min"] = self.ladder.betas[named["lowest_rung"].astype(int)]
        stats = dict(self._constants)
        if lead:
            for name, value in stats.items():
                stats[name] = np.broadcast_to(value, (*lead, *np.shape(value)))
        stats |= {name: per_rung[..., i, :] for i, name in enumerate(RUNG_STATS)}
        stats |= {name: named[name].astype(dtype) for name, dtype in SCALAR_DTYPES.items()}
        if self.components is not None:
            nearest = nearest_component(self.components, xs.reshape(-1, xs.shape[-1]))
            stats["component"] = nearest.reshape(lead)[()]
        return stats
