"""NumPy's random generators as plain values: where each stream is, and what it may still spawn."""

from typing import Any

import numpy as np
from numpy.random import SeedSequence

BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""Those of NumPy; only these are made when a state is read."""


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """State of a generator as text, whole numbers, lists and dicts.

    Raises
    ------
    TypeError
        It is none of NumPy's own, or cannot spawn others.
    """
    bits = rng.bit_generator
    name, seed = type(bits).__name__, bits.seed_seq
    if name not in BIT_GENERATORS or not isinstance(seed, SeedSequence):
        raise TypeError(
            f"The state of a {name} generator cannot be stored: pass a whole number or "
            "numpy.random.default_rng(seed) as random_seed."
        )
    entropy = seed.entropy
    return {
        "name": name,
        "state": _listed(dict(bits.state)),
        "entropy": entropy if entropy is None or isinstance(entropy, int) else _listed(entropy),
        "spawn_key": [int(key) for key in seed.spawn_key],
        "pool_size": seed.pool_size,
        "n_children_spawned": seed.n_children_spawned,
    }


def generator_from(state: dict[str, Any]) -> np.random.Generator:
    """Make a generator that goes on where the one of `state_of` stood, and spawns what it would.

    Raises
    ------
    ValueError
        The state is of no generator of NumPy.
    """
    if state["name"] not in BIT_GENERATORS:
        raise ValueError(f"{state['name']!r} is no bit generator of NumPy.")
    seed = SeedSequence(
        state["entropy"],
        spawn_key=tuple(state["spawn_key"]),
        pool_size=state["pool_size"],
        n_children_spawned=state["n_children_spawned"],
    )
    bits = getattr(np.random, state["name"])(seed)
    bits.state = _unlisted(state["state"])
    return np.random.Generator(bits)


def _listed(value: Any) -> Any:
    """Replace arrays by lists, with their type."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"numbers": [int(n) for n in value.ravel()], "dtype": value.dtype.str}
    if isinstance(value, list | tuple):
        return [int(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _unlisted(value: Any) -> Any:
    """Put the arrays back."""
    if isinstance(value, dict) and "numbers" in value:
        return np.array(value["numbers"], dtype=value["dtype"])
    if isinstance(value, dict):
        return {key: _unlisted(item) for key, item in value.items()}
    return value
