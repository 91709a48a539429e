"""What the estimators share: pieces of a run, errors over tours, alarms, and the ``Evidence``."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence import alarms as checks
from pymc_tempering.evidence.agreement import homogeneity_pvalue
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.standard_errors import (
    batch_labels,
    effective_tours,
    error_of_influence,
    error_of_neighbors,
    sum_by,
)
from pymc_tempering.evidence.tours import Tours, tour_labels, tour_sums
from pymc_tempering.exceptions import SolverError

MAX_PVALUE = 1e-3
"""p-value of the homogeneity test below which the chains are said to disagree."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """The smallest pieces that a run is cut into, in the order of time, one chain after another.

    Attributes
    ----------
    chain, draw, tour : ndarray of int, shape (P,)
        Chain, cycle, and number of the tour (or unfinished fragment) of each piece.
    counted : ndarray of bool, shape (P,)
        False for the first cycle of a chain that starts at a fresh reference draw: with it the
        chain has climbed the ladder once more often than it has come down.
    independent : bool
        Whether tours begin where a reference draw is made. If not, they are cut at the draw
        before, and a tour shares a cycle with its neighbor.
    """

    chain: NDArray[np.intp]
    draw: NDArray[np.intp]
    tour: NDArray[np.intp]
    counted: BoolArray
    independent: bool


def cycle_pieces(stats: CycleStats) -> Pieces:
    """Cut a run into its cycles: one piece a draw, in the order of ``reshape(-1)``."""
    chain, draw = (np.asarray(v, dtype=np.intp) for v in np.indices(stats.tour_start.shape))
    label = tour_labels(stats.tour_start)
    counted = ~_first_of_fresh_chain(stats)
    return Pieces(chain.ravel(), draw.ravel(), label.ravel(), counted.ravel(), independent=False)


def split_pieces(stats: CycleStats) -> Pieces:
    """Cut each cycle where a tour starts: a head (2 i) and a tail (2 i + 1) for cycle i.

    Without a start in the cycle all of it is tail.
    """
    whole = cycle_pieces(stats)
    label = np.column_stack([whole.tour - stats.tour_start.ravel(), whole.tour]).ravel()
    chain, draw = np.repeat(whole.chain, 2), np.repeat(whole.draw, 2)
    return Pieces(chain, draw, label, np.repeat(whole.counted, 2), independent=True)


def split_weights(stats: CycleStats) -> FloatArray:
    """Return the Rao-Blackwell weights of the pieces of :func:`split_pieces`, shape (P, K)."""
    head = np.where(stats.tour_start[..., None], stats.rb_weight_head, 0.0)
    tail = np.maximum(stats.rb_weight - head, 0.0)
    return np.stack([head, tail], axis=2).reshape(-1, stats.beta.size)


def _first_of_fresh_chain(stats: CycleStats) -> BoolArray:
    """Mark the first cycle of each chain that starts at a reference draw, shape (chain, draw)."""
    first = np.zeros(stats.tour_start.shape, dtype=bool)
    if stats.n_draws > 1:
        head = stats.rb_weight_head[:, 0]
        first[:, 0] = stats.tour_start[:, 0] & np.all(head == 0.0, axis=1)
    return first


@dataclass(frozen=True, eq=False)
class PartFit:
    """What an estimator finds in a part of a run.

    Attributes
    ----------
    curve : ndarray, shape (K,)
        log Z_k (nats).
    influence : ndarray, shape (P, K)
        First-order effect of each piece of the part on log Z_k.
    bias : float
        Estimated bias of log Z_K (nats).
    alarms, notes : tuple of str
        Sentences: after an alarm there is no error, after a note there is.
    details : dict of str to float
        Further numbers of the method.
    """

    curve: FloatArray
    influence: FloatArray
    bias: float = float("nan")
    alarms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    details: dict[str, float] = field(default_factory=dict)


def errors(fit: PartFit, pieces: Pieces, part: BoolArray, n_draws: int) -> FloatArray:
    """Return the standard error of log Z_k of a fit to ``part``, shape (K,).

    The larger of two: over tours, and over batches of about sqrt(draws) consecutive draws.
    """
    chain, tour = pieces.chain[part], pieces.tour[part]
    batch = batch_labels(int(pieces.chain.max()) + 1, n_draws)[chain, pieces.draw[part]]
    by_tour = sum_by(tour, fit.influence)
    if pieces.independent:
        over_tours = error_of_influence(by_tour)
    else:
        first = np.flatnonzero(np.diff(tour, prepend=-1))
        over_tours = error_of_neighbors(by_tour, chain[first])
    return np.maximum(over_tours, error_of_influence(sum_by(batch, fit.influence)))


def finite_chains(stats: CycleStats) -> BoolArray:
    """Mark the chains whose Rao-Blackwell weights are all finite, shape (chain,)."""
    sound = np.isfinite(stats.rb_weight).all(axis=(1, 2))
    return np.asarray(sound & np.isfinite(stats.rb_weight_head).all(axis=(1, 2)))


def tours_of(stats: CycleStats, sound: BoolArray) -> Tours:
    """Return the tours of the sound chains."""
    chains = np.flatnonzero(sound)
    weight, head = stats.rb_weight[chains], stats.rb_weight_head[chains]
    return tour_sums(weight, head, stats.tour_start[chains])


def run_alarms(stats: CycleStats, sound: BoolArray, tours: Tours) -> list[str]:
    """Say what makes a run's error unknown: broken or equal chains, a tour that stands alone."""
    alarms = checks.chain_alarms(stats, sound)
    if sound.any():
        # Every cycle visits beta = 1 once, with its draw.
        cold = stats.log_ratio_sum[sound, :, -1]
        alarms += checks.lone_tour_warnings(tours.sums[:, -1], cold, stats.tour_start[sound])
    return alarms


