"""From an estimator to its ``Evidence``: the run, its chains and halves, errors and verdict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray, cold_log_ratio
from pymc_tempering.core.weighting import MIN_ESS, error_of_influence
from pymc_tempering.evidence import alarms as checks
from pymc_tempering.evidence.alarms import homogeneity_pvalue
from pymc_tempering.evidence.pieces import (
    Pieces,
    Tours,
    effective_tours,
    error_of_neighbors,
    finite_chains,
    finite_tours,
    join_tours,
    sum_by,
)
from pymc_tempering.evidence.result import Evidence, with_undefined
from pymc_tempering.exceptions import SolverError

MAX_PVALUE = 1e-3
"""p-value of the homogeneity test below which the chains are said to disagree."""


@dataclass(frozen=True, eq=False)
class ChainEstimates:
    """The estimates from each chain alone.

    Attributes
    ----------
    sound : ndarray of bool, shape (C,)
        Chains whose numbers are all finite; only these S chains have an estimate.
    curve : ndarray, shape (S, K)
        log Z_k (nats).
    error : ndarray, shape (S,)
        Standard error of log Z_K (nats).
    """

    sound: BoolArray
    curve: FloatArray
    error: FloatArray


def conclude(
    method: str,
    betas: FloatArray,
    tours: Tours,
    curve: FloatArray,
    mcse: FloatArray,
    chains: ChainEstimates,
    *,
    halves: tuple[float, float],
    alarms: list[str],
    notes: list[str],
    bias: float,
    bias_direction: str,
    details: dict[str, float],
) -> Evidence:
    """Return the ``Evidence`` for an estimate.

    The error is infinite ("unchecked") after an alarm, below 20 complete tours and below an
    effective number of 10. It is at least the scatter between chains where a test of homogeneity
    rejects ("disagreed").

    Parameters
    ----------
    method : str
    betas : ndarray, shape (K,)
    tours : Tours
        Of the sound chains, numbered from 0.
    curve, mcse : ndarray, shape (K,)
        log Z_k and its error (nats).
    chains : ChainEstimates
    halves : tuple of float
    alarms, notes : list of str
        Warnings; after an alarm there is no error.
    bias, bias_direction, details
        As in ``Evidence``.
    """
    sound = chains.sound
    trips = tours.round_trips(int(sound.sum()))
    n_tours, ess = sum(trips), effective_tours(tours.sums)
    chain_error = np.where(np.array(trips) >= checks.MIN_CHAIN_TOURS, chains.error, np.inf)
    by_chain = [tours.of_chain(chain).sums for chain in range(len(trips))]
    chain_df = np.array([effective_tours(sums) - 1.0 for sums in by_chain])
    pvalue = homogeneity_pvalue(chains.curve[:, -1], chain_error, chain_df)
    messages = alarms + (checks.tour_warnings(n_tours, ess, trips) if sound.any() else [])
    verdict = "ok"
    if pvalue < MAX_PVALUE:
        verdict = "disagreed"
        messages.append(checks.disagreement_warning(pvalue))
        mcse = np.fmax(mcse, _scatter(chains.curve))
    if alarms or n_tours < checks.MIN_TOURS or ess < MIN_ESS or np.isinf(mcse[-1]):
        verdict = "unchecked"
        mcse = np.where(np.arange(mcse.size) == 0, 0.0, np.inf)
    return Evidence(
        log_z=float(curve[-1]),
        mcse=float(mcse[-1]),
        method=method,
        verdict=verdict,
        n_tours=n_tours,
        round_trips=_among_all(np.array(trips), sound, 0),
        ess=ess,
        per_chain=np.array(_among_all(chains.curve[:, -1], sound, np.nan)),
        per_chain_mcse=np.array(_among_all(chain_error, sound, np.inf)),
        log_z_curve=curve,
        log_z_curve_mcse=mcse,
        betas=betas,
        halves=halves,
        bias=bias,
        bias_direction=bias_direction,
        warnings=(*messages, *notes),
        details=details,
    )


def _scatter(chain_curve: FloatArray) -> FloatArray:
    """Return the standard error of the mean of the chains' curves, shape (C, K) -> (K,)."""
    finite = chain_curve[np.isfinite(chain_curve).all(axis=1)]
    if len(finite) < 2:
        return np.full(chain_curve.shape[1], np.inf)
    return np.asarray(finite.std(axis=0, ddof=1) / np.sqrt(len(finite)))


