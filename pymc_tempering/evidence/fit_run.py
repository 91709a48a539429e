"""From an estimator to its ``Evidence``: the run, its chains and halves, errors and verdict."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray, cold_log_ratio
from pymc_tempering.core.weighting import MIN_ESS
from pymc_tempering.evidence import alarms as checks
from pymc_tempering.evidence.alarms import homogeneity_pvalue
from pymc_tempering.evidence.pieces import (
    Pieces,
    Tours,
    effective_tours,
    errors,
    finite_chains,
    finite_tours,
)
from pymc_tempering.evidence.result import Evidence, with_undefined
from pymc_tempering.exceptions import SolverError

MAX_PVALUE = 1e-3
"""p-value of the homogeneity test below which the chains are said to disagree."""


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

    def error_in(self, pieces: Pieces, mask: BoolArray) -> FloatArray:
        """Return the standard error, shape (K,): its own, or that of its influence."""
        if self.error is not None:
            return self.error
        assert self.influence is not None, "a PartFit needs an influence or an error"
        return errors(self.influence, pieces, mask)


def fit_run(
    method: str,
    stats: CycleStats,
    pieces: Pieces,
    fit: Callable[[BoolArray], PartFit],
    *,
    whole: PartFit | None = None,
    by_halves: bool = True,
    bias_direction: Callable[[float, float], str] | None = None,
    beside: tuple[int, int] = (0, 0),
) -> Evidence:
    """Fit an estimator to a run, to its halves and to each chain, and state its error.

    The error is infinite ("unchecked") after an alarm, below 20 complete tours and below an
    effective number of 10. It is at least the scatter between chains where a test of homogeneity
    rejects ("disagreed").

    Parameters
    ----------
    method : str
        Name of the estimator.
    stats : CycleStats
    pieces : Pieces
        Those of the run.
    fit : callable
        ``fit(mask)`` fits the pieces where the mask, shape (P,), is true. It depends on the mask
        alone. Some masks hold too little for an estimate: then it returns NaN, or raises a
        ``SolverError``.
    whole : PartFit, optional
        The fit to ``pieces.used``, where the estimator made it beforehand; ``fit`` is then called
        for chains and halves only.
    by_halves : bool, default True
        Whether a half of the draws can be estimated alone.
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
    betas, used = stats.beta, pieces.used
    nothing = PartFit(np.full(betas.size, np.nan), error=np.full(betas.size, np.inf))

    def fit_part(mask: BoolArray) -> PartFit:
        try:
            return fit(mask) if mask.any() else nothing
        except SolverError:
            return nothing

    if whole is None:
        whole = fit(used) if used.any() else nothing
    mcse = np.where(np.isfinite(whole.curve), whole.error_in(pieces, used), np.inf)
    mcse[0] = 0.0  # the reference is normalized
    direction = "" if bias_direction is None else bias_direction(whole.bias, float(mcse[-1]))
    halves = (np.nan, np.nan)
    if by_halves:
        early, late = used & pieces.early, used & ~pieces.early
        halves = (float(fit_part(early).curve[-1]), float(fit_part(late).curve[-1]))
    sound, tours = finite_chains(stats), finite_tours(stats)
    alarms = [*_run_alarms(stats, tours, sound), *whole.alarms]
    notes = [*whole.notes, *checks.occupancy_warnings(stats, tours), *checks.ladder_warnings(stats)]
    trips, ess = tours.round_trips(int(sound.sum())), effective_tours(tours.sums)
    curves, chain_error = _fit_chains(fit_part, pieces, sound, trips, betas.size)
    messages = alarms + (checks.tour_warnings(sum(trips), ess, trips) if sound.any() else [])
    verdict = "ok"
    if (pvalue := _agreement(tours, curves[:, -1], chain_error)) < MAX_PVALUE:
        verdict = "disagreed"
        messages.append(checks.disagreement_warning(pvalue))
        mcse = np.fmax(mcse, _scatter(curves))
    if alarms or sum(trips) < checks.MIN_TOURS or ess < MIN_ESS or np.isinf(mcse[-1]):
        verdict = "unchecked"
        mcse[1:] = np.inf
    found = Evidence(
        log_z=float(whole.curve[-1]),
        mcse=float(mcse[-1]),
        method=method,
        verdict=verdict,
        n_tours=sum(trips),
        round_trips=tuple(_among_all(np.array(trips, dtype=int), sound, 0).tolist()),
        ess=ess,
        per_chain=_among_all(curves[:, -1], sound, np.nan),
        per_chain_mcse=_among_all(chain_error, sound, np.inf),
        log_z_curve=whole.curve,
        log_z_curve_mcse=mcse,
        betas=betas,
        halves=halves,
        bias=whole.bias,
        bias_direction=direction,
        warnings=(*messages, *notes),
        details=whole.details,
    )
    return with_undefined(found, *_undefined(stats, beside))


