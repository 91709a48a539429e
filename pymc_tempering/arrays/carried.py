"""States that were carried along a path, whoever moved them, and what their weights say of log Z.

Annealing of models and of densities over arrays meet here: both give a `Carried`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.ladder import PathSample, barrier_of, check_betas, space_betas
from pymc_tempering.core.weighting import (
    MAX_KHAT,
    MIN_ESS,
    MIN_TAIL,
    ROUGH_ESS,
    batch_labels,
    effective_number,
    error_of_influence,
    log_mean,
    pareto_khat,
)
from pymc_tempering.evidence.result import Evidence, with_undefined
from pymc_tempering.exceptions import LadderError

MIN_PARTICLES = 20
"""Least number of particles."""

N_SHARE = 20_000
"""Reference draws that tell the share on which the density is positive."""

MAX_SHARE = 0.25
"""Share of all weight in one particle above which no error is stated."""

N_BOOTSTRAP, BOOTSTRAP_CELLS = 1000, 2_000_000

type Betas = int | Sequence[float] | np.ndarray | None
"""A number of rungs, inverse temperatures from 0 to 1, or None for as many as are needed."""


def check_schedule(betas: Betas) -> None:
    """Refuse a schedule that does not run from 0 to 1, before any work."""
    if betas is None:
        return
    if np.ndim(betas) > 0:
        check_betas(betas)
    elif not isinstance(betas, int | np.integer) or isinstance(betas, bool) or betas < 2:
        raise LadderError(
            f"betas must be None, the number of rungs (2 or more), or the inverse temperatures "
            f"from 0 to 1, not {betas!r}."
        )


def given_betas(betas: int | Sequence[float] | np.ndarray, sample: PathSample) -> np.ndarray:
    """Inverse temperatures as given, or so many at equal distances along the path."""
    if isinstance(betas, int | np.integer):
        return space_betas(barrier_of(sample), int(betas))
    return check_betas(betas)


@dataclass(frozen=True, eq=False)
class Carried:
    """States that were carried along a path, from the reference or down to it.

    Attributes
    ----------
    log_w : array, shape (n,)
        Log weights, in nats.
    states : array, shape (n, ...)
        At the end.
    sums : array, shape (K, 3), optional
        Running sums of the weights at each rung, [largest log w, sum w, sum w^2].
    index : array of int, shape (n,), optional
        Which of the states asked for these are, where Ctrl-C left some out.
    n_evaluations : int
    n_nan : int
        States that started where the density is no number.
    interrupted : bool
    """

    log_w: np.ndarray
    states: np.ndarray
    sums: np.ndarray | None = None
    index: np.ndarray | None = None
    n_evaluations: int = 0
    n_nan: int = 0
    interrupted: bool = False


def bootstrap_error(log_w: np.ndarray, rng: np.random.Generator) -> float:
    """Bootstrap standard error of the log of the mean of independent weights, in nats.

    Each resample draws as many weights as there are, with replacement. Resamples in which all
    weights are zero have no logarithm; they are left out, and an error from such weights is not
    stated anyway.
    """
    if log_w.size < 2 or not np.any(log_w > -np.inf):
        return np.inf
    w = np.exp(log_w - log_w.max())
    means = []
    for start in range(0, N_BOOTSTRAP, step := max(1, BOOTSTRAP_CELLS // w.size)):
        index = rng.integers(w.size, size=(min(step, N_BOOTSTRAP - start), w.size))
        means.append(w[index].mean(axis=1))
    mean = np.concatenate(means)
    return float(np.std(np.log(mean[mean > 0.0]), ddof=1))


def batch_error(log_w: np.ndarray, group: np.ndarray) -> float:
    """Delta-method error of the log of the mean over batches of dependent weights, in nats.

    Parameters
    ----------
    log_w : array, shape (n,)
    group : array of int, shape (n,)
        Chain of each weight; weights of a chain stand in their order.
    """
    if not np.any(log_w > -np.inf):
        return np.inf
    w = np.exp(log_w - log_w.max())
    effects = w / w.sum() - 1.0 / w.size
    blocks = []
    for chain in np.unique(group):
        mine = effects[group == chain]
        blocks.append(np.bincount(batch_labels(1, mine.size)[0], weights=mine))
    return float(error_of_influence(np.concatenate(blocks)[:, None])[0])


def roughness(log_w: np.ndarray, noun: str) -> str:
    """Say why an error may be too small: few weights that count, or a heavy tail; or nothing."""
    if (ess := effective_number(log_w)) < ROUGH_ESS:
        return f"Only {ess:.0f} of {log_w.size} {noun} count (effective number)"
    alive = log_w[log_w > -np.inf]
    if alive.size < MIN_TAIL:
        return ""
    tail = pareto_khat(alive)
    if tail > MAX_KHAT:
        return f"The weights of the {noun} have a heavy tail (Pareto k = {tail:.2f})"
    return ""


def merge_sums(parts: list[np.ndarray]) -> np.ndarray:
    """Add running sums [largest log w, sum w, sum w^2] of several blocks, each (K, 3)."""
    stack = np.array(parts)
    peak = stack[:, :, 0].max(axis=0)
    with np.errstate(invalid="ignore"):
        shrink = np.exp(np.where(stack[:, :, 0] > -np.inf, stack[:, :, 0] - peak, -np.inf))
    first = np.sum(stack[:, :, 1] * shrink, axis=0)
    second = np.sum(stack[:, :, 2] * shrink**2, axis=0)
    return np.column_stack([peak, first, second])


def curve_from_sums(betas: np.ndarray, sums: np.ndarray, n: int) -> dict[str, np.ndarray]:
    """Mean of n weights at each rung, and its delta-method error, as fields of an ``Evidence``.

    The first rung is exact.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log_z = sums[:, 0] + np.log(sums[:, 1] / n)
        relative = sums[:, 2] / sums[:, 1] ** 2 - 1.0 / n
    mcse = np.sqrt(np.maximum(relative, 0.0))
    mcse[~np.isfinite(log_z)] = np.inf
    log_z[0] = mcse[0] = 0.0
    return {"betas": betas, "log_z_curve": log_z, "log_z_curve_mcse": mcse}


