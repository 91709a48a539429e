"""`resume`: go on with a run from its checkpoint, to the very draws that it would have had."""

import logging
import os
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import pymc as pm
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.pieces import written_by
from pymc_tempering.chain.sent_model import crew_of
from pymc_tempering.core.deadline import laps
from pymc_tempering.exceptions import warn_user
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.restart.reopen import read_about, reopen
from pymc_tempering.sampling.chain_progress import watch_of
from pymc_tempering.sampling.checkpoint import CheckpointRecorder, ending_by_sigterm, read_standing
from pymc_tempering.sampling.finish import finish_call
from pymc_tempering.sampling.kept import PACKAGES
from pymc_tempering.sampling.recorded import draws_of
from pymc_tempering.sampling.rounds import run_rounds
from pymc_tempering.storage.checkpoint_folder import known_folder

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
    time that was left. The checkpoint goes on, too. Resuming a finished run returns its result.

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
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run")
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
        head, parts, fault = folder.newest()
        about = read_about(parts["about"][-1], PACKAGES)
        call = about["call"]
        if fault:
            warn_user(
                f"{fault} The run goes on from the checkpoint before it, and ends with the same "
                "draws."
            )
        threads = min(call.chains, cores or os.cpu_count() or 1)
        job, chosen = reopen(about, parts["plan"][-1], model, kernel, cores=threads, show=show)
        seconds = {"compiling": lap()}
        at, rng, deadline = read_standing(folder, chosen, parts)
        every, written = checkpoint_every or about["every"], [*map(written_by, at.runs)]
        recorder = CheckpointRecorder(folder, call, every, head, at, written)
        tell = (lambda line: None) if quiet else logger.info
        tell(f"Going on at {draws_of(at.runs)} draws a chain")
        crew = crew_of(executor, job.prior, job.kernel)
        job = replace(job, crew=crew, rng=rng, deadline=deadline, report=tell)
        watch = watch_of(show and progressbar, progressbar_theme)
        outcome = run_rounds(job, call, chosen, watch, recorder, at)
        seconds |= outcome.chosen.seconds | {"run": lap()}
        return finish_call(call, job, outcome, seconds, quiet=quiet)
