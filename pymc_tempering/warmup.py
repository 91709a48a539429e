"""The automatic warm-up: annealed pass, initial iterations, re-spacing, freeze."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from pymc_tempering.annealing import AnnealedPass, anneal
from pymc_tempering.chains import (
    ChainState,
    Plan,
    clear_record,
    make_runner,
    new_record,
    start_chain,
)
from pymc_tempering.engine import ACCEPT, RB_WEIGHT, RUNG, VISITS
from pymc_tempering.kernels import Kernel
from pymc_tempering.ladder import Ladder, PathSample, place_rungs
from pymc_tempering.references import Reference

ITERATIONS_PER_RUNG = 50
"""Iterations of each chain in the first round, per rung; doubled in every further round."""

MAX_LOG_OFF = 0.7
"""A round may stop when every occupancy is within a factor of 2 of its target (or within two
standard errors of it). The paper's max |r_k - c_k| < 0.1 / K rejects more than half of the
runs with exact log Z at the lengths that suffice for a log Z error of 0.17."""


MAX_ACCEPT_OFF, MIN_VISITS = 0.15, 20
"""Nor may a round be the last whose kernel accepts much more or less often than it should."""


@dataclass(frozen=True)
class WarmupRound:
    """One round of initial iterations.

    Attributes
    ----------
    n_rungs, n_iterations : int
        Rungs of its ladder, and iterations of all chains together.
    max_log_off : float
        Largest |log(c_k / r_k)|.
    log_z : float
        RTS estimate of log Z, in nats.
    seconds : float
    """

    n_rungs: int
    n_iterations: int
    max_log_off: float
    log_z: float
    seconds: float


@dataclass(frozen=True)
class Warmup:
    """A frozen plan and how it came about.

    Attributes
    ----------
    plan : Plan
    annealed : AnnealedPass
    rounds : tuple of WarmupRound
    converged : bool
        Whether the last round met the stopping rule of the initial iterations.
    seconds_annealing : float
    """

    plan: Plan
    annealed: AnnealedPass
    rounds: tuple[WarmupRound, ...]
    converged: bool
    seconds_annealing: float


def spread(annealed: AnnealedPass, betas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step sizes (K,) and scales (K, d) at `betas`, between the stages of the annealed pass."""
    stages = np.interp(betas, annealed.betas, np.arange(annealed.betas.size))
    low = np.minimum(stages.astype(int), annealed.betas.size - 2)
    share = stages - low

    def between(values: np.ndarray) -> np.ndarray:
        log = np.log(values)
        at = share if log.ndim == 1 else share[:, None]
        return np.exp((1 - at) * log[low] + at * log[low + 1])

    return between(annealed.step_sizes), between(annealed.scales)


def _rts(per_rung: np.ndarray, ladder: Ladder) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """RTS eq. (12) of batches of sums (batches, K): log Z (K,), log(c / r) (K,) and its error."""
    total = per_rung.sum(axis=0)
    with np.errstate(divide="ignore"):
        log_c = np.log(total) - np.log(total.sum())
    off = log_c - ladder.log_weights
    shares = per_rung / per_rung.sum(axis=1, keepdims=True)
    n = len(per_rung)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = shares.std(axis=0, ddof=1) / np.sqrt(n) / shares.mean(axis=0)
    return ladder.log_z + off - off[0], off, error