def collapse_warning(log_w: np.ndarray, noun: str, advice: str) -> str:
    """Say that weights collapsed; empty if they did not."""
    alive = int(np.sum(log_w > -np.inf))
    if alive == 0:
        return f"All {log_w.size} {noun} have weight zero, so there is no estimate: {advice}."
    share = float(np.exp(log_w.max() - logsumexp(log_w)))
    ess = effective_number(log_w)
    if share <= MAX_SHARE and ess >= MIN_ESS:
        return ""
    who = f"A few of {log_w.size} {noun} hold nearly all the weight"
    if share > MAX_SHARE:
        who = f"One of {log_w.size} {noun} holds {share:.0%} of all weight"
    return f"{who} (effective number {ess:.1f}), so the mcse is infinite: {advice}."


def carried_evidence(
    done: Carried,
    rng: np.random.Generator,
    *,
    method: str,
    seconds: float,
    asked: int = 0,
    n_evaluations: int = 0,
    betas: np.ndarray | None = None,
    chain: np.ndarray | None = None,
    inverse: bool = False,
    share: tuple[float, float] = (0.0, 0.0),
    noun: str = "particles",
    advice: str = "use more rungs (betas), or more particles",
) -> Evidence:
    """Turn the weights of carried states into an evidence with a bootstrap error.

    Parameters
    ----------
    done : Carried
        Its weights have a mean that is unbiased for Z, or for 1 / Z with `inverse`.
    rng : numpy.random.Generator
        Of the bootstrap.
    method : str
    seconds : float
    asked : int, default 0
        States that were to be carried, for the sentence about an interrupted run.
    n_evaluations : int, default 0
        Before the path began.
    betas : array, shape (K,), optional
        With them the curve of log Z is told too, from the running sums.
    chain : array of int, shape (asked,), optional
        Chain that each state came from, where they depend on each other: the error is then at
        least that of batches.
    inverse : bool, default False
        The weights run from the target down: log Z is minus the log of their mean.
    share : tuple of float, default (0.0, 0.0)
        Log of a factor of Z beside the mean of the weights, and its error (nats).
    noun, advice : str
        For the sentence about a collapse.

    Returns
    -------
    Evidence
        "unchecked" with infinite mcse where the weights collapsed, or the density was no number
        at too many starts.
    """
    log_w, n, sign = done.log_w, done.log_w.size, -1.0 if inverse else 1.0
    log_share, share_error = share
    mcse = bootstrap_error(log_w, rng)
    if chain is not None:
        mcse = max(mcse, batch_error(log_w, chain if done.index is None else chain[done.index]))
    mcse, said = float(np.hypot(mcse, share_error)), []
    if collapsed := collapse_warning(log_w, noun, advice):
        mcse = np.inf
        said.append(collapsed)
    elif rough := roughness(log_w, noun):
        side = "high" if inverse else "low"
        said.append(f"{rough}, so the error is rough and the estimate rather too {side}: {advice}.")
    if done.interrupted:
        said.append(
            f"Interrupted: {n} of {asked} particles were finished; the estimate uses these alone."
        )
    curve: dict[str, Any] = {}
    if betas is not None and done.sums is not None:
        curve = curve_from_sums(betas, done.sums, n)
        curve["log_z_curve_mcse"] = np.append(curve["log_z_curve_mcse"][:-1], mcse)
    found = Evidence(
        log_z=log_share + sign * log_mean(log_w),
        mcse=mcse,
        method=method,
        verdict="unchecked" if collapsed else "ok",
        ess=effective_number(log_w),
        halves=(
            log_share + sign * log_mean(log_w[: n // 2]),
            log_share + sign * log_mean(log_w[n // 2 :]),
        ),
        warnings=tuple(said),
        bias=-0.5 * sign * mcse**2,
        n_evaluations=n_evaluations + done.n_evaluations,
        bias_direction="above" if inverse else "below",
        seconds=seconds,
        **curve,
    )
    return with_undefined(found, done.n_nan, n, noun if inverse else "reference draws")


def log_share(log_ratio: np.ndarray) -> tuple[float, float]:
    """Log of the share of reference draws with a positive density, and its error (nats).

    At any beta above 0 a path stays on this part of the reference. So what goes down to beta = 0
    comes to the reference on this part, whose normalizing constant is the share.
    """
    share = float(np.mean(np.isfinite(log_ratio)))  # NaN and infinity count as none, as in a run
    if share in (0.0, 1.0):
        return (0.0, 0.0) if share else (-np.inf, np.inf)
    return float(np.log(share)), float(np.sqrt((1.0 - share) / (share * log_ratio.size)))
