"""Regions where chains at beta = 1 stay, and their mass.

A look can get stuck in a local mode that holds nothing, on the flank of a peak that is far
narrower. Neither Laplace's method at the top nor the height where it ended tells what the mode
holds.
"""

from dataclasses import dataclass, replace

import numpy as np

from pymc_tempering.chain.particles import place, sweep
from pymc_tempering.core.weighting import log_mean
from pymc_tempering.evidence.reference_check import ISLAND
from pymc_tempering.sampling.evaluated import Evaluated
from pymc_tempering.sampling.setup import Job
from pymc_tempering.sampling.suspects import (
    MAX_PEAKS,
    MAX_WEIGHED_DIM,
    FoundPeaks,
    Peak,
    least_mass,
)
from pymc_tempering.warmup.annealed_pass import AnnealedPass

CHAINS, CHAIN_BEGIN, CHAIN_PARTS, CHAIN_SWEEPS = 64, 10, 8, 5
"""Chains from a state that tell the region where they stay; transitions that are thrown away, and
how many times so many that are kept, by their last states."""


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions where states are stuck.

    Attributes
    ----------
    heavy, light : list of Peak
        Those that may have mass, and those without.
    explained : array of bool, shape (n,)
        Which of the states lie in light ones.
    n_evaluations : int
    """

    heavy: list[Peak]
    light: list[Peak]
    explained: np.ndarray
    n_evaluations: int


def weigh_regions(
    job: Job, annealed: AnnealedPass, xs: np.ndarray, log_z: float, bound: int, dropped: float
) -> Regions:
    """Weigh the regions where states are stuck, one after the other.

    Parameters
    ----------
    job : Job
    annealed : AnnealedPass
        Whose tuning at beta = 1 the chains have.
    xs : array, shape (n, d)
    log_z : float
        Evidence without them (nats).
    bound : int
        Evaluations after which no further one is weighed.
    dropped : float
        Share of earlier regions that were let go; with all light ones it is less than `ISLAND`.
    """
    heavy, light, cost = list[Peak](), list[Peak](), 0
    explained, left = np.zeros(len(xs), dtype=bool), np.ones(len(xs), dtype=bool)
    while left.any() and xs.shape[1] <= MAX_WEIGHED_DIM:
        if cost > bound or job.deadline.late:
            break
        i = int(left.argmax())
        region, spent = region_around(job, annealed, xs[i])
        cost += spent
        inside = region.holds(xs)
        inside[i] = True
        left &= ~inside
        if region.log_mass > least_mass(log_z):
            heavy.append(region)
        elif dropped + region.share(log_z) < ISLAND:
            dropped += region.share(log_z)
            light.append(region)
            explained |= inside
    return Regions(heavy, light, explained, cost)


def peaks_by_chains(job: Job, annealed: AnnealedPass, suspects: Evaluated) -> FoundPeaks:
    """Where there are no gradients: what short chains from a suspect at beta = 1 go through."""
    peaks: list[Peak] = []
    evaluations = 0
    left = np.ones(suspects.n, dtype=bool)
    while left.any() and len(peaks) < MAX_PEAKS:
        at = np.flatnonzero(left)
        best = at[suspects.log_target[at].argmax()]
        left[best] = False
        region, cost = region_around(job, annealed, suspects.xs[best])
        evaluations += cost
        peaks.append(region)
        left &= ~region.holds(suspects.xs)
    return FoundPeaks(peaks, not left.any(), evaluations)


def region_around(job: Job, annealed: AnnealedPass, x: np.ndarray) -> tuple[Peak, int]:
    """Take the normal density of where chains at beta = 1 from a state stay, and its mass.

    For states of the target p in a region of mass Z the mean of q / p is 1 / Z for any normalized
    density q (Gelfand & Dey, 1994). q is normal, of half of the chains, and the mean is over the
    other half. Where q reaches farther than the chains Z is overrated. Of the two halves that serve
    in turn the larger Z counts.

    Returns
    -------
    region : Peak
    n_evaluations : int
    """
    chains = place(job.prior, job.kernel, np.tile(x, (CHAINS, 1)), job.rng)
    params = annealed.tuning.pack(job.kernel)[-1]
    sweep(chains, 1.0, params, CHAIN_BEGIN)
    kept = list[np.ndarray]()
    for _ in range(CHAIN_PARTS):
        sweep(chains, 1.0, params, CHAIN_SWEEPS)
        kept.append(np.column_stack([chains.xs, chains.values.sum(axis=1)]))
    states = np.array(kept)
    halves = (states[:, ::2].reshape(-1, x.size + 1), states[:, 1::2].reshape(-1, x.size + 1))
    log_mass = max(
        -log_mean(_normal(own[:, :-1]).log_density(other[:, :-1]) - other[:, -1])
        for own, other in (halves, halves[::-1])
    )
    region = _normal(states[..., :-1].reshape(-1, x.size))
    return replace(region, log_mass=log_mass), CHAINS + chains.n_evaluations


def _normal(xs: np.ndarray) -> Peak:
    """Take the normal density with mean and covariance of states, (n, d); it has no mass yet."""
    covariance = np.cov(xs, rowvar=False).reshape(xs.shape[1], xs.shape[1])
    covariance += np.diag(1e-9 + 1e-6 * np.diag(covariance))
    return Peak(xs.mean(axis=0), np.linalg.cholesky(covariance), -np.inf)
