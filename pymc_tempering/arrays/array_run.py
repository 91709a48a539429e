"""Simulated tempering over arrays: rounds that learn log Z-hat, and a run that estimators read."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import RandomSeed, check_choice, check_whole, rng_of
from pymc_tempering.arrays.array_annealing import anneal_arrays, rungs_on
from pymc_tempering.arrays.array_density import ArrayDensity, States, check_density
from pymc_tempering.arrays.carried import Betas, check_schedule
from pymc_tempering.arrays.lockstep import (
    LADDER_MOVES,
    LockstepChains,
    SweepTrace,
    rows_of_trace,
    run_sweeps,
)
from pymc_tempering.core.cycles import (
    LADDER_STATS,
    RUNG_STATS,
    SCALAR_STATS,
    CycleStats,
    FlatTrace,
    FloatArray,
)
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.diagnostics import Diagnosis, diagnose
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.result import Evidence, emit_warnings
from pymc_tempering.evidence.rts import rts_log_z
from pymc_tempering.exceptions import LadderError, warn_user

type LogWeights = np.ndarray | Callable[[np.ndarray], np.ndarray] | None
"""log r_k (K,), a function of betas (K,) that gives them, or None for equal ones."""


@dataclass(frozen=True, eq=False)
class LearnedRounds:
    """What rounds of sweeps learned.

    Attributes
    ----------
    ladder : Ladder
        With log Z-hat after the last round.
    chains : LockstepChains
        Where the chains are.
    log_z : array, shape (R + 1, K)
        log Z-hat at the start and after each round, in nats.
    occupancy : array, shape (R, K)
        c_k of each round, by q(beta_k | x).
    settled : bool
        Whether the occupancies of the last round were right.
    n_sweeps : int
        Sweeps of each round.
    """

    ladder: Ladder
    chains: LockstepChains
    log_z: FloatArray
    occupancy: FloatArray
    settled: bool
    n_sweeps: int

    @property
    def n_rounds(self) -> int:
        """Number of rounds R."""
        return len(self.occupancy)


def learn_rounds(
    density: ArrayDensity,
    ladder: Ladder,
    chains: LockstepChains,
    rng: np.random.Generator,
    *,
    sweeps: int,
    min_rounds: int,
    max_rounds: int,
    ladder_move: str,
) -> LearnedRounds:
    """Run rounds with log Z-hat frozen, and equation (12) after each, until all c_k are right."""
    history, settled = [ladder.log_z], False
    seen: list[FloatArray] = []
    while len(seen) < min_rounds or (not settled and len(seen) < max_rounds):
        chains, trace = run_sweeps(density, ladder, chains, sweeps, rng, ladder_move=ladder_move)
        by_chain = trace.probabilities()
        occupancy, settled = by_chain.mean(axis=0), occupancies_are_right(by_chain, ladder)
        log_z = rts_log_z(occupancy, ladder.log_z, ladder.log_weights)
        if not np.isfinite(log_z).all():
            raise LadderError(
                f"No state of round {len(seen) + 1} has any weight at rung "
                f"{int(np.flatnonzero(~np.isfinite(log_z))[0])}: log Z-hat cannot be learned from "
                "so far away: use more rungs."
            )
        ladder = ladder.with_log_z(log_z)
        history.append(ladder.log_z)
        seen.append(occupancy)
    return LearnedRounds(ladder, chains, np.array(history), np.array(seen), settled, sweeps)


def weights_at(betas: np.ndarray, log_weights: LogWeights) -> np.ndarray:
    """Log r_k (K,) of the given ones, or of the function that gives them."""
    if log_weights is None:
        return np.zeros(betas.size)
    found = log_weights(betas) if callable(log_weights) else log_weights
    return np.asarray(found, dtype=float)


MAX_LOG_OFF = 0.7
"""|log(c_k / r_k)| up to which the weights of the ladder are taken for learned."""

PARTICLES = 2
"""Particles of the annealed pass for each chain."""

MIN_CHAINS = 20
"""Fewest chains: a run's error, and the occupancies' in its warm-up, are between them."""


@dataclass(frozen=True, eq=False)
class ArrayRun:
    """A run of chains over arrays.

    Attributes
    ----------
    trace : SweepTrace
        log_ratio and rung after each sweep of each chain; ``cold_states``, shape (n, ...), are
        posterior draws, in the order of time, and ``cold_chain``, shape (n,), says whose.
    chains : LockstepChains
        Where they are afterwards, to go on from.
    learned : LearnedRounds
        The warm-up's rounds.
    warm_sweeps : int
        Sweeps of all chains before the run that cost as much as the warm-up did.
    seconds : float
        Of the sweeps that count.
    """

    trace: SweepTrace
    chains: LockstepChains
    learned: LearnedRounds
    warm_sweeps: int
    seconds: float

    @property
    def ladder(self) -> Ladder:
        """The frozen ladder."""
        return self.trace.ladder

    @cached_property
    def _rows(self) -> tuple[CycleStats, FlatTrace]:
        return rows_of_trace(self.trace)

    @property
    def stats(self) -> CycleStats:
        """Sums over the rows of each chain, which the estimators read."""
        return self._rows[0]

    def evidence(self, method: str = "rts") -> Evidence:
        """Estimate log Z (nats) by any estimator that reads a run.

        Parameters
        ----------
        method : str, default "rts"
            As in :func:`pymc_tempering.log_marginal_likelihood`. "backward" needs cycles, which
            chains that stop after a number of sweeps do not have.

        Returns
        -------
        Evidence

        Raises
        ------
        ValueError
            The method is not known.
        NotTemperedError
            It is "backward", or "pooled", for which there are no reference draws.

        Warns
        -----
        TemperingWarning
            What the estimate warns about: too few tours for an error, for instance.
        """
        found = estimate_quietly(self.to_datatree(), method)
        n_moves = self.trace.rung.shape[1] * (self.trace.n_sweeps + self.warm_sweeps)
        return emit_warnings(replace(found, n_evaluations=n_moves, seconds=self.seconds))

    def diagnose(self) -> Diagnosis:
        """Diagnose the run, as :func:`pymc_tempering.diagnose` does."""
        return diagnose(self.to_datatree())

    def to_datatree(self) -> xr.DataTree:
        """Return the run as a DataTree, for ``cross_check``, ``diagnose`` and saving.

        Groups ``sample_stats``, with a row of sweeps in the place of a draw, and
        ``tempering_trace``. Estimates from runs of their own go to ``cross_check`` as ``others``.
        """
        stats, flat = self._rows
        n_chains, n_sweeps, dims = stats.n_chains, self.trace.n_sweeps, ("chain", "draw")
        whole = (n_chains, stats.n_draws, stats.beta.size)
        data: dict[str, tuple[tuple[str, ...], Any]] = {
            name: (dims, getattr(stats, name)) for name in (*SCALAR_STATS, "n_zero_likelihood")
        }
        for name in (*LADDER_STATS, *RUNG_STATS):
            values = np.broadcast_to(getattr(stats, name), whole).copy()
            data[name] = ((*dims, "rung"), values)
        coords = {"chain": np.arange(n_chains), "draw": np.arange(stats.n_draws)}
        row = (flat.cycle % stats.n_draws).reshape(n_chains, n_sweeps)
        each = {"log_ratio": flat.log_ratio, "rung": flat.rung, "row": row}
        trace = {
            name: (("chain", "iteration"), values.reshape(n_chains, n_sweeps))
            for name, values in each.items()
        }
        return xr.DataTree.from_dict(
            {
                "sample_stats": xr.Dataset(data, coords),
                "tempering_trace": xr.Dataset(trace, {"chain": np.arange(n_chains)}),
            }
        )

    def cold_states(self) -> tuple[States, np.ndarray]:
        """Return the posterior draws (n, ...), one chain after another, and their chains (n,)."""
        order = np.argsort(self.trace.cold_chain, kind="stable")
        return self.trace.cold_states[order], self.trace.cold_chain[order]


def temper(
    density: ArrayDensity,
    sweeps: int = 1000,
    *,
    chains: int = 100,
    betas: Betas = None,
    log_weights: LogWeights = None,
    rungs_per_barrier: float = 1.5,
    n_particles: int | None = None,
    round_sweeps: int = 200,
    min_rounds: int = 2,
    max_rounds: int = 10,
    ladder_move: str = "metropolized_gibbs",
    keep_cold: bool = True,
    random_seed: RandomSeed = None,
) -> ArrayRun:
    """Sample a density over arrays by simulated tempering, all chains in lockstep.

    A short annealed pass, with more particles than chains, finds rungs and log Z-hat. Rounds of
    sweeps then correct log Z-hat by RTS, until all occupancies are right within a factor 2 or
    two standard errors. All of it is frozen before the sweeps that count.

    Parameters
    ----------
    density : ArrayDensity
    sweeps : int, default 1000
        Sweeps of each chain that count. Their number is fixed, and not that of visits to beta = 1.
    chains : int, default 100
        At least 20.
    betas : int or sequence of float, optional
        Number of rungs, at equal distances along the path, or the inverse temperatures from 0 to
        1. By default as many as the path needs.
    log_weights : array of shape (K,) or callable, optional
        log r_k, or a function of the betas: ``lambda betas: 2 * betas`` is the paper's choice
        where states at beta = 1 feed a gradient. Even by default.
    rungs_per_barrier : float, default 1.5
        Intervals per unit of the barrier, where ``betas`` is left out.
    n_particles : int, optional
        Of the annealed pass, at least one a chain; by default two. Chains that start where few
        particles came from carry their error for as long as they mix.
    round_sweeps : int, default 200
        Sweeps of each round of the warm-up.
    min_rounds : int, default 2
        Rounds of the warm-up at least: chains that start where particles died out need some time.
    max_rounds : int, default 10
        Rounds of the warm-up at most, where occupancies are not right.
    ladder_move : {"metropolized_gibbs", "gibbs"}, default "metropolized_gibbs"
        How chains move on the ladder; "gibbs" is that of the paper.
    keep_cold : bool, default True
        Whether to keep the states at beta = 1: posterior draws.
    random_seed : int or numpy.random.Generator, optional
        Same seeds give the same run.

    Returns
    -------
    ArrayRun

    Raises
    ------
    KernelError, LikelihoodError, ModelError
        The functions of the density do not hold what they promise; the message says which.
    LadderError
        ``betas`` do not increase from 0 to 1.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        log Z-hat did not settle in the warm-up.

    Notes
    -----
    Every visit to beta = 0 draws afresh from the reference. Carlson et al. (2016), Algorithm 1.

    Examples
    --------
    >>> def draw(n, rng):
    ...     return rng.standard_normal((n, 1))
    >>> def log_ratio(x):
    ...     return -4 * x[:, 0] ** 2
    >>> def move(x, beta, rng):
    ...     return rng.standard_normal(x.shape) / np.sqrt(1 + 8 * beta[:, None])
    >>> density = pmt.arrays.ArrayDensity(draw, log_ratio, move, reversible=True)
    >>> run = pmt.arrays.temper(density, 300, chains=50, random_seed=1)
    >>> run.evidence().verdict, run.diagnose().verdict[:2]
    ('ok', 'ok')
    """
    check_whole(MIN_CHAINS, chains=chains)
    check_whole(
        1, sweeps=sweeps, round_sweeps=round_sweeps, min_rounds=min_rounds, max_rounds=max_rounds
    )
    if n_particles is not None:
        check_whole(chains, n_particles=n_particles)
    check_choice("ladder_move", ladder_move, LADDER_MOVES)
    check_schedule(betas)
    rng = rng_of(random_seed)
    check_density(density, rng)
    found = anneal_arrays(density, n_particles or PARTICLES * chains, rng)
    rungs = rungs_on(found.spaced, betas, rungs_per_barrier)
    ladder = Ladder(rungs, found.alive.log_z_at(rungs), weights_at(rungs, log_weights))
    learned = learn_rounds(
        density, ladder, found.chains(ladder, chains, rng), rng,
        sweeps=round_sweeps, min_rounds=min_rounds, max_rounds=max_rounds,
        ladder_move=ladder_move,
    )  # fmt: skip
    if not learned.settled:
        warn_user(
            f"log Z-hat did not settle in {max_rounds} rounds of {round_sweeps} sweeps: "
            "occupancies are still off by more than a factor 2; use more rounds, or longer ones."
        )
    started = perf_counter()
    end, trace = run_sweeps(
        density, learned.ladder, learned.chains, sweeps, rng,
        ladder_move=ladder_move, keep_cold=keep_cold,
    )  # fmt: skip
    warm = found.n_moves * found.log_ratio.shape[1] // chains + learned.n_rounds * round_sweeps
    return ArrayRun(trace, end, learned, warm, perf_counter() - started)


def occupancies_are_right(by_chain: FloatArray, ladder: Ladder) -> bool:
    """Whether log(c_k / r_k) by chain (C, K) is within 0.7 or two errors for all k."""
    mean = by_chain.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(np.log(mean) - ladder.log_weights)
        error = by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain)) / mean
    return bool(np.all((off < MAX_LOG_OFF) | (off < 2.0 * error)))
