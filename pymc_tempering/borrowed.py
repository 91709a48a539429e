"""Private parts of other libraries that the package uses, under names of our own.

A name that begins with an underscore, or that lies in `numba.core` or `pytensor.link`, may change
in any release. `tests/project/test_borrowed.py` holds that no other file uses one, and says of
each part that is gone or has changed what needs it.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from numba.core import cgutils
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.event import Event, Listener, install_listener
from numba.core.registry import CPUDispatcher, cpu_target
from pymc.backends.base import IBaseTrace, MultiTrace
from pymc.backends.base import _choose_chains as choose_chains
from pymc.distributions.mixture import _BaseMixtureRV as AnyMixtureRV
from pymc.distributions.mixture import _HurdleRV as HurdleRV
from pymc.distributions.transforms import _default_transform as default_transform
from pymc.logprob.abstract import _logprob as log_density_of_op
from pymc.progress_bar import ProgressBarManager
from pymc.step_methods.compound import BlockedStep

__all__ = (
    "BLAS",
    "NOT_COUNTED",
    "AnyMixtureRV",
    "BlockedStepWithBars",
    "Event",
    "HurdleRV",
    "Listener",
    "NullCache",
    "OpenBars",
    "OpenCache",
    "OpenCacheFile",
    "OpenDispatcher",
    "SlicedTrace",
    "address_for_c",
    "address_of",
    "cgutils",
    "choose_chains",
    "client_behind",
    "cpu_target",
    "default_transform",
    "files_being_read",
    "global_compiler_lock",
    "index_path_of",
    "infer_shape",
    "install_listener",
    "log_density_of_op",
    "print_name_of",
    "set_report",
    "table_of",
)

# Numba

NOT_COUNTED = {"_nrt": False}
"""Options of `numba.njit`: references to arrays are not counted, so none may be made."""


BLAS = {"dot": "numba_xxdot", "gemv": "numba_xxgemv", "gemm": "numba_xxgemm"}
"""Symbols of the helpers in Numba's library that call BLAS."""


class OpenDispatcher(CPUDispatcher):
    """Numba's dispatcher, which asks `settle` for machine code before it compiles any itself.

    The methods below are those by which Numba asks for machine code: for a call from Python that
    nothing was compiled for, for a call from compiled code, and for a function as an argument.
    Calls that find their machine code pass by them.
    """

    signature: Any = None
    """The only signature that it will have; it travels to other processes."""

    @abstractmethod
    def settle(self) -> bool:
        """Compile the one signature if there is one, and say if there is."""

    @property
    def can_compile(self) -> bool:
        """Whether it takes further signatures."""
        return bool(self._can_compile)

    @property
    def cache(self) -> Any:
        """Where it keeps what it compiled."""
        return self._cache

    def keep_in(self, cache: Any) -> None:
        """Take another place to keep what it compiles."""
        self._cache = cache

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        # Numba calls what it is given. A settled dispatcher converts arguments or refuses them.
        return self if self.settle() else super()._compile_for_args(*args, **kws)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Say how compiled code calls it."""
        self.settle()
        return super().get_call_template(args, kws)

    def get_compile_result(self, sig: Any) -> Any:
        """Give the machine code for its use as an argument."""
        self.settle()
        return super().get_compile_result(sig)

    def get_function_type(self) -> Any:
        """Give the type that it has as an argument."""
        self.settle()
        return super().get_function_type()

    def _reduce_states(self) -> dict[str, Any]:
        return super()._reduce_states() | {"signature": self.signature}

    @classmethod
    def _rebuild(cls, signature: Any, **states: Any) -> Self:
        made: Self = super()._rebuild(**states)
        made.signature = signature
        return made


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
        pickled: bytes = self._cache_file._dump(value)
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


def address_of(compiled: Any, args: tuple[Any, ...]) -> int:
    """Return where the machine code of a compiled function lies, in Numba's own convention."""
    found = compiled.overloads[args]
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    return address


def address_for_c(compiled: Any, args: tuple[Any, ...]) -> int:
    """Return where its machine code lies for callers that know C's convention alone."""
    found = compiled.overloads[args]
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name)
    return address


# PyMC and PyTensor


def infer_shape(op: Any, size: Any, params: Any) -> Any:
    """Return the shape of a random variable by its parameters, without a draw."""
    return op._infer_shape(size, params)


def print_name_of(op: Any) -> str | None:
    """Return the name of a distribution as PyMC prints it, if it has one."""
    names = getattr(op, "_print_name", None)
    return names[0] if names else None


def set_report(trace: MultiTrace, *, tune: int, draws: int, seconds: float | None = None) -> None:
    """Tell a trace how many of its draws are what, and how long they took."""
    trace.report._n_tune, trace.report._n_draws = tune, draws
    if seconds is not None:
        trace.report._t_sampling = seconds


class SlicedTrace(IBaseTrace):
    """A chain of PyMC's traces that is cut by a method with a public name."""

    @abstractmethod
    def part(self, idx: slice) -> Self:
        """Return the draws of a slice."""

    def _slice(self, idx: slice) -> Self:
        return self.part(idx)


class BlockedStepWithBars(BlockedStep):
    """A step method of PyMC with a state and with columns of its own in the table of progress."""

    def __init_subclass__(cls, state_class: type | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if state_class is not None:
            cls._state_class = state_class

    @staticmethod
    @abstractmethod
    def columns() -> list[Any]:
        """Return the columns."""

    @staticmethod
    @abstractmethod
    def shown(stats: Mapping[str, Any]) -> dict[str, Any]:
        """Return what they show of the statistics of a draw, and before the first one."""

    @classmethod
    def _progressbar_config(cls, n_chains: int = 1) -> tuple[list[Any], dict[str, list[Any]]]:
        return cls.columns(), {name: [first] * n_chains for name, first in cls.shown({}).items()}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Any, ...]:
        return (cls.shown,)


class OpenBars(ProgressBarManager):
    """PyMC's bars, with public names for what we need of them."""

    @property
    def wanted(self) -> bool:
        """Whether any progress is to be shown."""
        return bool(self._show_progress)

    def make_backend(self, total: int, columns: list[Any], stats: Mapping[str, Any]) -> Any:
        """Make what draws the bars: on a terminal, or in a notebook."""
        return self._create_backend(total, columns, stats)


def table_of(backend: Any) -> Any:
    """Return the table of what draws the bars; None in a marimo notebook, or without progress."""
    return getattr(backend, "_progress", None)


# Dask


def client_behind(executor: Any) -> Any:
    """Return the client of an executor of Dask, for which there is no public name; else None."""
    return getattr(executor, "_client", None)
