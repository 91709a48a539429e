"""MBAR: log Z_k of all rungs at once from all states, solved by pymbar, with an error over tours.

Shirts & Chodera (2008); equation (18) of Carlson, Stinson, Pakman & Paninski (2016), ICML.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.cycles import BoolArray, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, kish, softmax_rows, tilt
from pymc_tempering.evidence.datatree import Run, chunks
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.pieces import sum_by
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import empty_warnings
from pymc_tempering.exceptions import SolverError

PYMBAR_NUMBERS = 500_000
"""Most states times rungs that pymbar gets. In longer runs it solves the equations for a part of
the states. Newton steps from there solve them for all, in linear time and little memory."""

MIN_STATES = 20
"""Fewest states per rung, on average, that pymbar gets."""

MAX_NUMBERS = 3e8
"""States times rungs above which MBAR raises an error: its tables would exceed about 10 GB."""

MAX_ITERATIONS = 500
"""Largest number of steps of each solver that pymbar tries."""

MAX_RESIDUAL = 1e-6
"""Largest error of the self-consistent equations, as a share of a rung's states, of a solution."""


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
    alarm = (
        f"{least:.1f} effective tours connect rung {visited[weakest]} and those above it with "
        f"those below, where an error needs {MIN_ESS:.0f}, so the mcse is infinite: sample with "
        "more rungs there, or more draws."
    )
    return PartFit(
        curve,
        effects[part],
        alarms=() if least >= MIN_ESS else (alarm,),
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
        score += run.sum_table(hit - p, piece)
        visits += run.sum_table(hit, piece)
        low += run.sum_table(np.where(below, above, 0.0), piece)
        high += run.sum_table(np.where(below, 0.0, 1.0 - above), piece)
    return score, visits, low, high


def mbar_log_z(
    log_ratio: FloatArray, counts: FloatArray, betas: FloatArray, start: FloatArray | None = None
) -> tuple[FloatArray, float]:
    """Solve the MBAR equations with pymbar.

    The maximum of equation (18) of Carlson et al. (2016), where sum_i p_k(x_i) = n_k, with
    p_k(x) proportional to n_k exp(beta_k log_ratio(x) - log Z_k).

    Parameters
    ----------
    log_ratio : ndarray, shape (n,)
        Of all states, whatever rung they come from (nats); minus infinity is a legal number.
    counts : ndarray, shape (K,)
        States that come from each rung, in sum n; none may be 0.
    betas : ndarray, shape (K,)
    start : ndarray, shape (K,), optional
        log Z_k to start from (nats).

    Returns
    -------
    log_z : ndarray, shape (K,)
        In nats; 0 at the first rung.
    pymbar_mcse : float
        pymbar's error of the last one (nats). It assumes independent states.

    Raises
    ------
    SolverError
        If pymbar fails, or what it returns does not solve the equations.
    ImportError
        Without pymbar.
    ValueError
        If the tables would not fit into memory.
    """
    if log_ratio.size * betas.size > MAX_NUMBERS:
        raise ValueError(
            f"MBAR of {log_ratio.size} states on {betas.size} rungs needs tables of more than "
            f'{MAX_NUMBERS:.0g} numbers: use method="rts" or "bar", or fewer draws.'
        )
    MBAR = import_pymbar()
    finite = np.isfinite(log_ratio)
    if not finite.any():
        raise SolverError("MBAR: all states have zero likelihood")
    # pymbar wants finite energies: 800 nats below the others at the first rung above 0.
    floor = log_ratio[finite].min() - 800.0 / betas[1]
    energy = -tilt(betas, np.where(finite, log_ratio, floor)).T
    first = None if start is None else -(start - start[0])
    try:
        with _quiet():
            solved = MBAR(
                energy,
                counts.astype(int),
                initial_f_k=first,
                relative_tolerance=1e-12,
                maximum_iterations=MAX_ITERATIONS,
                solver_protocol="robust",
            )
            error = float(solved.compute_free_energy_differences()["dDelta_f"][0, -1])
        log_z = -np.asarray(solved.f_k, dtype=float)
    except Exception as failure:
        raise SolverError(f"pymbar did not solve the MBAR equations: {failure}") from failure
    log_z -= log_z[0]
    p = state_probabilities(log_ratio, betas, np.log(counts) - log_z)
    residual = float(np.max(np.abs(p.sum(axis=0) - counts) / counts))
    if not residual <= MAX_RESIDUAL:
        raise SolverError(
            f"pymbar's solution misses the MBAR equations by {residual:.1g} of a rung's states: "
            "rungs that hardly overlap; sample with more rungs"
        )
    return log_z, error


def solve_mbar(
    log_ratio: FloatArray, rung: np.ndarray, betas: FloatArray
) -> tuple[FloatArray, float]:
    """Solve the MBAR equations for any number of states.

    Beyond ``PYMBAR_NUMBERS`` pymbar gets every t-th state of each rung. Newton steps from its
    solution solve the equations for all states.

    Parameters
    ----------
    log_ratio : ndarray, shape (n,)
        Nats.
    rung : ndarray of int, shape (n,)
        Where each state comes from: a position in ``betas``; each must occur.
    betas : ndarray, shape (K,)

    Returns
    -------
    log_z, pymbar_mcse
        As from :func:`mbar_log_z`. If pymbar got a part of the states, its error is scaled by the
        root of their share, since it assumes independent states.

    Raises
    ------
    SolverError, ImportError
        As :func:`mbar_log_z`.
    """
    counts = np.bincount(rung, minlength=betas.size).astype(float)
    step = int(np.ceil(log_ratio.size * betas.size / PYMBAR_NUMBERS))
    step = min(step, log_ratio.size // (MIN_STATES * betas.size))
    if step <= 1:
        return mbar_log_z(log_ratio, counts, betas)
    by_rung = np.argsort(rung, kind="stable")
    first = np.repeat(np.cumsum(counts) - counts, counts.astype(int)).astype(int)
    kept = np.sort(by_rung[(np.arange(rung.size) - first) % step == 0])
    part = np.bincount(rung[kept], minlength=betas.size).astype(float)
    log_z, error = mbar_log_z(log_ratio[kept], part, betas)
    return newton_mbar(log_ratio, counts, betas, log_z), error * float(
        np.sqrt(kept.size / rung.size)
    )


def newton_mbar(
    log_ratio: FloatArray, counts: FloatArray, betas: FloatArray, start: FloatArray
) -> FloatArray:
    """Solve the MBAR equations by Newton steps from the solution of similar equations.

    If the steps do not converge, pymbar solves the equations.
    """
    zeta = np.log(counts) - start
    for _ in range(20):
        total, information = moments(log_ratio, betas, zeta)
        score = counts - total
        if np.max(np.abs(score) / counts) < 1e-9:
            log_z = np.log(counts) - zeta
            return np.asarray(log_z - log_z[0])
        try:
            zeta[1:] += np.linalg.solve(information[1:, 1:], score[1:])
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(zeta).all():
            break
    return mbar_log_z(log_ratio, counts, betas, start)[0]


def moments(
    log_ratio: FloatArray, betas: FloatArray, zeta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return sum_i p_i, shape (K,), and sum_i (diag p_i - p_i p_i'), shape (K, K)."""
    total, product = np.zeros(betas.size), np.zeros((betas.size, betas.size))
    for rows in chunks(log_ratio.size, betas.size):
        p = state_probabilities(log_ratio[rows], betas, zeta)
        total += p.sum(axis=0)
        product += p.T @ p
    return total, np.diag(total) - product


def state_probabilities(log_ratio: FloatArray, betas: FloatArray, zeta: FloatArray) -> FloatArray:
    """Return p_k(x_i) proportional to exp(zeta_k + beta_k log_ratio_i), shape (n, K)."""
    return softmax_rows(tilt(betas, log_ratio) + zeta)


def import_pymbar() -> type:
    """Return pymbar's class, or say how to install it."""
    try:
        with _quiet():
            from pymbar import MBAR
    except ImportError as error:
        raise ImportError(
            'method="mbar" needs pymbar: pip install "pymc-tempering[mbar]"'
        ) from error
    return MBAR


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence pymbar's warnings and log: the equations tell whether its solution is right."""
    logger = logging.getLogger("pymbar")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
