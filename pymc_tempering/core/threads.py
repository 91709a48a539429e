"""Independent tasks on threads, in steps short enough to show progress and to react to Ctrl-C."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Protocol

from threadpoolctl import ThreadpoolController

from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.turns import TURNS
from pymc_tempering.exceptions import TimeLimitError

STEP_SECONDS, POLL_SECONDS = 0.05, 0.1

LEAVE_SECONDS = 30.0
"""Seconds that are waited for steps under way, when work is to end early."""

ARRAY_LIBRARIES = ("cupy", "dask.array", "jax", "ndonnx", "sparse", "torch")
"""What SciPy looks for among the modules that are loaded, at nearly each call."""


class Task[T](Protocol):
    """A piece of work that can stop early."""

    def __call__(self, stop: threading.Event) -> T | None:
        """Return the result, or None if `stop` was set before the end."""


@dataclass
class Pace:
    """How many things make a piece of work of about `STEP_SECONDS`, by the pieces before it."""

    size: int = 1

    def pieces(
        self, total: int, is_over: Callable[[], bool], least: int = 0
    ) -> Iterator[tuple[int, int]]:
        """Cut `range(total)` into such pieces until it is over, `least` of it in any case."""
        done = 0
        while done < total and not (done >= least and is_over()):
            end = min(done + self.size, total)
            began = perf_counter()
            yield done, end
            seconds = max(perf_counter() - began, 1e-6)
            done = end
            self.size = max(1, int(self.size * min(4.0, STEP_SECONDS / seconds)))


def paced(
    total: int, stop: threading.Event, deadline: Deadline = NEVER
) -> Iterator[tuple[int, int]]:
    """Cut `range(total)` into pieces that take about `STEP_SECONDS` each, until `stop` is set.

    After a deadline there is the first piece alone, if that had not begun.

    Yields
    ------
    (start, end) of each piece.
    """
    if not stop.is_set():
        yield from Pace().pieces(total, lambda: stop.is_set() or deadline.late, least=1)


class Threads[T]:
    """Calls on threads which the interpreter does not wait for when it ends.

    So a call that never comes back keeps nobody. Libraries of linear algebra keep to one thread in
    each, as they do under `pymc.sample`: small products would mostly wait for each other.

    Parameters
    ----------
    calls : sequence of callables
    number : int
        Of threads.

    Attributes
    ----------
    futures : list of Future
        In the order of the calls.
    """

    def __init__(self, calls: Sequence[Callable[[], T]], number: int) -> None:
        self.futures: list[Future[T]] = [Future() for _ in calls]
        self._number = min(number, len(calls))
        self._waiting: SimpleQueue[tuple[Future[T], Callable[[], T]]] = SimpleQueue()
        for pair in zip(self.futures, calls, strict=True):
            self._waiting.put(pair)

    def run(self, stop: threading.Event, report: Callable[[int], None]) -> bool:
        """Start, and wait until all are done.

        On Ctrl-C, from the first thread on, or on an error `stop` is set and what has not started
        is cancelled; what is under way is not waited for.

        Parameters
        ----------
        stop : threading.Event
        report : callable
            Called from this thread a few times a second with the number of finished calls.

        Returns
        -------
        bool
            Whether Ctrl-C ended the work early.
        """
        load_array_libraries()
        with one_thread():
            return self._run(stop, report)

    def _run(self, stop: threading.Event, report: Callable[[int], None]) -> bool:
        pending = set(self.futures)
        try:
            for _ in range(self._number):
                threading.Thread(target=self._work, daemon=True).start()
            while pending:
                done, pending = wait(pending, POLL_SECONDS, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                report(len(self.futures) - len(pending))
        except KeyboardInterrupt:
            return True
        finally:
            stop.set()
            for future in pending:
                future.cancel()
        return False

    def _work(self) -> None:
        while True:
            try:
                future, call = self._waiting.get_nowait()
            except Empty:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)


def run_tasks[T](
    tasks: Sequence[Task[T]],
    cores: int | None,
    report: Callable[[int], None] = lambda done: None,
    deadline: Deadline = NEVER,
) -> tuple[list[T], bool]:
    """Run tasks on threads.

    Parameters
    ----------
    tasks : sequence of callables
        They release the interpreter's lock, and return None if `stop` was set before the end.
    cores : int, optional
        Number of threads; by default one per core.
    report : callable, optional
        Called with the number of finished tasks.
    deadline : Deadline, optional
        When tasks that hang are waited for no longer.

    Returns
    -------
    results : list
        Results of the finished tasks, in the order of the tasks.
    interrupted : bool
        Whether Ctrl-C ended the work early, or tasks hang and the time is over.
    """
    stop = threading.Event()
    last = (0, perf_counter())

    def look(done: int) -> None:
        nonlocal last
        if done != last[0] or not deadline.late:  # until then nobody is to end
            last = (done, perf_counter())
        report(done)
        if perf_counter() - last[1] > LEAVE_SECONDS:
            raise KeyboardInterrupt

    threads = Threads([partial(task, stop) for task in tasks], cores or os.cpu_count() or 1)
    try:
        interrupted = threads.run(stop, look)
    finally:
        if wait(threads.futures, LEAVE_SECONDS).not_done:
            TURNS.give_up()
    finished = [f.result() for f in threads.futures if f.done() and not f.cancelled()]
    return [result for result in finished if result is not None], interrupted


def run_all[T](tasks: Sequence[Task[T]], cores: int | None, deadline: Deadline = NEVER) -> list[T]:
    """Run tasks on threads, all of them or none; at a deadline they end by themselves.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C came.
    TimeLimitError
        Tasks hang, and the time is over.
    """
    results, interrupted = run_tasks(tasks, cores, deadline=deadline)
    if interrupted and deadline.late:
        raise TimeLimitError(
            "max_time is over, and the likelihood seems to hang in the warm-up: give the solver in "
            "it a limit of its own, after which it returns NaN."
        )
    if interrupted:
        raise KeyboardInterrupt("Interrupted before sampling began.")
    return results


def load_array_libraries() -> None:
    """Load what SciPy would load of them, before several threads call SciPy.

    ArviZ puts off the import of JAX until the first use. Before Python 3.12.3 the second thread
    that uses such a module during its import finds it empty.
    """
    for name in ARRAY_LIBRARIES:
        getattr(sys.modules.get(name), "__file__", None)


def one_thread() -> AbstractContextManager[object]:
    """Keep the libraries of linear algebra that are loaded to one thread, in a `with` block."""
    return _controller("sklearn" in sys.modules).limit(limits=1)


@cache
def _controller(with_sklearn: bool) -> ThreadpoolController:
    """Find the libraries, which takes 10 ms; scikit-learn brings one more with it."""
    return ThreadpoolController()
