"""Runs in fresh processes, several in each: one that hangs or ends early costs one run, no more.

A script that is called with `--child NAME --seeds ...` compiles a model once, makes a run for each
seed, and prints a line of JSON for each (`print_runs`). `lines_of` starts such a process and reads
its lines; where it has ended before its last run it says so of that run, and starts another one for
the rest. Runs are kept in a file of CSV (`RunsFile`), a line each, as soon as they are there.
"""

import csv
import ctypes
import faulthandler
import json
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
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import process_time
from typing import Any

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
    """End this process when it has used so many more CPU seconds, or hangs for long."""
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
    die_with_parent()
    limit_time(max(COMPILING, limit))
    run = prepare()
    for seed in seeds:
        limit_time(limit)
        try:
            line = {"status": "done"} | run(seed)
        except Exception as error:  # a run that raises is a row
            line = {"status": said(error)}
        print(MARK + json.dumps(line), flush=True)
    faulthandler.cancel_dump_traceback_later()


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
        return f"over {limit:.0f} CPU s"
    if "Timeout (" in errors:
        return f"hung for {PATIENCE * limit:.0f} wall s"
    last = (errors.strip().splitlines() or [""])[-1]
    return f"the process ended with {code}: {last[:200]}"


@dataclass(frozen=True)
class RunsFile:
    """A file of runs, a line of CSV each.

    Attributes
    ----------
    path : Path
    kind : type
        Dataclass of a run, of str, int and float.
    """

    path: Path
    kind: type[Any]

    def read(self) -> list[Any]:
        """Read the runs that there are.

        Raises
        ------
        ValueError
            The file has other columns.
        """
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            lines = csv.DictReader(file)
            if lines.fieldnames != self._names:
                raise ValueError(f"{self.path} has other columns: move it away.")
            return [self._run(line) for line in lines]

    def add(self, run: Any) -> None:
        """Append a run."""
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self._names)
            if new:
                writer.writeheader()
            writer.writerow(asdict(run))

    def forget(self, which: Callable[[Any], bool]) -> None:
        """Take runs out of the file."""
        kept = [run for run in self.read() if not which(run)]
        self.path.unlink(missing_ok=True)
        for run in kept:
            self.add(run)

    @property
    def _names(self) -> list[str]:
        return [field.name for field in fields(self.kind)]

    def _run(self, line: dict[str, str]) -> Any:
        return self.kind(**{f.name: f.type(line[f.name]) for f in fields(self.kind)})


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
