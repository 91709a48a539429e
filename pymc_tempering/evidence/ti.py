"""Thermodynamic integration: log Z as the integral of E[log_ratio] over beta, by five rules.

Equation (20) of Carlson et al. (2016).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.integrate import cumulative_simpson

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence.alarms import empty_warnings
from pymc_tempering.evidence.fit_run import PartFit, fit_run, side_of_bias
from pymc_tempering.evidence.pieces import cycle_pieces
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts_log_z

ORDERS = {"riemann": 1, "left_riemann": 1, "trapezoid": 2, "corrected": 4, "simpson": 4}
"""The error of a rule falls with this power of the spacing of the rungs."""


def _right(heights: FloatArray) -> FloatArray:
    """Weights (K, K) of sums up to each rung, with the height of each step at its upper rung."""
    return np.tril(np.append(0.0, heights))


def _left(heights: FloatArray) -> FloatArray:
    """Weights of the same sums with each height at the lower rung."""
    return np.tril(np.append(heights, 0.0), -1)


def _trapezoid(betas: FloatArray) -> FloatArray:
    return 0.5 * (_right(np.diff(betas)) + _left(np.diff(betas)))


def _simpson(betas: FloatArray) -> FloatArray:
    if betas.size < 3:
        return _trapezoid(betas)
    return cumulative_simpson(np.eye(betas.size), x=betas, axis=0, initial=0.0)


RULES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "riemann": lambda betas: _right(np.diff(betas)),
    "left_riemann": lambda betas: _left(np.diff(betas)),
    "trapezoid": _trapezoid,
    "corrected": _trapezoid,
    "simpson": _simpson,
}
"""Rules of integration, each giving weights (K, K) of the means."""


def rule_weights(rule: str, betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights (K, K) of the means and of the variances at the rungs."""
    of_mean = RULES[rule](betas)
    if rule != "corrected":
        return of_mean, np.zeros_like(of_mean)
    square = np.diff(betas) ** 2 / 12.0
    return of_mean, _left(square) - _right(square)


