"""The kept states of all rungs, each with its weight in posterior expectations."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.evidence.trace import Run, probabilities_of, read_run
from pymc_tempering.exceptions import NotTemperedError


@dataclass(frozen=True, eq=False)
class KeptStates:
    """States of all rungs that count, in the order of time, one chain after another.

    Attributes
    ----------
    run : Run
    variables : Dataset
        The variables of ``posterior`` by (chain, state, ...), padding included.
    keep : ndarray of bool, shape (chain, state)
        Which states count; n of them.
    weight : ndarray, shape (n,)
        q(beta_K | x) over the probability with which the state was kept.
    piece : ndarray of int, shape (n,)
        Piece of the run that each state belongs to.
    """

    run: Run
    variables: xr.Dataset
    keep: BoolArray
    weight: FloatArray
    piece: NDArray[np.intp]


def has_states(idata: xr.DataTree) -> bool:
    """Whether a run kept the states of all rungs."""
    return isinstance(idata, xr.DataTree) and "tempering_states" in idata.children


def read_states(idata: xr.DataTree) -> KeptStates:
    """Read the kept states of a run.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="states"``.

    Raises
    ------
    NotTemperedError
        If ``idata`` holds no states, or a trace that is not of its draws.
    LadderError
        If its draws do not come from one ladder.
    """
    if not has_states(idata):
        raise NotTemperedError(
            "this DataTree has no group 'tempering_states', which holds the states of all rungs: "
            'sample with pymc_tempering.sample(keep="states")'
        )
    run = read_run(idata)
    states = idata["tempering_states"].to_dataset()
    place, keep = _places(run, states["iteration"].transpose("chain", "state").values)
    probability = states["keep_probability"].transpose("chain", "state").values[keep]
    weight = probabilities_of(run.stats, run.trace.log_ratio[place])[:, -1] / probability
    variables = states.drop_vars(["iteration", "keep_probability"])
    return KeptStates(run, variables, keep, weight, run.piece[place])


def _places(run: Run, iteration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the states in the flat trace (n,), and a mask of them (chain, state).

    The mask leaves out padding, states outside the recorded cycles, and those of the first ascent
    of a fresh chain, which no estimator counts.
    """
    n_chains, n_draws = run.stats.n_chains, run.stats.n_draws
    if len(iteration) != n_chains:
        raise NotTemperedError(
            f"tempering_states has {len(iteration)} chains and sample_stats {n_chains}: pass the "
            "DataTree as the sampler returned it"
        )
    bounds = np.searchsorted(run.trace.cycle, np.arange(n_chains + 1) * n_draws)
    place = np.full(iteration.shape, -1)
    for chain in range(n_chains):
        begin, end = bounds[chain], bounds[chain + 1]
        where = begin + iteration[chain] - run.trace.iteration[begin]
        inside = (iteration[chain] >= 0) & (where >= begin) & (where < end)
        place[chain, inside] = where[inside]
    keep = place >= 0
    keep[keep] = run.pieces.counted[run.piece[place[keep]]]
    return place[keep], keep
