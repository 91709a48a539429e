"""A short annealed pass over arrays: particles that find the path, its log Z, and its rungs."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.arrays.array_density import ArrayDensity, States, move_states
from pymc_tempering.arrays.lockstep import LockstepChains, evaluated_draws
from pymc_tempering.core.ladder import (
    Ladder,
    PathSample,
    alive_sample,
    barrier_of,
    check_betas,
    place_rungs,
    space_betas,
)
from pymc_tempering.core.weighting import next_beta, systematic_resampling
from pymc_tempering.exceptions import LikelihoodError

MAX_STAGES = 5000
"""Stages after which a path is said to have no end."""

MAX_SPACED = 30_000
"""Particles of all stages that rungs are spaced by, at most: spacing takes as many rows as there
are stages of them, and more particles say no more."""

type Betas = int | list[float] | np.ndarray | None
"""A number of rungs, inverse temperatures from 0 to 1, or None."""


@dataclass(frozen=True, eq=False)
class ArrayPass:
    """What n particles found on their way from the reference to the density.

    Attributes
    ----------
    betas, log_z : array, shape (S,)
        Of the stages; log Z in nats.
    log_ratio : array, shape (S, n)
    states : list of array, S of shape (n, ...)
        After the moves of each stage.
    n_moves : int
        Moves of one state.
    """

    betas: np.ndarray
    log_z: np.ndarray
    log_ratio: np.ndarray
    states: list[States]
    n_moves: int

    @property
    def sample(self) -> PathSample:
        """The particles of some density as a sample over the whole path."""
        return alive_sample(self.betas, self.log_z, self.log_ratio)

    @property
    def spaced(self) -> PathSample:
        """As many particles of each stage as rungs need, from all ancestors."""
        step = -(-self.log_ratio.size // MAX_SPACED)
        return alive_sample(self.betas, self.log_z, self.log_ratio[:, ::step])

    def chains(self, ladder: Ladder, n: int, rng: np.random.Generator) -> LockstepChains:
        """Start n chains: a rung by r, and a particle, each another, of the stage next below."""
        rung = rng.choice(ladder.n_rungs, size=n, p=np.exp(ladder.log_weights))
        stage = np.searchsorted(self.betas, ladder.betas[rung], side="right") - 1
        particle = rng.permutation(self.log_ratio.shape[1])[:n]
        states = np.array([self.states[s][i] for s, i in zip(stage, particle, strict=True)])
        ratio = self.log_ratio[stage, particle]
        return LockstepChains(states, ratio, np.where(ratio > -np.inf, rung, 0), np.zeros(n, bool))


def anneal_arrays(
    density: ArrayDensity,
    n_particles: int,
    rng: np.random.Generator,
    *,
    cess: float = 0.95,
    n_moves: int = 2,
) -> ArrayPass:
    """Carry particles to the density, each stage as far as their weights allow.

    Parameters
    ----------
    density : ArrayDensity
    n_particles : int
    rng : numpy.random.Generator
    cess : float, default 0.95
        Conditional effective sample size of each step, as a share.
    n_moves : int, default 2
        Moves at each stage.

    Raises
    ------
    LikelihoodError
        The path has no end, or cannot be entered.
    """
    states, ratio = evaluated_draws(density, n_particles, rng)
    if not np.any(ratio > -np.inf):
        raise LikelihoodError(
            f"log_ratio is minus infinity at all {n_particles} draws of the reference: use more "
            "chains, or a reference nearer to the density."
        )
    beta, log_z = 0.0, 0.0
    path, kept = [(0.0, 0.0, ratio)], [states]
    while beta < 1.0:
        if len(path) > MAX_STAGES:
            raise LikelihoodError(
                f"The annealed pass is at beta = {beta:.2g} after {MAX_STAGES} stages: the "
                "reference is too far from the density."
            )
        new = next_beta(ratio, beta, cess)
        log_w = (new - beta) * ratio
        log_z += float(logsumexp(log_w) - np.log(n_particles))
        beta = new
        index = systematic_resampling(log_w, rng)
        states, ratio = states[index], ratio[index]
        for _ in range(n_moves):
            states, ratio = move_states(
                density, density.move, states, np.full(len(index), beta), rng
            )
        path.append((beta, log_z, ratio))
        kept.append(states)
    betas, log_zs, ratios = (np.array(column) for column in zip(*path, strict=True))
    return ArrayPass(betas, log_zs, ratios, kept, n_moves * (len(path) - 1))


def rungs_on(found: PathSample, betas: Betas, per_barrier: float) -> np.ndarray:
    """Inverse temperatures (K,): those given, or as many as asked or enough, evenly apart."""
    if betas is None:
        return place_rungs(found, per_barrier)
    if isinstance(betas, int | np.integer):
        return space_betas(barrier_of(found), int(betas))
    return check_betas(betas)
