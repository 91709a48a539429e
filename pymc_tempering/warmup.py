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
from pymc_tempering.engine import RB_WEIGHT, RUNG, VISITS
from pymc_tempering.kernels import Compound
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


@dataclass(frozen=True)
class Tuning:
    """Tuning along the path: step sizes and lengths (S, B), scales (S, d), covs (S, d, d)."""

    betas: np.ndarray
    step_sizes: np.ndarray
    scales: np.ndarray
    covs: np.ndarray | None
    lengths: np.ndarray

    def at(self, betas: np.ndarray) -> "Tuning":
        """Tuning at other inverse temperatures."""
        stages = np.interp(betas, self.betas, np.arange(self.betas.size))
        low = np.minimum(stages.astype(int), self.betas.size - 2)
        share = stages - low

        def between(values: np.ndarray) -> np.ndarray:
            at = share.reshape(-1, *[1] * (values.ndim - 1))
            return np.asarray((1 - at) * values[low] + at * values[low + 1])

        return Tuning(
            betas,
            np.exp(between(np.log(self.step_sizes))),
            np.exp(between(np.log(self.scales))),
            None if self.covs is None else between(self.covs),
            np.exp(between(np.log(self.lengths))),
        )


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

    def __call__(
        self, plan: Plan, n_iterations: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Log_ratio (chains, n), rungs (chains, n), visits (K,) and summed acceptance (B, K)."""
        advance = make_runner(plan)
        n_rungs, dim = plan.ladder.n_rungs, plan.reference.path.dim

        def one(state: ChainState) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            record = new_record(n_iterations, n_rungs, dim, n_iterations)
            clear_record(state)
            state.chain.accept[:] = 0.0
            advance(state, record, n_iterations + 1, n_iterations)
            sums = record.per_rung[: state.n_draws].sum(axis=0) + state.chain.per_rung
            return record.trace_log_ratio, record.trace_rung, sums[VISITS], state.chain.accept

        with ThreadPoolExecutor(self.cores) as pool:
            results = list(pool.map(one, self.states))
        log_ratio, rungs, visits, accept = (np.array(c) for c in zip(*results, strict=True))
        return log_ratio, rungs, visits.sum(axis=0), accept.sum(axis=0)


def _batches(log_ratio: np.ndarray, ladder: Ladder, n_batches: int = 8) -> np.ndarray:
    """Rao-Blackwell sums by batch of iterations, shape (chains * n_batches, K)."""
    q = ladder.probabilities(log_ratio)
    parts = np.array_split(q, n_batches, axis=2)
    return np.concatenate([part.sum(axis=2).T for part in parts])


def _accepts(plan: Plan, visits: np.ndarray, accept: np.ndarray) -> bool:
    """Whether the kernels accept about as often as they should, where that can be told."""
    off = np.abs(_acceptance_off(plan, visits, accept))
    return bool(np.all((off < MAX_ACCEPT_OFF) | (visits[1:, None] < MIN_VISITS)))


def _acceptance_off(plan: Plan, visits: np.ndarray, accept: np.ndarray) -> np.ndarray:
    """Subtract the targets from the acceptance of the upper rungs, shape (K - 1, B); 0 if none."""
    rate = (accept[:, 1:] / np.maximum(visits[1:], 1)).T
    return np.nan_to_num(rate - plan.kernel.targets)


def _tune_steps(plan: Plan, visits: np.ndarray, accept: np.ndarray) -> Plan:
    """Plan with step sizes moved toward the target acceptance of each rung."""
    off = _acceptance_off(plan, visits, accept)
    gain = np.where(visits >= MIN_VISITS, 2 * visits / (visits + 100), 0.0)[1:, None]
    factor = np.vstack([np.ones(off.shape[1]), np.exp(gain * off)])
    return replace(plan, step_sizes=plan.step_sizes * factor)


def warm_up(
    reference: Reference,
    kernel: Compound,
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
    kernel : Compound
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
    tuning = Tuning(
        annealed.betas, annealed.step_sizes, annealed.scales, annealed.covs, annealed.lengths
    )

    def plan_on(new_betas: np.ndarray, at: PathSample) -> Plan:
        ladder = Ladder(new_betas, at.log_z_at(new_betas), np.zeros(new_betas.size))
        new = tuning.at(new_betas)
        return Plan(
            reference, kernel, ladder, new.step_sizes, new.scales, ladder_move, new.covs,
            new.lengths,
        )  # fmt: skip

    plan = plan_on(place_rungs(sample, rungs_per_barrier) if betas is None else betas, sample)
    runner = RoundRunner([start_chain(plan, child) for child in rng.spawn(n_chains)], cores)
    rounds: list[WarmupRound] = []
    converged = False
    while not converged and len(rounds) < max_rounds:
        started = perf_counter()
        n_iterations = ITERATIONS_PER_RUNG * plan.ladder.n_rungs * 2 ** len(rounds)
        log_ratio, rung, visits, accept = runner(plan, n_iterations)
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
            plan = _tune_steps(plan, visits, accept).with_ladder(plan.ladder.with_log_z(log_z))
            if len(rounds) == 1 and betas is None:
                old = plan
                plan = _respace(plan, seen, place_rungs(seen, rungs_per_barrier))
                for state in runner.states:
                    _move_to(state, old, plan)
                respaced = True
        converged = bool(ok.all()) and not respaced and _accepts(plan, visits, accept)
    return Warmup(plan, annealed, tuple(rounds), converged, seconds_annealing)


def _respace(plan: Plan, seen: PathSample, betas: np.ndarray) -> Plan:
    """Plan on new rungs, tuning interpolated along the old ones."""
    assert plan.lengths is not None
    old = Tuning(plan.ladder.betas, plan.step_sizes, plan.scales, plan.covs, plan.lengths)
    new = old.at(betas)
    return replace(
        plan, ladder=Ladder(betas, seen.log_z_at(betas), np.zeros(betas.size)),
        step_sizes=new.step_sizes, scales=new.scales, covs=new.covs, lengths=new.lengths,
    )  # fmt: skip


def _move_to(state: ChainState, old: Plan, new: Plan) -> None:
    """Put a chain onto the rung of a new ladder that is nearest to its present one."""
    beta = old.ladder.betas[state.rung]
    rung = int(np.abs(new.ladder.betas - beta).argmin())
    top = new.ladder.n_rungs - 1
    # Only an exact draw may stand at beta = 0, and there the chain starts with one anyway.
    state.chain.counters[RUNG] = min(max(rung, 1 if beta > 0 else 0), top)
    state.chain = state.chain._replace(
        per_rung=np.zeros((state.chain.per_rung.shape[0], top + 1)),
        accept=np.zeros((state.chain.accept.shape[0], top + 1)),
    )
    state.chain.scalars[:] = 0.0
    state.chain.scalars[1] = top


__all__ = ["RB_WEIGHT", "Warmup", "WarmupRound", "warm_up"]
