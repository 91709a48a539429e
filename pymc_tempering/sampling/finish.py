"""The end of a call: warnings, the DataTree that the user gets, and a line that sums it up.

From recorded chains to a DataTree it goes by the same road as `pm.sample`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import nan
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy import nan_to_num
from pymc.backends.base import MultiTrace
from pymc.stats.convergence import SamplerWarning, WarningType, log_warnings, run_convergence_checks

from pymc_tempering.borrowed.private import SlicedTrace, choose_chains, set_report
from pymc_tempering.chain.chains import ChainRun
from pymc_tempering.chain.loop import STEPS
from pymc_tempering.core.deadline import Cut, in_words, tell_cuts
from pymc_tempering.core.installed import OWN, own_version
from pymc_tempering.core.status import logger
from pymc_tempering.evidence.datatree import (
    FINDINGS,
    LOOKS_GROUP,
    POTENTIAL_DATA,
    REFERENCE_GROUP,
    bridge_attributes,
    convert,
)
from pymc_tempering.evidence.diagnostics import Diagnosis, diagnose
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.exceptions import StuckChainError, TimeLimitError, warn_user
from pymc_tempering.model.constrain import compile_constrain
from pymc_tempering.model.identity import potential_data
from pymc_tempering.model.ordered_priors import said_of_orders
from pymc_tempering.model.origin import whole_model
from pymc_tempering.references.as_written import findings_at
from pymc_tempering.sampling.call import PLAN_SHARE, Call, Job
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.kept import storable, with_plan
from pymc_tempering.sampling.recorded import LeastEss, draws_of
from pymc_tempering.sampling.rounds import LAST_SHARE, Outcome, Round
from pymc_tempering.warmup.warm_up import WarmupRound

DRAWN = ("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats")
"""Groups that the sampler fills."""

type Constrain = Callable[[np.ndarray], dict[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class ArrayTrace(SlicedTrace):
    """What `pm.to_inference_data` reads of a chain.

    Attributes
    ----------
    chain : int
    n_draws : int
    values : dict of array, shape (n_draws, ...)
        By variable, as PyMC records them.
    stats : dict of array, shape (n_draws, ...)
        By statistic.
    """

    chain: int
    n_draws: int
    values: dict[str, np.ndarray]
    stats: dict[str, np.ndarray] | None = None

    @property
    def varnames(self) -> list[str]:
        """Names of the variables."""
        return list(self.values)

    @property
    def sampler_vars(self) -> list[dict[str, Any]] | None:
        """Types of the statistics of the one sampler."""
        if self.stats is None:
            return None
        return [{name: column.dtype for name, column in self.stats.items()}]

    def __len__(self) -> int:
        """Return the number of draws."""
        return self.n_draws

    def get_values(self, varname: str, burn: int = 0, thin: int = 1) -> np.ndarray:
        """Values of a variable."""
        return self.values[varname][burn::thin]

    def get_sampler_stats(
        self, stat_name: str, sampler_idx: int | None = None, burn: int = 0, thin: int = 1
    ) -> np.ndarray:
        """Values of a statistic."""
        assert self.stats is not None
        return self.stats[stat_name][burn::thin]

    def point(self, idx: int) -> Mapping[str, np.ndarray]:
        """One draw."""
        return {name: column[idx] for name, column in self.values.items()}

    def part(self, idx: slice) -> "ArrayTrace":
        """Return the draws of a slice."""
        values = {name: column[idx] for name, column in self.values.items()}
        stats = self.stats and {name: column[idx] for name, column in self.stats.items()}
        return ArrayTrace(self.chain, len(range(*idx.indices(len(self)))), values, stats)


def build_datatree(call: Call, outcome: Outcome, seconds: dict[str, float]) -> xr.DataTree:
    """Put the draws and statistics of all chains into the groups of `pm.sample`, and our own.

    Chains of unequal length (after an interrupt) are cut to the length that keeps most draws,
    as PyMC does. The sampling time is that of all stages, `seconds`, but compiling.
    """
    chosen, runs, discard = outcome.chosen, outcome.runs, call.discard_tuned_samples
    plan, warmup = chosen.plan, chosen.warmup
    path = plan.reference.path
    constrain = compile_constrain(path.model, path.layout, call.var_names)
    traces = _traces(outcome, constrain)
    long_enough, length = choose_chains(traces, call.tune if discard else 0)
    trace = MultiTrace(long_enough)[:length]
    n_tune = min(call.tune, len(trace))
    if discard:
        trace = trace[n_tune:]
    took = sum(seconds.values()) - seconds.get("compiling", 0.0)
    set_report(trace, tune=n_tune, draws=max(0, length - n_tune), seconds=took)
    options = {"save_warmup": not discard, **call.idata_kwargs}
    idata = convert(pm.to_inference_data(trace, model=whole_model(path.model), **options))
    idata["tempering"].dataset = idata["tempering"].to_dataset().assign(_history(outcome))
    idata["tempering"].attrs = {
        "reference": plan.reference.name,
        "kernel": plan.kernel.name,
        "ladder_move": plan.ladder_move,
        "weight_adaptation": call.options.weight_adaptation,
        "warmup_converged": int(warmup.converged),
        "annealing_log_z": float(warmup.annealed.log_z[-1]),
        "annealing_seconds": warmup.seconds_annealing,
        "warmup_seconds": sum(r.seconds for r in warmup.rounds),
        "sampling_seconds": seconds["run"],
        "seconds": json.dumps(seconds),
        "fits": chosen.fits,
        "passes": 0 if chosen.passes is None else len(chosen.passes.each),
        "evaluations": json.dumps(outcome.work),
        "interrupted": int(outcome.interrupted),
        FINDINGS: _findings(chosen, runs),
    }
    if held := potential_data(whole_model(path.model)):
        idata["tempering"].attrs[POTENTIAL_DATA] = json.dumps(held)
    posterior = idata["posterior"].to_dataset() if "posterior" in idata.children else None
    if outcome.least is not None:
        least = outcome.least
        idata["tempering"].attrs |= {
            "target_ess": least.target, "least_ess": least.ess, "least_ess_of": least.name,
        }  # fmt: skip
    if outcome.bridge is not None:
        idata["tempering"].attrs |= bridge_attributes(
            *outcome.bridge, len(trace) * len(long_enough)
        )
    if chosen.last is not None:
        idata["tempering_check"] = xr.DataTree(_looks(chosen))
    if chosen.last is not None and posterior is not None:
        looks = chosen.last.looks
        ends = _as_in_posterior(constrain(looks.ends.xs), posterior, {"look": looks.n})
        idata[LOOKS_GROUP] = xr.DataTree(ends)
    if outcome.reference.size:
        idata[REFERENCE_GROUP] = xr.DataTree(_reference_draws(outcome))
    kept = [run for run, trace in zip(runs, traces, strict=True) if trace in long_enough]
    if any(run.trace for run in kept):
        idata["tempering_trace"] = xr.DataTree(_flat_trace(kept, n_tune if discard else 0))
    if any(run.hot for run in kept) and posterior is not None:
        states = _hot_states(kept, constrain, posterior, n_tune if discard else 0)
        idata["tempering_states"] = xr.DataTree(states)
    _sign(idata)
    return idata


def _findings(chosen: ChosenPlan, runs: Sequence[ChainRun]) -> str:
    """Write what is noticed of a plan, and of its model at the draws of a run, as JSON."""
    xs = np.concatenate([run.record.x[: run.state.n_draws] for run in runs])
    found = (*chosen.findings, *findings_at(chosen.plan.reference.path, xs))
    return json.dumps([*map(asdict, found)])


def _sign(idata: xr.DataTree) -> None:
    """Name this package, and not PyMC, as what drew the draws."""
    release = own_version()
    for name in DRAWN:
        if name in idata.children:
            idata[name].attrs |= {
                "inference_library": OWN,
                "inference_library_version": release,
            }


def _traces(outcome: Outcome, constrain: Constrain) -> list[ArrayTrace]:
    """Draws and statistics of the chains as traces of PyMC."""
    schema = outcome.chosen.schema
    traces = []
    for i, run in enumerate(outcome.runs):
        n, record = run.state.n_draws, run.record
        x = record.x[:n]
        stats = schema.statistics(record.per_rung[:n], record.scalars[:n], x)
        traces.append(ArrayTrace(i, n, constrain(x), stats))
    return traces


def _hot_states(
    runs: Sequence[ChainRun], constrain: Constrain, posterior: xr.Dataset, n_tune: int
) -> xr.Dataset:
    """States of all rungs as variables of the posterior; padded at the end with iteration -1."""
    columns = []
    for run in runs:
        assert run.hot is not None
        skip = int(run.record.scalars[:n_tune, STEPS].sum())
        iteration, probability, x = map(np.concatenate, zip(*run.hot.parts, strict=True))
        used = iteration >= skip
        columns.append((iteration[used] - skip, probability[used], x[used]))
    iterations, probabilities, xs = zip(*columns, strict=True)
    n, length = len(runs), max(1, *map(len, xs))
    parts = []
    for run, x in zip(runs, xs, strict=True):
        # A state that weighs nothing must still be one that can be computed with.
        parts += [x, np.repeat(run.record.x[:1], length - len(x), axis=0)]
    rows = constrain(np.concatenate(parts)).items()
    values = {name: row.reshape(n, length, *row.shape[1:]) for name, row in rows}
    states = _as_in_posterior(values, posterior, {"chain": n, "state": length})
    return states.assign(
        iteration=(("chain", "state"), padded(iterations, length, -1)),
        keep_probability=(("chain", "state"), padded(probabilities, length, np.nan)),
    )


def _looks(chosen: ChosenPlan) -> xr.Dataset:
    """Where the looks from the prior ended, and their weights."""
    assert chosen.last is not None
    looks, fitted = chosen.last.looks, chosen.fitted
    assert fitted is not None
    nats = {"units": "nats"}
    return xr.Dataset(
        {
            "log_ratio": ("look", looks.ends.log_ratio(fitted.components), nats),
            "log_weight": ("look", looks.log_w, nats),
            "log_likelihood": ("look", looks.ends.log_likelihood, nats),
            "log_posterior": ("look", looks.ends.log_target, nats),
            "arrived": ("look", chosen.last.arrived),
        },
        {"look": np.arange(looks.n)},
    )


def _as_in_posterior(
    values: dict[str, np.ndarray], posterior: xr.Dataset, sizes: dict[str, int]
) -> xr.Dataset:
    """Give values the names and dimensions of the posterior, with others in place of its first."""
    variables = {
        str(name): ((*sizes, *draws.dims[2:]), values[str(name)], draws.attrs)
        for name, draws in posterior.data_vars.items()
    }
    apart = {"chain", "draw"}
    coords = {n: c for n, c in posterior.coords.items() if not apart & {n, *c.dims}}
    return xr.Dataset(variables, coords | {dim: np.arange(size) for dim, size in sizes.items()})


def _reference_draws(outcome: Outcome) -> xr.Dataset:
    """log_ratio at the further draws of the reference, and how many have no density."""
    log_ratio = outcome.reference
    return xr.Dataset(
        {
            "log_ratio": ("reference_draw", log_ratio, {"units": "nats"}),
            "n_undefined": outcome.n_undefined,
        },
        {"reference_draw": np.arange(log_ratio.size)},
    )


def _history(outcome: Outcome) -> dict[str, Any]:
    """Kernel tuning by rung, the rounds of the warm-up, and those of the run."""

    def columns(prefix: str, dim: str, rows: Sequence[Any], cls: type) -> dict[str, Any]:
        return {
            f"{prefix}_{f.name}": (dim, np.array([getattr(row, f.name) for row in rows]))
            for f in fields(cls)
        }

    warmup = outcome.chosen.warmup
    plan = outcome.chosen.plan
    history = {
        "step_size": (("rung", "kernel"), plan.tuning.step_sizes),
        "kernel": [kernel.name for kernel in plan.kernel.kernels],
    }
    history |= columns("warmup", "warmup_round", warmup.rounds, WarmupRound)
    if outcome.rounds:
        history |= columns("round", "round", outcome.rounds, Round)
    return history


def _flat_trace(runs: Sequence[ChainRun], n_tune: int) -> xr.Dataset:
    """Flat trace of log_ratio and rung, padded at the end, without the first draws."""
    log_ratios, rungs = [], []
    for run in runs:
        skip = int(run.record.scalars[:n_tune, STEPS].sum())
        log_ratios.append(np.concatenate([part[0] for part in run.trace])[skip:])
        rungs.append(np.concatenate([part[1] for part in run.trace])[skip:])
    length = max(len(part) for part in rungs)
    log_ratio, rung = padded(log_ratios, length, np.nan), padded(rungs, length, -1)
    dims = ("chain", "iteration")
    return xr.Dataset(
        {"log_ratio": (dims, log_ratio, {"units": "nats"}), "rung": (dims, rung)},
        {"chain": np.arange(len(runs)), "iteration": np.arange(length)},
    )


def padded(chains: Sequence[np.ndarray], length: int, fill: Any = None) -> np.ndarray:
    """Put rows of chains beside each other, shape (chain, length, ...).

    Behind the last row of a chain is `fill`, or else its first row: a state that weighs nothing
    must still be one that can be computed with.
    """
    whole = np.empty((len(chains), length, *chains[0].shape[1:]), chains[0].dtype)
    for own, rows in zip(whole, chains, strict=True):
        own[: len(rows)] = rows
        own[len(rows) :] = rows[:1] if fill is None else fill
    return whole


BEFORE_SEARCH = ("prior_constant", "annealed_pass", "fit")
"""Stages of a call that come before the search."""

PYMC_ESS = "effective sample size per chain"
"""Words of PyMC's warning of few effective draws."""