def side_of_bias(share: float) -> Callable[[float, float], str]:
    """Say on which side log Z lies in expectation where the bias is over a share of the error."""

    def side(bias: float, mcse: float) -> str:
        if not abs(bias) > share * mcse:
            return ""
        return "below" if bias < 0.0 else "above"

    return side


def _run_alarms(stats: CycleStats, tours: Tours, sound: BoolArray) -> list[str]:
    """Return the alarms about a run that do not depend on the estimator."""
    alarms = checks.chain_alarms(stats, sound)
    if sound.any():
        cold, starts = cold_log_ratio(stats)[sound], stats.tour_start[sound]
        alarms += checks.lone_tour_warnings(tours.sums[:, -1], cold, starts)
    return alarms


def _fit_chains(
    fit_part: Callable[[BoolArray], PartFit],
    pieces: Pieces,
    sound: BoolArray,
    trips: tuple[int, ...],
    n_rungs: int,
) -> tuple[FloatArray, FloatArray]:
    """Fit each of the S sound chains alone: log Z_k, shape (S, K), and errors of log Z_K (S,)."""
    curves, error = [], []
    for chain, n_tours in zip(np.flatnonzero(sound), trips, strict=True):
        mask = pieces.used & (pieces.chain == chain)
        found = fit_part(mask)
        known = np.isfinite(found.curve[-1]) and not found.alarms
        few = n_tours < checks.MIN_CHAIN_TOURS
        curves.append(found.curve)
        error.append(float(found.error_in(pieces, mask)[-1]) if known and not few else np.inf)
    return np.array(curves).reshape(-1, n_rungs), np.array(error)


def _agreement(tours: Tours, log_z: FloatArray, error: FloatArray) -> float:
    """Return the p-value of the test that all chains have one log Z."""
    ess = [effective_tours(tours.of_chain(chain).sums) for chain in range(log_z.size)]
    return homogeneity_pvalue(log_z, error, np.array(ess) - 1.0)


def _scatter(chain_curve: FloatArray) -> FloatArray:
    """Return the standard error of the mean of the chains' curves, shape (C, K) -> (K,)."""
    finite = chain_curve[np.isfinite(chain_curve).all(axis=1)]
    if len(finite) < 2:
        return np.full(chain_curve.shape[1], np.inf)
    return finite.std(axis=0, ddof=1) / np.sqrt(len(finite))


def _among_all(values: FloatArray, sound: BoolArray, fill: float) -> FloatArray:
    """Put the values of the sound chains at their places among all chains."""
    result = np.full(sound.shape, fill, dtype=values.dtype)
    result[sound] = values
    return result


def _undefined(stats: CycleStats, beside: tuple[int, int]) -> tuple[float, float]:
    """Count reference draws without a density, and all: those of the chains and others."""
    if stats.n_undefined is None:
        return beside
    own = float(np.nansum(stats.n_undefined)), float(stats.visits[..., 0].sum())
    return beside[0] + own[0], beside[1] + own[1]
