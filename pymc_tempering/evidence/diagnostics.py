"""Diagnose a tempering run: what its rungs say, as a table, and one line on what is wrong."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.core.weighting import kish
from pymc_tempering.evidence.alarms import MAX_REJECTION, neighbor_rejection
from pymc_tempering.evidence.datatree import chunks, probabilities_of, read_cycles, read_run
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.pieces import finite_chains, sum_by
from pymc_tempering.evidence.result import Evidence, Part, Shown, in_few_words, plus_minus

MAX_AUTOCORRELATION = 0.9
"""Largest autocorrelation of log_ratio across one exploration of a good kernel."""
MIN_VISITS = 20
"""Fewest visits with which the autocorrelation and rejection at a rung enter the verdict."""
ALARMS = ("non-finite", "identical", "no number")
"""Words of the warnings that go before all others."""
ENOUGH_TOURS = 400
"""Effective tours from which a slow kernel or a gap costs nothing that the draws still need."""


@dataclass(frozen=True, repr=False, eq=False)
class Diagnosis(Shown):
    """What a tempering run says about its kernel, its ladder and its evidence.

    Attributes
    ----------
    table : DataFrame
        One row a rung: ``beta``; ``occupancy``, the Rao-Blackwellized share of iterations, and
        its ``target`` r; ``visits``; ``rejection`` of the move between the rung and the next (NaN
        at the last one), from the less occupied of the two; ``acceptance`` of the kernel;
        ``autocorrelation`` of log_ratio across one exploration; ``barrier``, the cumulative sum
        of rejection rates.
    barrier : float
        Lambda, the sum of all rejection rates between neighbors.
    round_trips : tuple of int
        Complete tours of each chain.
    n_tours : int
        Complete tours in all chains.
    evidence : Evidence
        The RTS estimate.
    halves : tuple of float
        log Z from the first and from the second half of the draws (nats).
    divergences : int
        Explorations that diverged or met a NaN.
    divergent_draws : int
        Those of them at beta = 1, which gave a draw; 0 where they were not counted.
    verdict : str
        One line: "ok: ...", or the first cause of trouble and what to do about it.
    """

    table: pd.DataFrame
    barrier: float
    round_trips: tuple[int, ...]
    n_tours: int
    evidence: Evidence
    halves: tuple[float, float]
    divergences: int
    divergent_draws: int
    verdict: str

    def _parts(self) -> list[Part]:
        trips = in_few_words([str(n) for n in self.round_trips], self.round_trips)
        first, second = self.halves
        check = self.evidence.check
        return [
            self.table,
            f"barrier {self.barrier:.2f} on {len(self.table)} rungs; round trips {trips}; "
            f"divergences {self.divergences}, {self.divergent_draws} at beta = 1",
            f"log Z {plus_minus(self.evidence.log_z, self.evidence.mcse)} nats; "
            f"first half {first:.3f}, second half {second:.3f}",
            *([] if check is None else [f"fitted reference, {check}"]),
            self.verdict,
        ]


def diagnose(idata: xr.DataTree) -> Diagnosis:
    """Diagnose a tempering run from its statistics.

    The verdict distinguishes three causes of trouble. A bad *kernel* hardly moves log_ratio in one
    exploration (autocorrelation above 0.9), and more rungs do not help. A bad *ladder* has
    neighbors that are too far apart (rejection above 0.7). Otherwise there may be too few *tours*.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.

    Returns
    -------
    Diagnosis
        log Z in nats.

    Raises
    ------
    NotTemperedError
        If ``idata`` was not sampled with tempering, or is incomplete.
    LadderError
        If its draws do not come from one ladder from beta = 0 to 1.

    Notes
    -----
    Occupancy is c_k, equation (9) of Carlson et al. (2016); rejection rates and the barrier are
    those of Syed, Bouchard-Cote, Deligiannidis & Doucet (2022).

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> diagnosis = pmt.diagnose(idata)  # a run of pmt.sample
    >>> diagnosis.table["rejection"].round(1).tolist()
    [0.1, 0.2, 0.3, 0.3, nan]
    >>> diagnosis.verdict[:3]
    'ok:'
    """
    stats = read_cycles(idata)
    evidence = estimate_quietly(idata)
    table = rung_table(stats)
    return Diagnosis(
        table=table,
        barrier=float(table["barrier"].iloc[-1]),
        round_trips=evidence.round_trips,
        n_tours=evidence.n_tours,
        evidence=evidence,
        halves=evidence.halves,
        divergences=int(np.nansum(stats.n_divergences)),
        divergent_draws=_divergent_draws(idata),
        verdict=_verdict(table, evidence),
    )


def _divergent_draws(idata: xr.DataTree) -> int:
    """Count the draws whose own transition diverged."""
    stats = idata["sample_stats"].dataset
    return int(stats["diverging"].sum()) if "diverging" in stats else 0


def rung_table(stats: CycleStats) -> pd.DataFrame:
    """Return the table of :class:`Diagnosis` from the statistics of a run."""
    rejection = neighbor_rejection(stats)
    target = np.exp(stats.log_weight - np.logaddexp.reduce(stats.log_weight))
    return pd.DataFrame(
        {
            "beta": stats.beta,
            "occupancy": occupancy(stats),
            "target": target,
            "visits": stats.visits.sum(axis=(0, 1)).astype(int),
            "rejection": np.append(rejection, np.nan),
            "acceptance": kernel_acceptance(stats),
            "autocorrelation": exploration_autocorrelation(stats),
            "barrier": cumulative_barrier(rejection),
        },
        index=pd.RangeIndex(stats.beta.size, name="rung"),
    )


def _verdict(table: pd.DataFrame, evidence: Evidence) -> str:
    alarms = [s for s in evidence.warnings if any(word in s for word in ALARMS)]
    if alarms:
        return f"alarm: {alarms[0]}"
    lossy = evidence.ess < ENOUGH_TOURS  # tours are independent: with many nothing is lost
    often = table["visits"].to_numpy() >= MIN_VISITS
    slow = np.where(often, table["autocorrelation"].fillna(-1.0), -1.0)
    gap = np.where(often, table["rejection"].fillna(0.0), 0.0)
    if lossy and slow.max() > MAX_AUTOCORRELATION:
        return (
            f"bad kernel: at rung {slow.argmax()} one exploration leaves log_ratio nearly where "
            f"it was (autocorrelation {slow.max():.2f}); try a larger target_accept, more rungs "
            "do not help."
        )
    if lossy and gap.max() > MAX_REJECTION:
        return (
            f"bad ladder: {gap.max():.0%} of the moves from rung {gap.argmax()} to "
            f"{gap.argmax() + 1} are rejected; put more rungs there."
        )
    if evidence.verdict == "unchecked":
        return f"few tours: {evidence.warnings[0]}"
    if evidence.warnings:
        return f"{evidence.verdict}, with care: {evidence.warnings[0]}"
    return (
        f"ok: {evidence.n_tours} tours, chains agree, log Z = "
        f"{plus_minus(evidence.log_z, evidence.mcse)} nats."
    )


def occupancy(stats: CycleStats) -> FloatArray:
    """Return the Rao-Blackwellized occupancy c_k of every rung, shape (K,), summing to 1.

    c_k is the mean of q(beta_k | x) over all iterations: equation (9) of Carlson et al. (2016).
    """
    total = np.nansum(stats.rb_weight, axis=(0, 1))
    with np.errstate(invalid="ignore"):
        return total / total.sum()


def cumulative_barrier(rejection: FloatArray) -> FloatArray:
    """Return the communication barrier Lambda(beta_k) up to every rung, shape (K,).

    The running sum of the ``rejection`` rates, shape (K - 1,), where an unknown one counts as 1;
    its last entry is the barrier Lambda (Syed et al. 2022).
    """
    return np.concatenate([[0.0], np.cumsum(np.nan_to_num(rejection, nan=1.0))])


def kernel_acceptance(stats: CycleStats) -> FloatArray:
    """Return the mean acceptance probability of the kernel at every rung, shape (K,)."""
    visits = stats.visits.sum(axis=(0, 1))
    rate = np.full(visits.shape, np.nan)
    np.divide(stats.accept_sum.sum(axis=(0, 1)), visits, out=rate, where=visits > 0)
    return rate


def exploration_autocorrelation(stats: CycleStats) -> FloatArray:
    """Return the autocorrelation of log_ratio across one exploration at every rung, shape (K,).

    1 - E[jump^2] / (2 var(log_ratio)), both over the visits to the rung. Near 1 the kernel hardly
    moves, and more rungs do not help. 0 at rung 0, where every draw is fresh; NaN where a rung has
    fewer than two visits, log_ratio does not vary, or its square is no finite number.
    """
    visits = stats.visits.sum(axis=(0, 1))
    n = np.where(visits > 1, visits, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = stats.log_ratio_sum.sum(axis=(0, 1)) / n
        variance = stats.log_ratio_sqsum.sum(axis=(0, 1)) / n - mean**2
        variance[~(variance > 0.0)] = np.nan
        result = 1.0 - stats.jump_sqsum.sum(axis=(0, 1)) / n / (2.0 * variance)
    result[0] = 0.0
    return np.asarray(result)


def overlap(idata: xr.DataTree) -> xr.Dataset:
    """Return the overlap matrix of the ladder and the effective sample size of every rung.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="log_ratio"``, its default.

    Returns
    -------
    Dataset
        ``overlap`` by (rung, rung_to): sum_i q_k(x_i) q_j(x_i) / sum_i q_k(x_i), the probability
        that a state at rung k is found at rung j after a Gibbs move; rows sum to 1.
        ``ess`` by rung: Kish's effective number of iterations with weights q_k(x_i), as if they
        were independent. ``ess_tours``: that of tours, which are independent. ``visits`` by rung,
        and the coordinate ``beta``. The attribute ``spectral_gap`` is 1 minus the second
        eigenvalue of the matrix: near 0 the ladder falls apart into two groups of rungs.

    Raises
    ------
    NotTemperedError
        If ``idata`` holds no trace, or one that is not of its draws.
    LadderError
        If its draws do not come from one ladder.

    Notes
    -----
    The matrix is that of Klimovich, Shirts & Mobley (2015), "Guidelines for the analysis of free
    energy calculations", at the RTS estimate of log Z and with expected visits in place of counts.
    Its weights are then q(beta_k | x), equation (7) of Carlson et al. (2016).

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> table = pmt.evidence.overlap(idata)  # a run of pmt.sample
    >>> table["overlap"].shape, bool(table.attrs["spectral_gap"] > 0.05)
    ((5, 5), True)
    """
    run = read_run(idata)
    stats, trace = run.stats, run.trace
    n_rungs = stats.beta.size
    keep = finite_chains(stats)[run.pieces.chain[run.piece]]
    log_ratio, piece = trace.log_ratio[keep], run.piece[keep]
    both, square = np.zeros((n_rungs, n_rungs)), np.zeros(n_rungs)
    sums = np.zeros((run.pieces.chain.size, n_rungs))
    for rows in chunks(log_ratio.size, n_rungs):
        q = probabilities_of(stats, log_ratio[rows])
        both += q.T @ q
        square += np.sum(q**2, axis=0)
        sums += run.sum_table(q, piece[rows])
    total = sums.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = both / total[:, None]
        root = np.sqrt(total)
        symmetric = both / np.outer(root, root)
        ess = total**2 / square
    known = total > 0.0
    values = np.linalg.eigvalsh(symmetric[np.ix_(known, known)])
    gap = 1.0 - float(values[-2]) if known.all() and values.size > 1 else 0.0
    return xr.Dataset(
        {
            "overlap": (("rung", "rung_to"), matrix),
            "ess": ("rung", np.nan_to_num(ess)),
            "ess_tours": ("rung", kish(sum_by(run.pieces.tour, sums))),
            "visits": ("rung", stats.visits.sum(axis=(0, 1))),
        },
        {
            "rung": np.arange(n_rungs),
            "rung_to": np.arange(n_rungs),
            "beta": ("rung", stats.beta),
        },
        {"spectral_gap": gap},
    )
