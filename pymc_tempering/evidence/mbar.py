"""MBAR: log Z_k of all rungs at once from all states, solved by pymbar, with an error over tours.

Shirts & Chodera (2008); equation (18) of Carlson, Stinson, Pakman & Paninski (2016), ICML.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.cycles import BoolArray, FloatArray
from pymc_tempering.evidence.checks import MIN_ESS
from pymc_tempering.evidence.common import Fit, fit_run
from pymc_tempering.evidence.counts import empty_warnings
from pymc_tempering.evidence.errors import kish, sum_by
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.trace import Run, softmax_rows, tilt
from pymc_tempering.exceptions import SolverError

MAX_NUMBERS = 3e8
"""States times rungs above which MBAR is refused: its tables would take more than about 10 GB."""

MAX_ITERATIONS = 500
"""Steps of each of the methods that pymbar tries in turn."""

MAX_RESIDUAL = 1e-6
"""Error of the self-consistent equations, as share of a rung's states, that is passed on."""


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
        pymbar's own error of the last, which takes the states for independent (nats).

    Raises
    ------
    SolverError
        If pymbar fails, or what it returns does not solve the equations.
    ImportError
        Without pymbar.
    ValueError
        If states times rungs are too many for the memory.
    """
    if log_ratio.size * betas.size > MAX_NUMBERS:
        raise ValueError(
            f"MBAR of {log_ratio.size} states on {betas.size} rungs needs tables of more than "
            f'{MAX_NUMBERS:.0g} numbers: use method="rts" or "bar", or fewer draws.'
        )
    MBAR = _import_pymbar()
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
                energy, counts.astype(int), initial_f_k=first, relative_tolerance=1e-12,
                maximum_iterations=MAX_ITERATIONS, solver_protocol="robust",
            )  # fmt: skip
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


def _refine(
    log_ratio: FloatArray, counts: FloatArray, betas: FloatArray, start: FloatArray
) -> FloatArray:
    """Solve the MBAR equations of a part of a run by Newton steps from the whole run's solution.

    Falls back on pymbar where these do not converge.
    """
    zeta = np.log(counts) - start
    for _ in range(20):
        p = state_probabilities(log_ratio, betas, zeta)
        score = counts - p.sum(axis=0)
        if np.max(np.abs(score) / counts) < 1e-9:
            log_z = np.log(counts) - zeta
            return np.asarray(log_z - log_z[0])
        try:
            zeta[1:] += np.linalg.solve(_information(p)[1:, 1:], score[1:])
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(zeta).all():
            break
    return mbar_log_z(log_ratio, counts, betas, start)[0]


def _information(p: FloatArray) -> FloatArray:
    """Return sum_i (diag p_i - p_i p_i'), shape (K, K), for p of shape (n, K)."""
    return np.asarray(np.diag(p.sum(axis=0)) - p.T @ p)


def state_probabilities(log_ratio: FloatArray, betas: FloatArray, zeta: FloatArray) -> FloatArray:
    """Return p_k(x_i) proportional to exp(zeta_k + beta_k log_ratio_i), shape (n, K)."""
    return softmax_rows(tilt(betas, log_ratio) + zeta)


def mbar(run: Run) -> Evidence:
    """Estimate log Z by MBAR from the states of all rungs.

    pymbar solves the equations; a failure is raised. The error is ours, over tours: with
    zeta_k = log n_k - log Z_k the equations are those of a multinomial logistic regression of the
    rung on log_ratio (Geyer 1994), so a tour b moves zeta by H^-1 sum_{i in b} (1[k_i = k] -
    p_k(x_i)), with H = sum_i (diag p - p p'), and log n_k by its own share of the visits. It is
    infinite where fewer than 10 effective tours connect the rungs below some rung with those
    above.

    Parameters
    ----------
    run : Run

    Returns
    -------
    Evidence
        Everything in nats. ``details`` has pymbar's own uncertainty, ``pymbar_mcse``, which takes
        all states for independent and *shrinks* as the overlap of rungs goes to 0, and the
        effective number of tours ``overlap_tours`` at the weakest place.

    Raises
    ------
    SolverError
        If pymbar does not solve the equations.
    ImportError
        Without pymbar: ``pip install "pymc-tempering[mbar]"``.
    """
    _import_pymbar()
    betas, trace, pieces = run.stats.beta, run.trace, run.pieces
    solutions: list[FloatArray] = []

    def fit(part: BoolArray) -> Fit:
        inside = np.flatnonzero(part[run.piece])
        log_ratio, rung = trace.log_ratio[inside], trace.rung[inside]
        counts = np.bincount(rung, minlength=betas.size).astype(float)
        visited = np.flatnonzero(counts)
        notes = tuple(empty_warnings(counts, "the states of other rungs"))
        if counts[0] == 0.0 or counts[-1] == 0.0:
            nothing = np.full(betas.size, np.nan)
            return Fit(nothing, np.zeros((int(part.sum()), betas.size)), alarms=notes)
        own = np.nan
        if solutions and np.isfinite(solutions[0][visited]).all():
            log_z = _refine(log_ratio, counts[visited], betas[visited], solutions[0][visited])
        else:
            log_z, own = mbar_log_z(log_ratio, counts[visited], betas[visited])
        zeta = np.log(counts[visited]) - log_z
        p = state_probabilities(log_ratio, betas[visited], zeta)
        curve = np.full(betas.size, np.nan)
        curve[visited] = log_z
        empty = np.flatnonzero(counts == 0.0)
        if empty.size:  # by reweighting
            log_mixture = logsumexp(tilt(betas[visited], log_ratio) + zeta, axis=1)
            curve[empty] = logsumexp(tilt(betas[empty], log_ratio).T - log_mixture, axis=1)
        if not solutions:
            solutions.append(curve)
        hit = (rung[:, None] == visited).astype(float)
        score = run.sum_table(hit - p, run.piece[inside])
        visits = run.sum_table(hit, run.piece[inside])
        d_zeta = np.zeros_like(score)
        try:
            d_zeta[:, 1:] = np.linalg.solve(_information(p)[1:, 1:], score[:, 1:].T).T
        except np.linalg.LinAlgError as error:
            raise SolverError("MBAR: the rungs do not overlap; sample with more rungs") from error
        d_count = visits / counts[visited]
        effects = np.full((pieces.chain.size, betas.size), np.nan)
        effects[:, visited] = d_count - d_count[:, :1] - d_zeta
        least, cut = _weakest_cut(run, p, rung, visited, inside, part)
        alarms = () if least >= MIN_ESS else (_gap_alarm(cut, least),)
        details = {"pymbar_mcse": own, "overlap_tours": least}
        return Fit(curve, effects[part], np.nan, alarms, notes, details)

    return fit_run("mbar", run.stats, pieces, fit)


def _weakest_cut(
    run: Run,
    p: FloatArray,
    rung: np.ndarray,
    visited: np.ndarray,
    inside: np.ndarray,
    part: BoolArray,
) -> tuple[float, int]:
    """Return the fewest effective tours that connect the rungs below a cut with those above.

    For the cut below visited rung j, states of lower rungs lend the upper ones the weight
    sum_{k >= j} p_k, and those of upper rungs the lower ones the rest.
    """
    above = np.cumsum(p[:, ::-1], axis=1)[:, ::-1]
    least, where = np.inf, 0
    label = run.pieces.tour[part]
    for j in range(1, visited.size):
        low = rung < visited[j]
        lent = np.column_stack([np.where(low, above[:, j], 0.0), np.where(low, 0, 1 - above[:, j])])
        held = float(kish(sum_by(label, run.sum_table(lent, run.piece[inside])[part])).min())
        if held < least:
            least, where = held, int(visited[j])
    return least, where


def _gap_alarm(rung: int, tours: float) -> str:
    return (
        f"{tours:.1f} effective tours connect rung {rung} and those above it with those below, "
        f"where an error needs {MIN_ESS:.0f}, so the mcse is infinite: sample with more rungs "
        "there, or more draws."
    )


def _import_pymbar() -> type:
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
    """Keep pymbar's advice and comments from the user: its solution is judged by the equations."""
    logger = logging.getLogger("pymbar")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