class RoundRunner:
    """Run chains side by side for a round and return what they saw."""

    def __init__(self, states: list[ChainState], cores: int) -> None:
        self.states = states
        self.cores = cores

    def __call__(self, plan: Plan, n_iterations: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log_ratio (chains, n), rungs (chains, n) of a round, and sums (chains, stats, K)."""
        advance = make_runner(plan)
        n_rungs, dim = plan.ladder.n_rungs, plan.reference.path.dim

        def one(state: ChainState) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            record = new_record(n_iterations, n_rungs, dim, n_iterations)
            clear_record(state)
            advance(state, record, n_iterations + 1, n_iterations)
            sums = record.per_rung[: state.n_draws].sum(axis=0) + state.chain.per_rung
            return record.trace_log_ratio, record.trace_rung, sums

        with ThreadPoolExecutor(self.cores) as pool:
            results = list(pool.map(one, self.states))
        log_ratio, rungs, sums = (np.array(column) for column in zip(*results, strict=True))
        return log_ratio, rungs, sums


def _batches(log_ratio: np.ndarray, ladder: Ladder, n_batches: int = 8) -> np.ndarray:
    """Rao-Blackwell sums by batch of iterations, shape (chains * n_batches, K)."""
    q = ladder.probabilities(log_ratio)
    parts = np.array_split(q, n_batches, axis=2)
    return np.concatenate([part.sum(axis=2).T for part in parts])


def _acceptance(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean acceptance of each rung above the first, and visits; shape (K - 1,)."""
    visits = sums[:, VISITS, 1:].sum(axis=0)
    return sums[:, ACCEPT, 1:].sum(axis=0) / np.maximum(visits, 1), visits


def _accepts(plan: Plan, sums: np.ndarray) -> bool:
    """Whether the kernel accepts about as often as it should, where that can be told."""
    acceptance, visits = _acceptance(sums)
    off = np.abs(acceptance - plan.kernel.target_accept)
    return bool(np.all((off < MAX_ACCEPT_OFF) | (visits < MIN_VISITS)))


def _tune_steps(plan: Plan, sums: np.ndarray) -> Plan:
    """Plan with step sizes moved toward the target acceptance of each rung."""
    acceptance, visits = _acceptance(sums)
    off = acceptance - plan.kernel.target_accept
    gain = np.where(visits >= MIN_VISITS, 2 * visits / (visits + 100), 0.0)
    factor = np.append(1.0, np.exp(gain * off))
    return replace(plan, step_sizes=plan.step_sizes * factor)


def warm_up(
    reference: Reference,
    kernel: Kernel,
    rng: np.random.Generator,
    *,
    ladder_move: str,
    betas: np.ndarray | None = None,
    rungs_per_barrier: float = 1.5,
    n_chains: int = 4,
    cores: int = 1,
    n_particles: int = 512,
    max_rounds: int = 8,
    report: Callable[[str], None] = lambda line: None,
) -> Warmup:
    """Find ladder, log Z-hat and kernel tuning, and freeze them.

    Parameters
    ----------
    reference : Reference
    kernel : Kernel
    rng : numpy.random.Generator
    ladder_move : {"metropolized_gibbs", "gibbs", "nonreversible"}
    betas : array, optional
        A ladder that the user wants; by default it is placed automatically.
    rungs_per_barrier : float, default 1.5
        Intervals of an automatic ladder, per unit of the barrier.
    n_chains : int, default 4
        Chains of the initial iterations.
    cores : int, default 1
        Threads that they run on.
    n_particles : int, default 512
        Particles of the annealed pass.
    max_rounds : int, default 8
        Bound on the rounds of initial iterations.
    report : callable, optional
        Called with a line of progress.

    Returns
    -------
    Warmup
    """
    started = perf_counter()
    annealed = anneal(
        reference, kernel, rng, n_particles=n_particles,
        report=lambda beta: report(f"Annealed pass: beta = {beta:.3g}"),
    )  # fmt: skip
    seconds_annealing = perf_counter() - started
    sample = annealed.sample

    def plan_on(new_betas: np.ndarray, at: PathSample) -> Plan:
        ladder = Ladder(new_betas, at.log_z_at(new_betas), np.zeros(new_betas.size))
        return Plan(reference, kernel, ladder, *spread(annealed, new_betas), ladder_move)

    plan = plan_on(place_rungs(sample, rungs_per_barrier) if betas is None else betas, sample)
    runner = RoundRunner([start_chain(plan, child) for child in rng.spawn(n_chains)], cores)
    rounds: list[WarmupRound] = []
    converged = False
    while not converged and len(rounds) < max_rounds:
        started = perf_counter()
        n_iterations = ITERATIONS_PER_RUNG * plan.ladder.n_rungs * 2 ** len(rounds)
        log_ratio, rung, sums = runner(plan, n_iterations)
        log_z, off, error = _rts(_batches(log_ratio, plan.ladder), plan.ladder)
        max_off = float(np.abs(off).max())
        ok = (np.abs(off) < MAX_LOG_OFF) | (np.abs(off) < 2 * error)
        rounds.append(
            WarmupRound(plan.ladder.n_rungs, log_ratio.size, max_off, float(log_z[-1]),
                        perf_counter() - started)
        )  # fmt: skip
        report(f"Initial iterations, round {len(rounds)}: log Z = {log_z[-1]:.2f}")
        respaced = False
        if np.isfinite(log_z).all():
            counts = np.bincount(rung.ravel(), minlength=plan.ladder.n_rungs)
            seen = PathSample(
                log_ratio.ravel(), plan.ladder.betas, log_z,
                # The mixture that the chains drew from is q, with Rao-Blackwell occupancies.
                np.maximum(np.exp(off + plan.ladder.log_weights) * counts.sum(), 1e-300),
            )  # fmt: skip
            plan = _tune_steps(plan, sums).with_ladder(plan.ladder.with_log_z(log_z))
            if len(rounds) == 1 and betas is None:
                old = plan
                plan = _respace(plan, seen, place_rungs(seen, rungs_per_barrier))
                for state in runner.states:
                    _move_to(state, old, plan)
                respaced = True
        converged = bool(ok.all()) and not respaced and _accepts(plan, sums)
    return Warmup(plan, annealed, tuple(rounds), converged, seconds_annealing)


def _respace(plan: Plan, seen: PathSample, betas: np.ndarray) -> Plan:
    """Plan on new rungs, tuning interpolated along the old ones."""
    at = np.interp(betas, plan.ladder.betas, np.arange(plan.ladder.n_rungs))
    low = np.minimum(at.astype(int), plan.ladder.n_rungs - 2)
    share = at - low
    steps = np.exp(
        (1 - share) * np.log(plan.step_sizes[low]) + share * np.log(plan.step_sizes[low + 1])
    )
    scales = np.exp(
        (1 - share)[:, None] * np.log(plan.scales[low])
        + share[:, None] * np.log(plan.scales[low + 1])
    )
    ladder = Ladder(betas, seen.log_z_at(betas), np.zeros(betas.size))
    return replace(plan, ladder=ladder, step_sizes=steps, scales=scales)


def _move_to(state: ChainState, old: Plan, new: Plan) -> None:
    """Put a chain onto the rung of a new ladder that is nearest to its present one."""
    beta = old.ladder.betas[state.rung]
    rung = int(np.abs(new.ladder.betas - beta).argmin())
    top = new.ladder.n_rungs - 1
    # Only an exact draw may stand at beta = 0, and there the chain starts with one anyway.
    state.chain.counters[RUNG] = min(max(rung, 1 if beta > 0 else 0), top)
    state.chain = state.chain._replace(per_rung=np.zeros((state.chain.per_rung.shape[0], top + 1)))
    state.chain.scalars[:] = 0.0
    state.chain.scalars[1] = top


__all__ = ["RB_WEIGHT", "Warmup", "WarmupRound", "warm_up"]
