"""All private parts of PyMC, PyTensor, Numba and Dask that the package uses; each may be gone.

Private is a name with an underscore, or one of `numba.core` or `pytensor.link`: it may change in
any release. Where one is gone, another way is taken, and one warning says what that costs.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Self

from numpy.random import default_rng
from pymc.backends.base import IBaseTrace, MultiTrace
from pymc.step_methods.compound import BlockedStep
from pytensor import config, shared

from pymc_tempering.exceptions import FolderError, ModelError

_COSTS: dict[str, str] = {}
"""What the ways cost that are taken, by the name that is gone."""


def check_temporary_folder() -> None:
    """Write a temporary file, as PyTensor does with the text of each graph that it compiles.

    Raises
    ------
    FolderError
        There is no place for one.
    """
    try:
        TemporaryFile().close()
    except OSError as error:
        place = f" ({tempfile.tempdir})" if tempfile.tempdir else ""
        raise FolderError(
            "PyTensor compiles no model without a folder for temporary files: "
            f"{error.strerror}{place}. Make one, or set the environment variable TMPDIR to a "
            "folder of yours before Python starts."
        ) from error


def folder_for_now() -> TemporaryDirectory | None:
    """Make a folder for compiled code that goes with the process, where PyTensor's takes none.

    PyTensor makes its own when its functions for Numba are first imported, and fails if it cannot.
    """
    usual = config.base_compiledir / "numba"
    try:
        usual.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=usual).close()
        return None
    except OSError as error:
        check_temporary_folder()
        folder = TemporaryDirectory(prefix="pytensor_")
        type(config).base_compiledir.val = Path(folder.name)  # assigning to it is refused by now
        warnings.warn(
            f"Compiled code cannot be kept in {usual} ({error.strerror}), so each process compiles "
            "anew. Name another folder before Python starts: PYTENSOR_FLAGS=base_compiledir=FOLDER",
            stacklevel=2,
        )
        return folder


_FOLDER = folder_for_now()

try:
    from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS
except ImportError:
    CACHED_SRC_FUNCTIONS = None
    _COSTS["CACHED_SRC_FUNCTIONS"] = "each process compiles its loops and models anew"

try:
    from pytensor.link.numba.cache import compile_numba_function_src as function_of_text
    from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key as function_and_key
except ImportError:
    function_of_text = function_and_key = None
    _COSTS["PyTensor's functions for Numba"] = "densities are evaluated by Python, slowly"

try:
    from numba.core.options import DefaultOptions

    NOT_COUNTED: dict[str, Any] = {"_nrt": False} if "_nrt" in vars(DefaultOptions) else {}
except ImportError:
    NOT_COUNTED = {}
    _COSTS["DefaultOptions"] = "loops are a tenth slower"
"""Options of `numba.njit`: references to arrays are not counted, so none may be made."""

try:
    from numba.core.event import Listener, install_listener
except ImportError:
    _COSTS["numba.core.event"] = "the status line does not say what is being compiled"

    class Listener:  # type: ignore[no-redef]
        """Hears nothing."""

    @contextmanager
    def install_listener(kind: str, listener: Any) -> Iterator[None]:
        """Listen to nothing."""
        yield


try:
    from pymc.distributions.transforms import _default_transform as default_transform
except ImportError:
    _COSTS["_default_transform"] = "some laws of variables are refused"

    def default_transform(op: Any, rv: Any) -> Any:
        """Refuse the law, whose range is not known."""
        raise ModelError(f"The range of {rv.name!r} is not known with this release of PyMC.")


try:
    from pymc.logprob.abstract import _logprob as log_density_of_op
except ImportError:
    log_density_of_op = None
    _COSTS["_logprob"] = "each call reads a model's functions anew"

try:
    from pymc.distributions.mixture import _BaseMixtureRV as AnyMixtureRV, _HurdleRV as HurdleRV
except ImportError:
    _COSTS["_BaseMixtureRV, _HurdleRV"] = "fits of mixtures and hurdles are refused"

    class AnyMixtureRV:  # type: ignore[no-redef]
        """No variable is one."""

    class HurdleRV:  # type: ignore[no-redef]
        """No variable is one."""


try:
    from pymc.backends.base import _choose_chains as choose_chains
except ImportError:
    _COSTS["_choose_chains"] = "of an interrupted run the shortest chain says how many draws count"

    def choose_chains(traces: Any, tune: int) -> tuple[Any, int]:
        """Keep all chains, as long as the shortest."""
        return traces, min(len(trace) for trace in traces)


if _COSTS:
    warnings.warn(
        "Parts of other libraries that pymc_tempering leans on are not where they were. "
        + "; ".join(f"without {name} {cost}" for name, cost in _COSTS.items())
        + ". A newer release of pymc_tempering may know the place.",
        stacklevel=2,
    )


def keep_on_disk(function: Callable, key: str) -> bool:
    """Have Numba keep a function on disk under a key, which must tell all that it reaches.

    Without PyTensor's cache nothing is kept: Numba's own would know nothing of edited callees.
    """
    if CACHED_SRC_FUNCTIONS is None or not config.numba__cache:
        return False
    CACHED_SRC_FUNCTIONS[function] = key
    return True


def infer_shape(op: Any, size: Any, params: Any) -> Any:
    """Return the shape of a random variable by its parameters, without a draw."""
    if hasattr(op, "_infer_shape"):
        return op._infer_shape(size, params)
    return tuple(op.make_node(shared(default_rng()), size, *params).outputs[1].shape)


def print_name_of(op: Any) -> str | None:
    """Return the name of a distribution as PyMC prints it, if it has one."""
    names = getattr(op, "_print_name", None)
    return names[0] if names else None


def set_report(trace: MultiTrace, *, tune: int, draws: int, seconds: float | None = None) -> None:
    """Tell a trace how many of its draws are what, and how long they took."""
    report = trace.report
    report._n_tune, report._n_draws, report._t_sampling = tune, draws, seconds


class SlicedTrace(IBaseTrace):
    """A chain of PyMC's traces that is cut by a method with a public name: `part(slice)`."""

    part: Any

    def _slice(self, idx: slice) -> Self:
        cut: Self = self.part(idx)
        return cut


class BlockedStepWithBars(BlockedStep):
    """A step method of PyMC with a state and with columns of its own in the table of progress.

    `columns()` returns the columns, and `shown(stats)` what they show of the statistics of a draw,
    and before the first one of none.
    """

    columns: Any
    shown: Any

    def __init_subclass__(cls, state_class: type | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if state_class is not None:
            cls._state_class = state_class

    @classmethod
    def _progressbar_config(cls, n_chains: int = 1) -> tuple[list[Any], dict[str, list[Any]]]:
        return cls.columns(), {name: [first] * n_chains for name, first in cls.shown({}).items()}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Any, ...]:
        return (cls.shown,)
