"""From the DataTree of a run to arrays: its cycles, every iteration, the states of all rungs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_tempering.arguments import has_group
from pymc_tempering.core.cycles import (
    COUNTS,
    LADDER_STATS,
    LOOK_STATS,
    PRIOR_STATS,
    RUNG_STATS,
    SCALAR_STATS,
    BoolArray,
    CycleStats,
    FlatTrace,
    FloatArray,
    FreshLooks,
)
from pymc_tempering.core.findings import Finding, read_findings
from pymc_tempering.core.weighting import rung_probabilities
from pymc_tempering.evidence.pieces import Pieces, split_pieces, sum_at
from pymc_tempering.exceptions import LadderError, NotTemperedError

ADVICE = "sample with pymc_tempering.sample() or pm.sample(step=SimulatedTempering())"
REFERENCE_GROUP = "tempering_reference"
"""Group of the further draws of a fitted reference."""
LOOKS_GROUP = "tempering_looks"
"""Group of the ends of the looks from the prior, as variables of the posterior."""
_STATS_GROUPS = ("sample_stats", "warmup_sample_stats")

CHUNK = 1 << 20
"""Largest table of iterations by rungs that is made at a time, in numbers."""


def read_cycles(idata: xr.DataTree) -> CycleStats:
    """Read the statistics of a tempering run as arrays.

    Parameters
    ----------
    idata : DataTree
        A run, converted or as ``pm.sample`` returns it; dimensions may be in any order.

    Returns
    -------
    CycleStats
        Arrays of shape (K,), (chain, draw) and (chain, draw, K).

    Raises
    ------
    NotTemperedError
        If statistics are missing, lack the chain or draw dimension, do not fit together, or if
        the draws are not consecutive (tours are cut out of consecutive draws).
    LadderError
        If the draws do not all come from one ladder, or it does not increase from 0 to 1.

    Examples
    --------
    >>> from pymc_tempering.evidence.datatree import read_cycles
    >>> read_cycles(idata).rb_weight.shape  # a run of pmt.sample
    (4, 400, 5)
    """
    stats = _stats_group(idata)
    missing = [n for n in (*LADDER_STATS, *RUNG_STATS, *SCALAR_STATS) if n not in stats]
    if missing and not any(name in stats for name in (*RUNG_STATS, *SCALAR_STATS)):
        raise NotTemperedError(
            f"this DataTree does not hold a tempering run: {ADVICE}. For log Z from draws of "
            "another sampler use pymc_tempering.log_marginal_likelihood(idata, model)"
        )
    if missing:
        raise NotTemperedError(
            f"this DataTree does not hold a tempering run: its sample_stats lack {missing}; "
            f"{ADVICE}"
        )
    _check_consecutive(stats)
    ladder = {name: _ladder(stats[name]) for name in LADDER_STATS}
    rung = {name: _float(_ordered(stats[name], vector=True)) for name in RUNG_STATS}
    scalar = {name: _float(_ordered(stats[name], vector=False)) for name in SCALAR_STATS}
    start = scalar.pop("tour_start") != 0.0
    counted = {
        name: _float(_ordered(stats[name], vector=False)) for name in COUNTS if name in stats
    }
    return CycleStats(**ladder, **rung, **scalar, **counted, tour_start=start)


def read_reference(idata: xr.DataTree) -> tuple[FloatArray | None, int]:
    """Read log_ratio (nats) at the further draws of the reference; None where none were made.

    And the number of those without a density, whose log_ratio is minus infinity.
    """
    if REFERENCE_GROUP not in idata.children:
        return None, 0
    group = idata[REFERENCE_GROUP].to_dataset()
    log_ratio = _float(group["log_ratio"])
    if log_ratio.ndim != 1 or log_ratio.size == 0 or np.isnan(log_ratio).any():
        raise NotTemperedError(
            f"log_ratio in {REFERENCE_GROUP!r} must be numbers along one dimension, without NaN: "
            "pass the DataTree as the sampler returned it"
        )
    return log_ratio, int(group["n_undefined"]) if "n_undefined" in group else 0


def read_check(idata: xr.DataTree) -> FreshLooks | None:
    """Read the summary of the looks that check a fitted leg; None without a check."""
    stats = _stats_group(idata)
    kept = {
        item.name: float(stats[name].values.flat[0])
        for item, name in zip(fields(FreshLooks), LOOK_STATS, strict=True)
        if name in stats
    }
    needed = {item.name for item in fields(FreshLooks) if item.default is MISSING}
    return FreshLooks(**kept) if needed <= kept.keys() else None


def read_prior(idata: xr.DataTree) -> tuple[float, float] | None:
    """Read log Z of a prior that was not normalized, and its error (nats); None if it was."""
    values = _of_any_draw(idata, PRIOR_STATS)
    return None if values is None else (values[0], values[1])


BRIDGE = ("bridge_log_z", "bridge_mcse", "bridge_draws")
"""Attributes of the group `tempering`, where a run was bridged to."""


POTENTIAL_DATA = "potential_data"
"""Attribute of the group `tempering`: hashes of the data in potentials by name, as JSON."""


def bridge_attributes(log_z: float, mcse: float, n_draws: int) -> dict[str, float]:
    """Attributes that keep log Z by a bridge, its error, and the number of draws of the run."""
    return dict(zip(BRIDGE, (log_z, mcse, n_draws), strict=True))


def read_bridge(idata: xr.DataTree) -> tuple[float, float] | None:
    """Read log Z by a bridge to the draws, and its error (nats); None where there are others."""
    attrs = idata["tempering"].attrs if "tempering" in idata.children else {}
    if any(name not in attrs for name in BRIDGE):
        return None
    log_z, mcse, n_draws = (attrs[name] for name in BRIDGE)
    sizes = _stats_group(idata).sizes
    return (log_z, mcse) if sizes["chain"] * sizes["draw"] == n_draws else None


FINDINGS = "findings"
"""Attribute of the group `tempering`: what was noticed about the model, as JSON."""


def findings_of(idata: xr.DataTree) -> tuple[Finding, ...]:
    """Read what was noticed about a run; a step method's has no search."""
    attrs = idata["tempering"].attrs if "tempering" in idata.children else {}
    if FINDINGS not in attrs:
        return (Finding("not_searched", "the tours"),)
    return read_findings(json.loads(attrs[FINDINGS]))


