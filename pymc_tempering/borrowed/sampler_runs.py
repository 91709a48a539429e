"""Private parts of PyMC and Dask that runs of a sampler need; see `borrowed`."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from pymc.backends.base import IBaseTrace, MultiTrace
from pymc.backends.base import _choose_chains as choose_chains
from pymc.progress_bar import ProgressBarManager
from pymc.step_methods.compound import BlockedStep

__all__ = (
    "BlockedStepWithBars",
    "OpenBars",
    "SlicedTrace",
    "choose_chains",
    "client_behind",
    "set_report",
    "table_of",
)


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


def client_behind(executor: Any) -> Any:
    """Return the client of an executor of Dask, for which there is no public name; else None."""
    return getattr(executor, "_client", None)