def integrate(rule: str, betas: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Integrate E[log_ratio] from beta = 0 to every rung.

    Parameters
    ----------
    rule : {"riemann", "left_riemann", "trapezoid", "corrected", "simpson"}
        "riemann" takes the mean at the upper end of each interval, as Figure 2 of Carlson et al.
        (2016). The integrand increases, since its derivative is the variance. So this sum is never
        below the integral and "left_riemann" never above. "corrected" is the trapezoid minus
        (beta_{k+1} - beta_k)^2 / 12 times the difference of the variances.
    betas, mean, variance : ndarray, shape (K,)
        Inverse temperatures, and mean and variance of log_ratio there (nats). Where they are NaN, a
        straight line between the neighbors takes their place (section 4.3 of Carlson et al. 2016).

    Returns
    -------
    ndarray, shape (K,)
        log Z_k (nats); NaN where the first or last mean is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence import integrate
    >>> betas = np.array([0.0, 0.5, 1.0])
    >>> integrate("corrected", betas, betas**3, 3 * betas**2)[-1].item()
    0.25
    """
    of_mean, of_variance = rule_weights(rule, betas)
    known = np.isfinite(mean) & np.isfinite(variance)
    if not (known[0] and known[-1]):
        return np.full(betas.size, np.nan)
    if not known.all():
        mean, variance = (np.interp(betas, betas[known], v[known]) for v in (mean, variance))
    return of_mean @ mean + of_variance @ variance


def ti(stats: CycleStats, *, rule: str = "trapezoid", rao_blackwell: bool = False) -> Evidence:
    """Estimate log Z by thermodynamic integration.

    log Z_k is the integral of E[log_ratio] under pi_beta over beta, equation (20) of Carlson et
    al. (2016). The means are those of the visits to each rung, or Rao-Blackwellized: by equation
    (21) sum_i q(beta_k | x_i) log_ratio_i / sum_i q(beta_k | x_i), over all iterations.

    The error of the rule on this ladder is estimated in ``bias`` and not subtracted. The ``mcse``
    includes it: it is the root of the sum of the squares of ``bias`` and of the sampling error. A
    warning says if the first is the larger one.

    Parameters
    ----------
    stats : CycleStats
    rule : {"trapezoid", "riemann", "corrected", "simpson"}, default "trapezoid"
        See :func:`integrate`.
    rao_blackwell : bool, default False

    Returns
    -------
    Evidence
        Everything in nats. ``details`` holds the sampling error alone, ``sampling_mcse``, and the
        two Riemann sums ``lower`` and ``upper``, which bound the integral up to that error.

    Notes
    -----
    The estimate of the bias: with the mixture of all rungs fixed, d/dbeta of the RTS curve
    log sum_i q(beta | x_i) - log r_beta + log Z-hat_beta *is* the Rao-Blackwellized mean
    (equation 22). So the rule applied to Rao-Blackwellized moments, minus the RTS curve, is its
    discretization error on a curve that is close to the true one. With ``rao_blackwell`` it is the
    difference to RTS. For the same reason Rao-Blackwellized means at more and more inverse
    temperatures between the rungs integrate to RTS, and are no further estimate.

    If the likelihood is zero on a part of the reference, E[log_ratio] is minus infinity at beta = 0
    and Z jumps there, from 1 to the share of the reference where the likelihood is positive. The
    visits to rung 0 estimate that share, and the integral is over the other states.

    Tours are cut at draws, as in :func:`counts`.
    """
    by_visit = (stats.visits, stats.log_ratio_sum, stats.log_ratio_sqsum)
    by_weight = (stats.rb_weight, stats.rb_log_ratio_sum, stats.rb_log_ratio_sqsum)
    moments = _rows(by_weight if rao_blackwell else by_visit)
    zero = stats.n_zero_likelihood
    lost = np.zeros(stats.tour_start.size) if zero is None else zero.reshape(-1)
    pieces = cycle_pieces(stats)
    used = pieces.used

    def fit(part: BoolArray) -> PartFit:
        return _fit_rule(rule, stats.beta, [v[part] for v in moments], lost[part])

    rule_error = _discretization(rule, stats, [v[used] for v in _rows(by_weight)], lost[used])
    whole = replace(fit(used), bias=float(rule_error[-1])) if used.any() else None
    direction = (lambda bias, mcse: "above") if rule == "riemann" else side_of_bias(1.0)
    name = {"trapezoid": "ti"}.get(rule, f"ti_{rule}") + ("_rb" if rao_blackwell else "")
    found = fit_run(name, stats, pieces, fit, whole=whole, bias_direction=direction)
    return found if whole is None else _with_discretization(found, rule_error)


def _rows(tables: Sequence[FloatArray]) -> list[FloatArray]:
    """Give statistics of shape (chain, draw, K) one row a cycle."""
    return [table.reshape(-1, table.shape[-1]) for table in tables]


def _fit_rule(
    rule: str, betas: FloatArray, moments: Sequence[FloatArray], lost: FloatArray
) -> PartFit:
    """Apply a rule to the moments of some cycles.

    ``moments`` are the weight of each cycle at each rung and the weighted sums of log_ratio and
    its square, each of shape (n, K); ``lost``, shape (n,), counts the visits to rung 0 with zero
    likelihood.
    """
    weight, first, second = moments
    of_mean, of_variance = rule_weights(rule, betas)
    finite = weight.copy()
    finite[:, 0] -= lost
    total, n_finite = weight.sum(axis=0), finite.sum(axis=0)
    mean, variance = _moments(n_finite, first.sum(axis=0), second.sum(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        jump = np.log(n_finite[0] / total[0])
        d_mean = (first - mean * finite) / n_finite
        d_variance = (second - (variance + mean**2) * finite) / n_finite - 2.0 * mean * d_mean
        d_jump = finite[:, 0] / n_finite[0] - weight[:, 0] / total[0]
    after = betas > 0.0
    riemann = {
        name: float(integrate(side, betas, mean, variance)[-1] + jump)
        for name, side in (("lower", "left_riemann"), ("upper", "riemann"))
    }
    return PartFit(
        integrate(rule, betas, mean, variance) + np.where(after, jump, 0.0),
        d_mean @ of_mean.T + d_variance @ of_variance.T + np.outer(d_jump, after),
        alarms=tuple(empty_warnings(n_finite, "a straight line between its neighbors")),
        details=riemann,
    )


def _moments(n: FloatArray, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance at each rung, NaN where there are no visits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = first / n
        return mean, np.maximum(second / n - mean**2, 0.0)


def _discretization(
    rule: str, stats: CycleStats, moments: Sequence[FloatArray], lost: FloatArray
) -> FloatArray:
    """Return the errors of a rule on the Rao-Blackwellized integrand, whose integral is RTS."""
    weight, first, second = (v.sum(axis=0) for v in moments)
    finite = weight - np.where(stats.beta > 0.0, 0.0, lost.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        jump = np.log(finite[0] / weight[0])
        by_rule = integrate(rule, stats.beta, *_moments(finite, first, second))
        by_rule += np.where(stats.beta > 0.0, jump, 0.0)
        return by_rule - rts_log_z(weight, stats.log_z_ladder, stats.log_weight)


def _with_discretization(evidence: Evidence, bias: FloatArray) -> Evidence:
    """Add the discretization errors (K,) to the mcse, and warn if they exceed that of sampling."""
    sampling = evidence.mcse
    size = np.where(np.isfinite(bias), np.abs(bias), np.inf)
    found = replace(
        evidence,
        mcse=float(np.hypot(sampling, size[-1])),
        log_z_curve_mcse=np.hypot(evidence.log_z_curve_mcse, size),
        details={**evidence.details, "sampling_mcse": sampling},
    )
    if not (np.isfinite(sampling) and size[-1] > sampling):
        return found
    if np.isinf(size[-1]):
        sentence = (
            f"The error of the integration rule of {evidence.method!r} is not known, since a rung "
            'has no weight, so the mcse is infinite: sample more draws, or use method="rts".'
        )
        return replace(found, verdict="unchecked", warnings=(*evidence.warnings, sentence))
    sentence = (
        f"The integration rule of {evidence.method!r} is off by about {evidence.bias:+.2g} nats on "
        f"this ladder, more than its sampling error of {sampling:.2g}; the mcse holds both. Use "
        'more rungs, or method="rts", which has no such error.'
    )
    return replace(found, warnings=(*evidence.warnings, sentence))