def _of_any_draw(idata: xr.DataTree, names: Sequence[str]) -> list[float] | None:
    """Read statistics that are the same for every draw; None where a run has none of them."""
    stats = _stats_group(idata)
    if any(name not in stats for name in names):
        return None
    return [float(stats[name].values.flat[0]) for name in names]


def convert(idata: xr.DataTree) -> xr.DataTree:
    """Give the per-rung statistics a ``rung`` dimension, and add the ``tempering`` group.

    PyMC names the dimension of each vector statistic ``<stat>_dim_0``. All become ``rung``, with
    index coordinate ``rung`` = 0..K-1. A coordinate ``beta`` along it replaces the statistic
    ``beta``, which is the same for every draw.

    Parameters
    ----------
    idata : DataTree
        A tempering run; it is not changed. A converted one is returned as an equal copy.

    Returns
    -------
    DataTree
        With group ``tempering``: ``beta``, ``log_z`` (log Z-hat_k that the run was sampled with,
        nats) and ``log_weight`` (log r_k) by ``rung``.

    Raises
    ------
    NotTemperedError, LadderError
        As in :func:`read_cycles`.

    Examples
    --------
    >>> from pymc_tempering.evidence.datatree import convert
    >>> tidy = convert(idata)  # a run of pmt.sample
    >>> tidy["sample_stats"]["visits"].dims
    ('chain', 'draw', 'rung')
    >>> tidy["tempering"]["beta"].values.tolist()
    [0.0, 0.03, 0.12, 0.4, 1.0]
    """
    cycles = read_cycles(idata)
    result = idata.copy()
    for group in _STATS_GROUPS:
        if group in result.children:
            result[group].dataset = _with_rungs(result[group].to_dataset(), cycles)
    ladder = {
        "beta": ("rung", cycles.beta),
        "log_z": ("rung", cycles.log_z_ladder, {"units": "nats"}),
        "log_weight": ("rung", cycles.log_weight),
    }
    rungs = {"rung": np.arange(cycles.beta.size)}
    if "tempering" in result.children:
        known = result["tempering"].to_dataset()
        rest = {name: value for name, value in ladder.items() if name not in known.variables}
        result["tempering"].dataset = known.assign_coords(rungs).assign(rest)
    else:
        result["tempering"] = xr.DataTree(xr.Dataset(ladder, rungs))
    return result


