"""Whether estimates of one log Z agree within their errors, and draws with looks from the prior.

Posterior draws are compared with weighted draws from the prior through one number, the log ratio of
the posterior to a density that was fitted to other draws of the same run. Where the run has hardly
been this density is small and the ratio large, so that a region that the run lacks lies beyond the
quantiles of its own ratios.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import MIN_ESS, effective_size, error_of_influence, kish
from pymc_tempering.evidence import ESTIMATORS, Evidence, homogeneity_pvalue
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN

MAX_ERROR = 1.0
"""Error in nats above which an estimate confirms nothing."""

LARGE_DF = 1e6
"""Degrees of freedom of an error of unknown precision."""

ALPHA_PAIRS, ALPHA_HOMOGENEITY, ALPHA_BOUNDS = 0.004, 0.003, 0.001
"""Levels of the tests of all pairs, of the independent estimates together, and of bounds that
cross."""

ALPHA_DRAWS = 0.002
"""Chance that draws are said to leave something out though they do not."""

ALPHA = ALPHA_PAIRS + ALPHA_HOMOGENEITY + ALPHA_BOUNDS + ALPHA_DRAWS
"""Largest chance that a cross-check finds a disagreement though all stated errors are right."""

YES, NO, TOO_WIDE, NO_ERROR, AS = "yes", "NO", "too wide", "no error", "as "
"""What a row of the table says of its agreement with the reference; a name follows the last."""

AGREES = {YES: True, NO: False}
"""Whether an estimate agrees, by what its row says; of all else nothing can be said."""


@dataclass(frozen=True)
class DrawCheck:
    """Shares of looks from the prior beyond quantiles of a run.

    Attributes
    ----------
    n_looks : int
        Particles that went from the prior to the posterior.
    ess : float
        Effective number of their weights.
    level : float
        Quantile of the run at which the difference is the clearest.
    share, mcse : float
        Share of the weight of the looks beyond it, and the error of its difference to
        ``1 - level``.
    pvalue : float
        Of the whole comparison: the smallest one-sided p-value, times the number of quantiles.
    verdict : {"agree", "disagree", "unchecked"}
        "unchecked": the weights of the looks are too uneven.
    method : str
        Whose particles the looks are.
    """

    n_looks: int
    ess: float
    level: float
    share: float
    mcse: float
    pvalue: float
    verdict: str
    method: str = ""

    @property
    def missing(self) -> float:
        """Share of the posterior that the run seems to lack: that of the looks, less its own."""
        return max(self.share - (1.0 - self.level), 0.0)

    @property
    def shortfall(self) -> float:
        """Nats by which log Z falls short if the run lacks that share."""
        return float(-np.log1p(-min(self.missing, 0.99)))


@dataclass(frozen=True)
class Entry:
    """One estimate.

    Attributes
    ----------
    method : str
    evidence : Evidence
    draws : {"own", "posterior", "run"}
        Estimates from ``own`` draws are independent of all others; the rest share draws.
    repeats : str
        Method whose sums it is made of, so that it cannot differ by what is wrong with them.
    """

    method: str
    evidence: Evidence
    draws: str = OWN
    repeats: str = ""

    @property
    def known(self) -> bool:
        """Whether it states a value and an error."""
        return bool(np.isfinite(self.evidence.log_z) and np.isfinite(self.evidence.mcse))

    @property
    def bound(self) -> bool:
        """Whether it is a bound: its expectation lies on one side of log Z."""
        return self.evidence.bias_direction != ""

    @property
    def error(self) -> float:
        """Sampling error and stated bias in quadrature, each once (nats)."""
        bias = self.evidence.bias
        sampling = float(self.evidence.details.get("sampling_mcse", self.evidence.mcse))
        return float(np.hypot(sampling, bias if np.isfinite(bias) else 0.0))

    @property
    def wide(self) -> bool:
        """Whether its error is too large for it to confirm anything."""
        return not self.error <= MAX_ERROR

    @property
    def df(self) -> float:
        """Degrees of freedom of its error."""
        ess = self.evidence.ess
        return max(ess - 1.0, 1.0) if np.isfinite(ess) else LARGE_DF


@dataclass(frozen=True, eq=False)
class Judgment:
    """What a comparison of all pairs found.

    Attributes
    ----------
    verdict : {"agree", "disagree", "unchecked"}
        "unchecked": fewer than two estimates have an error of at most a nat.
    reference : str or None
        Method with which the others are compared.
    agreement : dict of str to str
        What can be said of each: "yes", "NO", "too wide", "no error", "as rts".
    worst : tuple or None
        The pair of methods with the smallest p-value, and this p-value divided by the level of
        the test.
    believe : str or None
        Method whose estimate to use.
    pvalue : float
        Of the test of homogeneity of the independent estimates that are no bounds.
    draws : DrawCheck or None
        The comparison of draws.
    """

    verdict: str
    reference: str | None
    agreement: dict[str, str]
    worst: tuple[str, str, float] | None
    believe: str | None
    pvalue: float
    draws: DrawCheck | None = None

    @property
    def agrees(self) -> dict[str, bool | None]:
        """Whether each agrees with the reference; None where nothing can be said."""
        return {name: AGREES.get(text) for name, text in self.agreement.items()}


def judge(entries: Sequence[Entry], draws: DrawCheck | None = None) -> Judgment:
    """Compare estimates of one log Z, with a chance of a false alarm of at most ``ALPHA``.

    One test compares the difference of every pair with its error, by Bonferroni over all pairs;
    pairs of a lower and an upper bound have a level of their own beside that. Another is the
    chi-square test for homogeneity of the independent estimates. Estimates that share draws have
    errors with an unknown correlation. So the error of their difference is taken as the *sum* of
    the two errors, which is the largest possible, and only one of them enters the test of
    homogeneity. Bounds are tested on the side that they bound. A stated bias counts once, in
    quadrature with the sampling error. An estimate that repeats another one's sums is not tested.
    """
    names = {entry.method for entry in entries if entry.known}
    tested = [entry for entry in entries if entry.known and entry.repeats not in names]
    reference = min(tested, key=_rank, default=None)
    ratios = _pair_ratios(tested)
    agreement = {entry.method: _agreement(entry, names, reference, ratios) for entry in entries}
    if reference is not None and not reference.wide:
        # Whether any other agrees with it.
        others = {text for name, text in agreement.items() if name != reference.method}
        agreement[reference.method] = next((text for text in (YES, NO) if text in others), "")
    worst = min(
        ((*pair, ratio) for pair, ratio in ratios.items()), key=lambda w: w[2], default=None
    )
    pvalue = _homogeneity(tested, reference)
    beyond = draws is not None and draws.verdict == "disagree"
    if (worst is not None and worst[2] < 1.0) or pvalue < ALPHA_HOMOGENEITY or beyond:
        verdict = "disagree"
    else:
        verdict = "unchecked" if sum(not entry.wide for entry in tested) < 2 else "agree"
    return Judgment(
        verdict=verdict,
        reference=None if reference is None else reference.method,
        agreement=agreement,
        worst=worst,
        believe=_believe(tested, reference, verdict),
        pvalue=pvalue,
        draws=draws,
    )


def pair_pvalue(a: Entry, b: Entry) -> float:
    """Return the p-value of a difference between two estimates, one-sided for bounds."""
    error = joint_error(a, b)
    difference = a.evidence.log_z - b.evidence.log_z
    opposite = {"below": "above", "above": "below"}.get(b.evidence.bias_direction, "")
    sides = {a.evidence.bias_direction, opposite} - {""}
    if len(sides) == 2:
        return 1.0  # two bounds from the same side may differ by any amount
    if sides == {"below"}:  # the first should be the lower one
        difference = max(difference, 0.0)
    elif sides == {"above"}:
        difference = min(difference, 0.0)
    if difference == 0.0:
        return 1.0
    if error == 0.0:
        return 0.0
    share = np.array([a.error, b.error]) / error
    df = 1.0 / float(np.sum(share**4 / np.array([a.df, b.df])))
    tail = float(stdtr(df, -abs(difference) / error))
    return tail if sides else 2.0 * tail


def joint_error(a: Entry, b: Entry) -> float:
    """Error of a difference (nats): the sum of both where they share draws, as large as can be."""
    independent = OWN in (a.draws, b.draws)
    return float(np.hypot(a.error, b.error)) if independent else a.error + b.error


def _pair_ratios(tested: Sequence[Entry]) -> dict[tuple[str, str], float]:
    """P-value of each pair over the level that it is tested at."""
    pairs = list(combinations(tested, 2))
    sides = [{a.evidence.bias_direction, b.evidence.bias_direction} for a, b in pairs]
    opposite = [both == {"below", "above"} for both in sides]
    level = ALPHA_PAIRS / max(len(pairs), 1)
    of_bounds = max(level, ALPHA_BOUNDS / max(sum(opposite), 1))
    return {
        (a.method, b.method): pair_pvalue(a, b) / (of_bounds if both else level)
        for (a, b), both in zip(pairs, opposite, strict=True)
    }


def _agreement(
    entry: Entry, names: set[str], reference: Entry | None, ratios: dict[tuple[str, str], float]
) -> str:
    """Say of an estimate whether it agrees with the reference; nothing where it stands alone."""
    if not entry.known:
        return NO_ERROR
    if entry.repeats in names:
        return AS + entry.repeats
    if reference is None or entry is reference:
        return TOO_WIDE if entry.wide else ""
    pair = (entry.method, reference.method)
    ratio = ratios[pair] if pair in ratios else ratios[pair[::-1]]
    if ratio < 1.0:
        return NO
    return TOO_WIDE if entry.wide or reference.wide else YES


def _homogeneity(tested: Sequence[Entry], reference: Entry | None) -> float:
    """Test the independent estimates that are no bounds, and one of those that share draws."""
    plain = [e for e in tested if not e.bound]
    one = [e for e in plain if e.draws != OWN]
    one = [e for e in one if e is reference] or one[:1]
    independent = [*one, *(e for e in plain if e.draws == OWN)]
    if len(independent) < 2:
        return 1.0
    columns = zip(*((e.evidence.log_z, e.error, e.df) for e in independent), strict=True)
    return homogeneity_pvalue(*map(np.array, columns))


def _rank(entry: Entry) -> tuple[bool, bool, bool, int, int]:
    """Order of preference: a small error, no alarm, no bound, draws of a run, an early row."""
    order, places = (RUN, OWN, POSTERIOR), list(ESTIMATORS)
    place = places.index(entry.method) if entry.method in places else len(places)
    alarm = entry.evidence.verdict != "ok"
    return (entry.wide, alarm, entry.bound, order.index(entry.draws), place)


def _believe(tested: Sequence[Entry], reference: Entry | None, verdict: str) -> str | None:
    """Return the method to believe: the most precise one if all agree, otherwise the highest.

    If they do not agree, the smallest error is often that of a method that missed a mode. Then a
    lower bound from draws of its own counts too: log Z is at least that, up to its error.
    """
    sound = [e for e in tested if e.evidence.verdict == "ok"]
    plain = [e for e in sound if not e.bound] or [e for e in tested if not e.bound]
    if not plain:
        return None if reference is None else reference.method
    plain = [e for e in plain if not e.wide] or plain
    if verdict != "disagree":
        return min(plain, key=lambda entry: entry.error).method
    own = [e for e in sound if e.draws == OWN and e.evidence.bias_direction == "below"]
    candidates = [*plain, *(e for e in own if not e.wide)]
    return max(candidates, key=lambda entry: entry.evidence.log_z).method


def _on_side(entries: Sequence[Entry], side: str) -> list[Entry]:
    """Bounds from a side that have an error."""
    return [e for e in entries if e.known and e.evidence.bias_direction == side]


def best_bounds(entries: Sequence[Entry]) -> tuple[Entry | None, Entry | None]:
    """Return the best lower and the best upper bound.

    They are ranked by the value two errors below a lower and above an upper bound. By the value
    itself, the noisiest bound would often be the best. One with an error above a nat is none.
    """
    lower, upper = (
        [entry for entry in _on_side(entries, side) if not entry.wide]
        for side in ("below", "above")
    )
    return (
        max(lower, key=lambda e: e.evidence.log_z - 2.0 * e.evidence.mcse, default=None),
        min(upper, key=lambda e: e.evidence.log_z + 2.0 * e.evidence.mcse, default=None),
    )


def crossed_bounds(entries: Sequence[Entry]) -> tuple[Entry, Entry] | None:
    """Return the lower and the upper bound that cross the furthest beyond their errors, if any."""
    pairs = list(product(_on_side(entries, "below"), _on_side(entries, "above")))
    found = [pair_pvalue(*pair) for pair in pairs]
    if not found or min(found) >= ALPHA_BOUNDS / len(found):
        return None
    return pairs[int(np.argmin(found))]


LEVELS = (0.95, 0.99, 0.995)
"""Quantiles of the run's ratios beyond which the looks are counted."""

