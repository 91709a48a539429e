"""Read tempering statistics from a DataTree, and give its per-rung arrays a rung dimension."""

from collections.abc import Hashable

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import (
    COUNTS,
    LADDER_STATS,
    LOOK_STATS,
    PRIOR_STATS,
    RUNG_STATS,
    SCALAR_STATS,
    CycleStats,
    FloatArray,
    FreshLooks,
)
from pymc_tempering.exceptions import LadderError, NotTemperedError

ADVICE = "sample with pymc_tempering.sample() or pm.sample(step=SimulatedTempering())"
REFERENCE_GROUP = "tempering_reference"
"""Group of the further draws of a fitted reference."""
LOOKS_GROUP = "tempering_looks"
"""Group of the ends of the looks from the prior, as variables of the posterior."""
_STATS_GROUPS = ("sample_stats", "warmup_sample_stats")


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
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> read_cycles(gaussian_run(draws=30, chains=2)).rb_weight.shape
    (2, 30, 5)
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
    if any(name not in stats for name in LOOK_STATS):
        return None
    values = {name: float(stats[name].values.flat[0]) for name in LOOK_STATS}
    return FreshLooks(**{name.removeprefix("check_"): v for name, v in values.items()})


def read_prior(idata: xr.DataTree) -> tuple[float, float] | None:
    """Read log Z of a prior that was not normalized, and its error (nats); None if it was."""
    stats = _stats_group(idata)
    if any(name not in stats for name in PRIOR_STATS):
        return None
    log_z, mcse = (float(stats[name].values.flat[0]) for name in PRIOR_STATS)
    return log_z, mcse


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
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> tidy = convert(gaussian_run(draws=30, chains=2))
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
    names: list[Hashable] = [n for n in (*LADDER_STATS, *RUNG_STATS) if n in stats.data_vars]
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