def _with_rungs(stats: xr.Dataset, cycles: CycleStats) -> xr.Dataset:
    names = [n for n in (*LADDER_STATS, *RUNG_STATS) if n in stats.data_vars]
    old = {dim for name in names for dim in stats[name].dims} - {"chain", "draw", "rung"}
    vectors = {
        name: (_ordered(stats[name], vector=True).variable.to_base_variable())
        for name in names
        if name != "beta"
    }
    tidy = stats.drop_vars([*names, *(dim for dim in old if dim in stats.variables)])
    renamed = {name: (("chain", "draw", "rung"), v.values, v.attrs) for name, v in vectors.items()}
    coords = {"rung": np.arange(cycles.beta.size), "beta": ("rung", cycles.beta)}
    return tidy.assign_coords(coords).assign(renamed)


def _stats_group(idata: xr.DataTree) -> xr.Dataset:
    if not isinstance(idata, xr.DataTree):
        raise NotTemperedError(
            f"expected the xarray.DataTree of a tempering run, got {type(idata).__name__}; {ADVICE}"
        )
    if "sample_stats" not in idata.children:
        raise NotTemperedError(f"this DataTree has no group 'sample_stats'; {ADVICE}")
    return idata["sample_stats"].to_dataset()


def _check_consecutive(stats: xr.Dataset) -> None:
    if "draw" in stats.coords and stats["draw"].ndim == 1:
        steps = np.diff(stats["draw"].values)
        if np.any(steps != 1):
            raise NotTemperedError(
                "the draws are not consecutive (thinned, sorted or joined end to end), so that "
                "tours cannot be told: pass the DataTree as the sampler returned it, or join runs "
                "along 'chain'"
            )


def _ordered(values: xr.DataArray, *, vector: bool) -> xr.DataArray:
    rest = [dim for dim in values.dims if dim not in ("chain", "draw")]
    if len(rest) != int(vector) or values.ndim != 2 + int(vector):
        raise NotTemperedError(
            f"sample_stats['{values.name}'] has dimensions {values.dims} where ('chain', 'draw'"
            f"{", 'rung'" if vector else ''}) are needed: select with lists, as in "
            "isel(chain=[0]), to keep them"
        )
    return values.transpose("chain", "draw", *rest)


def _ladder(values: xr.DataArray) -> FloatArray:
    """Read a vector that is the same for every draw, stored once or for each draw."""
    rest = [dim for dim in values.dims if dim not in ("chain", "draw")]
    if len(rest) != 1:
        raise NotTemperedError(f"sample_stats['{values.name}'] has dimensions {values.dims}")
    rows = _float(values.transpose(..., *rest)).reshape(-1, values.sizes[rest[0]])
    if len(rows) == 0:
        raise NotTemperedError("the sample_stats hold no draws: sample with draws >= 1")
    if np.any(rows != rows[0]):
        raise LadderError(
            f"sample_stats['{values.name}'] differs between draws: they come from several runs "
            "with ladders of their own, so estimate each run apart"
        )
    return rows[0]


