"""The numbers of thermodynamic integration: quadratures over beta, with their errors."""

from collections.abc import Sequence

import numpy as np

from pymc_tempering.evidence import Evidence, integrate
from pymc_tempering.evidence.result import with_undefined
from pymc_tempering.evidence.ti import ORDERS, RULES
from pymc_tempering.exceptions import LikelihoodError

MIN_RUNG_ESS = 40.0
"""Effective draws of log_ratio at a rung below which no error is stated."""

CHAIN_RULES = ("corrected", "trapezoid")
"""Rules whose error can be told from the same rule on every second rung."""

type Rung = tuple[np.ndarray, int, int, int]
"""log_ratio by (chain, draw); evaluations; reference draws of zero likelihood, and those of them
where the density is no number."""


def discretization(betas: np.ndarray, mean: np.ndarray, variance: np.ndarray, rule: str) -> float:
    """Estimate the error of a rule from the same rule on every second rung, in nats.

    An error of order h^p makes that difference 2^p - 1 times as large as the error on all rungs
    (Richardson). K is odd, or the last interval is in both.
    """
    kept = np.unique(np.append(np.arange(0, betas.size, 2), betas.size - 1))
    fine = integrate(rule, betas, mean, variance)[-1]
    coarse = integrate(rule, betas[kept], mean[kept], variance[kept])[-1]
    return float((coarse - fine) / (2.0 ** ORDERS[rule] - 1.0))


def evidence_of_chains(
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
    kept, _, n_dead, n_undefined = rungs[0]
    total = kept.size + n_dead
    if kept.size < 2 or not all(np.isfinite(values).all() for values, *_ in rungs):
        raise LikelihoodError(
            f"{n_dead} of {total} prior draws have zero likelihood, or a chain met a state whose "
            "log-likelihood is not finite: there is nothing to integrate. Use pmt.ais."
        )
    mean = np.array([values.mean() for values, *_ in rungs])
    variance = np.array([values.var(ddof=1) for values, *_ in rungs])
    share = (total - n_dead) / total
    curve = integrate(rule, betas, mean, variance) + np.where(betas > 0.0, np.log(share), 0.0)
    error, least = _sampling_errors(betas, [values for values, *_ in rungs], rule)
    error[1:] = np.hypot(error[1:], np.sqrt((1.0 - share) / (share * total)))
    off = discretization(betas, mean, variance, rule)
    mcse, verdict, said = float(np.hypot(error[-1], off)), "ok", []
    if least < MIN_RUNG_ESS:
        verdict, mcse = "unchecked", np.inf
        said.append(
            f"A rung has {least:.0f} effective draws of log_ratio, fewer than {MIN_RUNG_ESS:.0f}, "
            "or its chains disagree, so the mcse is infinite: use more draws."
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
        halves.append(float(np.log(share) + integrate(rule, betas, means, variances)[-1]))
    found = Evidence(
        log_z=float(curve[-1]),
        mcse=mcse,
        method="thermodynamic_integration",
        verdict=verdict,
        log_z_curve=curve,
        log_z_curve_mcse=np.array([*error[:-1], mcse]),
        betas=betas,
        halves=(halves[0], halves[1]),
        warnings=tuple(said),
        bias=off,
        n_evaluations=n_evaluations + sum(count for _, count, *_ in rungs),
        seconds=seconds,
    )
    return with_undefined(found, n_undefined, total)


def _sampling_errors(
    betas: np.ndarray, chains: Sequence[np.ndarray], rule: str
) -> tuple[np.ndarray, float]:
    """Errors of the integral up to each rung, shape (K,), and the smallest effective number.

    At each rung the integral is, to first order, the mean over draws of a (x - m) + b (x - m)^2
    with x = log_ratio and a, b the rule's weights, which differ at the rung where it ends.
    """
    of_means, of_variances = (weights[-1] for weights in RULES[rule](betas))
    inside, at_end, least = np.zeros(betas.size), np.zeros(betas.size), np.inf
    for k, values in enumerate(chains):
        inside[k], ess = _variance_of_mean(values, of_means[k], of_variances[k])
        least = min(least, ess)
        if k > 0:
            ends = [float(weights[1, 1]) for weights in RULES[rule](betas[k - 1 : k + 1])]
            at_end[k], _ = _variance_of_mean(values, *ends)
    before = np.concatenate([[0.0], np.cumsum(inside)[:-1]])
    return np.sqrt(before + at_end), least


def _variance_of_mean(values: np.ndarray, a: float, b: float) -> tuple[float, float]:
    """Variance of the mean of a (x - m) + b (x - m)^2 over autocorrelated chains, and its ESS."""
    from arviz_stats.base import array_stats  # slow to import

    centered = values - values.mean()
    influence = a * centered + b * centered**2
    spread = float(influence.var(ddof=1))
    if spread == 0.0:
        return 0.0, np.inf
    ess = float(array_stats.ess(influence, chain_axis=0, draw_axis=1, method="mean"))
    return spread / ess, ess
