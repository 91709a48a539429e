"""Thermodynamic integration with independent chains at each rung of a ladder."""

import threading
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from pymc_tempering.annealed.schedule import Annealing, BetaSchedule, freeze, learn_path, opened
from pymc_tempering.arguments import RandomSeed, check_choice, check_whole
from pymc_tempering.arrays.carried import given_betas
from pymc_tempering.chain.particles import draw_particles, place, sweep
from pymc_tempering.core.ladder import barrier_of
from pymc_tempering.core.threads import Task, paced
from pymc_tempering.core.weighting import effective_size
from pymc_tempering.evidence import Evidence, integrate
from pymc_tempering.evidence.result import emit_warnings, with_undefined
from pymc_tempering.evidence.ti import ORDERS, rule_weights
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.executors.chunks import run_work
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.references.prior import Reference
from pymc_tempering.warmup.annealed_pass import AnnealedPass

RUNGS_PER_BARRIER, MIN_RUNGS = 4.0, 17
MIN_CHAINS, MIN_DRAWS = 2, 50

MIN_RUNG_ESS = 40.0
"""Effective draws of log_ratio at a rung below which no error is stated."""

CHAIN_RULES = ("corrected", "trapezoid")
"""Rules whose error can be told from the same rule on every second rung."""


class Rung(NamedTuple):
    """What the chains of a rung found.

    Attributes
    ----------
    log_ratio : array, shape (chain, draw)
    n_evaluations : int
    n_dead, n_undefined : int
        Reference draws of zero likelihood, and those of them where the density is no number.
    """

    log_ratio: np.ndarray
    n_evaluations: int
    n_dead: int = 0
    n_undefined: int = 0


