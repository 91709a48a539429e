"""Bounds of log Z: a bracket from one run, and a sandwich from annealing up and down.

The bracket is unbiased for Z from below, and for 1/Z from above. Both are equation (11) of Carlson,
Stinson, Pakman & Paninski (2016) with a denominator that is fixed before the run, not estimated
from it. A pair of bounds from one run follows the idea of Grosse, Ghahramani & Adams (2015),
"Sandwiching the marginal likelihood using bidirectional Monte Carlo".
"""

from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, kish
from pymc_tempering.evidence.datatree import Run, probabilities_of, read_run
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.pieces import cycle_pieces, finite_chains
from pymc_tempering.evidence.result import Evidence, Part, Shown, plus_minus
from pymc_tempering.exceptions import NotTemperedError, warn_user

SHARE_OF_OTHERS = 0.5
"""Visits of a chain to beta = 0 that are counted, as a share of the fewest of any other chain."""

RESTS_ON = (
    "The lower bound needs nothing. The upper one rests on true posterior draws: where these miss "
    "a mode it can lie below log Z, by up to -log(share of the posterior that they see), and "
    "where the particles from the prior miss the same mode both agree on a wrong value."
)

MAX_Z = 3.0
"""Standard errors by which the lower bound may lie above the upper one before it is said."""

MAX_GAP = 0.1
"""Gap in nats, beyond noise, above which a wider schedule is recommended."""


@dataclass(frozen=True, repr=False)
class Bracket(Shown):
    """A lower and an upper estimate of log Z from one run.

    Attributes
    ----------
    lower, upper : Evidence
        Methods "forward" and "backward", in nats.
    """

    lower: Evidence
    upper: Evidence

    @property
    def gap(self) -> float:
        """Upper less lower estimate (nats)."""
        return self.upper.log_z - self.lower.log_z

    def _parts(self) -> list[Part]:
        low, high = (plus_minus(e.log_z, e.mcse) for e in (self.lower, self.upper))
        if self.gap < 0.0:  # "from -3.1 to -3.2" would be no interval
            return [
                f"Bracket: lower bound {low}, upper bound {high} nats, crossed by {-self.gap:.3f} "
                "(noise, if that is within their errors)"
            ]
        return [f"Bracket: log Z from {low} to {high} nats (gap {self.gap:.3f})"]


