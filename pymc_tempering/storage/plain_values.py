"""Values of the package as bytes, and back, without pickles: a JSON text and arrays in one archive.

The archive is NumPy's own (`numpy.load` reads it), so arrays keep their bits and their order in
memory. A dataclass comes back as it was, field by field, without the checks and roundings of its
constructor, and only if its class is among those that the reader names: nothing in a file can make
anything else.
"""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.random import SeedSequence

WORDS = "json"
"""Name of the array with the bytes of the JSON text."""

BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
"""Those of NumPy; only these are made when a state is read."""

type Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Hook:
    """How values of a class that cannot be stored themselves are written and found again.

    Attributes
    ----------
    write : callable
        `write(value)` gives what is stored of it.
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

    def to_bytes(self, value: Any) -> bytes:
        """Write a value; arrays in it are named by their place, as in `plan.ladder.betas`.

        Raises
        ------
        TypeError
            Something in it cannot be stored; the message says where.
        """
        arrays: dict[str, np.ndarray] = {}
        plain = _Writer(self, arrays, {}).plain(value, "")
        return pack(plain, arrays)

    def from_bytes(self, content: bytes) -> Any:
        """Read a value.

        Raises
        ------
        ValueError
            It has what `to_bytes` does not write, names an unknown class, or lacks an array.
        """
        plain, arrays = unpack(content)
        return _Reader(self, {c.__name__: c for c in self.classes}, arrays).value(plain)


def pack(plain: Any, arrays: Arrays) -> bytes:
    """Put JSON and arrays into one archive."""
    file = io.BytesIO()
    words = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    np.savez(file, **{WORDS: words}, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack(content: bytes) -> tuple[Any, Arrays]:
    """JSON and arrays of an archive."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive)
    return json.loads(arrays.pop(WORDS).tobytes()), arrays


@dataclass(frozen=True)
class _Writer:
    """Arrays met so far; `seen` has the name of each by its `id`, so that none is stored twice."""

    codec: Codec
    arrays: dict[str, np.ndarray]
    seen: dict[int, str]

    def plain(self, value: Any, place: str) -> Any:
        """JSON of a value at a place."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | str | int | float):
            return value
        if isinstance(value, np.ndarray):
            return {"array": self._name(value, place)}
        if isinstance(value, np.random.Generator):
            return {"generator": self.plain(state_of(value), place)}
        for kind, hook in self.codec.hooks.items():
            if isinstance(value, kind):
                return {"found": kind.__name__, "by": self.plain(hook.write(value), place)}
        if type(value) in self.codec.classes:
            inside = {name: getattr(value, name) for name in field_names(type(value))}
            return {"is": type(value).__name__, "fields": self._each(inside, place)}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": self._each(value, place)}
        if type(value) in (list, tuple):
            items = [*self._each({str(i): v for i, v in enumerate(value)}, place).values()]
            return items if isinstance(value, list) else {"tuple": items}
        raise TypeError(f"{place or 'the value'} is a {type(value).__name__}: it cannot be stored.")

    def _each(self, inside: Mapping[str, Any], place: str) -> dict[str, Any]:
        before = f"{place}." if place else ""
        return {name: self.plain(value, before + name) for name, value in inside.items()}

    def _name(self, value: np.ndarray, place: str) -> str:
        if value.dtype.kind not in "biufU":
            raise TypeError(f"{place} is an array of {value.dtype}: it cannot be stored.")
        name = self.seen.setdefault(id(value), place or "value")
        self.arrays[name] = value
        return name


@dataclass(frozen=True)
class _Reader:
    """Classes by their names, and the arrays that the JSON names."""

    codec: Codec
    classes: dict[str, type]
    arrays: Arrays

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
        if plain["array"] not in self.arrays:
            raise ValueError(f"The array {plain['array']!r} is missing.")
        return self.arrays[plain["array"]].copy(order="K")  # one of its own in each place

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
    "array": _Reader._array,
    "generator": lambda reader, plain: generator_from(reader.value(plain["generator"])),
    "found": _Reader._found,
    "is": _Reader._made,
    "dict": lambda reader, plain: {k: reader.value(v) for k, v in plain["dict"].items()},
    "tuple": lambda reader, plain: tuple(reader.value(item) for item in plain["tuple"]),
}


def field_names(cls: Any) -> tuple[str, ...]:
    """Fields of a dataclass or a named tuple."""
    return tuple(f.name for f in fields(cls)) if is_dataclass(cls) else tuple(cls._fields)


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """Where one of NumPy's generators is in its stream, and which it would spawn.

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
    return {"name": name, "state": dict(bits.state), "seed": seed.state}


def generator_from(state: dict[str, Any]) -> np.random.Generator:
    """Make a generator that goes on where the one of `state_of` stood, and spawns what it would.

    Raises
    ------
    ValueError
        The state is of no generator of NumPy.
    """
    if state["name"] not in BIT_GENERATORS:
        raise ValueError(f"{state['name']!r} is no bit generator of NumPy.")
    bits = getattr(np.random, state["name"])(SeedSequence(**state["seed"]))
    bits.state = state["state"]
    return np.random.Generator(bits)
