"""Checks of single arguments, with errors that name the argument and what it may be."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.exceptions import ArgumentError

RandomSeed = int | np.random.Generator | np.random.RandomState | None
"""What `random_seed` may be: a seed, a generator, or None for another seed each time.

Of NumPy's old generator a seed is drawn, as PyMC does where it takes one: it cannot spawn others.
"""


def listed(names: Iterable[Any], most: int | None = None) -> str:
    """Return names in quotes, with commas between; of more than `most` how many more there are."""
    quoted = [*map(repr, names)]
    more = "" if most is None or len(quoted) <= most else f" and {len(quoted) - most} more"
    return ", ".join(quoted[:most]) + more


def check_choice(name: str, value: Any, allowed: Iterable[str], more: str = "") -> None:
    """Raise a ValueError unless the value is allowed; `more` adds to the list of allowed values."""
    known = list(allowed)
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"{name} must be one of {listed(known)}{more}, not {value!r}.")


def check_whole(least: int, **values: int | None) -> None:
    """Raise a ValueError unless all counts are whole numbers >= `least`; `cores` may be None."""
    for name, value in values.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if name == "cores" and value is None:
            continue
        if not (whole and value is not None and value >= least):
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def check_kind(name: str, value: Any, kind: type, how: str) -> None:
    """Raise an ArgumentError unless the value is of a kind; `how` says where one comes from."""
    if not isinstance(value, kind):
        raise ArgumentError(f"{name} must be {how}, not {type(value).__name__}.")


def has_group(thing: Any, group: str) -> bool:
    """Whether something is a DataTree with a group of that name."""
    return isinstance(thing, xr.DataTree) and group in thing.children


def called_as[**P, T](example: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function, so that arguments which do not fit it are answered by an example."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ArgumentError(
                    f"{function.__name__} is called as {example}: {error}."
                ) from None
            return function(*args, **kwargs)

        return called

    return decorate


def rng_of(random_seed: Any) -> np.random.Generator:
    """Make a generator of a seed; raise a ValueError that names the argument if NumPy cannot."""
    if isinstance(random_seed, np.random.RandomState):
        random_seed = random_seed.randint(2**32, size=4, dtype=np.uint32)
    try:
        return np.random.default_rng(random_seed)
    except (TypeError, ValueError):
        raise ValueError(
            "random_seed must be a whole number of at least 0, a numpy.random.Generator or None, "
            f"not {random_seed!r}."
        ) from None


def as_seed(random_seed: RandomSeed) -> int | None:
    """Return a seed for code that takes no generator, drawn from it if one is given."""
    if isinstance(random_seed, np.random.Generator | np.random.RandomState):
        return int(rng_of(random_seed).integers(2**31))
    return random_seed