MANY = 1e6
"""Looks that are as good as any number of them."""

MIN_BEYOND = 4.0
"""Looks that have to lie beyond a quantile, as an effective number: fewer may be one that came
several times."""


def compare_draws(
    own: FloatArray,
    looks: FloatArray,
    log_w: FloatArray,
    group: NDArray[np.intp],
    *,
    method: str = "",
) -> DrawCheck:
    """Test whether more of the looks lies beyond quantiles of a run than beyond the run itself.

    For each quantile the share of the looks' weight beyond it is held against 1 - level. The error
    of the share is that over independent groups (the delta method for a ratio of sums), and both
    are taken for counts: the looks for as many as give that error, the draws for those beyond the
    quantile, times effective over actual number. Under one law the ratio of the shares is then
    about that of two independent gamma variables over their means, which has an F distribution. A
    normal law would not do: few draws lie beyond the quantile, and it is the lower tail of their
    number that makes false alarms. The p-values are multiplied by the number of quantiles.

    Parameters
    ----------
    own : ndarray, shape (chain, draw)
        Log ratio at draws of the run that the density was not fitted to (nats).
    looks, log_w : ndarray, shape (n,)
        Log ratio at the looks, and their log weights (nats).
    group : ndarray of int, shape (n,)
        Looks of one group may depend on each other.
    method : str, default ""
        Whose particles the looks are.
    """
    weight = np.exp(log_w - log_w.max())
    weight /= weight.sum()
    totals = np.bincount(group, weights=weight)
    ess, groups = float(kish(weight)), float(kish(totals))

    def beyond(level: float) -> tuple[float, float, float, float]:
        """One-sided p-value at a quantile, the share, its error, and the level."""
        cut, mean = np.quantile(own, level), 1.0 - level
        there = looks > cut
        share = float(weight[there].sum())
        effects = np.bincount(group, weights=weight * (there - share))
        error = float(error_of_influence(effects[np.bincount(group) > 0].reshape(-1, 1))[0])
        drawn = mean * min(effective_size((own > cut).astype(float)), own.size)
        total = float(np.hypot(error, mean / np.sqrt(drawn)))
        if share <= mean or float(kish(weight[there])) < MIN_BEYOND:
            return 1.0, share, total, level
        looked = (share / error) ** 2 * (groups - 1.0) / (groups + 1.0) if error > 0.0 else np.inf
        pvalue = float(fdtrc(2.0 * min(looked, MANY), 2.0 * drawn, share / mean))
        return pvalue, share, total, level

    pvalue, share, mcse, level = min(map(beyond, LEVELS))
    pvalue = min(1.0, pvalue * len(LEVELS))
    verdict = "disagree" if pvalue < ALPHA_DRAWS else "agree"
    if groups < MIN_ESS:
        verdict = "unchecked"
    return DrawCheck(looks.size, ess, level, share, mcse, pvalue, verdict, method)