def forward(run: Run, *, reference_visits: int | None = None) -> Evidence:
    """Estimate log Z from below: the estimate of Z is unbiased.

    Every visit to beta = 0 draws afresh from the reference. So an excursion, from one visit to the
    next, is independent of the past. (With a nonreversible move it goes to the next visit but one,
    since arrivals and departures alternate.) An excursion visits rung 0 exactly once (twice). By
    Kac's formula the mean of sum q(beta_K | x) over n of them, n fixed, is
    q(beta_K) / q(beta_1) = r_K Z / (r_1 Z-hat_K) *exactly*. So

        Z_fwd = (Z-hat_K r_1 / r_K) (1 / n) sum over n visits to rung 0 of sum q(beta_K | x)

    has E[Z_fwd] = Z for a run of any length, any kernels and any start, and by Jensen's inequality
    E[log Z_fwd] <= log Z. RTS has the random sum of q(beta_1 | x) in place of n.

    The condition is that n does not depend on the chain itself. So by default each chain counts
    half of the fewest visits that any *other* chain made, and chains are averaged with equal
    weights. A chain with fewer visits counts all of them, and a warning says so. A fixed number of
    *tours* does not work: the mean of their sums is not known, only the ratio of two means.

    Parameters
    ----------
    run : Run
    reference_visits : int, optional
        Number of visits to rung 0 of each chain to count, rounded down to an even number. Choose it
        before you look at the run.

    Returns
    -------
    Evidence
        Method "forward", everything in nats. Its error is over excursions.

    Raises
    ------
    ValueError
        If ``reference_visits`` is less than 2.
    """
    stats, pieces = run.stats, run.pieces
    chains = np.flatnonzero(finite_chains(stats))
    visits = [_reference_visits(run, int(chain)) for chain in chains]
    available = np.array([2 * ((len(v) - 1) // 2) if len(v) else 0 for v in visits])
    wanted = np.array([_wanted(available, c, reference_visits) for c in range(len(chains))])
    counted = np.minimum(available, wanted).astype(int)
    found = [_excursions(run, v, n) for v, n in zip(visits, counted, strict=True)]
    value, error, ess = np.array(found).reshape(-1, 3).T

    def fit(part: BoolArray) -> PartFit:
        own = np.isin(chains, pieces.chain[part])
        mean = float(value[own].mean())
        mcse = float(np.sqrt(np.sum(error[own] ** 2)) / own.sum() / mean) if mean > 0.0 else np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            log_z = _shift(stats) + float(np.log(mean))
        return PartFit(_ends(stats, log_z), error=_ends(stats, mcse, np.inf), bias=-0.5 * mcse**2)

    whole = None
    if chains.size:
        short = (counted < wanted) | ((len(chains) == 1) & (reference_visits is None))
        whole = replace(
            fit(pieces.used),
            alarms=_excursion_alarms(sum(ess.tolist())),
            notes=_visit_notes(chains[short]),
            details={"reference_visits": float(counted.sum())},
        )
    return fit_run(
        "forward", stats, pieces, fit, whole=whole, by_halves=False,
        bias_direction=lambda bias, mcse: "below",
    )  # fmt: skip


def _excursions(run: Run, visits: np.ndarray, n: int) -> tuple[float, float, float]:
    """Return the mean of q(beta_K | x) over n excursions of a chain, its error, and their ESS."""
    if n < 2:
        return np.nan, np.inf, 0.0
    inside = slice(visits[0], visits[n])
    cold = probabilities_of(run.stats, run.trace.log_ratio[inside])[:, -1]
    pairs = np.add.reduceat(cold, visits[:n:2] - visits[0])
    error = np.inf
    if len(pairs) > 1:
        error = float(pairs.std(ddof=1) / np.sqrt(len(pairs)) / 2.0)
    return float(pairs.mean() / 2.0), error, float(kish(pairs))


def _excursion_alarms(ess: float) -> tuple[str, ...]:
    """Warn if too few excursions came to beta = 1."""
    if ess >= MIN_ESS:
        return ()
    return (
        f"Of all excursions from beta = 0 an effective number of {ess:.1f} came to beta = 1, "
        f"where an error needs {MIN_ESS:.0f}: sample more draws.",
    )


def _visit_notes(short: np.ndarray) -> tuple[str, ...]:
    """Warn of chains that count fewer visits than they should, or that set their own number."""
    if short.size == 0:
        return ()
    return (
        f"Chain {', '.join(str(c) for c in short)} made fewer visits to beta = 0 than were to "
        "be counted, or there is no other chain to set their number, so E[Z] = Z holds only "
        "approximately: give a smaller reference_visits, or sample more draws or chains.",
    )


def backward(stats: CycleStats) -> Evidence:
    """Estimate log Z from above: the estimate of 1/Z is unbiased.

    A cycle visits beta = 1 exactly once, at its end. If the chain of the states at beta = 1 is
    stationary, Kac's formula gives the mean of sum q(beta_1 | x) over a cycle as
    q(beta_1) / q(beta_K) = r_1 Z-hat_K / (r_K Z) exactly. So over N cycles, N fixed,

        1 / Z_bwd = (r_K / (r_1 Z-hat_K)) (1 / N) sum over N cycles of sum q(beta_1 | x)

    has E[1 / Z_bwd] = 1 / Z, and by Jensen's inequality E[log Z_bwd] >= log Z.

    The number of draws is fixed before a run, unless it has a ``target_mcse``. The upper bound
    assumes that the *first* recorded draw of each chain comes from the posterior. That holds to any
    accuracy if enough draws are thrown away before (``tune``), and otherwise up to an error of
    order 1 / draws. A mode that no draw visited is missing from this side, not from the other.

    Parameters
    ----------
    stats : CycleStats

    Returns
    -------
    Evidence
        Method "backward", everything in nats; tours are cut at draws, as in :func:`counts`.

    Raises
    ------
    NotTemperedError
        If the rows are no cycles that end at beta = 1: those of chains over arrays.
    """
    if np.any(stats.visits[..., -1] != 1.0):
        raise NotTemperedError(
            '"backward" needs cycles, which end with a draw at beta = 1 each, and these chains '
            "stopped after a number of sweeps: use reverse annealing for an upper bound."
        )
    hot = stats.rb_weight[:, :, 0].reshape(-1)

    def fit(part: BoolArray) -> PartFit:
        total = hot[part].sum()
        effects = np.full((int(part.sum()), stats.beta.size), np.nan)
        effects[:, 0] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            effects[:, -1] = 1.0 / part.sum() - hot[part] / total
            log_z = _shift(stats) - np.log(total / part.sum())
        return PartFit(_ends(stats, float(log_z)), effects)

    return fit_run(
        "backward", stats, cycle_pieces(stats), fit, bias_direction=lambda bias, mcse: "above"
    )


def bracket(idata: xr.DataTree, *, reference_visits: int | None = None) -> Bracket:
    """Return a lower and an upper estimate of log Z from one run.

    The lower one is the log of an unbiased estimate of Z, for a run of any length. The upper one is
    minus the log of an unbiased estimate of 1/Z, if the first recorded draw of each chain is a draw
    from the posterior. By Jensen's inequality log Z lies between their expectations. A single pair
    can miss it because of its errors. If the two are far apart, the run is too short for any
    estimate.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="log_ratio"``, its default, and a fixed
        number of draws.
    reference_visits : int, optional
        Visits to beta = 0 of each chain that the lower estimate counts. Choose it before you look
        at the run. By default half of the fewest visits of any other chain.

    Returns
    -------
    Bracket
        ``lower`` and ``upper``, each an ``Evidence``, in nats.

    Raises
    ------
    NotTemperedError
        If ``idata`` holds no trace, or one that is not of its draws.
    LadderError
        If its draws do not come from one ladder.
    ValueError
        If ``reference_visits`` is less than 2.

    Warns
    -----
    TemperingWarning
        Once for each warning of the two estimates.

    Notes
    -----
    :func:`pymc_tempering.evidence.forward` and :func:`pymc_tempering.evidence.backward` derive
    both from equation (11) of Carlson et al. (2016), and state the conditions exactly.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> found = pmt.evidence.bracket(idata)  # a run of pmt.sample
    >>> found.lower.bias_direction, found.upper.bias_direction, abs(found.gap) < 0.5
    ('below', 'above', True)
    """
    run = read_run(idata)
    found = Bracket(forward(run, reference_visits=reference_visits), backward(run.stats))
    for sentence in dict.fromkeys((*found.lower.warnings, *found.upper.warnings)):
        warn_user(sentence)
    return found


def _shift(stats: CycleStats) -> float:
    """Return log(Z-hat_K r_1 / r_K)."""
    offsets = stats.log_z_ladder - stats.log_weight
    return float(offsets[-1] - offsets[0])


def _ends(stats: CycleStats, value: float, between: float = float("nan")) -> FloatArray:
    """Return a curve that is known at its two ends only."""
    curve = np.full(stats.beta.size, between)
    curve[0], curve[-1] = 0.0, value
    return curve


def _reference_visits(run: Run, chain: int) -> np.ndarray:
    """Return the positions of a chain's visits to rung 0 in the flat trace."""
    n = run.stats.n_draws
    begin, end = np.searchsorted(run.trace.cycle, [chain * n, (chain + 1) * n])
    return begin + np.flatnonzero(run.trace.rung[begin:end] == 0)


def _wanted(available: np.ndarray, chain: int, asked: int | None) -> int:
    """Return the number of visits that a chain is to count: even, and set by other chains."""
    if asked is not None:
        if asked < 2:
            raise ValueError(f"reference_visits must be at least 2, got {asked}")
        return 2 * (int(asked) // 2)
    others = np.delete(available, chain)
    return 2 * int(SHARE_OF_OTHERS * (others if others.size else available).min() / 2)


@dataclass(frozen=True, repr=False)
class Sandwich(Bracket):
    """Lower and upper stochastic bounds of log Z, and the gap between them.

    Attributes
    ----------
    lower, upper : Evidence
        From annealing up and from annealing down; in expectation below and above log Z (nats).
    gap_mcse : float
        Standard error of the ``gap``, ``upper.log_z - lower.log_z`` (nats).
    verdict : {"ok", "wide", "crossed", "unchecked"}
        "wide": the gap is more than 0.1 nats beyond noise; "crossed": the lower one lies above the
        upper one beyond noise; "unchecked": one of them has no error, or nothing tells whether the
        draws are of this model.
    words : str
        What they say together, and on what the upper one rests.
    """

    gap_mcse: float
    verdict: str
    words: str

    def _parts(self) -> list[Part]:
        rows = {
            "lower bound": plus_minus(self.lower.log_z, self.lower.mcse),
            "upper bound": plus_minus(self.upper.log_z, self.upper.mcse),
            "gap": plus_minus(self.gap, self.gap_mcse),
            "verdict": self.verdict,
        }
        return ["Sandwich (nats)", rows, f"  {self.words}"]


def join_bounds(lower: Evidence, upper: Evidence) -> Sandwich:
    """Put two bounds together and say what they mean."""
    gap = upper.log_z - lower.log_z
    error = float(np.hypot(lower.mcse, upper.mcse))
    said = f"log Z lies between {lower.log_z:.3f} and {upper.log_z:.3f}, each within its error."
    if gap <= 0.0:
        middle = 0.5 * (lower.log_z + upper.log_z)
        said = f"The bounds agree within their errors: log Z is near {middle:.3f}."
    verdict = "ok" if lower.verdict == upper.verdict == "ok" else "unchecked"
    if not np.isfinite(error):
        verdict = "unchecked"
        said = "The weights of one direction collapsed, so that these bounds say nothing."
    elif gap < -MAX_Z * error:
        verdict = "crossed"
        said = (
            f"The lower bound lies above the upper one by {-gap:.3g} nats, {-gap / error:.1f} "
            "standard errors: the draws are not from this posterior, or they miss a mode that "
            "particles from the prior find. Sample again, with pmt.sample for instance."
        )
    elif gap > MAX_GAP + MAX_Z * error:
        verdict = "wide"
        said = (
            f"The bounds are {gap:.3g} nats apart, more than noise explains: use more rungs "
            "(betas), or look for modes that one direction misses."
        )
    return Sandwich(lower, upper, error, verdict, f"{said} {RESTS_ON}")
