"""The group `tempering_plan` of a DataTree: the frozen plan of a run, and where its chains end."""

import json
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.sampling.bit_versions import versions
from pymc_tempering.sampling.call import Call, kernels_in_words
from pymc_tempering.sampling.chain_values import stored_chains, stored_rows, written_so_far
from pymc_tempering.sampling.goal import Outcome
from pymc_tempering.sampling.plan_values import plan_codec, seal_of, slim
from pymc_tempering.sampling.setup import Job

PLAN_GROUP, WORDS = "tempering_plan", "json"
"""The group, and its array with the bytes of a JSON text: HDF5 takes no long attributes."""


def with_plan(
    idata: xr.DataTree, call: Call, job: Job, outcome: Outcome, *, before: int = 0
) -> None:
    """Add to a DataTree what its chains can go on with.

    Where chains were cut to one length, it has the draws beyond, and where they end.

    Parameters
    ----------
    idata : DataTree
        Of the run; changed in place.
    call : Call
    job : Job
    outcome : Outcome
        With all chains of the run, of which the DataTree may have some.
    before : int, default 0
        Draws of each chain that another DataTree has.
    """
    drawn = idata["posterior"].to_dataset()
    kept = [outcome.runs[int(i)] for i in drawn["chain"].values]
    length = drawn.sizes["draw"] + call.tune
    since = [[length, *pieces] for _, *pieces in written_so_far(kept)]
    counts, ahead = stored_rows(kept, since)
    chains, standing = stored_chains(kept)
    stored = {
        "prior_constant": job.prior.prior_constant,
        "chosen": slim(outcome.chosen),
        "seal": seal_of(job.prior),
        "call": call,
    }
    plain, arrays = plan_codec(job.prior, job.kernel).to_plain(stored)
    every = (
        arrays
        | {f"chain.{name}": values for name, values in standing.items() if values.size}
        | {f"ahead.{name}": values for name, values in ahead.items()}
    )
    words = {
        "run": plain,
        "chains": chains,
        "ahead": counts,
        "draws": before + drawn.sizes["draw"],
        "kernels": kernels_in_words(job.kernel),
        "versions": versions(),
    }
    every[WORDS] = np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)
    idata[PLAN_GROUP] = xr.DataTree(
        xr.Dataset({name: _variable(name, values) for name, values in every.items()})
    )


def read_plan_group(idata: xr.DataTree) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """JSON and arrays of the group."""
    group = idata[PLAN_GROUP].to_dataset()
    arrays = {str(name): values.values for name, values in group.data_vars.items()}
    words: dict[str, Any] = json.loads(arrays.pop(WORDS).astype(np.uint8).tobytes())
    return words, arrays


def _variable(name: str, values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Dimensions of an array's own: it is no array by draws."""
    return [f"{name}.{axis}" for axis in range(values.ndim)], np.ascontiguousarray(values)
