"""The statistics of tempering cycles as plain arrays: what every estimator reads.

Each row is one *cycle*: all iterations after the previous visit to beta = 1, up to and including
the next one, which gives the recorded draw. ``docs/reference/data_layout.md`` defines every field.
(Rows of chains over arrays are pieces of another cut: they end after any sweep, and each tour
begins a row.)
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.exceptions import LadderError, NotTemperedError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LADDER_STATS = ("beta", "log_z_ladder", "log_weight")
RUNG_STATS = (
    "rb_weight",
    "rb_weight_head",
    "visits",
    "log_ratio_sum",
    "log_ratio_sqsum",
    "rb_log_ratio_sum",
    "rb_log_ratio_sqsum",
    "jump_sqsum",
    "accept_sum",
    "up_accept_sum",
)
PRIOR_STATS = ("prior_log_z", "prior_mcse")
SCALAR_STATS = ("tempering_steps", "beta_min", "tour_start", "n_divergences")
COUNTS = ("n_zero_likelihood", "n_undefined")
"""Statistics that a run may lack."""

OVERFLOWS = (0.0, np.inf)
"""The ``PRIOR_STATS`` of a prior whose draws overflow where the likelihood may not be zero: nothing
bounds what such draws carry."""

OVERFLOW_SAID = (
    "Draws of the prior overflow, and the likelihood does not vanish toward there, so that nothing "
    "bounds what they carry: restrict the prior, or scale the model."
)
"""What is said of it."""


@dataclass(frozen=True, eq=False)
class CycleStats:
    """Statistics of ``C`` chains of ``N`` cycles each on a ladder of ``K`` rungs.

    Attributes
    ----------
    beta : ndarray, shape (K,)
        Inverse temperatures, increasing from 0 to 1.
    log_z_ladder : ndarray, shape (K,)
        log Z-hat_k that the run was sampled with, in nats.
    log_weight : ndarray, shape (K,)
        log r_k.
    rb_weight, rb_weight_head : ndarray, shape (C, N, K)
        Sums of q(beta_k | x) over a cycle, and over its part before the start of a tour.
    visits, log_ratio_sum, log_ratio_sqsum, rb_log_ratio_sum, rb_log_ratio_sqsum, jump_sqsum, \