def _float(values: xr.DataArray) -> FloatArray:
    return np.asarray(values.values, dtype=float)


@dataclass(frozen=True, eq=False)
class Run:
    """Statistics of a run, and every iteration of it.

    Attributes
    ----------
    stats : CycleStats
    trace : FlatTrace
    reference : ndarray, shape (n,), optional
        log_ratio (nats) at independent draws of the reference, made beside the chains.
    n_undefined : int
        How many of these draws have no density; their log_ratio is minus infinity.
    """

    stats: CycleStats
    trace: FlatTrace
    reference: FloatArray | None = None
    n_undefined: int = 0

    @cached_property
    def pieces(self) -> Pieces:
        """Cycles, each cut where a tour starts."""
        return split_pieces(self.stats)

    @cached_property
    def piece(self) -> NDArray[np.intp]:
        """Piece of each iteration, shape (n,); it does not decrease."""
        return 2 * self.trace.cycle + ~self.trace.head

    def sum_pieces(self, values: FloatArray, where: NDArray[np.intp] | None = None) -> FloatArray:
        """Sum numbers of iterations (n,), or of the iterations ``where``, by piece, shape (P,)."""
        piece = self.piece if where is None else self.piece[where]
        return np.bincount(piece, values, minlength=self.pieces.chain.size)

    def sum_table(self, values: FloatArray, piece: NDArray[np.intp]) -> FloatArray:
        """Sum a table (m, K) of consecutive iterations by their ``piece`` (m,), shape (P, K)."""
        return sum_at(piece, values, self.pieces.chain.size)


def probabilities_of(stats: CycleStats, log_ratio: FloatArray) -> FloatArray:
    """Return q(beta_k | x) of every iteration, equation (7) of Carlson et al., shape (n, K)."""
    return rung_probabilities(log_ratio, stats.beta, stats.log_weight - stats.log_z_ladder)