def finish_call(call: Call, job: Job, outcome: Outcome, *, quiet: bool) -> xr.DataTree:
    """Put the outcome of a call into a DataTree, and warn and tell of it.

    PyMC's checks of all variables, which take seconds in many dimensions, are left out where the
    time of the call has long been over.
    """
    job.tally.end("run")
    seconds = job.tally.seconds
    cuts = cuts_of(outcome, searched=job.options.reference == "auto")
    warn_of_run(outcome, cuts, call.n_draws, tune=call.tune, max_time=call.goal.max_time)
    idata = build_datatree(call, outcome, seconds)
    if storable(job):
        with_plan(idata, call, job, outcome)
    checked = call.convergence_checks and not job.deadline.part(LAST_SHARE).late
    close(
        idata, whole_model(job.prior.path.model), seconds, quiet=quiet, convergence_checks=checked,
        least=outcome.least,
    )  # fmt: skip
    return idata


def cuts_of(outcome: Outcome, *, searched: bool) -> list[Cut]:
    """List what the time limit has ended, in the order of the stages.

    Parameters
    ----------
    outcome : Outcome
    searched : bool
        Whether a fitted reference was to be checked by a search.
    """
    chosen, passes = outcome.chosen, outcome.chosen.passes
    of_passes = [one.cut for one in passes.each if one.cut is not None] if passes else []
    longest = max(of_passes, key=lambda cut: nan_to_num(cut.needed), default=None)
    found = [longest, _search_cut(outcome) if searched else None]
    found += [chosen.warmup.annealed.cut, chosen.warmup.cut, outcome.cut]
    return [cut for cut in found if cut is not None]


