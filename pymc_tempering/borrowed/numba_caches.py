"""Private parts of Numba's cache on disk, under names of our own; see `borrowed`."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

__all__ = ("NullCache", "OpenCache", "OpenCacheFile", "files_being_read", "index_path_of")


class OpenCache(FunctionCache):
    """Numba's cache of a function, in files of our own kind."""

    def keep_in(self, kind: type, suffix: str, stamp: Callable[[Any], Any]) -> None:
        """Keep it in a file of that kind; `stamp` is given Numba's stamp of the source."""
        place = self._impl
        name = f"{place.filename_base}.{suffix}"
        self._cache_file = kind(self._cache_path, name, stamp(place.locator.get_source_stamp()))

    def reduced(self, compiled: Any, bitcode: dict[str, bytes]) -> tuple[Any, ...]:
        """Return what is kept of a compiled function, with a module in the place of the code."""
        (name, _, data), *rest = self._impl.reduce(compiled)
        return (name, "bitcode", bitcode.get(name, data)), *rest

    def dumped(self, value: Any) -> bytes:
        """Bytes of a value, as Numba pickles it."""
        pickled: bytes = self._cache_file.dump(value)
        return pickled

    def rebuilt(self, context: Any, data: Any) -> Any:
        """Return the compiled function of what was kept."""
        return self._impl.rebuild(context, data)

    def key_of(self, sig: Any, codegen: Any) -> Any:
        """Name of an entry in the file: by types, processor, code, and what is closed over."""
        return super()._index_key(sig, codegen)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return self.key_of(sig, codegen)


class OpenCacheFile(IndexDataCacheFile):
    """Index and data of a function's cache, with public names for what we write otherwise."""

    @property
    def function_name(self) -> str:
        """Name of the function."""
        return str(self._index_name)

    @property
    def stamp(self) -> Any:
        """Stamp of the source."""
        return self._source_stamp

    def data_path(self, name: str) -> str:
        """File of an entry."""
        return str(self._data_path(name))

    def dump(self, value: Any) -> bytes:
        """Bytes of a value, as Numba pickles it."""
        pickled: bytes = self._dump(value)
        return pickled

    def open_for_write(self, path: str) -> Any:
        """Open a file that appears under its name once it is whole."""
        return self._open_for_write(path)

    @abstractmethod
    def load_index(self) -> dict[Any, str]:
        """Read the index."""

    @abstractmethod
    def save_index(self, overloads: dict[Any, str]) -> None:
        """Write the index."""

    @abstractmethod
    def load_data(self, name: str) -> Any:
        """Read an entry."""

    @abstractmethod
    def save_data(self, name: str, data: Any) -> None:
        """Write an entry."""

    def _load_index(self) -> dict[Any, str]:
        return self.load_index()

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self.save_index(overloads)

    def _load_data(self, name: str) -> Any:
        return self.load_data(name)

    def _save_data(self, name: str, data: Any) -> None:
        self.save_data(name, data)


def files_being_read(error: BaseException) -> Iterator[IndexDataCacheFile]:
    """Files of a cache that were being read when an error, or what led to it, was raised."""
    cause: BaseException | None = error
    while cause is not None:
        trace: TracebackType | None = cause.__traceback__
        while trace is not None:
            owner = trace.tb_frame.f_locals.get("self")
            if isinstance(owner, IndexDataCacheFile) and "_load" in trace.tb_frame.f_code.co_name:
                yield owner
            trace = trace.tb_next
        cause = cause.__cause__ or cause.__context__


def index_path_of(file: IndexDataCacheFile) -> str:
    """Return the file of the index of any cache of Numba's."""
    return str(file._index_path)