def fit_run(
    method: str,
    stats: CycleStats,
    pieces: Pieces,
    fit: Callable[[BoolArray], PartFit],
    *,
    bias_direction: Callable[[float, float], str] = lambda bias, mcse: "",
) -> Evidence:
    """Fit an estimator to a run, to its halves and to each chain, and state its error.

    Parameters
    ----------
    method : str
        Name of the estimator.
    stats : CycleStats
    pieces : Pieces
    fit : callable
        ``fit(part)`` for a mask of the pieces, shape (P,). It is called with parts that are too
        small for it, too: there NaN is the answer, or a ``SolverError``.
    bias_direction : callable, optional
        ``bias_direction(bias, mcse)`` gives the side on which log Z lies in expectation.

    Returns
    -------
    Evidence
        In nats.

    Raises
    ------
    SolverError
        If the equations of the whole run cannot be solved.
    """
    sound = finite_chains(stats)
    tours = tours_of(stats, sound)
    used = pieces.counted & sound[pieces.chain]
    nothing = PartFit(
        np.full(stats.beta.size, np.nan), np.zeros((int(used.sum()), stats.beta.size))
    )
    whole = fit(used) if used.any() else nothing
    mcse = np.where(np.isfinite(whole.curve), errors(whole, pieces, used, stats.n_draws), np.inf)

    def of_part(part: BoolArray) -> tuple[FloatArray, float]:
        try:
            found = fit(part) if part.any() else nothing
        except SolverError:
            found = nothing
        if not np.isfinite(found.curve[-1]) or found.alarms:
            return found.curve, np.inf
        return found.curve, float(errors(found, pieces, part, stats.n_draws)[-1])

    chains = [of_part(used & (pieces.chain == chain)) for chain in np.flatnonzero(sound)]
    early = pieces.draw < stats.n_draws // 2
    first, second = (float(of_part(used & half)[0][-1]) for half in (early, ~early))
    return conclude(
        method, stats.beta, sound, tours, whole.curve, mcse,
        chain_curve=np.array([curve for curve, _ in chains]).reshape(-1, stats.beta.size),
        chain_error=np.array([error for _, error in chains]),
        halves=(first, second),
        alarms=run_alarms(stats, sound, tours) + list(whole.alarms),
        notes=list(whole.notes)
        + checks.occupancy_warnings(stats, tours)
        + checks.ladder_warnings(stats),
        bias=whole.bias,
        bias_direction=bias_direction(whole.bias, float(mcse[-1])),
        details=whole.details,
    )  # fmt: skip


