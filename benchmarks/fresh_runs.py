"""Runs in fresh processes, several in each: one that hangs or ends early costs one run, no more.

A script that is called with `--child NAME --seeds ...` compiles a model once, makes a run for each
seed, and prints a line of JSON for each (`print_runs`). `lines_of` starts such a process and reads
its lines; where it has ended before its last run it says so of that run, and starts another one for
the rest. Runs are kept in a file of CSV (`RunsFile`), a line each, as soon as they are there. So a
script that was cut short goes on where it was (`make_missing`).
"""

import argparse
import csv
import ctypes
import faulthandler
import json
import logging
import math
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import process_time
from typing import Any

RESULTS = Path(__file__).parent / "results"

type Line = dict[str, Any]

MARK = "run: "
"""Beginning of a line of a child that tells of a run."""
COMPILING = 600.0
"""CPU seconds that compiling may take."""
PATIENCE = 6.0
"""Wall seconds to CPU seconds at which a process that hangs is ended."""
PR_SET_PDEATHSIG = 1
SHOWN = 7
"""Fields of a run that are shown when it is there."""


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, on one line."""
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def said(error: BaseException) -> str:
    """Name an exception, with the first sentence of what it says."""
    return f"{type(error).__name__}: {first_sentence(str(error))}"


def limit_time(seconds: float) -> None:
    """End this process when it has used so many more CPU seconds, or hangs for long.

    The stack is printed first.
    """
    faulthandler.register(signal.SIGXCPU, all_threads=False, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end = math.ceil(process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
    faulthandler.dump_traceback_later(PATIENCE * seconds, exit=True)


def die_with_parent() -> None:
    """Have this process ended when the one that started it ends, where the system is Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def print_runs(
    prepare: Callable[[], Callable[[int], Line]], seeds: Sequence[int], limit: float
) -> None:
    """Compile once, then make a run for each seed and print what it came to; in a child.

    Parameters
    ----------
    prepare : callable
        Compiles, and returns what makes a run of a seed.
    seeds : sequence of int
    limit : float
        CPU seconds of a run.
    """
    logging.getLogger("pymc").setLevel(logging.ERROR)
    die_with_parent()
    limit_time(max(COMPILING, limit))
    try:
        run = prepare()
    except Exception as error:  # and so is a model that does not compile
        run = partial(_refused, said(error))
    for seed in seeds:
        limit_time(limit)
        try:
            line = {"status": "done"} | run(seed)
        except Exception as error:  # a run that raises is a row
            line = {"status": said(error)}
        print(MARK + json.dumps(line), flush=True)
    faulthandler.cancel_dump_traceback_later()


def _refused(status: str, seed: int) -> Line:
    return {"status": status}


def lines_of(script: str, name: str, seeds: Sequence[int], limit: float) -> Iterator[Line]:
    """Have children of a script make the runs of some seeds: a line each, in order."""
    left = list(seeds)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    while left:
        command = [sys.executable, script, "--child", name, "--limit", str(limit)]
        command += ["--seeds", *map(str, left)]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C would make it return what it has
            ) as child,
        ):
            assert child.stdout is not None
            for text in child.stdout:
                if left and text.startswith(MARK):
                    yield {"seed": left.pop(0)} | json.loads(text.removeprefix(MARK))
            code = child.wait()
            if left:
                errors.seek(0)
                yield {"seed": left.pop(0), "status": _why(code, errors.read(), limit)}


def _why(code: int, errors: str, limit: float) -> str:
    """Say why a process ended before its time."""
    if code == -signal.SIGXCPU:
        where = place_of(errors)
        return f"over {limit:.0f} CPU s" + (f" in {where}" if where else "")
    if "Timeout (" in errors:
        return f"hung for {PATIENCE * limit:.0f} wall s"
    last = (errors.strip().splitlines() or [""])[-1]
    return f"the process ended with {code}: {last[:200]}"


def _read(kind: Any, text: str) -> Any:
    """Read a value of a type from its text."""
    if kind in (bool, bool | None):
        return {"True": True, "False": False, "": None}[text]
    return kind(text)


def place_of(stack: str) -> str:
    """Name the functions of the package on the first stack that was printed, innermost first.

    That of a signal names the innermost first, that of an exception last.
    """
    first = stack.split("Current thread")[1] if "Current thread" in stack else stack
    inside = re.findall(r'pymc_tempering/([\w/]+)\.py", line \d+(,?) in (\w+)', first)
    names = [f"{file}:{function}" for file, _, function in inside]
    if any(comma for _, comma, _ in inside):
        names.reverse()
    return " < ".join(names[:6])


