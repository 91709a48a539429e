"""Independent tasks on threads, in steps short enough to show progress and to react to Ctrl-C."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from time import perf_counter
from typing import Any, Protocol

STEP_SECONDS, POLL_SECONDS = 0.05, 0.1


class Task[T](Protocol):
    """A piece of work that can stop early."""

    def __call__(self, stop: threading.Event) -> T | None:
        """Return the result, or None if `stop` was set before the end."""


def paced(total: int, stop: threading.Event) -> Iterator[tuple[int, int]]:
    """Cut `range(total)` into pieces that take about `STEP_SECONDS` each, until `stop` is set.

    Yields
    ------
    (start, end) of each piece.
    """
    done, size = 0, 1
    while done < total and not stop.is_set():
        end = min(done + size, total)
        began = perf_counter()
        yield done, end
        seconds = max(perf_counter() - began, 1e-6)
        done = end
        size = max(1, int(size * min(4.0, STEP_SECONDS / seconds)))


def wait_for(
    futures: Sequence[Future[Any]], stop: threading.Event, report: Callable[[int], None]
) -> bool:
    """Wait until all are done; on Ctrl-C or an error set `stop` and cancel what has not started.

    Parameters
    ----------
    futures : sequence of Future
    stop : threading.Event
    report : callable
        Called from this thread a few times a second with the number of finished futures.

    Returns
    -------
    bool
        Whether Ctrl-C ended the work early.
    """
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, POLL_SECONDS, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            report(len(futures) - len(pending))
    except KeyboardInterrupt:
        return True
    finally:
        stop.set()
        for future in pending:
            future.cancel()
    return False


def run_tasks[T](
    tasks: Sequence[Task[T]],
    cores: int | None,
    report: Callable[[int], None] = lambda done: None,
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

    Returns
    -------
    results : list
        Results of the finished tasks, in the order of the tasks.
    interrupted : bool
        Whether Ctrl-C ended the work early.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(min(len(tasks), cores or os.cpu_count() or 1)) as pool:
        futures: list[Future[T | None]] = [pool.submit(task, stop) for task in tasks]
        interrupted = wait_for(futures, stop, report)
    finished = [f.result() for f in futures if f.done() and not f.cancelled()]
    return [result for result in finished if result is not None], interrupted
