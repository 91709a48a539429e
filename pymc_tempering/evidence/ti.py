"""Thermodynamic integration: log Z as the integral of E[log_ratio] over beta, by five rules.

Equation (20) of Carlson et al. (2016); the trapezoid with second moments is that of Friel, Hurn &
Wyse (2014), "Improving power posterior estimation of statistical evidence".
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.integrate import cumulative_simpson

from pymc_tempering.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence.common import Fit, cycle_pieces, fit_run
from pymc_tempering.evidence.counts import empty_warnings
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts_log_z


def _riemann(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.tril(np.append(0.0, np.diff(betas))), np.zeros((betas.size, betas.size))


def _left_riemann(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.tril(np.append(np.diff(betas), 0.0), -1), np.zeros((betas.size, betas.size))


def _trapezoid(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    return 0.5 * (_riemann(betas)[0] + _left_riemann(betas)[0]), np.zeros((betas.size, betas.size))


def _corrected(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    square = np.diff(betas) ** 2 / 12.0
    upper = np.tril(np.append(0.0, square))
    lower = np.tril(np.append(square, 0.0), -1)
    return _trapezoid(betas)[0], lower - upper


def _simpson(betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    if betas.size < 3:
        return _trapezoid(betas)
    weights = cumulative_simpson(np.eye(betas.size), x=betas, axis=0, initial=0.0)
    return np.asarray(weights), np.zeros((betas.size, betas.size))


RULES: dict[str, Callable[[FloatArray], tuple[FloatArray, FloatArray]]] = {
    "riemann": _riemann,
    "left_riemann": _left_riemann,
    "trapezoid": _trapezoid,
    "corrected": _corrected,
    "simpson": _simpson,
}
"""Rules of integration, each giving weights (K, K) of the means and of the variances."""


def integrate(rule: str, betas: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Integrate E[log_ratio] from beta = 0 to every rung.

    Parameters
    ----------
    rule : {"riemann", "left_riemann", "trapezoid", "corrected", "simpson"}
        "riemann" takes the mean at the upper end of each interval, as RTS Figure 2 does. The
        integrand increases, since its derivative is the variance: so this sum is never below the
        integral and "left_riemann" never above. "corrected" is the trapezoid less
        (beta_{k+1} - beta_k)^2 / 12 times the difference of the variances.
    betas, mean, variance : ndarray, shape (K,)
        Inverse temperatures, and mean and variance of log_ratio there (nats); NaN where they are
        not known: there a straight line between the neighbors takes their place (section 4.3 of
        Carlson et al. 2016).

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
    of_mean, of_variance = RULES[rule](betas)
    known = np.isfinite(mean) & np.isfinite(variance)
    if not (known[0] and known[-1]):
        return np.full(betas.size, np.nan)
    if not known.all():
        mean, variance = (np.interp(betas, betas[known], v[known]) for v in (mean, variance))
    return np.asarray(of_mean @ mean + of_variance @ variance)


def ti(stats: CycleStats, *, rule: str = "trapezoid", rao_blackwell: bool = False) -> Evidence:
    """Estimate log Z by thermodynamic integration.

    log Z_k is the integral of E[log_ratio] under pi_beta over beta, equation (20) of Carlson et
    al. (2016). The means are those of the visits to each rung, or Rao-Blackwellized: by equation
    (21) sum_i q(beta_k | x_i) log_ratio_i / sum_i q(beta_k | x_i), over all iterations.

    The ``mcse`` is that of sampling alone. What the rule itself is off by on this ladder is in
    ``bias``, estimated and not subtracted, and a warning says where it exceeds the mcse.

    Parameters
    ----------
    stats : CycleStats
    rule : {"trapezoid", "riemann", "corrected", "simpson"}, default "trapezoid"
        See :func:`integrate`.
    rao_blackwell : bool, default False

    Returns
    -------
    Evidence
        Everything in nats. ``details`` holds the two Riemann sums ``lower`` and ``upper``, which
        bound the integral but for sampling error.

    Notes
    -----
    The estimate of the bias: with the mixture of all rungs fixed, d/dbeta of the RTS curve
    log sum_i q(beta | x_i) - log r_beta + log Z-hat_beta *is* the Rao-Blackwellized mean
    (equation 22). So the rule applied to Rao-Blackwellized moments, less the RTS curve, is its
    discretization error on a curve that is close to the true one; with ``rao_blackwell`` it is
    the difference to RTS itself.

    Where the likelihood is zero on a part of the reference, E[log_ratio] is minus infinity at
    beta = 0 and Z jumps there: from 1 to the share of the reference where it is positive. That
    share is estimated by the visits to rung 0, and the integral is over the rest.

    Tours are cut at draws, as in :func:`counts`.
    """
    n_rungs = stats.beta.size
    zero = np.zeros(stats.tour_start.shape) if stats.n_zero_likelihood is None else (
        stats.n_zero_likelihood
    )  # fmt: skip
    by_visit = (stats.visits, stats.log_ratio_sum, stats.log_ratio_sqsum)
    by_weight = (stats.rb_weight, stats.rb_log_ratio_sum, stats.rb_log_ratio_sqsum)
    columns = [v.reshape(-1, n_rungs) for v in (by_weight if rao_blackwell else by_visit)]
    rb_columns = [v.reshape(-1, n_rungs) for v in by_weight]
    lost = zero.reshape(-1)
    of_mean, of_variance = RULES[rule](stats.beta)

    def fit(part: BoolArray) -> Fit:
        weight, first, second = (v[part] for v in columns)
        finite = weight.copy()
        finite[:, 0] -= lost[part]
        total, n_finite = weight.sum(axis=0), finite.sum(axis=0)
        mean, variance = _moments(n_finite, first.sum(axis=0), second.sum(axis=0))
        with np.errstate(divide="ignore", invalid="ignore"):
            jump = np.log(n_finite[0] / total[0])
            d_mean = (first - mean * finite) / n_finite
            d_variance = (second - (variance + mean**2) * finite) / n_finite - 2.0 * mean * d_mean
            d_jump = finite[:, 0] / n_finite[0] - weight[:, 0] / total[0]
        after = stats.beta > 0.0
        curve = integrate(rule, stats.beta, mean, variance) + np.where(after, jump, 0.0)
        effects = d_mean @ of_mean.T + d_variance @ of_variance.T + np.outer(d_jump, after)
        bounds = {
            name: float(integrate(side, stats.beta, mean, variance)[-1] + jump)
            for name, side in (("lower", "left_riemann"), ("upper", "riemann"))
        }
        empty = empty_warnings(n_finite, "a straight line between its neighbors")
        bias = _discretization(rule, stats, [v[part] for v in rb_columns], lost[part])
        return Fit(curve, effects, bias, alarms=tuple(empty), details=bounds)

    name = {"trapezoid": "ti"}.get(rule, f"ti_{rule}") + ("_rb" if rao_blackwell else "")

    def direction(bias: float, mcse: float) -> str:
        if rule == "riemann":
            return "above"
        if not abs(bias) > mcse:
            return ""
        return "above" if bias > 0.0 else "below"

    return _with_bias_warning(
        fit_run(name, stats, cycle_pieces(stats), fit, bias_direction=direction)
    )


def _moments(n: FloatArray, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance at each rung, NaN where there is nothing to average."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = first / n
        return mean, np.maximum(second / n - mean**2, 0.0)


def _discretization(
    rule: str, stats: CycleStats, columns: list[FloatArray], lost: FloatArray
) -> float:
    """Return the error of a rule on the Rao-Blackwellized integrand, whose integral is RTS."""
    weight, first, second = (v.sum(axis=0) for v in columns)
    finite = weight - np.where(stats.beta > 0.0, 0.0, lost.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        jump = np.log(finite[0] / weight[0])
    by_rule = integrate(rule, stats.beta, *_moments(finite, first, second))[-1] + jump
    return float(by_rule - rts_log_z(weight, stats.log_z_ladder, stats.log_weight)[-1])


def _with_bias_warning(evidence: Evidence) -> Evidence:
    """Add a sentence where the discretization error exceeds the error that is stated."""
    if not (np.isfinite(evidence.mcse) and abs(evidence.bias) > evidence.mcse):
        return evidence
    sentence = (
        f"The integration rule of {evidence.method!r} is off by about {evidence.bias:+.2g} nats on "
        f"this ladder, more than the mcse of {evidence.mcse:.2g}, which is of sampling alone: use "
        'more rungs, or method="rts", which has no such error.'
    )
    return replace(evidence, warnings=(*evidence.warnings, sentence))
