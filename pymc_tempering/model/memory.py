"""What was compiled for a model, kept as long as the model lives and stays as it is."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pymc as pm

from pymc_tempering.model.fingerprint import Fingerprint, fingerprint_of
from pymc_tempering.model.garbage import no_search_for_garbage


@dataclass(frozen=True)
class _Memory:
    """Compiled parts of a model that had a certain fingerprint."""

    fingerprint: Fingerprint
    parts: dict[Hashable, Any] = field(default_factory=dict)


_MEMORIES: WeakKeyDictionary[pm.Model, _Memory] = WeakKeyDictionary()
"""By model object. Each call compares the fingerprint first, so that nothing in it can be stale."""


def remembered[T](model: pm.Model, key: Hashable, make: Callable[[], T]) -> T:
    """Return what `make` returned for this model and key before, if the model is as it was then.

    Parameters
    ----------
    model : pymc.Model
    key : hashable
        What is made, with all that it depends on beside the model.
    make : callable
        Its result must not hold the model, which could then never be forgotten.
    """
    now = fingerprint_of(model)
    memory = _MEMORIES.get(model)
    if memory is None or not memory.fingerprint.equals(now):
        memory = _MEMORIES[model] = _Memory(now)
    if key not in memory.parts:
        with no_search_for_garbage():
            memory.parts[key] = make()
    found: T = memory.parts[key]
    return found
