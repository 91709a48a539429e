"""The initial iterations of the RTS paper, as printed: log Z-hat of a density over arrays.

Carlson et al. (2016), section 2.4, equations (7), (9) and (12). On hard targets they take long, and
with a perfect Z-hat their rule often fails by noise: `pmt.arrays.temper` starts with an annealed
pass instead, and asks occupancies to be right within their errors. `rbm_training.py` starts so,
since a rough log Z will do there.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import pymc_tempering as pmt
from pymc_tempering.arrays import ArrayDensity, LearnedRounds
from pymc_tempering.arrays.array_density import check_density
from pymc_tempering.arrays.lockstep import LockstepChains, evaluated_draws, run_sweeps
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence import rts_log_z

TOLERANCE = 0.1
"""Largest |r_k - c_k| times K of the rule of section 2.4."""

PSEUDO_COUNT = 0.1
"""Added to the visits of each rung, so that no logarithm is infinite."""


def rule_passes(occupancy: np.ndarray, ladder: Ladder) -> bool:
    """max_k |r_k - c_k| < 0.1 / K, the rule of section 2.4, of occupancies (K,)."""
    off = np.abs(occupancy - np.exp(ladder.log_weights))
    return bool(off.max() < TOLERANCE / ladder.n_rungs)


def start_chains(
    density: ArrayDensity, chains: int, rung: np.ndarray, rng: np.random.Generator
) -> LockstepChains:
    """Start chains at draws of the reference, to explore the given rungs (C,)."""
    states, ratio = evaluated_draws(density, chains, rng)
    # A state of zero density is legal at beta = 0 alone.
    return LockstepChains(states, ratio, np.where(ratio > -np.inf, rung, 0), np.zeros(chains, bool))


def redraw_rungs(
    chains: LockstepChains, ladder: Ladder, rng: np.random.Generator
) -> LockstepChains:
    """Draw the rung of each chain anew from r, whatever its state.

    This leaves the law of the chains: sweeps afterwards lead back to it.
    """
    rung = rng.choice(ladder.n_rungs, size=chains.n_chains, p=np.exp(ladder.log_weights))
    rung = np.where(chains.log_ratio > -np.inf, rung, 0)
    return replace(chains, rung=rung, awaits_tour=np.zeros(chains.n_chains, bool))


def initial_iterations(
    density: ArrayDensity,
    betas: int | Sequence[float] | np.ndarray = 100,
    *,
    chains: int = 100,
    sweeps: int = 50,
    max_rounds: int = 100,
    log_weights: np.ndarray | None = None,
    rao_blackwell: bool = True,
    random_seed: int | np.random.Generator | None = None,
) -> LearnedRounds:
    """Learn log Z-hat from Z-hat = 1 by rounds of sweeps, on evenly spaced rungs or given ones.

    Each round makes a few sweeps of all chains, with rungs drawn by Gibbs, and replaces log Z-hat
    by the RTS estimate of the round. The next one starts from the last states, with each beta drawn
    anew from r (`log_weights`, even by default). It ends when `rule_passes`; a warning says if that
    took more than `max_rounds`. Without `rao_blackwell` c_k are not the means of q(beta_k | x), but
    visits plus 0.1 each, as Figure 1 shows for comparison.
    """
    rng = np.random.default_rng(random_seed)
    rungs = np.linspace(0.0, 1.0, betas) if isinstance(betas, int) else np.asarray(betas)
    weights = np.zeros(rungs.size) if log_weights is None else log_weights
    ladder = Ladder(rungs, np.zeros(rungs.size), weights)
    check_density(density, rng)
    drawn = rng.choice(ladder.n_rungs, size=chains, p=np.exp(ladder.log_weights))
    where = start_chains(density, chains, drawn, rng)
    history, seen, settled = [ladder.log_z], [], False
    while not settled and len(seen) < max_rounds:
        if seen:
            where = redraw_rungs(where, ladder, rng)
        where, trace = run_sweeps(density, ladder, where, sweeps, rng, ladder_move="gibbs")
        if rao_blackwell:
            occupancy = trace.probabilities().mean(axis=0)
        else:
            visits = np.bincount(trace.rung.ravel(), minlength=ladder.n_rungs) + PSEUDO_COUNT
            occupancy = visits / visits.sum()
        settled = rule_passes(occupancy, ladder)
        ladder = ladder.with_log_z(rts_log_z(occupancy, ladder.log_z, ladder.log_weights))
        history.append(ladder.log_z)
        seen.append(occupancy)
    if not settled:
        warnings.warn(
            f"After {max_rounds} rounds max |r_k - c_k| is still above {TOLERANCE} / K: log Z-hat "
            "is rough, or the rule fails by noise; use more sweeps a round, or pmt.arrays.temper.",
            pmt.TemperingWarning,
            stacklevel=2,
        )
    return LearnedRounds(ladder, where, np.array(history), np.array(seen), settled, sweeps)
