"""A Bayes factor as it is reported: its logarithm and error, the number, odds, and words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_tempering.arguments import check_choice
from pymc_tempering.evidence.result import Part, Shown, plus_minus
from pymc_tempering.exceptions import warn_user

BARE_MENTION = "not worth more than a bare mention"
QUANTILE_95 = 1.959963984540054

SCALES: dict[str, Sequence[tuple[float, str]]] = {
    "kass_raftery": (
        (2.0 / 2.0, BARE_MENTION),
        (6.0 / 2.0, "positive"),
        (10.0 / 2.0, "strong"),
        (math.inf, "very strong"),
    ),
    "jeffreys": (
        (0.5 * math.log(10.0), BARE_MENTION),
        (1.0 * math.log(10.0), "substantial"),
        (1.5 * math.log(10.0), "strong"),
        (2.0 * math.log(10.0), "very strong"),
        (math.inf, "decisive"),
    ),
}
"""Words by the largest |log BF| (nats) that they are for. Kass & Raftery (1995, section 3.2) state
theirs for 2 log BF, Jeffreys (1961, appendix B) for log10 BF."""


def exp_or_warn(log_value: float, name: str, instead: str) -> float:
    """Return exp of a logarithm, and warn where a floating-point number cannot hold it."""
    with np.errstate(over="ignore", under="ignore"):
        value = float(np.exp(log_value))
    if np.isfinite(log_value) and (value == 0.0 or value == np.inf):
        warn_user(
            f"{name} is exp({log_value:.6g}), which a floating-point number cannot hold, so it "
            f"is given as {value:g}: report {instead}."
        )
    return value


def _checked_odds(prior_odds: float) -> float:
    try:
        odds = float(prior_odds)
    except (TypeError, ValueError):
        odds = math.nan
    if not 0.0 < odds < math.inf:
        raise ValueError(
            "prior_odds must be a finite number above 0, the prior probability of the first model "
            f"over that of the second, not {prior_odds!r}."
        )
    return odds


@dataclass(frozen=True, repr=False)
class PosteriorOdds(Shown):
    """Posterior odds of one model over another: prior odds times Bayes factor.

    Attributes
    ----------
    log_odds : float
        Log of the posterior odds (nats).
    mcse : float
        Monte Carlo standard error of ``log_odds`` (nats), that of the log Bayes factor.
    prior_odds : float
        Prior probability of the first model over that of the second.
    odds : float
        Posterior odds.
    probability : float
        Posterior probability of the first model if these two are all there are.
    probability_interval : tuple of float
        95 % interval of ``probability`` under Monte Carlo error.
    sides : tuple of str, default ("the first model", "the second model")
        Names of the models.
    """

    log_odds: float
    mcse: float
    prior_odds: float
    sides: tuple[str, str] = ("the first model", "the second model")

    def __post_init__(self) -> None:
        _checked_odds(self.prior_odds)

    @property
    def odds(self) -> float:
        """Posterior odds; a TemperingWarning where they overflow, or fall to 0."""
        return exp_or_warn(self.log_odds, "odds", "log_odds")

    @property
    def probability(self) -> float:
        """Posterior probability of the first model of the two."""
        return _logistic(self.log_odds)

    @property
    def probability_interval(self) -> tuple[float, float]:
        """95 % interval of the probability under Monte Carlo error."""
        half = QUANTILE_95 * self.mcse
        if not np.isfinite(half):
            return 0.0, 1.0
        return _logistic(self.log_odds - half), _logistic(self.log_odds + half)

    def _parts(self) -> list[Part]:
        low, high = self.probability_interval
        probability = f"{self.probability:.6g} (95 % interval {low:.6g} to {high:.6g})"
        rows = {
            "prior odds": f"{self.prior_odds:g}",
            "log posterior odds": f"{plus_minus(self.log_odds, self.mcse)} nats",
            f"probability of {self.sides[0]}": probability,
        }
        return ["PosteriorOdds", rows]


@dataclass(frozen=True, repr=False)
class BayesFactor(Shown):
    """Log Bayes factor of one model over another, with its Monte Carlo standard error.

    Attributes
    ----------
    log_bf : float
        log Z_a - log Z_b (nats); positive in favor of the first model.
    mcse : float
        Monte Carlo standard error of ``log_bf`` (nats).
    interval : tuple of float
        95 % interval of ``log_bf`` under Monte Carlo error (nats).
    words : str
        Category of Kass & Raftery (1995) or of Jeffreys (1961), and the model it favors.
    warnings : tuple of str
        Warnings of the two estimates.
    scale : {"kass_raftery", "jeffreys"}, default "kass_raftery"
        Whose words they are.
    sides : tuple of str, default ("the first model", "the second model")
        Names of the models.
    methods : tuple of str
        Methods of the two estimates; empty where it does not come from two.
    log10_bf : float
        The factor's logarithm to base 10.
    bf : float
        The factor itself. Where ``exp(log_bf)`` is more than a floating-point number holds, it is
        ``inf``, or 0, and a ``TemperingWarning`` says so.
    bf_interval : tuple of float
        95 % interval of ``bf``, which does not lie symmetrically around it.
    """

    log_bf: float
    mcse: float
    warnings: tuple[str, ...] = ()
    scale: str = "kass_raftery"
    sides: tuple[str, str] = ("the first model", "the second model")
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        if self.mcse < 0.0:
            raise ValueError(f"mcse must not be negative, got {self.mcse}.")

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of ``log_bf`` under Monte Carlo error (nats)."""
        half = QUANTILE_95 * self.mcse
        return self.log_bf - half, self.log_bf + half

    @property
    def words(self) -> str:
        """Category of the factor by its ``scale``."""
        return self.in_words(self.scale)

    @property
    def log10_bf(self) -> float:
        """log_bf / log(10)."""
        return self.log_bf / math.log(10.0)

    @property
    def bf(self) -> float:
        """exp(log_bf); a TemperingWarning where it overflows, or falls to 0."""
        return exp_or_warn(self.log_bf, "bf", "log_bf or log10_bf")

    @property
    def bf_interval(self) -> tuple[float, float]:
        """Both ends of ``interval`` through exp; a TemperingWarning where one overflows."""
        low, high = self.interval
        advice = "interval, which is in nats"
        return (
            exp_or_warn(low, "bf_interval[0]", advice),
            exp_or_warn(high, "bf_interval[1]", advice),
        )

    def posterior_odds(self, prior_odds: float = 1.0) -> PosteriorOdds:
        """Posterior odds of the first model over the second: prior odds times Bayes factor.

        Parameters
        ----------
        prior_odds : float, default 1.0
            Prior probability of the first model over that of the second.

        Returns
        -------
        PosteriorOdds
            The prior odds are taken as exact, so the error is that of the factor.

        Raises
        ------
        ValueError
            If ``prior_odds`` is not a finite number above 0.
        """
        odds = _checked_odds(prior_odds)
        return PosteriorOdds(self.log_bf + math.log(odds), self.mcse, odds, self.sides)

    def in_words(self, scale: str = "kass_raftery") -> str:
        """Category of the factor, the model it favors, and what the interval leaves open.

        Parameters
        ----------
        scale : {"kass_raftery", "jeffreys"}, default "kass_raftery"
            Kass & Raftery (1995, section 3.2): 2 log BF up to 2, 6, 10 and above. Jeffreys (1961,
            appendix B): log10 BF up to 1/2, 1, 3/2, 2 and above.

        Raises
        ------
        ValueError
            If ``scale`` is not known.
        """
        check_choice("scale", scale, SCALES)
        low, high = self.interval
        if not np.isfinite([low, high]).all():
            return "nothing can be said: the standard error is not finite"
        side = self.sides[0] if self.log_bf > 0 else self.sides[1]
        kind, *ends = (_category(value, scale) for value in (self.log_bf, low, high))
        weak, strong = 0 if low * high < 0.0 else min(ends), max(ends)
        names = [name for _, name in SCALES[scale]]
        text = f"{names[kind]} evidence in favor of {side}"
        if names[kind] == BARE_MENTION:
            text = f"{BARE_MENTION}, in favor of {side}"
        if weak != strong:
            text += f" (95 % interval: '{names[weak]}' to '{names[strong]}')"
        return text

    def reverse(self) -> "BayesFactor":
        """Return the factor of the second model over the first, a plain ``BayesFactor``."""
        sides = (self.sides[1], self.sides[0])
        return BayesFactor(
            -self.log_bf, self.mcse, self.warnings, self.scale, sides, self.methods[::-1]
        )

    def _rows(self) -> dict[str, str]:
        low, high = self.interval
        methods = {"methods": ", ".join(self.methods)} if self.methods else {}
        return methods | {
            "log Bayes factor": f"{plus_minus(self.log_bf, self.mcse)} nats",
            "95 % interval": f"{low:.3f} to {high:.3f}",
            "log10, factor": f"{self.log10_bf:.3f}, {_shown(self.log_bf)}",
            "in words": self.words,
        }

    def _parts(self) -> list[Part]:
        return [type(self).__name__, self._rows()]


def _category(log_bf: float, scale: str) -> int:
    return next(i for i, (bound, _) in enumerate(SCALES[scale]) if abs(log_bf) <= bound)


def _logistic(log_odds: float) -> float:
    return float(np.exp(-np.logaddexp(0.0, -log_odds)))


def _shown(log_bf: float) -> str:
    """Show a factor, also one that no floating-point number holds."""
    exponent = log_bf / math.log(10.0)
    if not np.isfinite(exponent):
        return f"{np.exp(log_bf):g}"
    if -4.0 <= exponent < 6.0:
        return f"{np.exp(log_bf):.4g}"
    return f"{10.0 ** (exponent - math.floor(exponent)):.2f}e{math.floor(exponent):+d}"