def _search_cut(outcome: Outcome) -> Cut | None:
    """Tell of a search that has not come to its end; its rounds take as long as those so far."""
    chosen = outcome.chosen
    if chosen.fitted is None or chosen.last is not None or chosen.interrupted:
        return None
    if chosen.passes is None or not chosen.passes.complete:
        return Cut("the search for unknown modes", "before it began", nan)
    before = sum(chosen.seconds.get(name, 0.0) for name in BEFORE_SEARCH)
    took = chosen.seconds.get("search", 0.0)
    needed = (before + took * (1.0 + 1.0 / max(chosen.fits, 1))) / PLAN_SHARE
    return Cut("the search for unknown modes", f"after round {chosen.fits}", needed)


def warn_of_run(
    outcome: Outcome,
    cuts: list[Cut],
    n_draws: int,
    *,
    tune: int = 0,
    max_time: float | None = None,
    new: str = "",
) -> None:
    """Warn of chains that got stuck, a goal that was missed, and what was cut short.

    Parameters
    ----------
    outcome : Outcome
    cuts : list of Cut
        What the time limit has ended.
    n_draws : int
        Draws of each chain that were wanted, with `tune` to throw away.
    tune : int, default 0
    max_time : float, optional
    new : str, default ""
        "new " where there were draws before.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C came before the first draw.
    StuckChainError
        No chain has a draw, and one hangs.
    TimeLimitError
        No chain has a draw, and the time is over.
    """
    runs, hang = outcome.runs, any(run.hangs for run in outcome.runs)
    none = max(run.state.n_draws for run in runs) <= tune
    faults = {fault for run in runs for fault in run.faults}
    for message in faults:
        warn_user(message)
    if outcome.unmet:
        warn_user(f"The budget ended before the goal was met: {outcome.unmet}.")
    if outcome.least is not None and outcome.least.short:
        warn_user(_of_few_draws(outcome.least))
    if outcome.interrupted and none and hang:
        raise StuckChainError(f"No chain has a draw. {' '.join(sorted(faults))}")
    if outcome.interrupted and none:
        raise KeyboardInterrupt(f"Interrupted before the first {new}draw.")
    if outcome.interrupted:
        cause = "A chain hangs" if hang else "Interrupted"
        if outcome.chosen.interrupted:
            cause = "Interrupted before the search for unknown modes was over"
        warn_user(
            f"{cause}: the chains had drawn at least {draws_of(runs)} of {n_draws} {new}draws; "
            f"estimates use these {'and the old ones' if new else 'alone'}."
        )
    elif cuts and none:
        raise TimeLimitError(
            f"max_time={max_time:g} was over before the first {new}draw. {tell_cuts(cuts)}"
        )
    elif cuts:
        warn_user(tell_cuts(cuts))


