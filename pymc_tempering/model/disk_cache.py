"""Numba's cache on disk, of which nothing is used that is damaged, another's, or of an old source.

Numba reads an entry as it finds it: one cut short ends the call in an error of `pickle`, and a
changed byte of machine code is run. Entries of this package carry a checksum and what they are an
entry of. One that does not fit is compiled anew and written over.
"""

import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba

from pymc_tempering.borrowed.numba_caches import (
    OpenCache,
    OpenCacheFile,
    files_being_read,
    index_path_of,
)
from pymc_tempering.model.ahead import named, read_ahead, write_ahead

CHECKSUM = 32
"""Bytes of a checksum."""


class CheckedCache(OpenCache):
    """Numba's cache of a function, stamped by all sources that the function can call.

    Numba's own stamp is that of the one file that holds the function: after an edit of a callee
    in another file it would load the old machine code of the caller, callee inlined. A folder that
    cannot be written to, or is full, costs a compilation in each process and no more.
    """

    def __init__(self, function: Callable, reached: str, *, runs: bool = True) -> None:
        """Make it of a function that runs, or that compiled code has linked in."""
        super().__init__(function)
        self._made_of = function.__qualname__, reached
        self._runs = runs
        # With a suffix, since Numba's own reader could meet the file otherwise.
        self.keep_in(_CheckedFile, "checked", lambda own: (numba.__version__, own, reached))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load what was compiled here before; else what was when the package was set up."""
        found = super().load_overload(sig, target_context)
        if found is not None:
            return found
        data = read_ahead(self.owner(sig))
        if data is None:
            return None
        target_context.refresh()
        found = self.rebuilt(target_context, data)
        self.save_overload(sig, found)
        return found

    def write_ahead(self, sig: Any, compiled: Any, bitcode: dict[str, bytes]) -> Path:
        """Write what was compiled, for processes that find nothing of their own on disk."""
        owner = self.owner(sig)
        pair = named(owner), self.reduced(compiled, bitcode)
        return write_ahead(owner, self.dumped(pair))

    def owner(self, sig: Any) -> tuple[str, ...]:
        """Of what function, source and types an entry is that was made ahead."""
        return *self._made_of, str(sig)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write what was compiled, if the disk takes it; of what runs the machine code."""
        if self._runs:
            data.library.make_final()
        try:
            super().save_overload(sig, data)
        except OSError:
            self.disable()


class KeyedCache(CheckedCache):
    """The same for a function whose stamp tells all but the types: also what it has closed over."""

    def key_of(self, sig: Any, codegen: Any) -> Any:
        """Name of an entry in the file: by types and processor."""
        return sig, codegen.magic_tuple()


class _CheckedFile(OpenCacheFile):
    """Index and data of a function's cache, each with a checksum; data say whose they are."""

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._owner(key), data))

    def load(self, key: Any) -> Any:
        owner, data = super().load(key) or (None, None)
        # Two processes that write at once can leave the data of one under the name of the other.
        return data if owner == self._owner(key) else None

    def _owner(self, key: Any) -> tuple[Any, ...]:
        """Of what function, source and types data are."""
        return self.function_name, self.stamp, key

    def load_index(self) -> dict[Any, str]:
        """Read the index; empty if it is damaged, or of another source."""
        try:
            stamp, overloads = self._read(index_path_of(self))
        except (OSError, ValueError):
            return {}
        return overloads if stamp == self.stamp else {}

    def save_index(self, overloads: dict[Any, str]) -> None:
        """Write the index."""
        self._write(index_path_of(self), (self.stamp, overloads))

    def load_data(self, name: str) -> Any:
        """Read an entry."""
        return self._read(self.data_path(name))

    def save_data(self, name: str, data: Any) -> None:
        """Write an entry."""
        self._write(self.data_path(name), data)

    def _read(self, path: str) -> Any:
        content = Path(path).read_bytes()
        checksum, body = content[:CHECKSUM], content[CHECKSUM:]
        if sha256(body).digest() != checksum:
            raise OSError(f"The file {path} is damaged, or was not written by this package.")
        return pickle.loads(body)

    def _write(self, path: str, value: Any) -> None:
        body = self.dump(value)
        with self.open_for_write(path) as file:
            file.write(sha256(body).digest() + body)


def forgetting_damage[T](work: Callable[..., T], *args: Any) -> T:
    """Compile with entries of other packages, too: one that cannot be read is forgotten.

    PyTensor keeps the operations of a graph in Numba's own form. Where the error of a compilation
    comes from reading such an entry, the entry is emptied and the compilation done again.

    Parameters
    ----------
    work : callable
        What compiles; it is called until no entry stands in its way.
    *args
        What it is called with.

    Returns
    -------
    Any
        What `work` returns.

    Raises
    ------
    OSError
        A damaged entry cannot be emptied.
    """
    forgotten = set()
    while True:
        try:
            return work(*args)
        except Exception as error:
            damaged = next(files_being_read(error), None)
            if damaged is None:
                raise
            path = index_path_of(damaged)
            if path in forgotten:
                raise OSError(f"{path} cannot be read even when emptied: delete it.") from error
            forgotten.add(path)
            try:
                damaged.flush()
            except OSError as refusal:
                message = f"{path} is damaged and cannot be written to: delete it."
                raise OSError(message) from refusal
