"""Values of the package as JSON and arrays, and back, without pickles.

Arrays keep their bits and their order in memory. A dataclass comes back as it was, field by field,
without the checks and roundings of its constructor, and only if its class is among those that the
reader names: nothing in a file can make anything else.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from pymc_tempering.storage.generator_states import generator_from, state_of

SAFE_INTEGER = 2**53
"""Whole numbers from here on are written as text, since not all readers of JSON keep them."""


@dataclass(frozen=True)
class Hook:
    """How values of a class that cannot be stored themselves are written and found again.

    Attributes
    ----------
    write : callable
        `write(value)` gives what is stored of it: text, numbers, lists, dicts.
    read : callable
        `read(stored)` finds it again.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Codec:
    """What a writer and a reader agree on.

    Attributes
    ----------
    classes : tuple of type
        Dataclasses and named tuples that may be stored.
    hooks : mapping from type to Hook
        For what cannot be, such as compiled code.
    """

    classes: tuple[type, ...] = ()
    hooks: Mapping[type, Hook] = field(default_factory=dict)

    def to_plain(self, value: Any) -> tuple[Any, dict[str, np.ndarray]]:
        """Take a value apart into JSON and arrays, which the JSON names by their place in it.

        Raises
        ------
        TypeError
            Something in it can be stored in neither; the message says where.
        """
        writer = _Writer(self, {}, {})
        return writer.plain(value, ""), writer.arrays

    def from_plain(self, plain: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        """Put a value together again.

        Raises
        ------
        ValueError
            The JSON is none that `to_plain` writes, names an unknown class, or an array is missing.
        """
        return _Reader(self, {c.__name__: c for c in self.classes}, arrays).value(plain)


@dataclass(frozen=True)
class _Writer:
    """Arrays met so far; `seen` has the name of each by its `id`, so that none is stored twice."""

    codec: Codec
    arrays: dict[str, np.ndarray]
    seen: dict[int, str]

    def plain(self, value: Any, place: str) -> Any:
        """JSON of a value at a place, as in `plan.ladder.betas`."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return value if abs(value) < SAFE_INTEGER else {"integer": str(value)}
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, place)
        if isinstance(value, np.random.Generator):
            return {"generator": self.plain(state_of(value), place)}
        for kind, hook in self.codec.hooks.items():
            if isinstance(value, kind):
                return {"found": kind.__name__, "by": self.plain(hook.write(value), place)}
        if type(value) in self.codec.classes:
            inside = {name: getattr(value, name) for name in field_names(type(value))}
            stored = {k: self.plain(v, _join(place, k)) for k, v in inside.items()}
            return {"is": type(value).__name__, "fields": stored}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {k: self.plain(v, _join(place, k)) for k, v in value.items()}}
        if type(value) in (list, tuple):
            items = [self.plain(v, _join(place, str(i))) for i, v in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        raise TypeError(f"{place or 'the value'} is a {type(value).__name__}: it cannot be stored.")

    def _array(self, value: np.ndarray, place: str) -> Any:
        if value.dtype.kind not in "biufU":
            raise TypeError(f"{place} is an array of {value.dtype}: it cannot be stored.")
        if value.size == 0:  # which not all formats have
            return {"empty": list(value.shape), "dtype": value.dtype.str}
        name = self.seen.get(id(value))
        if name is None:
            name = self.seen[id(value)] = place or "value"
            self.arrays[name] = value
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
        return {"array": name, "dtype": value.dtype.str, "by_columns": bool(by_columns)}


@dataclass(frozen=True)
class _Reader:
    """Classes by their names, and the arrays that the JSON names."""

    codec: Codec
    classes: dict[str, type]
    arrays: Mapping[str, np.ndarray]

    def value(self, plain: Any) -> Any:
        """Value of a piece of JSON."""
        if plain is None or isinstance(plain, bool | str | int | float):
            return plain
        if isinstance(plain, list):
            return [self.value(item) for item in plain]
        kind = next((kind for kind in _READERS if kind in plain), None)
        if kind is None:
            raise ValueError(f"An entry that nothing here has written: {sorted(plain)}.")
        return _READERS[kind](self, plain)

    def _array(self, plain: dict[str, Any]) -> np.ndarray:
        name = plain["array"]
        if name not in self.arrays:
            raise ValueError(f"The array {name!r} is missing.")
        order = "F" if plain["by_columns"] else "C"
        return np.array(self.arrays[name], dtype=np.dtype(plain["dtype"]), order=order)  # type: ignore[call-overload]

    def _found(self, plain: dict[str, Any]) -> Any:
        for kind, hook in self.codec.hooks.items():
            if kind.__name__ == plain["found"]:
                return hook.read(self.value(plain["by"]))
        raise ValueError(f"An entry of the unknown class {plain['found']!r}.")

    def _made(self, plain: dict[str, Any]) -> Any:
        cls = self.classes.get(plain["is"])
        if cls is None:
            raise ValueError(f"An entry of the unknown class {plain['is']!r}.")
        inside = {name: self.value(item) for name, item in plain["fields"].items()}
        if set(inside) != set(field_names(cls)):
            raise ValueError(f"The fields of {plain['is']} are not those of this version.")
        if not is_dataclass(cls):
            return cls(**inside)
        made = object.__new__(cls)
        for name, item in inside.items():
            object.__setattr__(made, name, item)  # no check of the class may round it anew
        return made


_READERS: dict[str, Callable[[_Reader, dict[str, Any]], Any]] = {
    "integer": lambda reader, plain: int(plain["integer"]),
    "float": lambda reader, plain: float(plain["float"]),
    "array": _Reader._array,
    "empty": lambda reader, plain: np.empty(plain["empty"], dtype=np.dtype(plain["dtype"])),
    "generator": lambda reader, plain: generator_from(reader.value(plain["generator"])),
    "found": _Reader._found,
    "is": _Reader._made,
    "dict": lambda reader, plain: {k: reader.value(v) for k, v in plain["dict"].items()},
    "tuple": lambda reader, plain: tuple(reader.value(item) for item in plain["tuple"]),
}


def field_names(cls: Any) -> tuple[str, ...]:
    """Fields of a dataclass or a named tuple."""
    return tuple(f.name for f in fields(cls)) if is_dataclass(cls) else tuple(cls._fields)


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