@dataclass(frozen=True)
class RunsFile:
    """A file of runs, a line of CSV each.

    Attributes
    ----------
    path : Path
    kind : type
        Dataclass of a run, of str, int, float and bool.
    keys : tuple of str
        Names of what a run is of, where its class does not say it; the last one is a number.
    """

    path: Path
    kind: type[Any]
    keys: tuple[str, ...] = ()

    def read(self) -> list[Any]:
        """Read the runs that there are.

        Raises
        ------
        ValueError
            The file has other columns.
        """
        return [run for _, run in self._lines()]

    def by_key(self) -> dict[tuple[Any, ...], Any]:
        """Read the runs that there are, by their keys."""
        return dict(self._lines())

    def add(self, run: Any, *keys: Any) -> None:
        """Append a run."""
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(self._names)
            writer.writerow([*keys, *astuple(run)])

    def forget(self, which: Callable[[Any], bool]) -> None:
        """Take runs out of the file."""
        kept = [run for run in self.read() if not which(run)]
        self.path.unlink(missing_ok=True)
        for run in kept:
            self.add(run)

    @property
    def _names(self) -> list[str]:
        return [*self.keys, *(field.name for field in fields(self.kind))]

    def _lines(self) -> Iterator[tuple[tuple[Any, ...], Any]]:
        if not self.path.exists():
            return
        with self.path.open(newline="") as file:
            lines = csv.DictReader(file)
            if lines.fieldnames != self._names:
                raise ValueError(f"{self.path} has other columns: move it away.")
            for line in lines:
                *names, number = [line[key] for key in self.keys] or ["0"]
                values = {f.name: _read(f.type, line[f.name]) for f in fields(self.kind)}
                yield (*names, int(number)), self.kind(**values)


def fill(file: RunsFile, jobs: Sequence[Callable[[], Iterable[Line]]], workers: int) -> None:
    """Write the lines of all jobs to a file as they come, so many jobs at a time, and show them."""
    left, found = deque(jobs), SimpleQueue[Line | BaseException | None]()

    def work() -> None:
        try:
            while left:
                for line in left.popleft()():
                    found.put(line)
        except BaseException as error:
            found.put(error)
        found.put(None)

    workers = min(workers, len(jobs))
    for _ in range(workers):
        Thread(target=work, daemon=True).start()  # so that Ctrl-C waits for none
    while workers:
        line = found.get()
        if isinstance(line, BaseException):
            raise line
        if line is None:
            workers -= 1
            continue
        run = file.kind(**line)
        file.add(run)
        print(", ".join(f"{k} {v}" for k, v in list(asdict(run).items())[:SHOWN]), flush=True)


def add_options(
    arguments: argparse.ArgumentParser, limit: float, workers: int = 1, *, child: Any = None
) -> None:
    """Add what all scripts of such runs take; `child` are the names that children go by."""
    arguments.add_argument("--limit", type=float, default=limit, help="CPU seconds of a run")
    arguments.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    arguments.add_argument("--workers", type=int, default=workers, help="processes, one core each")
    arguments.add_argument("--restart", action="store_true", help="forget earlier runs of these")
    arguments.add_argument("--child", choices=child, help=argparse.SUPPRESS)


def make_missing(
    file: RunsFile,
    script: str,
    wanted: dict[str, Sequence[int]],
    args: argparse.Namespace,
    named: str = "",
    each: int | None = None,
) -> None:
    """Make the runs that are not in the file yet, or all of them anew.

    Parameters
    ----------
    file : RunsFile
    script : str
    wanted : dict
        Seeds, by the names that the children of the script go by.
    args : Namespace
        Has `add_options`.
    named : str, optional
        Field of a run that holds the name.
    each : int, optional
        Runs of a process, at most.
    """
    if args.restart and named:
        file.forget(lambda run: getattr(run, named) in wanted)
    elif args.restart:
        file.forget(lambda run: any(run.seed in seeds for seeds in wanted.values()))
    runs = file.read()

    def job(name: str, seeds: Sequence[int]) -> Iterator[Line]:
        for line in lines_of(script, name, seeds, args.limit):
            over = {"cpu": args.limit} if line["status"].startswith("over") else {}
            yield ({named: name} if named else {}) | line | over

    jobs = []
    for name, seeds in wanted.items():
        done = {run.seed for run in runs if not named or getattr(run, named) == name}
        left = [seed for seed in seeds if seed not in done]
        size = each or max(len(left), 1)
        jobs += [partial(job, name, left[i : i + size]) for i in range(0, len(left), size)]
    fill(file, jobs, args.workers)
