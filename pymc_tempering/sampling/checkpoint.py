"""The checkpoint of a run: what is written when, and how signals wait for it."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from time import perf_counter
from types import FrameType
from typing import Any

from pymc_tempering.exceptions import ArgumentError, TemperingWarning
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.sampling.bit_versions import versions
from pymc_tempering.sampling.call import Call, kernels_in_words, step_method_in
from pymc_tempering.sampling.chain_values import stored_chains, stored_rows, written_so_far
from pymc_tempering.sampling.plan_values import call_codec, lasting, plan_codec, seal_of
from pymc_tempering.sampling.recorder import NoRecorder, Recorder, Standing
from pymc_tempering.sampling.reference_draws import Beside
from pymc_tempering.sampling.setup import Job, Options
from pymc_tempering.storage.checkpoint_folder import CheckpointFolder, Head, new_folder
from pymc_tempering.storage.parts import Part

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(eq=False)
class CheckpointRecorder:
    """Writes where a run stands into the folder of a checkpoint.

    What never changes is written once; rows that chains have written, when they are new; where the
    chains stand, each time. What cannot be written is said, and tried again when it is due.

    Attributes
    ----------
    folder : CheckpointFolder
    call : Call
    every : float
        Seconds between checkpoints.
    head : Head
        The last that was written.
    plan, beside, runs : object
        Those that the parts "plan", "beside" and "rows" of it are of.
    written : list
        How many rows of each chain they have.
    """

    folder: CheckpointFolder
    call: Call
    every: float
    head: Head = field(default_factory=lambda: Head(0, {}))
    plan: Any = None
    beside: Any = None
    runs: Any = None
    written: list[list[int]] = field(default_factory=list)
    last: float = field(default_factory=perf_counter)
    failed: bool = False

    def due(self) -> bool:
        """Whether the time is over."""
        return perf_counter() - self.last >= self.every

    def save(self, job: Job, standing: Standing) -> None:
        """Write where the run stands; Ctrl-C and SIGTERM wait until it is written.

        Warns
        -----
        TemperingWarning
            The disk does not take it. The last checkpoint stands, and the run goes on.
        """
        with signals_wait():
            try:
                self._save(job, standing)
                self.failed = False
            except OSError as error:
                if not self.failed:
                    warnings.warn(
                        f"The checkpoint in {self.folder.root} could not be written "
                        f"({error.strerror or error}). The run goes on, and the last checkpoint "
                        "that was written stands: make room on the disk.",
                        TemperingWarning,
                        stacklevel=2,
                    )
                self.failed = True
                self.folder.tidy()
            self.last = perf_counter()

    def _save(self, job: Job, standing: Standing) -> None:
        parts, add = dict(self.head.parts), self.folder.add
        if "call" not in parts:
            parts["call"] = [add("call", *self._about(job))]
        if self.plan is not standing.chosen:
            parts["plan"] = [add("plan", *_plan_of(job, standing))]
        if self.beside is not standing.beside:
            parts["beside"] = [add("beside", *_beside_of(standing.beside))]
        fresh = self.runs is not standing.runs
        since = [[0, 0, 0] for _ in standing.runs] if fresh else self.written
        now = written_so_far(standing.runs)
        rows: list[Part] = [] if fresh else parts["rows"]
        if fresh or now != since:
            rows = [*rows, add("rows", *stored_rows(standing.runs, since))]
        parts["rows"], parts["state"] = rows, [add("state", *_state_of(job, standing))]
        head = Head(self.head.number + 1, parts)
        self.folder.commit(head)
        self.head, self.plan, self.runs = head, standing.chosen, standing.runs
        self.beside, self.written = standing.beside, now

    def _about(self, job: Job) -> tuple[Any, dict[str, Any]]:
        """Return what is checked before anything else is read."""
        about = {
            "versions": versions(),
            "call": self.call,
            "every": self.every,
            "kernels": kernels_in_words(job.kernel),
            "seal": seal_of(job.prior),
        }
        return call_codec().to_plain(about)


def _plan_of(job: Job, standing: Standing) -> tuple[Any, dict[str, Any]]:
    stored = {
        "prior_constant": job.prior.prior_constant,
        "chosen": lasting(standing.chosen),
    }
    return plan_codec(job.prior, job.kernel).to_plain(stored)


def _beside_of(beside: Beside) -> tuple[Any, dict[str, Any]]:
    """Take reference draws without their plan, which is that of the run."""
    inside = {f.name: getattr(beside, f.name) for f in fields(beside) if f.name != "plan"}
    return call_codec().to_plain(inside)


def _state_of(job: Job, standing: Standing) -> tuple[Any, dict[str, Any]]:
    chains, arrays = stored_chains(standing.runs)
    state = {
        "rng": job.rng,
        "total": standing.total,
        "rounds": standing.rounds,
        "fits_left": standing.fits_left,
        "repeats_left": standing.repeats_left,
        "seconds": perf_counter() - job.deadline.began,
        "seconds_left": job.deadline.left,
    }
    plain, _ = call_codec().to_plain(state)
    return {"state": plain, "chains": chains}, arrays


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
        yield NoRecorder()
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
        call_codec().to_plain([call, rng])
    except TypeError as error:
        raise ArgumentError(f"This call cannot have a checkpoint=. {error}") from error
    with new_folder(path) as folder:
        yield CheckpointRecorder(folder, call, float(every))


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM take effect after the block; only the main thread gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, remember) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None is a handler of another language, which Python cannot put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
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
    in_main = threading.current_thread() is threading.main_thread()
    if not (has_checkpoint and in_main):
        yield lambda: None
        return
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    def leave() -> None:
        if came:
            raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield leave
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        leave()


def storable(job: Job) -> bool:
    """Whether the chains of a run can be stored at all."""
    try:
        call_codec().to_plain(job.rng)
    except TypeError:
        return False
    return not any(kernel.keeps_state for kernel in job.kernel.kernels)
