"""The draws and statistics of one chain, all there at once, as a trace that PyMC converts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_tempering.borrowed.private import SlicedTrace


@dataclass(frozen=True, eq=False)
class ArrayTrace(SlicedTrace):
    """What `pm.to_inference_data` reads of a chain.

    Attributes
    ----------
    chain : int
    n_draws : int
    values : dict of array, shape (n_draws, ...)
        By variable, as PyMC records them.
    stats : dict of array, shape (n_draws, ...)
        By statistic.
    """

    chain: int
    n_draws: int
    values: dict[str, np.ndarray]
    stats: dict[str, np.ndarray] | None = None

    @property
    def varnames(self) -> list[str]:
        """Names of the variables."""
        return list(self.values)

    @property
    def sampler_vars(self) -> list[dict[str, Any]] | None:
        """Types of the statistics of the one sampler."""
        if self.stats is None:
            return None
        return [{name: column.dtype for name, column in self.stats.items()}]

    def __len__(self) -> int:
        """Return the number of draws."""
        return self.n_draws

    def get_values(self, varname: str, burn: int = 0, thin: int = 1) -> np.ndarray:
        """Values of a variable."""
        return self.values[varname][burn::thin]

    def get_sampler_stats(
        self, stat_name: str, sampler_idx: int | None = None, burn: int = 0, thin: int = 1
    ) -> np.ndarray:
        """Values of a statistic."""
        assert self.stats is not None
        return self.stats[stat_name][burn::thin]

    def point(self, idx: int) -> Mapping[str, np.ndarray]:
        """One draw."""
        return {name: column[idx] for name, column in self.values.items()}

    def part(self, idx: slice) -> "ArrayTrace":
        """Return the draws of a slice."""
        values = {name: column[idx] for name, column in self.values.items()}
        stats = self.stats and {name: column[idx] for name, column in self.stats.items()}
        return ArrayTrace(self.chain, len(range(*idx.indices(len(self)))), values, stats)