def _of_few_draws(least: LeastEss) -> str:
    """Sentence about draws that do not suffice."""
    return (
        f"The draws tell too little of {least.name!r}: its effective sample size is "
        f"{least.ess:.0f}, and {least.target:.0f} were wanted. Sample longer, with draws= or "
        "max_time=, or look at pmt.diagnose for what slows the chains."
    )


def close(
    idata: xr.DataTree,
    model: pm.Model,
    seconds: Mapping[str, float],
    *,
    quiet: bool,
    convergence_checks: bool,
    least: LeastEss | None = None,
) -> None:
    """Warn of a verdict other than "ok", and log PyMC's checks and lines that sum the run up.

    The warning comes also where `quiet` keeps everything else away. Where draws had to suffice,
    `least` has been judged, in place of PyMC's check of effective sample sizes.
    """
    found = diagnose(idata)
    verdict = found.evidence.verdict
    if verdict != "ok":
        warn_user(f"The verdict of this run is {verdict!r}: {_cause(found)}")
    if quiet:
        return
    if convergence_checks:
        log_warnings(_not_judged(run_convergence_checks(idata, model), verdict, least))
    if verdict == "ok" and not found.verdict.startswith("ok:"):
        logger.info(found.verdict)
    for sentence in said_of_orders(model):
        logger.info(sentence)
    logger.info(summary(idata, found, seconds, least))


