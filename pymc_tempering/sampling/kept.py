"""What is kept of a run, in one form for checkpoints and DataTrees; and the checkpoint as it goes.

There are three parts, each as bytes. `about` has what the run was asked for, and what its model is
known by; `plan` the frozen plan, with how it came about; `chains` pieces of the chains. A
checkpoint has a further `chains` each time that it is written, a DataTree one. What is written
when, and how signals wait for it, stands here too.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from time import perf_counter
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.chains import ChainRun, ChainState, HotStates, extend_runs
from pymc_tempering.chain.loop import Chain, Record
from pymc_tempering.chain.pieces import Written, joined, piece_since, written_by
from pymc_tempering.chain.plan import Plan, Tuning
from pymc_tempering.core.deadline import Cut, Deadline
from pymc_tempering.core.installed import OWN, versions_of
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.exceptions import ArgumentError, CheckpointError, warn_user
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.compiled import Point
from pymc_tempering.model.identity import identity_of
from pymc_tempering.model.origin import origin_of, whole_model
from pymc_tempering.references.mixture import FullScales, LowRankScales, Mixture
from pymc_tempering.references.prior import Fitted, Prior
from pymc_tempering.references.warp import FunnelWarp
from pymc_tempering.sampling.call import Call, Goal, Job, Options, kernels_in_words, step_method_in
from pymc_tempering.sampling.check_kept import check_pieces, check_plan
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.evaluated import Evaluated
from pymc_tempering.sampling.fit_reference import Passes, ReferenceFit
from pymc_tempering.sampling.looks import Looks
from pymc_tempering.sampling.reference_draws import Beside
from pymc_tempering.sampling.regions import Peak
from pymc_tempering.sampling.rounds import Outcome, Recorder, Round
from pymc_tempering.sampling.search import SearchRound
from pymc_tempering.storage.checkpoint_folder import CheckpointFolder, Head, new_folder
from pymc_tempering.storage.plain_values import Codec, Hook
from pymc_tempering.warmup.annealed_pass import AnnealedPass
from pymc_tempering.warmup.warm_up import Warmup, WarmupRound

PACKAGES = (OWN, "pymc", "pytensor", "numba", "numpy")
"""What computes densities and draws: their versions decide the bits of a run."""

PLAN_GROUP = "tempering_plan"
"""Group of a DataTree with an array of bytes for each part."""

CLASSES = (
    AnnealedPass, Call, Chain, ChainRun, ChainState, ChosenPlan, Cut, Evaluated, Fitted, FullScales,
    FunnelWarp, Goal, HotStates, Ladder, Looks, LowRankScales, Mixture, Options, Passes, Peak, Plan,
    Record, ReferenceFit, Round, SearchRound, Tuning, Warmup, WarmupRound,
)  # fmt: skip
"""What a call, its plan and its chains are made of."""

CODEC = Codec(CLASSES)
"""For what has no compiled code in it."""


def plan_codec(job: Job) -> Codec:
    """How plans are written and read; the compiled code of a job stays where it is."""
    kernel = job.kernel
    again = Hook(
        lambda used: used is not kernel,
        lambda densified: kernel.densified() if densified else kernel,
    )
    return Codec(CLASSES, {Prior: Hook(lambda _: None, lambda _: job.prior), Compound: again})


def chain_codec(plan: Plan) -> Codec:
    """How chains of a plan are written and read; a point gets a packed mixture of its own."""
    return Codec(CLASSES, {
        Point: Hook(
            lambda point: [point.x, point.values, point.grads],
            lambda xvg: Point(xvg[0], xvg[1], xvg[2], plan.reference.mixture.copy()),
        )
    })  # fmt: skip


def about_part(job: Job, call: Call, **more: Any) -> bytes:
    """Write what is checked before anything else is read."""
    xs, densities = job.probed
    identity = identity_of(whole_model(job.prior.path.model))
    origin = origin_of(job.prior.path.model)
    return CODEC.to_bytes({
        "versions": versions_of(PACKAGES),
        "call": call,
        "kernels": kernels_in_words(job.kernel),
        "prior_constant": job.prior.prior_constant,
        "ends": {} if origin is None else origin.ends,
        "seal": {"identity": identity, "probe_x": xs, "probe_density": densities},
        **more,
    })  # fmt: skip


def chains_part(
    plan: Plan, runs: Sequence[ChainRun], since: Sequence[Written], **more: Any
) -> bytes:
    """Write what chains have written since then, where they stand, and their generators."""
    pieces = [piece_since(run, each) for run, each in zip(runs, since, strict=True)]
    return chain_codec(plan).to_bytes({"pieces": pieces, **more})


def read_chains(plan: Plan, parts: Sequence[bytes]) -> tuple[list[ChainRun], dict[str, Any]]:
    """Put chains together; and what the last part has beside them.

    Raises
    ------
    CheckpointError
        The parts contradict themselves or the plan.
    """
    with contradictions_told():
        codec = chain_codec(plan)
        read = [codec.from_bytes(part) for part in parts]
        chains = [*zip(*(each.pop("pieces") for each in read), strict=True)]
        for pieces in chains:
            check_pieces(plan, pieces)
        return [joined(pieces) for pieces in chains], read[-1]


def read_plan(job: Job, part: bytes) -> ChosenPlan:
    """Read a plan.

    Raises
    ------
    CheckpointError
        It contradicts itself, or is not of the kernels of the job.
    """
    with contradictions_told():
        chosen: ChosenPlan = plan_codec(job).from_bytes(part)
        check_plan(chosen, job.kernel, job.prior.path.dim)
        return chosen


@contextmanager
def contradictions_told() -> Iterator[None]:
    """Turn what is wrong with the form of something that is read into a CheckpointError."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"What is stored of the run contradicts itself: {error} It was changed after it was "
            "written: take a copy if you have one; else the run has to be made again."
        ) from error