def _among_all(values: FloatArray, sound: BoolArray, fill: float) -> tuple:
    """Put the values of the sound chains at their places among all chains."""
    result = np.full(sound.shape, fill, dtype=values.dtype if len(values) else float)
    result[sound] = values
    return tuple(result.tolist())


@dataclass(frozen=True, eq=False)
class PartFit:
    """What an estimator finds in some pieces of a run.

    It gives either the influence of each piece, of which :func:`fit_run` makes the error, or the
    error itself.

    Attributes
    ----------
    curve : ndarray, shape (K,)
        log Z_k (nats).
    influence : ndarray, shape (n, K), optional
        First-order effect of each of these pieces on log Z_k.
    error : ndarray, shape (K,), optional
        Standard error of log Z_k (nats).
    bias : float
        Estimated bias of log Z_K (nats).
    alarms, notes : tuple of str
        Warnings. After an alarm the error is infinite, after a note it stands.
    details : dict of str to float
        Further numbers of the method.
    """

    curve: FloatArray
    influence: FloatArray | None = None
    error: FloatArray | None = None
    bias: float = float("nan")
    alarms: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    details: dict[str, float] = field(default_factory=dict)


def no_fit(n_rungs: int) -> PartFit:
    """Return the fit to pieces from which nothing can be estimated."""
    return PartFit(np.full(n_rungs, np.nan), error=np.full(n_rungs, np.inf))


def fit_run(
    method: str,
    stats: CycleStats | Sequence[CycleStats],
    pieces: Pieces,
    fit: Callable[[BoolArray], PartFit],
    *,
    whole: PartFit | None = None,
    by_halves: bool = True,
    check_occupancy: bool = True,
    bias_direction: Callable[[float, float], str] = lambda bias, mcse: "",
    beside: tuple[int, int] = (0, 0),
) -> Evidence:
    """Fit an estimator to a run, to its halves and to each chain, and state its error.

    Parameters
    ----------
    method : str
        Name of the estimator.
    stats : CycleStats or sequence of CycleStats
        The run, or its parts: runs on the same inverse temperatures, each with its own log Z-hat.
    pieces : Pieces
        Those of the run, or those of its parts put together by ``join_pieces``.
    fit : callable
        ``fit(mask)`` fits the pieces where the mask, shape (P,), is true. It depends on the mask
        alone. Some masks hold too little for an estimate: then it returns NaN, or raises a
        ``SolverError``.
    whole : PartFit, optional
        The fit to ``pieces.used``, where the estimator made it beforehand; ``fit`` is then called
        for chains and halves only.
    by_halves : bool, default True
        Whether a half of the draws can be estimated alone.
    check_occupancy : bool, default True
        Whether to warn where the time spent at a rung is far from r.
    bias_direction : callable, optional
        ``bias_direction(bias, mcse)`` gives the side on which log Z lies in expectation.
    beside : tuple of int, default (0, 0)
        Further reference draws without a density, and with or without one.

    Returns
    -------
    Evidence
        In nats.

    Raises
    ------
    SolverError
        If the equations of the whole run cannot be solved.
    """
    parts = [stats] if isinstance(stats, CycleStats) else list(stats)
    betas = parts[0].beta
    sound = [finite_chains(part) for part in parts]
    tours = [finite_tours(part) for part in parts]
    used = pieces.used
    if whole is None:
        whole = fit(used) if used.any() else no_fit(betas.size)
    mcse = np.where(np.isfinite(whole.curve), _error(whole, pieces, used), np.inf)

    def fit_part(mask: BoolArray) -> PartFit:
        try:
            return fit(mask) if mask.any() else no_fit(betas.size)
        except SolverError:
            return no_fit(betas.size)

    halves = (np.nan, np.nan)
    if by_halves:
        early, late = used & pieces.early, used & ~pieces.early
        halves = (float(fit_part(early).curve[-1]), float(fit_part(late).curve[-1]))
    alarms, notes = _run_warnings(parts, sound, tours, check_occupancy)
    found = conclude(
        method,
        betas,
        join_tours(tours, [int(chains.sum()) for chains in sound]),
        whole.curve,
        mcse,
        _fit_chains(fit_part, pieces, np.concatenate(sound), betas.size),
        halves=halves,
        alarms=[*alarms, *whole.alarms],
        notes=[*whole.notes, *notes],
        bias=whole.bias,
        bias_direction=bias_direction(whole.bias, float(mcse[-1])),
        details=whole.details,
    )
    return with_undefined(found, *_undefined(parts, beside))