def _not_judged(
    found: Sequence[SamplerWarning], verdict: str, least: LeastEss | None
) -> list[SamplerWarning]:
    """Leave out what PyMC warns of where the run's own verdict has judged the same.

    After a divergence PyMC advises to change the model, since chains may not get to where it was.
    Here they start again from the reference in each tour. What divergences have cost shows in the
    error and in the looks; their number is in :func:`pymc_tempering.diagnose`.
    """
    told = {WarningType.DIVERGENCES} if verdict == "ok" else set[WarningType]()
    judged = least is not None
    return [w for w in found if w.kind not in told and not (judged and PYMC_ESS in w.message)]


def _cause(found: Diagnosis) -> str:
    """Sentences that say why the verdict is not "ok"."""
    if found.verdict.startswith(("few tours: ", "alarm: ")):
        return found.verdict.partition(": ")[2]
    if found.verdict.startswith(("bad kernel", "bad ladder")):
        return found.verdict
    return " ".join(found.evidence.warnings) or found.verdict


def summary(
    idata: xr.DataTree,
    found: Diagnosis,
    seconds: Mapping[str, float],
    least: LeastEss | None = None,
) -> str:
    """Return one line: draws, log Z and its error, the verdict, and where the time went.

    Where draws had to suffice and do not, it says so too.
    """
    sizes = idata["sample_stats"].sizes
    evidence = found.evidence
    few = f", {least}" if least is not None and least.short else ""
    return (
        f"{sizes['chain']} x {sizes['draw']} draws, log Z = "
        f"{plus_minus(evidence.log_z, evidence.mcse)} nats ({evidence.verdict}, "
        f"{evidence.n_tours} tours){few}, {in_words(seconds)}"
    )
