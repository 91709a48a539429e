"""Going on with runs: from a checkpoint after the process has died, or from a DataTree alone."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import asdict, replace
from functools import partial
from math import nan
from time import perf_counter
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import called_as, check_whole
from pymc_tempering.chain.chains import extend_runs
from pymc_tempering.chain.pieces import crew_of, written_by
from pymc_tempering.core.deadline import deadline_in
from pymc_tempering.core.installed import OWN, versions_of
from pymc_tempering.evidence.datatree import BRIDGE, FINDINGS, bridge_attributes, findings_of
from pymc_tempering.exceptions import CheckpointError, NotTemperedError, warn_user
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.fields.whiten import sampled_model
from pymc_tempering.kernels.assign import KernelChoice, compile_with_kernels
from pymc_tempering.model.bambi import noted
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.identity import differences, identity_of
from pymc_tempering.model.origin import set_ends, whole_model
from pymc_tempering.model.terms import find_terms
from pymc_tempering.model.unconstrain import unconstrained_draws
from pymc_tempering.sampling.bridged import bridged
from pymc_tempering.sampling.call import Goal, Job, Tally, choice_of, kernels_in_words, silence
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.finish import build_datatree, close, finish_call, padded, warn_of_run
from pymc_tempering.sampling.kept import (
    CODEC,
    PACKAGES,
    PLAN_GROUP,
    CheckpointRecorder,
    ending_by_sigterm,
    read_chains,
    read_plan,
    read_standing,
    with_plan,
)
from pymc_tempering.sampling.precompile import compile_loops
from pymc_tempering.sampling.progress import ChainProgress, check_progressbar
from pymc_tempering.sampling.recorded import drawn_in_all, draws_of, pace_of
from pymc_tempering.sampling.rounds import Outcome, Recorder, cut_of, run_rounds, run_to
from pymc_tempering.storage.checkpoint_folder import known_folder
from pymc_tempering.storage.plain_values import unpack

NEAR = 1e-6
"""Relative difference of densities above which the model is another one. Less comes from another
machine or library."""


def read_about(part: bytes, packages: Iterable[str]) -> dict[str, Any]:
    """Read what a run is known by, if these packages have the versions of the run.

    Raises
    ------
    CheckpointError
        Some differ; the message has both.
    """
    plain, _ = unpack(part)  # of another version even the classes may be others
    check_versions(plain["dict"]["versions"]["dict"], packages)
    return CODEC.from_bytes(part)


def check_versions(stored: dict[str, str], packages: Iterable[str]) -> None:
    """Compare stored versions with those here.

    Raises
    ------
    CheckpointError
    """
    now = versions_of(packages)
    other = [
        f"{name} {stored.get(name)} (here {version})"
        for name, version in now.items()
        if stored.get(name) != version
    ]
    if other:
        raise CheckpointError(
            f"The run was begun with {', '.join(other)}, and another version may give other "
            "draws: go on with it where these versions are installed."
        )


def reopen(
    about: dict[str, Any],
    plan: bytes,
    model: ModelLike | None,
    kernel: KernelChoice,
    *,
    cores: int | None,
    report: Callable[[object], None],
) -> tuple[Job, ChosenPlan]:
    """Compile the model of a run, and read its plan.

    Parameters
    ----------
    about : dict
        See `read_about`.
    plan : bytes
    model : pymc.Model or CompiledModel, optional
    kernel : str, Kernel or dict, optional
        Where the run had one of the user's own.
    cores : int, optional
        Threads; by default as many as there are chains and cores.
    report : callable
        Called with a line of progress.

    Raises
    ------
    CheckpointError
        Model, data or kernels are not those of the run; the message names what differs.

    Warns
    -----
    TemperingWarning
        Densities differ from those of the run by rounding.
    """
    model, call = find_model(model), about["call"]
    found = differences(about["seal"]["identity"], identity_of(model))
    if found:  # before anything is compiled
        raise CheckpointError(
            f"The model here is not the one of the run: {found}. Pass the model and the data that "
            "the run was begun with."
        )
    choice = choice_of(call.kernel, kernel)
    set_ends(model, about["ends"])
    model = sampled_model(model, choice, call.tempered, call.options.reference, report)
    terms = find_terms(model, call.tempered)
    prior, compound = compile_with_kernels(model, choice, call.target_accept, report, terms=terms)
    here, words = kernels_in_words(compound), about["kernels"]
    if here != words:
        raise CheckpointError(
            f"The run has the kernels {'; '.join(words)}, and here they are "
            f"{'; '.join(here)}: pass kernel= as at first."
        )
    report("Compiling the loops")
    compile_loops(prior.path, compound, call.options)
    prior = replace(prior, prior_constant=about["prior_constant"])
    threads = min(call.chains, cores or os.cpu_count() or 1)
    job = Job(prior, compound, call.options, np.random.default_rng(0), threads, report)
    _check_density(job, about["seal"])
    return job, read_plan(job, plan)


def _check_density(job: Job, seal: dict[str, Any]) -> None:
    """Compare the compiled density with the stored one at some states."""
    same, stored = True, (seal["probe_x"], seal["probe_density"])
    for name, old, new in zip(("prior draws", "density"), stored, job.probed, strict=True):
        if not (
            old.shape == new.shape and np.allclose(old, new, rtol=NEAR, atol=NEAR, equal_nan=True)
        ):
            raise CheckpointError(
                f"The model here is not the one of the run: its {name} differ. Pass the model and "
                "the data that the run was begun with."
            )
        same = same and bool(np.array_equal(old, new, equal_nan=True))
    if not same:
        warn_user(
            "Densities differ from those of the run in their last digits: this is another machine, "
            "or another library of linear algebra. The draws are of the same law, and not the very "
            "ones that the run would have made."
        )


def resume(
    path: str | os.PathLike[str],
    *,
    model: ModelLike | None = None,
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
        As in `pm.sample`; where there is no terminal, a line every ten seconds.
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
    check_progressbar(progressbar)
    if checkpoint_every is not None and not checkpoint_every > 0:
        raise ValueError(f"checkpoint_every must be positive, not {checkpoint_every!r}.")
    show, tally = bool(progressbar) and not quiet, Tally()
    with (
        ending_by_sigterm(True),
        known_folder(path) as folder,
        compiling_status(show, progressbar_theme) as report,
    ):
        head, parts, fault = folder.newest()
        about = read_about(parts["about"][-1], PACKAGES)
        call = about["call"]
        if fault:
            warn_user(
                f"{fault} The run goes on from the checkpoint before it, and ends with the same "
                "draws."
            )
        job, chosen = reopen(about, parts["plan"][-1], model, kernel, cores=cores, report=report)
        tally.end("compiling")
        tally = replace(tally, work=Counter(chosen.work), seconds=chosen.seconds | tally.seconds)
        at, rng, deadline = read_standing(chosen, parts)
        every, written = checkpoint_every or about["every"], [*map(written_by, at.runs)]
        recorder = CheckpointRecorder(folder, call, every, head, at, written)
        tell = silence if quiet else report.tell
        tell(f"Going on at {draws_of(at.runs)} draws a chain")
        crew = crew_of(executor, job.prior, job.kernel)
        job = replace(job, crew=crew, rng=rng, deadline=deadline, tell=tell, tally=tally)
        watch = partial(ChainProgress, progressbar=progressbar)
        outcome = run_rounds(job, call, chosen, watch, recorder, at)
        report("Putting the draws together")
        with report.aside():
            return noted(finish_call(call, job, outcome, quiet=quiet), model)


DRAWN = ("posterior", "sample_stats")
"""Groups that have a row for each draw."""

OF_ALL_DRAWS = ("evidence", "cross_check")
"""Groups that say something of all draws, and so nothing of more."""

PADDING = {"log_ratio": np.nan, "keep_probability": np.nan, "rung": -1, "iteration": -1}
"""What stands behind the last row of a chain that is shorter than others."""

OF_TARGET = ("target_ess", "least_ess", "least_ess_of")
"""Attributes that say whether the first draws sufficed."""


@called_as("extend(idata, draws=1000, model=model)")
def extend(
    idata: xr.DataTree,
    *,
    draws: int,
    model: ModelLike | None = None,
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
        As in `pm.sample`; where there is no terminal, a line every ten seconds.
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
    check_progressbar(progressbar)
    limit = Goal(max_time=max_time)
    parts, about = _stored(idata)
    show = bool(progressbar) and not quiet
    call = replace(about["call"], tune=0, discard_tuned_samples=True)
    with compiling_status(show, progressbar_theme) as report:
        job, chosen = reopen(about, parts["plan"], model, kernel, cores=cores, report=report)
        runs, _ = read_chains(chosen.plan, [parts["chains"]])
        extend_runs(runs, max(draws, *(run.state.n_draws for run in runs)))
        for run in runs:
            run.keep_trace = "tempering_trace" in idata.children
            if not (run.keep_trace and "tempering_states" in idata.children):
                run.hot = None
            elif run.hot is not None:
                run.hot.n_seen = 0  # places in the trace of the new draws
        job = replace(job, deadline=deadline_in(max_time))
        ahead = drawn_in_all(runs)
        outcome = Outcome(chosen, runs, total=draws)
        watch = partial(ChainProgress, progressbar=progressbar)
        outcome = replace(outcome, interrupted=run_to(job, outcome, watch, Recorder()))
        seconds = {"run": perf_counter() - job.deadline.began}
        pace = pace_of(seconds["run"], runs, ahead)
        cut = cut_of(job.deadline, limit, draws, draws_of(runs), pace)
        cuts = [] if outcome.interrupted or cut is None else [cut]
        warn_of_run(outcome, cuts, draws, max_time=max_time, new="new ")
        new = build_datatree(call, outcome, seconds)
        with_plan(new, call, job, outcome, before=about["draws"])
        whole = join_draws(idata, new)
        path = chosen.plan.reference.path
        drawn = {rv.name for rv in path.model.free_RVs}
        if BRIDGE[0] in whole["tempering"].attrs and drawn <= set(whole["posterior"].data_vars):
            states = unconstrained_draws(whole, path.model, path.layout)
            n_steps = int(whole["sample_stats"]["n_steps"].sum())
            found = bridged(chosen.plan.reference, states, job.cores, n_steps) or (nan, nan)
            whole["tempering"].attrs |= bridge_attributes(*found, states.shape[0] * states.shape[1])
        seconds = {"run": whole["tempering"].attrs["sampling_seconds"]}
        with report.aside():
            close(
                whole, whole_model(job.prior.path.model), seconds, quiet=quiet,
                convergence_checks=call.convergence_checks,
            )  # fmt: skip
        return noted(whole, model)


def _stored(idata: xr.DataTree) -> tuple[dict[str, bytes], dict[str, Any]]:
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
    stored = idata[PLAN_GROUP].to_dataset().data_vars
    parts = {str(name): array.values.astype(np.uint8).tobytes() for name, array in stored.items()}
    about = read_about(parts["about"], [OWN])
    sizes, n_chains = idata["posterior"].sizes, about["n_chains"]
    if (sizes["chain"], sizes["draw"]) != (n_chains, about["draws"]):
        raise NotTemperedError(
            f"This DataTree has {sizes['chain']} chains of {sizes['draw']} draws, and its plan is "
            f"that of {n_chains} chains after {about['draws']}: pass the DataTree as the "
            "sampler returned it, without a selection."
        )
    return parts, about


def join_draws(old: xr.DataTree, new: xr.DataTree) -> xr.DataTree:
    """Put new draws behind the old ones; both trees stay as they are.

    Parameters
    ----------
    old : DataTree
        A run.
    new : DataTree
        What its chains, or the first of them, did afterwards, with `tempering_plan`.

    Returns
    -------
    DataTree

    Warns
    -----
    TemperingWarning
        Groups were left out, since they are of the old draws alone.
    """
    # Chains of the new one are counted from 0; after Ctrl-C some may lack.
    kept = new["posterior"].to_dataset()["chain"].values
    names = old["posterior"].to_dataset()["chain"].values[kept]
    result = old.copy()
    for name, group in old.children.items():
        if "chain" in group.dims:
            result[name].dataset = group.to_dataset().isel(chain=kept)
    ours = [name for name in new.children if name in old.children]
    for name in ours:
        if "draw" in new[name].dims:
            after = new[name].to_dataset().assign_coords(chain=names)
            result[name].dataset = _behind(result[name].to_dataset(), after)
    if "tempering_trace" in ours:
        trace = result["tempering_trace"].to_dataset()
        lengths = (trace["rung"].transpose("chain", ...).values >= 0).sum(axis=1)
        result["tempering_trace"] = xr.DataTree(
            _padded(trace, new["tempering_trace"].to_dataset(), "iteration", "rung")
        )
        if "tempering_states" in ours:
            result["tempering_states"] = xr.DataTree(_states(result, new, lengths))
    result["tempering_plan"] = xr.DataTree(new["tempering_plan"].to_dataset())
    result["tempering"].attrs = _history(old, new)
    _drop(
        result,
        (name for name, group in old.children.items() if _is_stale(group, name in ours, name)),
    )
    return result


def _behind(old: xr.Dataset, new: xr.Dataset) -> xr.Dataset:
    """Put draws behind others of the same chains."""
    begin = int(old["draw"].values[-1]) + 1
    new = new.assign_coords(draw=begin + np.arange(new.sizes["draw"]))
    whole = xr.concat(
        [old, new[list(old.data_vars)]], "draw", data_vars="minimal", coords="minimal",
        compat="override", join="override", combine_attrs="override",
    )  # fmt: skip
    if "sampling_time" in old.attrs:
        whole.attrs["sampling_time"] = old.attrs["sampling_time"] + new.attrs["sampling_time"]
    return whole


def _padded(old: xr.Dataset, new: xr.Dataset, dim: str, marker: str) -> xr.Dataset:
    """Put rows of each chain behind its own; `marker` is negative where a chain has no more."""
    tables = [table.transpose("chain", dim, ...) for table in (old, new)]
    used = [table[marker].values >= 0 for table in tables]
    length = int(np.sum([each.sum(axis=1) for each in used], axis=0).max())
    columns = {}
    for name, variable in tables[0].data_vars.items():
        pairs = [(table[name].values, each) for table, each in zip(tables, used, strict=True)]
        rows = [
            np.concatenate([values[chain][each[chain]] for values, each in pairs])
            for chain in range(len(variable))
        ]
        whole = padded(rows, length, PADDING.get(str(name)))
        columns[name] = (variable.dims, whole, variable.attrs)
    coords = {name: c for name, c in tables[0].coords.items() if dim not in c.dims}
    place = {dim: np.arange(length)} if dim in old.coords else {}
    return xr.Dataset(columns, coords | place, attrs=old.attrs)


def _states(result: xr.DataTree, new: xr.DataTree, lengths: np.ndarray) -> xr.Dataset:
    """States of all rungs, with their places in the joined trace, whose old part has `lengths`."""
    after = new["tempering_states"].to_dataset().transpose("chain", "state", ...)
    iteration = after["iteration"].values
    moved = np.where(iteration >= 0, iteration + lengths[:, None], -1)
    after = after.assign(iteration=(("chain", "state"), moved))
    return _padded(result["tempering_states"].to_dataset(), after, "state", "iteration")


def _history(old: xr.DataTree, new: xr.DataTree) -> dict[str, object]:
    """Attributes of `tempering`: the times of both, what was noticed, and where chains went on."""
    attrs = {k: v for k, v in old["tempering"].attrs.items() if k not in OF_TARGET}
    seconds = json.loads(attrs["seconds"])
    seconds["run"] += json.loads(new["tempering"].attrs["seconds"])["run"]
    before = json.loads(attrs.get("extended_after", "[]"))
    noticed = dict.fromkeys([*findings_of(old), *findings_of(new)])
    return attrs | {
        FINDINGS: json.dumps([*map(asdict, noticed)]),
        "seconds": json.dumps(seconds),
        "sampling_seconds": seconds["run"],
        "extended_after": json.dumps([*before, old["posterior"].sizes["draw"]]),
    }


def _is_stale(group: xr.DataTree, is_new: bool, name: str) -> bool:
    """Whether a group is of the old draws alone."""
    by_draw = "draw" in group.dims and not name.startswith("warmup_")
    return (by_draw and not is_new) or name in OF_ALL_DRAWS


def _drop(tree: xr.DataTree, stale: Iterable[str]) -> None:
    names = list(stale)
    for name in names:
        del tree[name]
    if names:
        warn_user(
            f"Left out of the longer run, since they are of its first draws alone: "
            f"{', '.join(names)}. Make them again."
        )
