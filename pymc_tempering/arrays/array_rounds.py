"""Initial iterations over arrays: rounds that learn log Z-hat, section 2.4 of the RTS paper."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_tempering.arguments import check_whole
from pymc_tempering.arrays.array_density import ArrayDensity, check_density
from pymc_tempering.arrays.lockstep import (
    LADDER_MOVES,
    LockstepChains,
    redraw_rungs,
    run_sweeps,
    start_chains,
)
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.ladder import Ladder, check_betas
from pymc_tempering.evidence.rts import PSEUDO_COUNT, rts_log_z
from pymc_tempering.exceptions import LadderError, TemperingWarning

PAPER_TOLERANCE = 0.1
"""Largest |r_k - c_k| times K of the rule of section 2.4."""

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
        c_k of each round, by q(beta_k | x) or by counts.
    settled : bool
        Whether the last round passed the rule.
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


def paper_rule(by_chain: FloatArray, ladder: Ladder) -> bool:
    """max_k |r_k - c_k| < 0.1 / K, the rule of section 2.4, of occupancies by chain (C, K)."""
    off = np.abs(by_chain.mean(axis=0) - np.exp(ladder.log_weights))
    return bool(off.max() < PAPER_TOLERANCE / ladder.n_rungs)


def learn_rounds(
    density: ArrayDensity,
    ladder: Ladder,
    chains: LockstepChains,
    rng: np.random.Generator,
    rule: Callable[[FloatArray, Ladder], bool],
    *,
    sweeps: int,
    max_rounds: int,
    redraw: bool,
    min_rounds: int = 1,
    ladder_move: str = LADDER_MOVES[0],
    rao_blackwell: bool = True,
) -> LearnedRounds:
    """Run rounds with log Z-hat frozen, and equation (12) after each, until a rule passes."""
    history, settled = [ladder.log_z], False
    seen: list[FloatArray] = []
    while len(seen) < min_rounds or (not settled and len(seen) < max_rounds):
        if redraw and seen:
            chains = redraw_rungs(chains, ladder, rng)
        chains, trace = run_sweeps(density, ladder, chains, sweeps, rng, ladder_move=ladder_move)
        if rao_blackwell:
            by_chain = trace.probabilities()
        else:
            visits = np.bincount(trace.rung.ravel(), minlength=ladder.n_rungs)
            by_chain = ((visits + PSEUDO_COUNT) / (visits + PSEUDO_COUNT).sum())[None]
        occupancy = by_chain.mean(axis=0)
        settled = rule(by_chain, ladder)
        log_z = rts_log_z(occupancy, ladder.log_z, ladder.log_weights)
        if not np.isfinite(log_z).all():
            raise LadderError(
                f"No state of round {len(seen) + 1} has any weight at rung "
                f"{int(np.flatnonzero(~np.isfinite(log_z))[0])}: log Z-hat cannot be learned from "
                "so far away. Start from the annealed pass of temper(), or use more rungs."
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


def initial_iterations(
    density: ArrayDensity,
    betas: int | list[float] | np.ndarray = 100,
    *,
    chains: int = 100,
    sweeps: int = 50,
    max_rounds: int = 100,
    log_weights: LogWeights = None,
    log_z: np.ndarray | None = None,
    rao_blackwell: bool = True,
    random_seed: int | np.random.Generator | None = None,
) -> LearnedRounds:
    """Learn log Z-hat by the initial iterations of the RTS paper, as printed.

    Z-hat starts at 1 for all rungs. Each round makes a few sweeps of all chains, with rungs drawn
    by Gibbs, and replaces log Z-hat by the RTS estimate of the round. The next one starts from the
    last states, with each beta drawn anew from r. It ends when ``max_k |r_k - c_k| < 0.1 / K``.

    On hard targets this takes long, and with a perfect Z-hat the rule often fails by noise:
    :func:`temper` starts with an annealed pass instead, and asks occupancies to be right within
    their errors.

    Parameters
    ----------
    density : ArrayDensity
    betas : int or sequence of float, default 100
        Number of rungs, evenly spaced, or the inverse temperatures from 0 to 1.
    chains : int, default 100
        Any number; section 4.2 has 100.
    sweeps : int, default 50
        Sweeps of each chain in each round.
    max_rounds : int, default 100
    log_weights : array of shape (K,) or callable, optional
        log r_k, or a function of the betas; even by default.
    log_z : array, shape (K,), optional
        A better start than zeros, in nats.
    rao_blackwell : bool, default True
        Take c_k from q(beta_k | x). If not, from visits plus 0.1 each, as Figure 1 shows for
        comparison.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    LearnedRounds
        ``log_z`` and ``occupancy`` of each round, the ladder, and the chains.

    Raises
    ------
    LadderError
        ``betas`` do not increase from 0 to 1; or a rung had no weight at any state.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        The rule did not pass within ``max_rounds``.

    References
    ----------
    Carlson et al. (2016), section 2.4, equations (7), (9) and (12).

    Examples
    --------
    >>> rbm = pmt.arrays.RBM(np.full((4, 3), 0.5), np.zeros(4), np.zeros(3))
    >>> learned = pmt.arrays.initial_iterations(rbm.density(), 5, sweeps=200, random_seed=1)
    >>> learned.settled, bool(abs(learned.ladder.log_z[-1] - rbm.exact_log_z()) < 0.1)
    (True, True)
    """
    check_whole(1, chains=chains, sweeps=sweeps, max_rounds=max_rounds)
    rng = np.random.default_rng(random_seed)
    if isinstance(betas, int | np.integer):
        check_whole(2, betas=int(betas))
        betas = np.linspace(0.0, 1.0, int(betas))
    rungs = check_betas(betas)
    start = np.zeros(rungs.size) if log_z is None else np.asarray(log_z, dtype=float)
    ladder = Ladder(rungs, start, weights_at(rungs, log_weights))
    check_density(density, rng)
    drawn = rng.choice(ladder.n_rungs, size=chains, p=np.exp(ladder.log_weights))
    learned = learn_rounds(
        density, ladder, start_chains(density, chains, drawn, rng), rng, paper_rule,
        sweeps=sweeps, max_rounds=max_rounds, redraw=True, ladder_move="gibbs",
        rao_blackwell=rao_blackwell,
    )  # fmt: skip
    if not learned.settled:
        warnings.warn(
            f"After {max_rounds} rounds max |r_k - c_k| is still "
            f"{np.abs(learned.occupancy[-1] - np.exp(ladder.log_weights)).max() * rungs.size:.2g} "
            f"/ K, above {PAPER_TOLERANCE} / K: log Z-hat is rough, or the rule fails by noise; "
            "use more sweeps a round, or temper().",
            TemperingWarning,
            stacklevel=2,
        )
    return learned
