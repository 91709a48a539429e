"""From log weights to log Z: mean, effective number, errors, and alarms."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import logsumexp

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

MAX_SHARE = 0.25
"""Share of all weight in one particle above which no error is stated."""

N_BOOTSTRAP, BOOTSTRAP_CELLS = 1000, 2_000_000


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
    if share > MAX_SHARE:
        return (
            f"One of {log_w.size} {noun} holds {share:.0%} of all weight (effective number "
            f"{ess:.1f}), so the mcse is infinite: {advice}."
        )
    if ess < MIN_ESS:
        return (
            f"A few of {log_w.size} {noun} hold nearly all the weight (effective number "
            f"{ess:.1f}), so the mcse is infinite: {advice}."
        )
    return ""


def evidence_of_weights(
    log_w: np.ndarray,
    rng: np.random.Generator,
    *,
    method: str,
    n_evaluations: int,
    seconds: float,
    curve: Mapping[str, np.ndarray] | None = None,
    inverse: bool = False,
    group: np.ndarray | None = None,
    share: tuple[float, float] = (0.0, 0.0),
    noun: str = "particles",
    advice: str = "use more rungs (betas), or more particles",
    warnings: tuple[str, ...] = (),
    n_undefined: int = 0,
) -> Evidence:
    """Turn log weights into an evidence with a bootstrap error.

    Parameters
    ----------
    log_w : array, shape (n,)
        Log weights whose mean is unbiased for Z, or for 1 / Z with `inverse`.
    rng : numpy.random.Generator
        For the bootstrap.
    method : str
    n_evaluations : int
    seconds : float
    curve : mapping, optional
        As :func:`curve_from_sums` gives it.
    inverse : bool, default False
        The weights run from the target down: log Z is minus the log of their mean.
    group : array of int, shape (n,), optional
        Chain of each weight, where they are dependent: the error is then at least that of batches.
    share : tuple of float, default (0.0, 0.0)
        Log of a factor of Z beside the mean of the weights, and its error (nats).
    noun, advice : str
        For the sentence about a collapse.
    warnings : tuple of str, default ()
        Further sentences.
    n_undefined : int, default 0
        Particles that started where the density is no number.

    Returns
    -------
    Evidence
        "unchecked" with infinite mcse where the weights collapsed, or the density was no number
        at too many starts.
    """
    sign = -1.0 if inverse else 1.0
    mcse = bootstrap_error(log_w, rng)
    if group is not None:
        mcse = max(mcse, batch_error(log_w, group))
    log_share, share_error = share
    mcse = float(np.hypot(mcse, share_error))
    collapsed = collapse_warning(log_w, noun, advice)
    if collapsed:
        mcse = np.inf
        warnings = (collapsed, *warnings)
    elif rough := roughness(log_w, noun):
        side = "high" if inverse else "low"
        rough = f"{rough}, so the error is rough and the estimate rather too {side}: {advice}."
        warnings = (rough, *warnings)
    n = log_w.size
    known: dict[str, Any] = dict(curve or {})
    if known:
        known["log_z_curve_mcse"] = np.append(known["log_z_curve_mcse"][:-1], mcse)
    found = Evidence(
        log_z=log_share + sign * log_mean(log_w),
        mcse=float(mcse),
        method=method,
        verdict="unchecked" if collapsed else "ok",
        ess=effective_number(log_w),
        halves=(
            log_share + sign * log_mean(log_w[: n // 2]),
            log_share + sign * log_mean(log_w[n // 2 :]),
        ),
        warnings=warnings,
        bias=-0.5 * sign * float(mcse) ** 2,
        n_evaluations=n_evaluations,
        bias_direction="above" if inverse else "below",
        seconds=seconds,
        **known,
    )
    starts = noun if inverse else "reference draws"
    return with_undefined(found, n_undefined, n, starts)
