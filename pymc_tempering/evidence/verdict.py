"""Judge an estimate of log Z: its verdict, error and warnings, by the same rules for all."""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.core.weighting import MIN_ESS
from pymc_tempering.evidence import alarms as checks
from pymc_tempering.evidence.agreement import homogeneity_pvalue
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.standard_errors import effective_tours
from pymc_tempering.evidence.tours import Tours

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