accept_sum, up_accept_sum : ndarray, shape (C, N, K)
        See ``docs/reference/data_layout.md``; log ratios are in nats.
    tempering_steps, beta_min, n_divergences : ndarray, shape (C, N)
        Iterations in the cycle, smallest beta explored, and divergences.
    tour_start : ndarray of bool, shape (C, N)
        Whether a tour starts in this cycle.
    n_zero_likelihood : ndarray, shape (C, N), optional
        Reference draws in the cycle with ``log_ratio = -inf``; None where they were not counted.
    n_undefined : ndarray, shape (C, N), optional
        Those of them where the density was no number, or raised an error; likewise.

    Raises
    ------
    LadderError
        If ``beta`` does not increase from 0 to 1.
    NotTemperedError
        If the shapes do not fit together, or there is no draw.
    """

    beta: FloatArray
    log_z_ladder: FloatArray
    log_weight: FloatArray
    rb_weight: FloatArray
    rb_weight_head: FloatArray
    visits: FloatArray
    log_ratio_sum: FloatArray
    log_ratio_sqsum: FloatArray
    rb_log_ratio_sum: FloatArray
    rb_log_ratio_sqsum: FloatArray
    jump_sqsum: FloatArray
    accept_sum: FloatArray
    up_accept_sum: FloatArray
    tempering_steps: FloatArray
    beta_min: FloatArray
    n_divergences: FloatArray
    tour_start: BoolArray
    n_zero_likelihood: FloatArray | None = None
    n_undefined: FloatArray | None = None

    def __post_init__(self) -> None:
        beta = self.beta
        if beta.ndim != 1 or beta.size < 2 or not np.all(np.isfinite(beta)):
            raise LadderError("the ladder needs at least two finite inverse temperatures")
        if beta[0] != 0.0 or beta[-1] != 1.0 or np.any(np.diff(beta) <= 0.0):
            raise LadderError(f"beta must increase from 0 to 1, got {beta}")
        if self.tour_start.ndim != 2 or self.tour_start.size == 0:
            raise NotTemperedError("the sample_stats hold no draws: sample with draws >= 1")
        expected = dict.fromkeys(LADDER_STATS, beta.shape)
        expected |= dict.fromkeys(RUNG_STATS, (*self.tour_start.shape, beta.size))
        expected |= dict.fromkeys(SCALAR_STATS, self.tour_start.shape)
        for name, shape in expected.items():
            found = getattr(self, name).shape
            if found != shape:
                raise NotTemperedError(
                    f"sample_stats['{name}'] has shape {found}, but its ladder and draws "
                    f"need {shape}; pass the DataTree as the sampler returned it"
                )

    @property
    def n_chains(self) -> int:
        """Number of chains, C."""
        return int(self.tour_start.shape[0])

    @property
    def n_draws(self) -> int:
        """Number of recorded draws in each chain, N."""
        return int(self.tour_start.shape[1])


def cold_log_ratio(stats: CycleStats) -> FloatArray:
    """Return the mean log_ratio (nats) of the visits to beta = 1 in each row, shape (C, N).

    That of its draw for a cycle; minus infinity where a row of another cut has no such visit.
    """
    visits, total = stats.visits[..., -1], stats.log_ratio_sum[..., -1]
    result = np.full(total.shape, -np.inf)
    np.divide(total, visits, out=result, where=visits > 0.0)
    return result


@dataclass(frozen=True, eq=False)
class FlatTrace:
    """Every iteration of the recorded cycles, in the order of time, one chain after another.

    Attributes
    ----------
    log_ratio : ndarray, shape (n,)
        In nats; minus infinity where the likelihood is zero.
    rung : ndarray of int, shape (n,)
        Rung that was explored.
    cycle : ndarray of int, shape (n,)
        Number of the cycle, ``chain * N + draw``.
    head : ndarray of bool, shape (n,)
        Whether a tour starts later in the same cycle.
    iteration : ndarray of int, shape (n,)
        Place in the stored trace of the chain.
    """

    log_ratio: FloatArray
    rung: NDArray[np.intp]
    cycle: NDArray[np.intp]
    head: BoolArray
    iteration: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class FreshLooks:
    """Summary of the looks from the prior, small enough to be stored with each draw.

    A look is one trajectory from a fresh prior draw to beta = 1, annealed once. It has arrived
    where its log-likelihood and log density are those of posterior draws, or where transitions at
    beta = 1 bring it to them.

    Attributes
    ----------
    log_z, mcse : float
        Their own estimate, by annealed importance sampling (nats); not a number, and infinite,
        where their weights are too uneven for one.
    n_looks, needed : float
        Looks that were taken, and the number that was asked for.
    n_strange : float
        Looks that ended where the fitted reference hardly goes.
    n_arrived : float
        Looks that came to where the posterior is.
    n_passes, n_home_passes : float
        Independent annealed passes from the prior, and those of which particles came to where the
        posterior is.
    pass_log_z, pass_mcse : float
        Mean of their log Z and its error by their scatter (nats).
    n_islands : float
        Passes with 1 % of their particles or more where the fitted reference hardly goes.
    settled : float
        1 where the last round of the search found nothing new, else 0.
    let_go : float
        Share of the evidence in regions that were found and let go.
    reached : float
        Share of the posterior draws that lie in regions where looks have arrived.
    """

    log_z: float
    mcse: float
    n_looks: float
    needed: float
    n_strange: float
    n_arrived: float
    n_passes: float = 0.0
    n_home_passes: float = 0.0
    pass_log_z: float = float("nan")
    pass_mcse: float = float("inf")
    n_islands: float = 0.0
    settled: float = 1.0
    let_go: float = 0.0
    reached: float = float("nan")


LOOK_STATS = tuple(f"check_{item.name}" for item in fields(FreshLooks))
"""Statistics that hold the summary of the looks."""