def chunks(n: int, width: int) -> Iterator[slice]:
    """Cut n rows into slices so that a table of ``width`` columns stays small."""
    step = max(1, CHUNK // width)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def read_run(idata: xr.DataTree) -> Run:
    """Read a run with every iteration of its recorded cycles.

    Iterations of tuning draws (in ``warmup_sample_stats``) and those after the last recorded draw
    are left out.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="log_ratio"``, its default.

    Returns
    -------
    Run

    Raises
    ------
    NotTemperedError
        If there is no trace, or it does not belong to the draws (some of them were selected).
    LadderError
        As in :func:`read_cycles`.
    """
    stats = read_cycles(idata)
    if "tempering_trace" not in idata.children:
        raise NotTemperedError(
            "this DataTree has no group 'tempering_trace', which holds log_ratio and rung of every "
            'iteration: sample with pymc_tempering.sample(keep="log_ratio"), its default '
            '(pm.sample cannot keep it; method="rts" does without)'
        )
    trace = idata["tempering_trace"].to_dataset().transpose("chain", "iteration")
    skip = 0
    if "warmup_sample_stats" in idata.children:
        skip = idata["warmup_sample_stats"].sizes["draw"]
    if trace.sizes["chain"] != stats.n_chains:
        raise NotTemperedError(
            f"tempering_trace has {trace.sizes['chain']} chains and sample_stats {stats.n_chains}: "
            "pass the DataTree as the sampler returned it"
        )
    log_ratio, rung = trace["log_ratio"].values, trace["rung"].values
    if "row" in trace:  # chains over arrays
        flat = _rows_of_trace(stats, log_ratio, rung, trace["row"].values)
    else:
        flat = flat_trace(stats, log_ratio, rung, skip)
    return Run(stats, flat, *read_reference(idata))


def flat_trace(
    stats: CycleStats,
    log_ratio: Sequence[FloatArray] | FloatArray,
    rung: Sequence[np.ndarray] | np.ndarray,
    skip: int = 0,
) -> FlatTrace:
    """Put the traces of the chains behind each other, without their first ``skip`` draws.

    Raises
    ------
    NotTemperedError
        If a trace does not belong to the draws.
    """
    parts = [_cycles_of_trace(stats, c, log_ratio[c], rung[c], skip) for c in range(len(rung))]
    return FlatTrace(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _rows_of_trace(
    stats: CycleStats, log_ratio: FloatArray, rung: np.ndarray, row: np.ndarray
) -> FlatTrace:
    """Put a trace that names the row of each iteration behind each other, and check it."""
    n_rungs, n_rows = stats.beta.size, stats.n_draws
    chain = np.arange(len(rung))[:, None]
    place = ((chain * n_rows + row) * n_rungs + rung).ravel()
    size = len(rung) * n_rows * n_rungs
    if not np.array_equal(np.bincount(place, minlength=size), stats.visits.ravel()):
        raise NotTemperedError(
            "tempering_trace is not that of the rows of sample_stats: pass the DataTree as "
            "ArrayRun.to_datatree() returned it"
        )
    iteration = np.broadcast_to(np.arange(rung.shape[1]), rung.shape)
    return FlatTrace(
        log_ratio.ravel().astype(float),
        rung.ravel().astype(np.intp),
        (chain * n_rows + row).ravel().astype(np.intp),
        np.zeros(rung.size, dtype=bool),
        iteration.ravel(),
    )


def _cycles_of_trace(
    stats: CycleStats, chain: int, log_ratio: FloatArray, rung: np.ndarray, skip: int
) -> tuple[np.ndarray, ...]:
    """Cut the trace of one chain into cycles, and check that they are the recorded ones."""
    top, n = stats.beta.size - 1, stats.n_draws
    ends = np.flatnonzero(rung == top) + 1
    begin = int(ends[skip - 1]) if skip and ends.size >= skip else 0
    end = int(ends[skip + n - 1]) if ends.size >= skip + n else 0
    iteration = np.arange(begin, end)
    k, ratio = rung[begin:end].astype(np.intp), log_ratio[begin:end].astype(float)
    cycle = np.searchsorted(ends[skip : skip + n], iteration, side="right")
    first_zero = np.full(n, end)
    np.minimum.at(first_zero, cycle[k == 0], iteration[k == 0])
    visits = np.bincount(k, minlength=top + 1) if k.size else np.zeros(top + 1)
    same = np.array_equal(visits, stats.visits[chain].sum(axis=0))
    if not (same and np.array_equal(first_zero < end, stats.tour_start[chain])):
        raise NotTemperedError(
            f"the trace of chain {chain} in tempering_trace is not that of its draws (draws were "
            "selected, or runs joined): pass the DataTree as the sampler returned it"
        )
    head = (first_zero[cycle] < end) & (iteration < first_zero[cycle])
    return ratio, k, cycle + chain * n, head, iteration


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
    probability : ndarray, shape (n,)
        With which each of them was kept.
    place : ndarray of int, shape (n,)
        Where each stands in the trace of the run.
    """

    run: Run
    variables: xr.Dataset
    keep: BoolArray
    probability: FloatArray
    place: NDArray[np.intp]

    def weights(self, rungs: Sequence[int]) -> FloatArray:
        """Return q(beta_k | x) at some rungs over the probability of keeping, shape (n, R)."""
        q = probabilities_of(self.run.stats, self.run.trace.log_ratio[self.place])
        return q[:, rungs] / self.probability[:, None]


def has_states(idata: xr.DataTree) -> bool:
    """Whether a run kept the states of all rungs."""
    return has_group(idata, "tempering_states")


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
    variables = states.drop_vars(["iteration", "keep_probability"])
    return KeptStates(run, variables, keep, probability, place)


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