def conclude(
    method: str,
    betas: FloatArray,
    sound: BoolArray,
    tours: Tours,
    curve: FloatArray,
    mcse: FloatArray,
    *,
    chain_curve: FloatArray,
    chain_error: FloatArray,
    halves: tuple[float, float],
    alarms: list[str],
    notes: list[str],
    bias: float = float("nan"),
    bias_direction: str = "",
    details: dict[str, float] | None = None,
) -> Evidence:
    """Judge an estimate: verdict, error and warnings, by rules that are the same for all.

    The error is infinite ("unchecked") after an alarm, below 20 complete tours and below an
    effective number of 10, and at least the scatter between chains where a test of homogeneity
    rejects ("disagreed").

    Parameters
    ----------
    method : str
    betas : ndarray, shape (K,)
    sound : ndarray of bool, shape (C,)
        Chains that count.
    tours : Tours
        Of the S sound chains, in their order.
    curve, mcse : ndarray, shape (K,)
        log Z_k and its error (nats).
    chain_curve : ndarray, shape (S, K)
    chain_error : ndarray, shape (S,)
        Estimates of the sound chains, and their error at beta = 1 (nats).
    halves : tuple of float
    alarms, notes : list of str
        Sentences: after an alarm there is no error.
    bias, bias_direction, details
        As in ``Evidence``.
    """
    trips = tours.round_trips(int(sound.sum()))
    n_tours, ess = sum(trips), effective_tours(tours.sums)
    chain_error = np.where(np.array(trips) >= checks.MIN_CHAIN_TOURS, chain_error, np.inf)
    parts = [tours.of_chain(chain).sums for chain in range(len(trips))]
    chain_df = np.array([effective_tours(part) - 1.0 for part in parts])
    pvalue = homogeneity_pvalue(chain_curve[:, -1], chain_error, chain_df)
    messages = alarms + (checks.tour_warnings(n_tours, ess, trips) if sound.any() else [])
    verdict = "ok"
    if pvalue < MAX_PVALUE:
        verdict = "disagreed"
        messages.append(checks.disagreement_warning(pvalue))
        mcse = np.fmax(mcse, _scatter(chain_curve))
    if alarms or n_tours < checks.MIN_TOURS or ess < checks.MIN_ESS or np.isinf(mcse[-1]):
        verdict = "unchecked"
        mcse = np.where(np.arange(mcse.size) == 0, 0.0, np.inf)
    return Evidence(
        log_z=float(curve[-1]),
        mcse=float(mcse[-1]),
        method=method,
        verdict=verdict,
        n_tours=n_tours,
        round_trips=_spread(np.array(trips), sound, 0),
        ess=ess,
        per_chain=np.array(_spread(chain_curve[:, -1], sound, np.nan)),
        per_chain_mcse=np.array(_spread(chain_error, sound, np.inf)),
        log_z_curve=curve,
        log_z_curve_mcse=mcse,
        betas=betas,
        halves=halves,
        bias=bias,
        bias_direction=bias_direction,
        warnings=(*messages, *notes),
        details=details or {},
    )


def _scatter(chain_curve: FloatArray) -> FloatArray:
    """Return the standard error of the mean of the chains' curves, shape (C, K) -> (K,)."""
    finite = chain_curve[np.isfinite(chain_curve).all(axis=1)]
    if len(finite) < 2:
        return np.full(chain_curve.shape[1], np.inf)
    return np.asarray(finite.std(axis=0, ddof=1) / np.sqrt(len(finite)))


def _spread(values: FloatArray, sound: np.ndarray, fill: float) -> tuple:
    """Put the values of the sound chains at their places among all chains."""
    result = np.full(sound.shape, fill, dtype=values.dtype if len(values) else float)
    result[sound] = values
    return tuple(result.tolist())
