"""The numbers of annealed SMC: the mean of Z-hat over islands, its error, and genealogies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_tempering.core.weighting import effective_number, log_mean, log_mean_error
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import with_undefined

MIN_ROOTS = 5.0
"""Effective number of ancestors, in the median island, below which genealogies are not used."""

MIN_ISLAND_ESS = 0.3
"""Effective number of islands, as a share, below which no error is stated."""

type Island = tuple[np.ndarray, float, float, int, int]
"""log Z at each rung, relative variance by genealogy, effective ancestors, evaluations, and
particles that started where the density is no number."""


@dataclass(frozen=True, eq=False)
class WeightedEnds:
    """Particles from the prior at the end of the path: weighted posterior draws.

    Groups are independent of each other; within one the particles may share ancestors.

    Attributes
    ----------
    states : array, shape (n, d)
        Unconstrained.
    log_w : array, shape (n,)
        Log weights (nats), such that the mean of the weights estimates Z.
    group : array of int, shape (n,)
    """

    states: np.ndarray
    log_w: np.ndarray
    group: np.ndarray


def combine(
    results: Sequence[Island],
    betas: np.ndarray,
    n_evaluations: int,
    seconds: float,
    *,
    unbiased: bool,
    n_particles: int,
    warnings: tuple[str, ...] = (),
) -> Evidence:
    """Average Z-hat over islands, with the error of the log of the mean.

    Parameters
    ----------
    results : sequence of Island
    betas : array, shape (K,)
    n_evaluations : int
        Of the pilot.
    seconds : float
    unbiased : bool
        Whether the schedule was frozen.
    n_particles : int
        Of an island.
    warnings : tuple of str, default ()
    """
    n = len(results)
    log_z = np.array([log_z[-1] for log_z, *_ in results])
    own = np.array([variance for _, variance, *_ in results])
    roots = np.array([r for _, _, r, *_ in results])
    value, ess = log_mean(log_z), effective_number(log_z)
    mcse = log_mean_error(log_z)
    if np.median(roots) >= MIN_ROOTS and np.isfinite(value):
        share = np.exp(log_z - value)
        genealogy = float(np.sum(share**2 * own)) / n**2
        if genealogy > 0.0:
            mcse = float(np.sqrt(genealogy))
    verdict = "ok"
    if not ess >= MIN_ISLAND_ESS * n:
        verdict, mcse = "unchecked", np.inf
        sentence = (
            f"A few of {n} islands hold nearly all the weight (effective number {ess:.1f}), so "
            "the mcse is infinite: use more particles or moves on each, or more rungs (betas)."
        )
        warnings = (sentence, *warnings)
    curve: dict[str, Any] = {}
    if unbiased:
        rows = np.array([log_z for log_z, *_ in results])
        curve = {
            "betas": betas,
            "log_z_curve": np.array([log_mean(row) for row in rows.T]),
            "log_z_curve_mcse": np.append([log_mean_error(r) for r in rows.T[:-1]], mcse),
        }
    found = Evidence(
        log_z=value,
        mcse=mcse,
        method="smc",
        verdict=verdict,
        ess=ess,
        per_chain=log_z,
        per_chain_mcse=np.sqrt(np.where(own > 0.0, own, np.inf)),
        halves=(log_mean(log_z[: n // 2]), log_mean(log_z[n // 2 :])),
        warnings=warnings,
        bias=-0.5 * mcse**2 if unbiased else float("nan"),
        n_evaluations=n_evaluations + sum(count for *_, count, _ in results),
        bias_direction="below" if unbiased else "",
        seconds=seconds,
        **curve,
    )
    return with_undefined(found, sum(lost for *_, lost in results), n * n_particles)


def genealogy_variance(log_w: np.ndarray, root: np.ndarray, n_resampled: int) -> float:
    """Estimate the relative variance of Z-hat of one population from its genealogy.

    1 - (n / (n-1))^(r+1) (1 - sum_e (sum of W_i over descendants of e)^2), with W the normalized
    last weights, e the ancestors at the start and r the number of times that the population was
    resampled: the estimator V of Lee & Whiteley (2018) for weights after the last reweighting,
    relative to Z-hat^2. It holds for multinomial resampling, and may be negative.

    Parameters
    ----------
    log_w : array, shape (n,)
        Last weights, of the particles before any resampling by them.
    root : array of int, shape (n,)
        Ancestor of each particle.
    n_resampled : int
    """
    w = np.exp(log_w - log_w.max())
    families = np.bincount(root, weights=w / w.sum(), minlength=w.size)
    n = w.size
    return float(1.0 - (n / (n - 1.0)) ** (n_resampled + 1) * (1.0 - np.sum(families**2)))
