"""A hash of what a model is, the same in each process: its graphs, names and numbers."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.model.fingerprint import GraphWalk, digest, walk_model

ADDRESS = re.compile(r"0x[0-9a-f]+")


def content_hash(model: pm.Model, data: Mapping[str, Any] | None = None) -> str:
    """Return a hash of a model, and of the data that it is to get in place of its own.

    Two models that a function builds of the same numbers have the same hash, in this process and
    in another; models that differ in a prior, a transform, a constant or a datum have different
    ones. Of functions that no graph shows (a custom step of Python code) only the name counts.

    Parameters
    ----------
    model : pymc.Model
    data : mapping of str to array_like, optional
        See :func:`~pymc_tempering.model.new_data.copy_with_data`.
    """
    walk = LastingWalk([], [])
    walk_model(model, walk)
    given = {name: digest(np.asarray(values)) for name, values in sorted((data or {}).items())}
    return hash_of((walk.entries, given))


def hash_of(entries: Any) -> str:
    """Hash of what a lasting walk has met, without the addresses in its texts."""
    return sha256(ADDRESS.sub("0x", repr(entries)).encode()).hexdigest()


class LastingWalk(GraphWalk):
    """A walk whose entries mean the same in another process."""

    def identity(self, thing: Any) -> int:
        """Place among the objects in the order in which they were first met."""
        for place, met in enumerate(self.alive):
            if met is thing:
                return place
        self.alive.append(thing)
        return len(self.alive) - 1

    def operation(self, op: Any) -> tuple[Any, ...]:
        """Name and properties of an operation."""
        _, *inside = super().operation(op)
        return type(op).__qualname__, str(op), inside[-1]
