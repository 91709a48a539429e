"""The rungs that chains were at, iteration by iteration, for pictures of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_tempering.core.cycles import CycleStats


@dataclass(frozen=True, eq=False)
class RungPath:
    """One chain's way along the ladder.

    Attributes
    ----------
    rung : ndarray of int, shape (n,)
        Rung of each iteration; the hottest of each draw where iterations were not kept.
    starts : ndarray of int, shape (m,)
        Places at which a tour starts.
    """

    rung: NDArray[np.intp]
    starts: NDArray[np.intp]


def rung_paths(idata: xr.DataTree, stats: CycleStats) -> tuple[list[RungPath], bool]:
    """Return the way of each chain, and whether its places are single iterations."""
    if "tempering_trace" not in idata.children:
        return [_of_draws(stats, chain) for chain in range(stats.n_chains)], False
    trace = idata["tempering_trace"].to_dataset()["rung"].transpose("chain", "iteration").values
    return [_of_iterations(row[row >= 0].astype(np.intp), stats) for row in trace], True


def _of_draws(stats: CycleStats, chain: int) -> RungPath:
    rung = np.searchsorted(stats.beta, stats.beta_min[chain] - 1e-12)
    return RungPath(rung, np.flatnonzero(stats.tour_start[chain]))


def _of_iterations(rung: NDArray[np.intp], stats: CycleStats) -> RungPath:
    ends = np.flatnonzero((rung == 0) | (rung == stats.beta.size - 1))
    # A tour starts at the first visit to rung 0 after one to the top, or after the chain's start.
    fresh = (rung[ends] == 0) & np.concatenate([[True], rung[ends][:-1] > 0])[: ends.size]
    return RungPath(rung, ends[fresh])


def chain_names(stats: CycleStats, idata: xr.DataTree, most: int) -> tuple[list[int], list[Any]]:
    """Return positions and names of the chains that there is room for."""
    group = idata["sample_stats"].to_dataset()
    names = group["chain"].values.tolist() if "chain" in group.coords else range(stats.n_chains)
    return list(range(min(most, stats.n_chains))), list(names)[:most]
