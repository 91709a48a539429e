"""`extend`: more draws of the chains of a run, from its DataTree alone."""

import os
import warnings
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.core.deadline import deadline_in, tell_cuts
from pymc_tempering.core.installed import own_version
from pymc_tempering.exceptions import (
    CheckpointError,
    NotTemperedError,
    TemperingWarning,
    TimeLimitError,
)
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.restart.join_draws import join_draws
from pymc_tempering.restart.same_model import check_identity, compile_again, with_checked_density
from pymc_tempering.sampling.call import Call
from pymc_tempering.sampling.chain_progress import watch_of
from pymc_tempering.sampling.chain_values import add_rows, at_the_start, restored_chains
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.closing import close
from pymc_tempering.sampling.goal import Goal, Outcome
from pymc_tempering.sampling.output import build_datatree
from pymc_tempering.sampling.plan_group import PLAN_GROUP, read_plan_group, with_plan
from pymc_tempering.sampling.plan_values import call_codec, plan_codec
from pymc_tempering.sampling.round_results import cut_of, drawn_in_all, draws_of, pace_of
from pymc_tempering.sampling.rounds import run_to
from pymc_tempering.sampling.setup import Job


def extend(
    idata: xr.DataTree,
    *,
    draws: int,
    model: pm.Model | CompiledModel | None = None,
    kernel: KernelChoice = None,
    cores: int | None = None,
    max_time: float | None = None,
    progressbar: bool | str = True,
    progressbar_theme: Any = None,
    quiet: bool = False,
) -> xr.DataTree:
    """Add draws to a run of :func:`sample`, without a warm-up.

    The chains go on where they stopped, with the frozen plan that they ran with, so that the new
    draws follow the old ones as they would have in a longer run: from a run of 500 draws and 500
    more come the very draws of a run of 1,000, as long as nothing else was different. All that is
    needed is in the DataTree (group `tempering_plan`), also after `to_netcdf` and `to_zarr`. The
    search for unknown modes is not made again, no reference draws are added to those that there
    are, and no target is asked for.

    Parameters
    ----------
    idata : DataTree
        A run; it is not changed. Extending it twice gives the same draws twice; extend the result
        to go further.
    draws : int
        Draws that each chain adds.
    model : pymc.Model or CompiledModel, optional
        The model of the run, with its data; by default that on the context stack.
    kernel : str, Kernel or dict, optional
        As in the run, where that had a kernel of your own; such code is not stored.
    cores : int, optional
        Threads; by default as many as there are chains and cores.
    max_time : float, optional
        Seconds, compiling apart, after which the chains stop; that of the run does not count.
    progressbar : bool or str, default True
        As in `pm.sample`.
    progressbar_theme : rich.theme.Theme, optional
    quiet : bool, default False
        Neither progress nor messages; warnings are given all the same.

    Returns
    -------
    xarray.DataTree
        All draws, old and new.

    Raises
    ------
    NotTemperedError
        The DataTree has no frozen plan, or not all draws of its chains.
    CheckpointError
        It is of another model, other data, other kernels or another version.
    TimeLimitError
        `max_time` was over before the first new draw.

    Warns
    -----
    TemperingWarning
        Ctrl-C or `max_time` cut it short; groups were left out that are of the old draws alone; or
        the verdict on all draws is not "ok".

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    >>> idata = pmt.sample(500, model=model, random_seed=1, quiet=True)
    >>> idata = pmt.extend(idata, draws=300, model=model, quiet=True)
    >>> idata.posterior["mu"].shape
    (4, 800)
    """
    check_whole(1, draws=draws, cores=cores)
    limit = Goal(max_time=max_time)
    words, arrays = _stored(idata)
    show = bool(progressbar) and not quiet
    model = find_model(model)
    call, seal = _of_call(words, arrays)
    check_identity(model, seal["identity"])
    with compiling_status(show) as report:
        job = compile_again(
            model, call, kernel, words["kernels"], report, rng=np.random.default_rng(0),
            cores=min(call.chains, cores or os.cpu_count() or 1),
        )  # fmt: skip
    job, chosen, runs = _chains(idata, words, arrays, job, seal, draws)
    job = replace(job, deadline=deadline_in(max_time))
    watch, ahead = watch_of(show and progressbar, progressbar_theme), drawn_in_all(runs)
    interrupted = run_to(job, draws, chosen, runs, watch)
    seconds = {"run": perf_counter() - job.deadline.began}
    pace = pace_of(seconds["run"], runs, ahead)
    cut = cut_of(job.deadline, limit, draws, draws_of(runs), pace)
    outcome = Outcome(chosen, runs, (), interrupted, cut=None if interrupted else cut)
    _tell(outcome, draws)
    new = build_datatree(
        outcome, tune=0, seconds=seconds, var_names=call.var_names,
        discard_tuned_samples=True, idata_kwargs=call.idata_kwargs,
    )  # fmt: skip
    before = words["draws"]
    with_plan(new, replace(call, tune=0), job, outcome, before=before)
    whole = join_draws(idata, new)
    close(
        whole, model, {"run": whole["tempering"].attrs["sampling_seconds"]}, quiet=quiet,
        convergence_checks=call.convergence_checks,
    )  # fmt: skip
    return whole


