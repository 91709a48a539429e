"""The numbers of thermodynamic integration: quadratures over beta, with their errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from arviz_stats.base import array_stats

from pymc_tempering.evidence import Evidence
from pymc_tempering.exceptions import LikelihoodError

MIN_ESS = 40.0
"""Effective draws of log_ratio at a rung below which no error is stated."""

RULES = ("corrected", "trapezoid")

type Rung = tuple[np.ndarray, int, int]
"""log_ratio by (chain, draw); evaluations; reference draws of zero likelihood."""


@dataclass(frozen=True)
class Quadrature:
    """A quadrature of the path: value, and the weights of means and variances at each rung.

    Attributes
    ----------
    of_means, of_variances : array, shape (K,)
        The estimate is their inner product with the means and variances of log_ratio.
    order : int
        The error falls with this power of the rungs' spacing.
    """

    of_means: np.ndarray
    of_variances: np.ndarray
    order: int

    def __call__(self, mean: np.ndarray, variance: np.ndarray) -> float:
        """Integral over beta of the mean of log_ratio, in nats."""
        return float(self.of_means @ mean + self.of_variances @ variance)


def quadrature(betas: np.ndarray, rule: str) -> Quadrature:
    """Trapezoid, or trapezoid with a correction from the slopes at both ends of each interval.

    The derivative of E_beta[log_ratio] is Var_beta[log_ratio], which gives the corrected rule
    sum_k delta_k (m_k + m_k+1) / 2 - delta_k^2 (v_k+1 - v_k) / 12 (Friel, Hurn & Wyse 2014).

    Parameters
    ----------
    betas : array, shape (K,)
    rule : {"corrected", "trapezoid"}

    Returns
    -------
    Quadrature
    """
    step = np.diff(betas)
    of_means, of_variances = np.zeros(betas.size), np.zeros(betas.size)
    of_means[:-1] += 0.5 * step
    of_means[1:] += 0.5 * step
    if rule == "corrected":
        of_variances[:-1] += step**2 / 12.0
        of_variances[1:] -= step**2 / 12.0
    return Quadrature(of_means, of_variances, 4 if rule == "corrected" else 2)


def discretization(betas: np.ndarray, mean: np.ndarray, variance: np.ndarray, rule: str) -> float:
    """Estimate the error of a rule from the same rule on every second rung, in nats.

    An error of order h^p makes that difference 2^p - 1 times as large as the error on all rungs
    (Richardson). K is odd, or the last interval is in both.
    """
    fine = quadrature(betas, rule)
    kept = np.unique(np.append(np.arange(0, betas.size, 2), betas.size - 1))
    coarse = quadrature(betas[kept], rule)
    difference = coarse(mean[kept], variance[kept]) - fine(mean, variance)
    return float(difference / (2.0**fine.order - 1.0))


def integrate(
    betas: np.ndarray, rungs: Sequence[Rung], rule: str, n_evaluations: int, seconds: float
) -> Evidence:
    """Integrate the means of log_ratio over beta, with errors.

    Parameters
    ----------
    betas : array, shape (K,)
    rungs : sequence of Rung
        log_ratio by (chain, draw) at each rung, in nats; finite.
    rule : {"corrected", "trapezoid"}
    n_evaluations : int
        Of the pilot.
    seconds : float

    Returns
    -------
    Evidence
    """
    kept, _, n_dead = rungs[0]
    total = kept.size + n_dead
    if kept.size < 2 or not all(np.isfinite(values).all() for values, *_ in rungs):
        raise LikelihoodError(
            f"{n_dead} of {total} prior draws have zero likelihood, or a chain met a state whose "
            "log-likelihood is not finite: there is nothing to integrate. Use pmt.ais."
        )
    mean = np.array([values.mean() for values, *_ in rungs])
    variance = np.array([values.var(ddof=1) for values, *_ in rungs])
    share = (total - n_dead) / total
    curve = [0.0]
    curve += [
        float(np.log(share)) + quadrature(betas[:k], rule)(mean[:k], variance[:k])
        for k in range(2, betas.size + 1)
    ]
    error, least = _sampling_errors(betas, [values for values, *_ in rungs], rule)
    error[1:] = np.hypot(error[1:], np.sqrt((1.0 - share) / (share * total)))
    off = discretization(betas, mean, variance, rule)
    mcse, verdict, said = float(np.hypot(error[-1], off)), "ok", []
    if least < MIN_ESS:
        verdict, mcse = "unchecked", np.inf
        said.append(
            f"A rung has {least:.0f} effective draws of log_ratio, fewer than {MIN_ESS:.0f}, or "
            "its chains disagree, so the mcse is infinite: use more draws."
        )
    if abs(off) > error[-1]:
        said.append(
            f"The discretization error is about {abs(off):.2g} nats, larger than the sampling "
            f"error of {error[-1]:.2g}: use more than {betas.size} rungs (betas)."
        )
    halves = []
    for half in (slice(None, None, 2), slice(1, None, 2)):
        chains = [values[half] for values, *_ in rungs]
        means = np.array([values.mean() for values in chains])
        variances = np.array([values.var(ddof=1) for values in chains])
        halves.append(float(np.log(share)) + quadrature(betas, rule)(means, variances))
    return Evidence(
        log_z=curve[-1],
        mcse=mcse,
        method="thermodynamic_integration",
        verdict=verdict,
        log_z_curve=np.array(curve),
        log_z_curve_mcse=np.array([*error[:-1], mcse]),
        betas=betas,
        halves=(halves[0], halves[1]),
        warnings=tuple(said),
        bias=off,
        n_evaluations=n_evaluations + sum(count for _, count, _ in rungs),
        seconds=seconds,
    )


def _sampling_errors(
    betas: np.ndarray, chains: Sequence[np.ndarray], rule: str
) -> tuple[np.ndarray, float]:
    """Errors of the integral up to each rung, shape (K,), and the smallest effective number.

    At each rung the integral is, to first order, the mean over draws of a (x - m) + b (x - m)^2
    with x = log_ratio and a, b the rule's weights, which differ at the rung where it ends.
    """
    whole = quadrature(betas, rule)
    inside, at_end, least = np.zeros(betas.size), np.zeros(betas.size), np.inf
    for k, values in enumerate(chains):
        inside[k], ess = _variance_of_mean(values, whole.of_means[k], whole.of_variances[k])
        least = min(least, ess)
        if k > 0:
            part = quadrature(betas[k - 1 : k + 1], rule)
            at_end[k], _ = _variance_of_mean(values, part.of_means[1], part.of_variances[1])
    before = np.concatenate([[0.0], np.cumsum(inside)[:-1]])
    return np.sqrt(before + at_end), least


def _variance_of_mean(values: np.ndarray, a: float, b: float) -> tuple[float, float]:
    """Variance of the mean of a (x - m) + b (x - m)^2 over autocorrelated chains, and its ESS."""
    centered = values - values.mean()
    influence = a * centered + b * centered**2
    spread = float(influence.var(ddof=1))
    if spread == 0.0:
        return 0.0, np.inf
    ess = float(array_stats.ess(influence, chain_axis=0, draw_axis=1, method="mean"))
    return spread / ess, ess