def errors(influence: FloatArray, pieces: Pieces, mask: BoolArray) -> FloatArray:
    """Return the standard error of log Z_k from the influence of some pieces, shape (K,).

    In each part of the run the larger of two: over tours, and over batches of about sqrt(draws)
    consecutive draws. Parts are independent, so their errors add up in squares.

    Parameters
    ----------
    influence : ndarray, shape (n, K)
        Effect of each piece of the mask on log Z_k.
    pieces : Pieces
    mask : ndarray of bool, shape (P,)
        Which pieces these are.
    """
    part = pieces.part[mask]
    square = np.zeros(influence.shape[1])
    for which in np.unique(part):
        here = part == which
        own, effects = np.flatnonzero(mask)[here], influence[here]
        tour = pieces.tour[own]
        by_tour = sum_by(tour, effects)
        if pieces.independent:
            over_tours = error_of_influence(by_tour)
        else:
            first = np.flatnonzero(np.diff(tour, prepend=-1))
            over_tours = error_of_neighbors(by_tour, pieces.chain[own][first])
        over_batches = error_of_influence(sum_by(pieces.batch[own], effects))
        square += np.maximum(over_tours, over_batches) ** 2
    return np.sqrt(square)


def _undefined(parts: Sequence[CycleStats], beside: tuple[int, int]) -> tuple[float, float]:
    """Count reference draws without a density, and all: those of the chains and others."""
    lost, total = float(beside[0]), float(beside[1])
    for part in parts:
        if part.n_undefined is not None:
            lost += float(np.nansum(part.n_undefined))
            total += float(part.visits[..., 0].sum())
    return lost, total


def _error(found: PartFit, pieces: Pieces, mask: BoolArray) -> FloatArray:
    """Return the standard error of a fit, shape (K,): its own, or that of its influences."""
    if found.error is not None:
        return found.error
    assert found.influence is not None, "a PartFit needs an influence or an error"
    return errors(found.influence, pieces, mask)


def _fit_chains(
    fit_part: Callable[[BoolArray], PartFit], pieces: Pieces, sound: BoolArray, n_rungs: int
) -> ChainEstimates:
    """Fit each sound chain alone."""
    curves, error = [], []
    for chain in np.flatnonzero(sound):
        mask = pieces.used & (pieces.chain == chain)
        found = fit_part(mask)
        known = np.isfinite(found.curve[-1]) and not found.alarms
        curves.append(found.curve)
        error.append(float(_error(found, pieces, mask)[-1]) if known else np.inf)
    return ChainEstimates(sound, np.array(curves).reshape(-1, n_rungs), np.array(error))


def _run_warnings(
    parts: list[CycleStats], sound: list[BoolArray], tours: list[Tours], check_occupancy: bool
) -> tuple[list[str], list[str]]:
    """Return the alarms and the notes about a run that do not depend on the estimator."""
    alarms, notes = [], []
    for stats, finite, own in zip(parts, sound, tours, strict=True):
        alarms += checks.chain_alarms(stats, finite)
        if finite.any():
            cold = cold_log_ratio(stats)[finite]
            alarms += checks.lone_tour_warnings(own.sums[:, -1], cold, stats.tour_start[finite])
        if check_occupancy:
            notes += checks.occupancy_warnings(stats, own)
        notes += checks.ladder_warnings(stats)
    return alarms, notes
