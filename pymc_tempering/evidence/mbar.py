"""MBAR: log Z_k of all rungs at once from all states, solved by pymbar, with an error over tours.

Shirts & Chodera (2008); equation (18) of Carlson, Stinson, Pakman & Paninski (2016), ICML.
"""

from functools import partial

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, kish, tilt
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.mbar_equations import (
    import_pymbar,
    moments,
    newton_mbar,
    solve_mbar,
    state_probabilities,
)
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.standard_errors import sum_by
from pymc_tempering.evidence.trace import Run, chunks
from pymc_tempering.evidence.visit_counts import empty_warnings
from pymc_tempering.exceptions import SolverError


def mbar(run: Run) -> Evidence:
    """Estimate log Z by MBAR from the states of all rungs.

    pymbar solves the equations. The error is ours, over tours: with zeta_k = log n_k - log Z_k the
    equations are those of a multinomial logistic regression of the rung on log_ratio (Geyer 1994).
    So a tour b moves zeta by H^-1 sum_{i in b} (1[k_i = k] - p_k(x_i)), with
    H = sum_i (diag p - p p'), and log n_k by its share of the visits. The error is infinite if
    fewer than 10 effective tours connect the rungs below some rung with those above.

    Parameters
    ----------
    run : Run

    Returns
    -------
    Evidence
        Everything in nats. ``details`` has pymbar's own error ``pymbar_mcse``, which assumes
        independent states and *shrinks* as the overlap of rungs goes to 0, and ``overlap_tours``,
        the effective number of tours at the weakest place.

    Raises
    ------
    SolverError
        If pymbar does not solve the equations.
    ImportError
        Without pymbar: ``pip install "pymc-tempering[mbar]"``.
    """
    import_pymbar()
    used = run.pieces.used
    whole = _fit(run, used) if used.any() else None
    start = None if whole is None else whole.curve
    return fit_run("mbar", run.stats, run.pieces, partial(_fit, run, start=start), whole=whole)


def _fit(run: Run, part: BoolArray, start: FloatArray | None = None) -> PartFit:
    """Fit MBAR to some pieces, by Newton steps from the curve ``start`` if there is one."""
    betas = run.stats.beta
    inside = np.flatnonzero(part[run.piece])
    counts = np.bincount(run.trace.rung[inside], minlength=betas.size).astype(float)
    notes = tuple(empty_warnings(counts, "the states of other rungs"))
    if counts[0] == 0.0 or counts[-1] == 0.0:
        nothing = np.full(betas.size, np.nan)
        return PartFit(nothing, np.zeros((int(part.sum()), betas.size)), alarms=notes)
    curve, pymbar_mcse = _solve(run, inside, counts, start)
    visited = np.flatnonzero(counts)
    zeta = np.log(counts[visited]) - curve[visited]
    score, visits, low, high = _by_piece(run, inside, visited, zeta)
    d_zeta = np.zeros_like(score)
    try:
        information = moments(run.trace.log_ratio[inside], betas[visited], zeta)[1]
        d_zeta[:, 1:] = np.linalg.solve(information[1:, 1:], score[:, 1:].T).T
    except np.linalg.LinAlgError as error:
        raise SolverError("MBAR: the rungs do not overlap; sample with more rungs") from error
    d_count = visits / counts[visited]
    effects = np.full((run.pieces.chain.size, betas.size), np.nan)
    effects[:, visited] = d_count - d_count[:, :1] - d_zeta
    label = run.pieces.tour[part]
    connecting = np.minimum(*(kish(sum_by(label, lent[part])) for lent in (low, high)))
    weakest = int(connecting[1:].argmin()) + 1
    least = float(connecting[weakest])
    return PartFit(
        curve,
        effects[part],
        alarms=() if least >= MIN_ESS else (_connection_alarm(int(visited[weakest]), least),),
        notes=notes,
        details={"pymbar_mcse": pymbar_mcse, "overlap_tours": least},
    )


def _solve(
    run: Run, inside: np.ndarray, counts: FloatArray, start: FloatArray | None
) -> tuple[FloatArray, float]:
    """Return log Z of every rung, and pymbar's own error where it solved the equations.

    Rungs that were never visited get theirs by reweighting the states of the others.
    """
    betas, visited = run.stats.beta, np.flatnonzero(counts)
    log_ratio, known = run.trace.log_ratio[inside], betas[visited]
    own = float("nan")
    if start is not None and np.isfinite(start[visited]).all():
        log_z = newton_mbar(log_ratio, counts[visited], known, start[visited])
    else:
        at = np.searchsorted(visited, run.trace.rung[inside])
        log_z, own = solve_mbar(log_ratio, at, known)
    curve = np.full(betas.size, np.nan)
    curve[visited] = log_z
    zeta = np.log(counts[visited]) - log_z
    for k in np.flatnonzero(counts == 0.0):
        mixture = [
            logsumexp(tilt(known, log_ratio[rows]) + zeta, axis=1)
            for rows in chunks(log_ratio.size, known.size)
        ]
        curve[k] = logsumexp(tilt(betas[k : k + 1], log_ratio)[:, 0] - np.concatenate(mixture))
    return curve, own


def _by_piece(
    run: Run, inside: np.ndarray, visited: np.ndarray, zeta: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sum over the iterations ``inside`` by piece, each of shape (P, K) for K visited rungs.

    Of 1[k_i = k] - p_k(x_i); of 1[k_i = k]; and for the cut below each rung k, of the weights that
    connect the two sides: sum_{l >= k} p_l of the states at lower rungs, and sum_{l < k} p_l of
    those at upper rungs. Iterations are taken in chunks, in order.
    """
    score, visits, low, high = np.zeros((4, run.pieces.chain.size, visited.size))
    for rows in chunks(inside.size, visited.size):
        at = inside[rows]
        rung, piece = run.trace.rung[at, None], run.piece[at]
        p = state_probabilities(run.trace.log_ratio[at], run.stats.beta[visited], zeta)
        hit = (rung == visited).astype(float)
        above = np.cumsum(p[:, ::-1], axis=1)[:, ::-1]
        below = rung < visited
        here = piece[np.flatnonzero(np.diff(piece, prepend=-1))]
        score[here] += sum_by(piece, hit - p)
        visits[here] += sum_by(piece, hit)
        low[here] += sum_by(piece, np.where(below, above, 0.0))
        high[here] += sum_by(piece, np.where(below, 0.0, 1.0 - above))
    return score, visits, low, high


def _connection_alarm(rung: int, tours: float) -> str:
    return (
        f"{tours:.1f} effective tours connect rung {rung} and those above it with those below, "
        f"where an error needs {MIN_ESS:.0f}, so the mcse is infinite: sample with more rungs "
        "there, or more draws."
    )
