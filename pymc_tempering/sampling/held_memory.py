"""What recorded chains hold in memory, and when a run gets no further round for that."""

import warnings
from collections.abc import Sequence

from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.exceptions import TemperingWarning

MOST_HELD = 2e9
"""Bytes that chains may hold after a round of twice the length. Their DataTree takes up to four
times as much while it is made."""


def bytes_held(runs: Sequence[ChainRun], draws: int) -> float:
    """Bytes that chains will hold with so many draws each: their records and traces."""
    total = 0.0
    for run in runs:
        record, done = run.record, max(1, run.state.n_draws)
        rows = (record.x, record.per_rung, record.scalars)
        total += draws * sum(part.nbytes / max(1, len(part)) for part in rows)
        parts = [*run.trace, *(run.hot.parts if run.hot else ())]
        total += draws / done * sum(array.nbytes for part in parts for array in part)
    return total


def too_large(runs: Sequence[ChainRun], draws: int) -> bool:
    """Whether twice so many draws of each chain would hold too much; this is said."""
    held = bytes_held(runs, 2 * draws)
    if held <= MOST_HELD:
        return False
    warnings.warn(
        f"The run ends at {draws} draws of each chain, because with twice as many the chains would "
        f"hold {held / 1e9:.1f} GB in memory. Add draws in parts with pmt.extend, hold less of "
        "each with keep=None, or ask for a number of draws.",
        TemperingWarning,
        stacklevel=5,
    )
    return True
