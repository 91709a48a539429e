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
from functools import partial
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
        seen: dict[int, str] = {}  # name of each array by its `id`, so that none is stored twice

        def each(inside: Mapping[str, Any], place: str) -> dict[str, Any]:
            before = f"{place}." if place else ""
            return {name: plain(value, before + name) for name, value in inside.items()}

        def plain(value: Any, place: str) -> Any:
            if isinstance(value, np.generic):
                value = value.item()
            for kind, hook in self.hooks.items():
                if isinstance(value, kind):
                    return {"found": kind.__name__, "by": plain(hook.write(value), place)}
            if type(value) in self.classes:
                inside = {name: getattr(value, name) for name in field_names(type(value))}
                return {"is": type(value).__name__, "fields": each(inside, place)}
            match value:
                case None | bool() | str() | int() | float():
                    return value
                case np.random.Generator():
                    return {"generator": plain(state_of(value), place)}
                case dict() if all(isinstance(key, str) for key in value):
                    return {"dict": each(value, place)}
                case list() | tuple() if type(value) in (list, tuple):
                    items = [*each({str(i): v for i, v in enumerate(value)}, place).values()]
                    return items if isinstance(value, list) else {"tuple": items}
                case np.ndarray() if value.dtype.kind in "biufU":
                    name = seen.setdefault(id(value), place or "value")
                    arrays[name] = value
                    return {"array": name}
                case np.ndarray():
                    raise TypeError(f"{place} is an array of {value.dtype}: it cannot be stored.")
            name = type(value).__name__
            raise TypeError(f"{place or 'the value'} is a {name}: it cannot be stored.")

        return pack(plain(value, ""), arrays)

    def from_bytes(self, content: bytes) -> Any:
        """Read a value.

        Raises
        ------
        ValueError
            It has what `to_bytes` does not write, names an unknown class, or lacks an array.
        """
        plain, arrays = unpack(content)
        return self._read(plain, arrays)

    def _read(self, plain: Any, arrays: Arrays) -> Any:
        read = partial(self._read, arrays=arrays)
        match plain:
            case None | bool() | str() | int() | float():
                return plain
            case list():
                return [read(item) for item in plain]
            case {"tuple": items}:
                return tuple(read(item) for item in items)
            case {"dict": inside}:
                return {name: read(item) for name, item in inside.items()}
            case {"generator": state}:
                return generator_from(read(state))
            case {"array": name}:
                if name not in arrays:
                    raise ValueError(f"The array {name!r} is missing.")
                return arrays[name].copy(order="K")  # one of its own in each place
            case {"found": name, "by": by}:
                for kind, hook in self.hooks.items():
                    if kind.__name__ == name:
                        return hook.read(read(by))
                raise ValueError(f"An entry of the unknown class {name!r}.")
            case {"is": name, "fields": inside}:
                return self._made(name, {field: read(item) for field, item in inside.items()})
        raise ValueError(f"An entry that nothing here has written: {sorted(plain)}.")

    def _made(self, name: str, inside: dict[str, Any]) -> Any:
        """Make a value of a class that may be stored."""
        cls = next((c for c in self.classes if c.__name__ == name), None)
        if cls is None:
            raise ValueError(f"An entry of the unknown class {name!r}.")
        if set(inside) != set(field_names(cls)):
            raise ValueError(f"The fields of {name} are not those of this version.")
        if issubclass(cls, tuple):
            return cls(**inside)
        made = object.__new__(cls)
        for field_name, item in inside.items():
            object.__setattr__(made, field_name, item)  # no check of the class may round it anew
        return made


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
    match bits.state:  # NumPy takes any place in the buffer, and reads there
        case {"bit_generator": "MT19937", "state": {"pos": place}}:
            size = 624
        case {"bit_generator": "Philox", "buffer_pos": place}:
            size = 4
        case _:
            place = size = 0
    if not 0 <= place <= size:
        raise ValueError(f"A {state['name']} generator is at {place} of a buffer of {size}.")
    return np.random.Generator(bits)