def _stored(idata: xr.DataTree) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the group of the plan, and check that the draws are those before it."""
    if not isinstance(idata, xr.DataTree):
        raise NotTemperedError(
            f"extend takes the DataTree of a run, not {type(idata).__name__}: pass what "
            "pymc_tempering.sample returned."
        )
    if PLAN_GROUP not in idata.children or "posterior" not in idata.children:
        raise NotTemperedError(
            f"This DataTree has no group {PLAN_GROUP!r} with the frozen plan of a run: extend "
            "takes what pymc_tempering.sample returned. Runs of pm.sample, and of step methods as "
            "kernels, have none: sample anew."
        )
    words, arrays = read_plan_group(idata)
    version = words["versions"]["pymc_tempering"]
    if version != own_version():
        raise CheckpointError(
            f"The run is of pymc_tempering {version}, and this is {own_version()}, where a plan "
            "may mean something else: extend it with that version."
        )
    sizes = idata["posterior"].sizes
    n_chains = len(words["chains"])
    if (sizes["chain"], sizes["draw"]) != (n_chains, words["draws"]):
        raise NotTemperedError(
            f"This DataTree has {sizes['chain']} chains of {sizes['draw']} draws, and its plan is "
            f"that of {n_chains} chains after {words['draws']}: pass the DataTree as the "
            "sampler returned it, without a selection."
        )
    return words, arrays


def _of_call(words: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[Call, dict[str, Any]]:
    """Return what the run was asked for, and what the model is checked against."""
    inside, codec = words["run"]["dict"], call_codec()
    call: Call = codec.from_plain(inside["call"], arrays)
    seal: dict[str, Any] = codec.from_plain(inside["seal"], arrays)
    return call, seal


def _chains(
    idata: xr.DataTree,
    words: dict[str, Any],
    arrays: dict[str, np.ndarray],
    job: Job,
    seal: dict[str, Any],
    draws: int,
) -> tuple[Job, ChosenPlan, list[ChainRun]]:
    """Put the chains where they stopped, with records that begin after the last draw."""
    constant = call_codec().from_plain(words["run"]["dict"]["prior_constant"], {})
    job = with_checked_density(job, seal, constant)
    stored = plan_codec(job.prior, job.kernel).from_plain(words["run"], arrays)
    chosen: ChosenPlan = stored["chosen"]
    standing = _under("chain.", arrays)
    standing.setdefault("references", np.empty((0, job.prior.path.dim)))
    keep_trace = "tempering_trace" in idata.children
    runs = restored_chains(chosen.plan, words["chains"], standing, keep_trace)
    ahead = words["ahead"]["draws"]
    at_the_start(runs, ahead)
    add_rows(runs, max(draws, *ahead), [(words["ahead"], _under("ahead.", arrays))])
    for run in runs:
        if not (keep_trace and "tempering_states" in idata.children):
            run.hot = None
        elif run.hot is not None:
            run.hot.n_seen = 0  # places in the trace of the new draws
    return job, chosen, runs


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n.removeprefix(prefix): values for n, values in arrays.items() if n.startswith(prefix)}


def _tell(outcome: Outcome, draws: int) -> None:
    """Warn of chains that got stuck, of Ctrl-C, and of a limit.

    Raises
    ------
    KeyboardInterrupt, TimeLimitError
        It came before the first new draw.
    """
    runs, cut = outcome.runs, outcome.cut
    for message in {fault for run in runs for fault in run.faults}:
        warnings.warn(message, TemperingWarning, stacklevel=3)
    none = max(run.state.n_draws for run in runs) == 0
    if cut is not None and none:
        raise TimeLimitError("max_time was over before the first new draw: give it more.")
    if cut is not None:
        warnings.warn(tell_cuts([cut]), TemperingWarning, stacklevel=3)
    if not outcome.interrupted:
        return
    if none:
        raise KeyboardInterrupt("Interrupted before the first new draw.")
    least = min(run.state.n_draws for run in runs)
    warnings.warn(
        f"Interrupted: the chains had added at least {least} of {draws} draws; estimates use "
        "these and the old ones.",
        TemperingWarning,
        stacklevel=3,
    )
