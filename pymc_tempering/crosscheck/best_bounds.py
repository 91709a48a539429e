"""The best bounds of log Z among several estimates, bounds that cross, and the others' range."""

from collections.abc import Sequence

import numpy as np

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.crosscheck.entry import Entry, pair_pvalue

ALPHA_BOUNDS = 0.001
"""Chance that bounds are said to cross beyond their errors though these are right."""


def bounds(entries: Sequence[Entry]) -> tuple[Entry | None, Entry | None]:
    """Return the best lower and the best upper bound.

    They are ranked by the value two errors below a lower and above an upper bound. By the value
    itself, the noisiest bound would often be the best. One with an error above a nat is none.
    """
    lower, upper = (
        [entry for entry in entries if _is_bound(entry, side) and not entry.wide]
        for side in ("below", "above")
    )
    return (
        max(lower, key=lambda e: e.evidence.log_z - 2.0 * e.evidence.mcse, default=None),
        min(upper, key=lambda e: e.evidence.log_z + 2.0 * e.evidence.mcse, default=None),
    )


def crossed_bounds(entries: Sequence[Entry]) -> tuple[Entry, Entry] | None:
    """Return the lower and the upper bound that cross the furthest beyond their errors, if any."""
    lower, upper = (
        [entry for entry in entries if _is_bound(entry, side)] for side in ("below", "above")
    )
    found = {(i, j): pair_pvalue(a, b) for i, a in enumerate(lower) for j, b in enumerate(upper)}
    if not found:
        return None
    (i, j), smallest = min(found.items(), key=lambda item: item[1])
    return (lower[i], upper[j]) if smallest < ALPHA_BOUNDS / len(found) else None


def _is_bound(entry: Entry, side: str) -> bool:
    """Whether an entry has an error and is a bound from that side."""
    return entry.known and entry.evidence.bias_direction == side


def spread(entries: Sequence[Entry]) -> FloatArray:
    """Return the lowest and the highest value of estimates with an error that are no bounds.

    Those with an error above a nat are left out, if there are others.
    """
    plain = [e for e in entries if e.known and not e.bound]
    values = [e.evidence.log_z for e in ([e for e in plain if not e.wide] or plain)]
    return np.array([min(values), max(values)]) if values else np.full(2, np.nan)
