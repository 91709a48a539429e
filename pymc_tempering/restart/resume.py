"""`resume`: go on with a run from its checkpoint, to the very draws that it would have had."""

import logging
import os
import warnings
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.sent_model import crew_of
from pymc_tempering.core.deadline import Deadline, laps
from pymc_tempering.exceptions import CheckpointError, TemperingWarning
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.restart.same_model import check_identity, compile_again, with_checked_density
from pymc_tempering.sampling.bit_versions import check_versions
from pymc_tempering.sampling.call import Call
from pymc_tempering.sampling.chain_progress import watch_of
from pymc_tempering.sampling.chain_values import add_rows, restored_chains, written_so_far
from pymc_tempering.sampling.checkpoint import CheckpointRecorder, ending_by_sigterm
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.finish import finish_call
from pymc_tempering.sampling.plan_values import call_codec, plan_codec
from pymc_tempering.sampling.recorder import Standing
from pymc_tempering.sampling.reference_draws import Beside
from pymc_tempering.sampling.rounds import run_rounds
from pymc_tempering.sampling.setup import Job
from pymc_tempering.storage.checkpoint_folder import CheckpointFolder, Head, known_folder

logger = logging.getLogger("pymc.tempering")  # shares PyMC's handler and level


def resume(
    path: str | os.PathLike[str],
    *,
    model: pm.Model | CompiledModel | None = None,
    kernel: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    progressbar: bool | str = True,
    progressbar_theme: Any = None,
    quiet: bool = False,
    checkpoint_every: float | None = None,
) -> xr.DataTree:
    """Go on with a run of :func:`sample` from its checkpoint, whatever has ended it.

    The result has the very draws of a run that nothing had ended, on machines of one kind and with
    the same versions. Only what the clock decided stays as it was: a run with `max_time` gets the
    time that was left. The checkpoint goes on, too. That of a run which had ended gives its result
    again.

    Parameters
    ----------
    path : path
        The `checkpoint` of the run.
    model : pymc.Model or CompiledModel, optional
        The model of the run, with its data; by default that on the context stack.
    kernel : str, Kernel or dict, optional
        As in the run, where that had a kernel of your own; such code is not stored.
    cores : int, optional
        Threads; by default as many as there are chains and cores. They change no draw.
    executor : concurrent.futures.Executor, optional
        Who runs the chains in place of threads, as in :func:`sample`, whatever the run had. It
        changes no draw, either.
    progressbar : bool or str, default True
        As in `pm.sample`.
    progressbar_theme : rich.theme.Theme, optional
    quiet : bool, default False
        Neither progress nor messages; warnings are given all the same.
    checkpoint_every : float, optional
        Seconds between checkpoints; by default as in the run.

    Returns
    -------
    xarray.DataTree
        As that of :func:`sample`.

    Raises
    ------
    ArgumentError, WorkerError
        The executor is none, or cannot do the work.
    CheckpointError
        Nothing was stored; the files are damaged; they are of another model, other data, other
        kernels or other versions; or another process writes to them.

    Warns
    -----
    TemperingWarning
        The newest checkpoint was damaged, and the run goes on from the one before. And as
        :func:`sample`.

    Examples
    --------
    >>> import pathlib, tempfile, pymc as pm, pymc_tempering as pmt
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.zarr")
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    >>> idata = pmt.sample(500, model=model, random_seed=1, checkpoint=path, quiet=True)
    >>> again = pmt.resume(path, model=model, quiet=True)  # here the run was over
    >>> bool((again.posterior["mu"] == idata.posterior["mu"]).all())
    True
    """
    check_whole(1, cores=cores)
    check_executor(executor)
    if checkpoint_every is not None and not checkpoint_every > 0:
        raise ValueError(f"checkpoint_every must be positive, not {checkpoint_every!r}.")
    show, lap = bool(progressbar) and not quiet, laps()
    with ending_by_sigterm(True), known_folder(path) as folder:
        found = _read(folder)
        model = find_model(model)
        check_identity(model, found.about["seal"]["identity"])
        call = found.call
        threads = min(call.chains, cores or os.cpu_count() or 1)
        with compiling_status(show) as report:
            job = compile_again(
                model, call, kernel, found.about["kernels"], report,
                rng=np.random.default_rng(0), cores=threads,
            )  # fmt: skip
        seconds = {"compiling": lap()}
        job = replace(job, crew=crew_of(executor, job.prior, job.kernel))
        job, standing = _stand(folder, found, job)
        recorder = CheckpointRecorder(
            folder, call, checkpoint_every or found.about["every"], found.head, standing.chosen,
            standing.beside, standing.runs, written_so_far(standing.runs),
        )  # fmt: skip
        tell = (lambda line: None) if quiet else logger.info
        tell(f"Going on at {min(run.state.n_draws for run in standing.runs)} draws a chain")
        outcome = run_rounds(
            replace(job, report=tell), standing.chosen, call.goal, draws=call.n_draws,
            chains=call.chains, keep_trace=call.keep is not None,
            keep_hot=call.keep == "states", tune=call.tune, recorder=recorder,
            reference_draws=call.reference_draws,
            watch=watch_of(show and progressbar, progressbar_theme), standing=standing,
        )  # fmt: skip
        seconds |= outcome.chosen.seconds | {"run": lap()}
        return finish_call(call, job, outcome, seconds, quiet=quiet)


@dataclass(frozen=True)
class _Found:
    """A head whose parts are whole, and what is known without the model."""

    head: Head
    about: dict[str, Any]

    @property
    def call(self) -> Call:
        """What the run was asked for."""
        call: Call = self.about["call"]
        return call


def _read(folder: CheckpointFolder) -> _Found:
    """Read what a checkpoint is of, and warn where the newest one was damaged."""
    head, fault = folder.newest()
    plain, arrays = folder.read(head.parts["call"][-1])
    # Of another version even the classes may be others.
    check_versions(plain["dict"]["versions"]["dict"])
    if fault:
        warnings.warn(
            f"{fault} The run goes on from the checkpoint before it, and ends with the same draws.",
            TemperingWarning,
            stacklevel=4,
        )
    return _Found(head, call_codec().from_plain(plain, arrays))


def _stand(folder: CheckpointFolder, found: _Found, job: Job) -> tuple[Job, Standing]:
    """Put job and chains where the checkpoint has them."""
    parts, call = found.head.parts, found.call
    plain, arrays = folder.read(parts["plan"][-1])
    codec = call_codec()
    constant = codec.from_plain(plain["dict"]["prior_constant"], {})
    job = with_checked_density(job, found.about["seal"], constant)
    stored = plan_codec(job.prior, job.kernel).from_plain(plain, arrays)
    chosen: ChosenPlan = stored["chosen"]
    plain, arrays = folder.read(parts["state"][-1])
    state = codec.from_plain(plain["state"], {})
    runs = restored_chains(chosen.plan, plain["chains"], arrays, call.keep is not None)
    try:
        add_rows(runs, state["total"], [folder.read(part) for part in parts["rows"]])
    except ValueError as error:
        raise CheckpointError(
            f"The checkpoint in {folder.root} contradicts itself: {error}"
        ) from error
    now = perf_counter()
    deadline = Deadline(now - state["seconds"], now + state["seconds_left"])
    beside = Beside(chosen.plan, **codec.from_plain(*folder.read(parts["beside"][-1])))
    standing = Standing(
        chosen,
        runs,
        beside,
        state["total"],
        state["rounds"],
        state["fits_left"],
        state["repeats_left"],
    )
    return replace(job, rng=state["rng"], deadline=deadline), standing