def thermodynamic_integration(
    model: ModelLike | None = None,
    *,
    draws: int = 100,
    chains: int = 20,
    tune: int = 30,
    betas: int | Sequence[float] | None = None,
    rule: str = "corrected",
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Estimate the log marginal likelihood by thermodynamic integration.

    log Z is the integral over beta of the mean of log_ratio at beta. Independent chains run at
    each rung of a ladder, from the particles of a pilot; at beta = 0 the draws are exact. Draws
    there of zero likelihood are counted apart: the integral is then over the rest, plus the
    logarithm of their share.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    draws : int, default 100
        Transitions of each chain that count.
    chains : int, default 20
        Chains at each rung. Where modes part a chain stays in one of them, so that few chains
        cannot tell how much each mode holds.
    tune : int, default 30
        Transitions of each chain before those that count; nothing is tuned in them, the pilot
        did that.
    betas : int or sequence of float, optional
        Number of rungs, which are placed at equal distances along the path, or the inverse
        temperatures from 0 to 1. By default four rungs a unit of length, and 17 at least.
    rule : {"corrected", "trapezoid"}, default "corrected"
        The trapezoid rule, or the one corrected by the variances of log_ratio.
    transition : str, Kernel, dict or None, optional
        What moves the chains, as `kernel` of :func:`pymc_tempering.sample`.
    cores : int, optional
        Threads; by default all cores.
    executor : concurrent.futures.Executor, optional
        Who does the work in place of threads: a pool of processes, or ``client.get_executor()``
        of Dask. Each worker compiles the model once. The pilot runs in this process.
    random_seed : int or numpy.random.Generator, optional
        Same seeds give the same estimate, whatever `cores` and
        `executor` are.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    Evidence
        ``mcse`` is made of the sampling error, which knows autocorrelation and disagreement of
        the chains, and of an estimate of the discretization error, from the same rule on every
        second rung, whose size ``bias`` holds (nats).

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model has no such path; the message says why and what to do.
    LadderError
        ``betas`` do not increase from 0 to 1.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        A rung has too few effective draws (the mcse is then infinite), or the discretization
        error is larger than the sampling error.

    Notes
    -----
    Gelman & Meng (1998); Friel, Hurn & Wyse (2014), Improving power posterior estimation of
    statistical evidence.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> system = pmt.testsystems.gaussian(dim=1)
    >>> evidence = pmt.thermodynamic_integration(system.model, random_seed=1, progressbar=False)
    >>> abs(evidence.log_z - system.log_evidence) < 4 * evidence.mcse
    True
    """
    check_whole(MIN_DRAWS, draws=draws)
    check_whole(MIN_CHAINS, chains=chains)
    check_whole(0, tune=tune)
    check_choice("rule", rule, CHAIN_RULES)
    show = progressbar and not quiet
    with opened(model, transition, betas, cores, executor, random_seed, show) as call:
        path = learn_path(call, keep_states=True)
        if betas is None:
            length = RUNGS_PER_BARRIER * barrier_of(path.alive)[1][-1]
            betas = max(MIN_RUNGS, 2 * int(np.ceil(0.5 * length)) + 1)
        schedule = freeze(call.movers, path, given_betas(betas, path.alive))
        rungs = chains_of_rungs(call, schedule, path, chains, tune, draws)
        evidence = evidence_of_chains(schedule.betas, rungs, rule, path.n_evaluations, call.seconds)
        evidence = call.noted(evidence, path.particles, "the chains")
    return emit_warnings(evidence)


def chains_of_rungs(
    call: Annealing, schedule: BetaSchedule, path: AnnealedPass, chains: int, tune: int, draws: int
) -> list[Rung]:
    """Run the chains of all rungs, each rung a task; at beta = 0 take exact draws."""
    reference, betas = call.reference, schedule.betas
    owns = call.rng.spawn(betas.size)
    tasks = [_reference_task(reference, schedule.kernel, draws * chains, chains, owns[0])]
    tasks += [
        _chain_task(reference, schedule, path, k, chains, tune, draws, owns[k])
        for k in range(1, betas.size)
    ]
    rungs, interrupted = run_work(
        tasks, call.workers, lambda done: call.report(f"Chains: {done} of {betas.size} rungs")
    )
    if interrupted:
        raise KeyboardInterrupt("Interrupted before all rungs had their chains.")
    return rungs


def states_near(path: AnnealedPass, beta: float) -> np.ndarray:
    """States of some likelihood of the stage nearest to `beta` in length, shape (n, d)."""
    grid, length = barrier_of(path.alive)
    at = np.interp([beta, *path.betas], grid, length)
    stage = np.argmin(np.abs(at[1:] - at[0]))
    return path.states[stage][path.log_ratio[stage] > -np.inf]


def _reference_task(
    reference: Reference, kernel: Compound, n: int, chains: int, rng: np.random.Generator
) -> Task[Rung]:
    """Task that evaluates exact draws at beta = 0."""

    def run(stop: threading.Event) -> Rung:
        particles = draw_particles(reference, kernel, n, rng)
        log_ratio = particles.log_ratio
        alive = log_ratio[log_ratio > -np.inf]
        kept = alive[: alive.size // chains * chains].reshape(chains, -1)
        return Rung(kept, n, n - alive.size, particles.n_nan)

    return run


def _chain_task(
    reference: Reference,
    schedule: BetaSchedule,
    path: AnnealedPass,
    k: int,
    chains: int,
    tune: int,
    draws: int,
    rng: np.random.Generator,
) -> Task[Rung]:
    """Task that runs the chains of the rung `k`."""
    beta, params = float(schedule.betas[k]), schedule.params[k]
    pool = states_near(path, beta)

    def run(stop: threading.Event) -> Rung | None:
        starts = pool[rng.choice(len(pool), chains)]
        particles = place(reference, schedule.kernel, starts, rng)
        parts = [
            sweep(particles, beta, params, end - begin) for begin, end in paced(tune + draws, stop)
        ]
        trace = np.concatenate([np.empty((0, chains)), *parts])
        if len(trace) < tune + draws:
            return None
        return Rung(trace[tune:].T, chains + particles.n_evaluations)

    return run


def discretization(betas: np.ndarray, mean: np.ndarray, variance: np.ndarray, rule: str) -> float:
    """Estimate the error of a rule from the same rule on every second rung, in nats.

    An error of order h^p makes that difference 2^p - 1 times as large as the error on all rungs
    (Richardson). K is odd, or the last interval is in both.
    """
    kept = np.unique(np.append(np.arange(0, betas.size, 2), betas.size - 1))
    fine = integrate(rule, betas, mean, variance)[-1]
    coarse = integrate(rule, betas[kept], mean[kept], variance[kept])[-1]
    return float((coarse - fine) / (2.0 ** ORDERS[rule] - 1.0))


def evidence_of_chains(
    betas: np.ndarray, rungs: Sequence[Rung], rule: str, n_evaluations: int, seconds: float
) -> Evidence:
    """Integrate the means of log_ratio over beta, with errors.

    Parameters
    ----------
    betas : array, shape (K,)
    rungs : sequence of Rung
        log_ratio by (chain, draw) at each rung, in nats; finite.
    rule : {"corrected", "trapezoid"}
    n_evaluations : int
        Of the pilot.
    seconds : float

    Returns
    -------
    Evidence
    """
    traces = [rung.log_ratio for rung in rungs]
    kept, n_dead = traces[0], rungs[0].n_dead
    total = kept.size + n_dead
    if kept.size < 2 or not all(np.isfinite(trace).all() for trace in traces):
        raise LikelihoodError(
            f"{n_dead} of {total} prior draws have zero likelihood, or a chain met a state whose "
            "log-likelihood is not finite: there is nothing to integrate. Use pmt.ais."
        )
    mean, variance = _moments(traces)
    share = (total - n_dead) / total
    curve = integrate(rule, betas, mean, variance) + np.where(betas > 0.0, np.log(share), 0.0)
    error, least = _sampling_errors(betas, traces, rule)
    error[1:] = np.hypot(error[1:], np.sqrt((1.0 - share) / (share * total)))
    off = discretization(betas, mean, variance, rule)
    mcse, verdict, said = float(np.hypot(error[-1], off)), "ok", []
    if least < MIN_RUNG_ESS:
        verdict, mcse = "unchecked", np.inf
        said.append(
            f"A rung has {least:.0f} effective draws of log_ratio, fewer than {MIN_RUNG_ESS:.0f}, "
            "or its chains disagree, so the mcse is infinite: use more draws."
        )
    if abs(off) > error[-1]:
        said.append(
            f"The discretization error is about {abs(off):.2g} nats, larger than the sampling "
            f"error of {error[-1]:.2g}: use more than {betas.size} rungs (betas)."
        )
    halves = [
        float(np.log(share) + integrate(rule, betas, *_moments([x[half::2] for x in traces]))[-1])
        for half in (0, 1)
    ]
    found = Evidence(
        log_z=float(curve[-1]),
        mcse=mcse,
        method="thermodynamic_integration",
        verdict=verdict,
        log_z_curve=curve,
        log_z_curve_mcse=np.array([*error[:-1], mcse]),
        betas=betas,
        halves=(halves[0], halves[1]),
        warnings=tuple(said),
        bias=off,
        n_evaluations=n_evaluations + sum(rung.n_evaluations for rung in rungs),
        seconds=seconds,
    )
    return with_undefined(found, rungs[0].n_undefined, total)


def _moments(traces: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of log_ratio at each rung, shape (K,) each."""
    mean, variance = zip(*((x.mean(), x.var(ddof=1)) for x in traces), strict=True)
    return np.array(mean), np.array(variance)


def _sampling_errors(
    betas: np.ndarray, chains: Sequence[np.ndarray], rule: str
) -> tuple[np.ndarray, float]:
    """Errors of the integral up to each rung, shape (K,), and the smallest effective number.

    At each rung the integral is, to first order, the mean over draws of a (x - m) + b (x - m)^2
    with x = log_ratio and a, b the rule's weights, which differ at the rung where it ends.
    """
    of_means, of_variances = (weights[-1] for weights in rule_weights(rule, betas))
    inside, at_end, least = np.zeros(betas.size), np.zeros(betas.size), np.inf
    for k, values in enumerate(chains):
        inside[k], ess = _variance_of_mean(values, of_means[k], of_variances[k])
        least = min(least, ess)
        if k > 0:
            ends = [float(weights[1, 1]) for weights in rule_weights(rule, betas[k - 1 : k + 1])]
            at_end[k], _ = _variance_of_mean(values, *ends)
    before = np.concatenate([[0.0], np.cumsum(inside)[:-1]])
    return np.sqrt(before + at_end), least


def _variance_of_mean(values: np.ndarray, a: float, b: float) -> tuple[float, float]:
    """Variance of the mean of a (x - m) + b (x - m)^2 over autocorrelated chains, and its ESS."""
    centered = values - values.mean()
    influence = a * centered + b * centered**2
    spread = float(influence.var(ddof=1))
    if spread == 0.0:
        return 0.0, np.inf
    ess = effective_size(influence)
    return spread / ess, ess