def lasting(chosen: ChosenPlan) -> ChosenPlan:
    """Plan without what no later step of its run reads."""
    return replace(chosen, fit=chosen.fit and replace(chosen.fit, trial=None))


def slim(chosen: ChosenPlan) -> ChosenPlan:
    """Plan that draws can go on with, and no search: without particles, fits and scouts."""
    plan, warmup, last = chosen.plan, chosen.warmup, chosen.last
    none = np.empty((0, plan.reference.path.dim))

    def without_particles(one: AnnealedPass) -> AnnealedPass:
        return replace(
            one, log_ratio=np.empty((0, 0)), states=none[None], tuning=plan.tuning, other=None
        )

    annealed = without_particles(warmup.annealed)
    passes = chosen.passes and Passes(tuple(map(without_particles, chosen.passes.each)))
    if last is not None:
        last = replace(last, heavy=[])
    return replace(
        chosen, warmup=replace(warmup, annealed=annealed), passes=passes, fit=None, last=last,
        let_go=(),
    )  # fmt: skip


def storable(job: Job) -> bool:
    """Whether the chains of a run can be stored at all."""
    try:
        CODEC.to_bytes(job.rng)
    except TypeError:
        return False
    return not any(kernel.keeps_state for kernel in job.kernel.kernels)


def with_plan(
    idata: xr.DataTree, call: Call, job: Job, outcome: Outcome, *, before: int = 0
) -> None:
    """Add to a DataTree what its chains can go on with.

    Where chains were cut to one length, it has the draws beyond, and where they end.

    Parameters
    ----------
    idata : DataTree
        Of the run; changed in place.
    call : Call
    job : Job
    outcome : Outcome
        With all chains of the run, of which the DataTree may have some.
    before : int, default 0
        Draws of each chain that another DataTree has.
    """
    drawn = idata["posterior"].to_dataset()
    kept = [outcome.runs[int(i)] for i in drawn["chain"].values]
    length = drawn.sizes["draw"] + call.tune
    since = [(length, *written_by(run)[1:]) for run in kept]
    parts = {
        "about": about_part(job, call, n_chains=len(kept), draws=before + drawn.sizes["draw"]),
        "plan": plan_codec(job).to_bytes(slim(outcome.chosen)),
        "chains": chains_part(outcome.chosen.plan, kept, since),
    }
    arrays = {name: np.frombuffer(part, dtype=np.uint8) for name, part in parts.items()}
    idata[PLAN_GROUP] = xr.DataTree(
        xr.Dataset({name: (f"{name}_byte", array) for name, array in arrays.items()})
    )


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
            parts["plan"] = [add("plan", plan_codec(job).to_bytes(lasting(at.chosen)))]
        if old is None or old.beside is not at.beside:
            drawn = {f.name: getattr(at.beside, f.name) for f in fields(at.beside)[1:]}
            parts["beside"] = [add("beside", CODEC.to_bytes(drawn))]  # its plan is that of the run
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
    chosen: ChosenPlan, parts: dict[str, list[bytes]]
) -> tuple[Outcome, Any, Deadline]:
    """Read where a run stood, with the generator of its call and the time that it has left.

    Raises
    ------
    CheckpointError
        The parts contradict themselves.
    """
    runs, last = read_chains(chosen.plan, parts["chains"])
    standing, clock, now = last["standing"], last["clock"], perf_counter()
    with contradictions_told():
        check_whole(max(1, *(run.state.n_draws for run in runs)), total=standing["total"])
        beside = Beside(chosen.plan, **CODEC.from_bytes(parts["beside"][-1]))
    extend_runs(runs, standing["total"])
    deadline = Deadline(now - clock["seconds"], now + clock["seconds_left"])
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
