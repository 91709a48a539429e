"""The checkpoint of a run: what is written when, and how signals wait for it."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pymc_tempering.chain.chains import extend_runs
from pymc_tempering.chain.pieces import Written, written_by
from pymc_tempering.core.deadline import Deadline
from pymc_tempering.exceptions import ArgumentError, CheckpointError, warn_user
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.sampling.call import Call, Job, Options, step_method_in
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.kept import (
    CODEC,
    about_part,
    beside_part,
    chains_part,
    lasting,
    plan_part,
    read_chains,
)
from pymc_tempering.sampling.reference_draws import Beside
from pymc_tempering.sampling.rounds import Outcome, Recorder
from pymc_tempering.storage.checkpoint_folder import CheckpointFolder, Head, new_folder

SIGNALS = (signal.SIGINT, signal.SIGTERM)

STANDING = ("total", "rounds", "fits_left", "repeats_left")
"""Attributes of an `Outcome` that are written each time as they are."""


@dataclass(eq=False)
class CheckpointRecorder(Recorder):
    """Writes where a run stands into the folder of a checkpoint.

    What never changes is written once; rows that chains have written, when they are new. What
    cannot be written is said, and tried again when it is due.

    Attributes
    ----------
    folder : CheckpointFolder
    call : Call
    every : float
        Seconds between checkpoints.
    head : Head
        The last that was written.
    at : Outcome, optional
        What its parts are of.
    written : list
        How much each chain had written by then.
    last : float
        When, by `perf_counter`.
    failed : bool
        Whether the disk did not take the last one.
    """

    folder: CheckpointFolder
    call: Call
    every: float
    head: Head = field(default_factory=lambda: Head(0, {}))
    at: Outcome | None = None
    written: list[Written] = field(default_factory=list)
    last: float = field(default_factory=perf_counter)
    failed: bool = False

    def due(self) -> bool:
        """Whether the time is over."""
        return perf_counter() - self.last >= self.every

    def save(self, job: Job, at: Outcome) -> None:
        """Write where the run stands; Ctrl-C and SIGTERM wait until it is written.

        Warns
        -----
        TemperingWarning
            The disk does not take it. The last checkpoint stands, and the run goes on.
        """
        with signals_wait():
            try:
                self._save(job, at)
                self.failed = False
            except OSError as error:
                if not self.failed:
                    warn_user(
                        f"The checkpoint in {self.folder.root} could not be written "
                        f"({error.strerror or error}). The run goes on, and the last checkpoint "
                        "that was written stands: make room on the disk."
                    )
                self.failed = True
                self.folder.tidy()
            self.last = perf_counter()

    def _save(self, job: Job, at: Outcome) -> None:
        parts, add, old = dict(self.head.parts), self.folder.add, self.at
        assert at.beside is not None
        if "about" not in parts:
            parts["about"] = [add("about", about_part(job, self.call, every=self.every))]
        if old is None or old.chosen is not at.chosen:
            parts["plan"] = [add("plan", plan_part(job, lasting(at.chosen)))]
        if old is None or old.beside is not at.beside:
            parts["beside"] = [add("beside", beside_part(at.beside))]
        fresh = old is None or old.runs is not at.runs
        since = [(0, 0, 0)] * len(at.runs) if fresh else self.written
        now = [*map(written_by, at.runs)]
        standing = {name: getattr(at, name) for name in STANDING}
        clock = {"seconds": perf_counter() - job.deadline.began, "seconds_left": job.deadline.left}
        content = chains_part(
            at.chosen.plan, at.runs, since, rng=job.rng, standing=standing, clock=clock
        )
        parts["chains"] = [*([] if fresh else parts["chains"]), add("chains", content)]
        head = Head(self.head.number + 1, parts)
        self.folder.commit(head)
        self.head, self.at, self.written = head, at, now


def read_standing(
    folder: CheckpointFolder, chosen: ChosenPlan, parts: dict[str, list[bytes]]
) -> tuple[Outcome, Any, Deadline]:
    """Read where a run stood, with the generator of its call and the time that it has left.

    Raises
    ------
    CheckpointError
        The parts contradict themselves.
    """
    try:
        runs, last = read_chains(chosen.plan, parts["chains"])
    except ValueError as error:
        raise CheckpointError(
            f"The checkpoint in {folder.root} contradicts itself: {error}"
        ) from error
    extend_runs(runs, last["standing"]["total"])
    standing, clock, now = last["standing"], last["clock"], perf_counter()
    deadline = Deadline(now - clock["seconds"], now + clock["seconds_left"])
    beside = Beside(chosen.plan, **CODEC.from_bytes(parts["beside"][-1]))
    return Outcome(chosen, runs, beside, **standing), last["rng"], deadline


@contextmanager
def recording(
    path: str | os.PathLike[str] | None,
    every: float,
    call: Call,
    rng: Any,
    kernel: KernelChoice,
    options: Options,
) -> Iterator[Recorder]:
    """Make the checkpoint of a new run, or nothing where no path is given.

    Raises
    ------
    CheckpointError
        The path cannot be used.
    ArgumentError
        Something of the call can be stored in no file.
    ValueError
        `checkpoint_every` is not positive.
    """
    if not every > 0:
        raise ValueError(f"checkpoint_every must be a positive number of seconds, not {every!r}.")
    if path is None:
        yield Recorder()
        return
    if name := step_method_in(kernel):
        raise ArgumentError(
            f"checkpoint= cannot hold what the step method {name} keeps in Python: choose a kernel "
            "of this package, or sample without a checkpoint."
        )
    if callable(options.rung_weights):
        raise ArgumentError(
            "checkpoint= cannot hold a function as rung_weights, which a second fit of the "
            "reference would need: give numbers with betas=, or sample without a checkpoint."
        )
    try:
        CODEC.to_bytes([call, rng])
    except TypeError as error:
        raise ArgumentError(f"This call cannot have a checkpoint=. {error}") from error
    with new_folder(path) as folder:
        yield CheckpointRecorder(folder, call, float(every))


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect after the block; only the main thread gets them."""
    came: list[int] = []
    try:
        with _handling(SIGNALS, came.append):
            yield
    finally:
        for each in dict.fromkeys(came):
            signal.raise_signal(each)


@contextmanager
def ending_by_sigterm(has_checkpoint: bool) -> Iterator[Callable[[], None]]:
    """Let SIGTERM end a run with a checkpoint as Ctrl-C does, and the process after that.

    Yields
    ------
    callable
        Ends the process at once if SIGTERM has come.

    Raises
    ------
    SystemExit
        SIGTERM came. A checkpoint of the chains was written, if they had begun.
    """
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        raise KeyboardInterrupt

    def leave() -> None:
        if came:
            raise SystemExit(128 + signal.SIGTERM)

    try:
        with _handling(SIGNALS[1:] if has_checkpoint else (), stop):
            yield leave
    finally:
        leave()


@contextmanager
def _handling(numbers: Iterable[signal.Signals], handle: Callable[[int], None]) -> Iterator[None]:
    """Handle signals in the block; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda got, _: handle(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None is a handler of another language, which Python cannot put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
