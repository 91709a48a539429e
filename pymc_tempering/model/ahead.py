"""Functions of this package that were compiled when it was set up, up to the machine code.

What is kept of a function is the module of LLVM that Numba makes of it. It is of no processor:
where it is first used, it is optimized, and becomes machine code for the processor there. That
gives the same bits as compiling the whole there, and takes a quarter of the time. An entry is of
one function, of the texts that it was made of, and of the versions of what made it. Where anything
differs there is no entry, and the function is compiled.
"""

import pickle
import platform
import sys
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import numba

MADE_BY = (
    str(sys.implementation.cache_tag), numba.__version__, llvmlite.__version__,
    sys.platform, platform.machine(),
)  # fmt: skip
"""What else must be the same: it decides about the code, or about the form of an entry."""

FOLDER = Path(__file__).resolve().parents[1] / "ahead" / "-".join(MADE_BY)
"""Where the entries lie; it is not there in a copy of the sources that was not set up."""

CHECKSUM = 32
"""Bytes of a checksum."""

Owner = tuple[str, ...]
"""Of what function, source and types an entry is."""


def read_ahead(owner: Owner) -> Any:
    """Read the entry of a function; None if there is none that is whole."""
    try:
        content = _place(owner).read_bytes()
    except OSError:
        return None
    checksum, body = content[:CHECKSUM], content[CHECKSUM:]
    if sha256(body).digest() != checksum:
        return None
    found, data = pickle.loads(zlib.decompress(body))
    return data if found == named(owner) else None


def place_ahead(owner: Owner) -> Path | None:
    """Return the file of a function's entry, if there is one that is whole."""
    return None if read_ahead(owner) is None else _place(owner)


def write_ahead(owner: Owner, pickled: bytes) -> Path:
    """Write the entry of a function: a pair of all that must be the same, and of the data."""
    body = zlib.compress(pickled, 9)
    place = _place(owner)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(sha256(body).digest() + body)
    return place


def named(owner: Owner) -> tuple[str, ...]:
    """All that must be the same for an entry to be used."""
    return *MADE_BY, *owner


def _place(owner: Owner) -> Path:
    """File of an entry: another one where anything differs."""
    return FOLDER / f"{owner[0]}.{sha256(repr(named(owner)).encode()).hexdigest()[:16]}"
