"""A fitted mixture as compiled code evaluates it, with its gradient, from one packed matrix.

Also the one way in which compiled code evaluates the density of a path, whatever its reference.
"""

from functools import partial
from itertools import pairwise
from threading import Event

import numba
import numpy as np
from numba import types

from pymc_tempering.borrowed.private import NOT_COUNTED
from pymc_tempering.core.threads import run_all
from pymc_tempering.model.compiled import (
    DENSITY,
    LOG_RATIO,
    LOG_REFERENCE,
    MATRIX,
    MIXTURE,
    Density,
    Mixer,
    Mixing,
    Point,
    call_loop,
)
from pymc_tempering.model.jit import borrowing, njit
from pymc_tempering.references.warp import add_warped_slope, warp_point

# A packed mixture has a header row [J, log eps, rank or -1, S, white coordinates], then for each
# component a row [log constant, dof, scratch: log density, slope, square, factor of the gradient],
# a row with its mean, a scratch row with whitened x, and the rows of its whitening
# (`pymc_tempering.references.mixture`): for a full scale matrix d rows, and its d columns as rows;
# 1 + rank rows for one of low rank. Then come S stretched copies, each a row with the first five of
# these numbers and those of the next line, and a row of its mode's inverse scale matrix. Last
# come rows of scratch for a warp, which is a matrix apart: u, the slope along it, and its own.
CONSTANT, DOF, LOG_T, SLOPE, SQUARE, FACTOR = range(6)
ORIGIN, ALONG, WITHIN, OWN, PRODUCT = range(5, 10)
MIN_COLUMNS, COPY_COLUMNS = 6, 10

LOG_2PI = float(np.log(2.0 * np.pi))

FOUR = 4
"""Columns, or rows, of a full scale matrix that are done at a time."""

NEGLIGIBLE = -45.0
"""A component is left out where the log of its share of the density is below this (3e-20)."""


@borrowing
def _shrink(dim, mixture, at, rank):  # type: ignore[no-untyped-def]
    """Apply `I - sum_k b_k b_k'` to the scratch row; the b_k are orthogonal, so no terms mix."""
    z = at + 2
    for row in range(at + 4, at + 4 + rank):
        along = 0.0
        for i in range(dim):
            along += mixture[row, i] * mixture[z, i]
        for i in range(dim):
            mixture[z, i] -= along * mixture[row, i]


@borrowing
def _whiten_full(x, mixture, at):  # type: ignore[no-untyped-def]
    """Multiply by the inverse factor, four columns at a time: the processor does several i at once.

    Each sum has the order of its terms, so that the bits are those of one column after the other.
    """
    dim, mean, z = x.size, at + 1, at + 2
    first = at + 3 + dim
    for i in range(dim):
        mixture[z, i] = 0.0
    whole = dim - dim % FOUR
    for k in range(0, whole, FOUR):
        row = first + k
        a, b = x[k] - mixture[mean, k], x[k + 1] - mixture[mean, k + 1]
        c, d = x[k + 2] - mixture[mean, k + 2], x[k + 3] - mixture[mean, k + 3]
        for i in range(FOUR - 1):  # the corner above the diagonal
            for j in range(i + 1):
                mixture[z, k + i] += mixture[row + j, k + i] * (x[k + j] - mixture[mean, k + j])
        for i in range(k + 3, dim):
            total = mixture[z, i] + mixture[row, i] * a
            total += mixture[row + 1, i] * b
            total += mixture[row + 2, i] * c
            mixture[z, i] = total + mixture[row + 3, i] * d
    for k in range(whole, dim):
        off = x[k] - mixture[mean, k]
        for i in range(k, dim):
            mixture[z, i] += mixture[first + k, i] * off


@borrowing
def _whiten(x, mixture, at, rank):  # type: ignore[no-untyped-def]
    """Whiten x for the component in row `at`, into its scratch row; return the squared length."""
    dim, z = x.size, at + 2
    if rank < 0:
        _whiten_full(x, mixture, at)
    else:
        for i in range(dim):
            mixture[z, i] = mixture[at + 3, i] * (x[i] - mixture[at + 1, i])
        _shrink(dim, mixture, at, rank)
    square = 0.0
    for i in range(dim):
        square += mixture[z, i] * mixture[z, i]
    return square


@borrowing
def _add_slope(out, factor, mixture, at, rank):  # type: ignore[no-untyped-def]
    """Add factor times scale^-1 (x - mean) to `out`; the scratch row is used up."""
    dim, z, first = out.size, at + 2, at + 3
    if rank >= 0:
        _shrink(dim, mixture, at, rank)
        for i in range(dim):
            out[i] += factor * mixture[z, i] * mixture[first, i]
        return
    whole = dim - dim % FOUR
    for i in range(0, whole, FOUR):  # as in `_whiten_full`, by rows
        row = first + i
        a, b = factor * mixture[z, i], factor * mixture[z, i + 1]
        c, d = factor * mixture[z, i + 2], factor * mixture[z, i + 3]
        for k in range(i + 1):
            total = out[k] + a * mixture[row, k]
            total += b * mixture[row + 1, k]
            total += c * mixture[row + 2, k]
            out[k] = total + d * mixture[row + 3, k]
        for k in range(1, FOUR):
            for j in range(k, FOUR):
                out[i + k] += factor * mixture[z, i + j] * mixture[row + j, i + k]
    for i in range(whole, dim):
        along = factor * mixture[z, i]
        for k in range(i + 1):
            out[k] += along * mixture[first + i, k]


@borrowing
def _copy_square(u, mixture, at):  # type: ignore[no-untyped-def]
    """Squared distance in scales of the stretched copy in row `at`, from that of its mode.

    With y = u - mean and P the inverse scale matrix of the mode, y' P y - (P y)_t^2 / P_tt is the
    square of all coordinates but t. That of t has a scale of its own.
    """
    origin, t = int(mixture[at, ORIGIN]), int(mixture[at, ALONG])
    product = 0.0
    for i in range(u.size):
        product += mixture[at + 1, i] * (u[i] - mixture[origin + 1, i])
    mixture[at, PRODUCT] = product
    whole = mixture[origin, SQUARE]
    rest = whole - product * product * mixture[at, WITHIN]
    if not rest >= 0.0:  # but for rounding, or of infinite numbers
        rest = 0.0 if whole < np.inf else np.inf
    off = u[t] - mixture[origin + 1, t]
    return rest + off * off * mixture[at, OWN]


@borrowing
def _add_copy_slope(out, factor, u, mixture, at):  # type: ignore[no-untyped-def]
    """Add the slope of the copy in row `at` to that of its mode, which takes up its factor."""
    origin, t = int(mixture[at, ORIGIN]), int(mixture[at, ALONG])
    mixture[origin, FACTOR] += factor
    less = factor * mixture[at, PRODUCT] * mixture[at, WITHIN]
    for i in range(u.size):
        out[i] -= less * mixture[at + 1, i]
    out[t] += factor * mixture[at, OWN] * (u[t] - mixture[origin + 1, t])


@borrowing
def _log_t(mixture, at, square, dim, log_det):  # type: ignore[no-untyped-def]
    """Write log density and slope of the component in row `at`; return the former."""
    dof = mixture[at, DOF]
    log_t = mixture[at, CONSTANT] - 0.5 * (dof + dim) * np.log1p(square / dof) + log_det
    mixture[at, LOG_T] = log_t
    mixture[at, SLOPE] = -(dof + dim) / (dof + square)
    mixture[at, SQUARE] = square
    return log_t


@borrowing
def _share_of(log_share):  # type: ignore[no-untyped-def]
    """Share of a component in the density, from its log; 0 where that is negligible."""
    return np.exp(log_share) if log_share > NEGLIGIBLE else 0.0


@borrowing
def _to_slopes(grads, x, u, mixture, warp, prior_share, log_reference):  # type: ignore[no-untyped-def]
    """Turn gradients of log prior and log likelihood into those of log_reference and log_ratio."""
    dim = u.size
    n, rank, n_copies = int(mixture[0, 0]), int(mixture[0, 2]), int(mixture[0, 3])
    size = 3 + 2 * dim if rank < 0 else 4 + rank
    end = 1 + n * size + 2 * n_copies
    reference, ratio = grads[0], grads[1]
    for i in range(x.size):
        ratio[i] += reference[i]  # of the target
        reference[i] = prior_share * reference[i] if prior_share > 0.0 else 0.0
    slope, t_share = reference[:dim], 0.0
    if warp.shape[0] > 0:
        slope = mixture[end + 1, :dim]
        slope[:] = 0.0
    for j in range(n):
        mixture[1 + j * size, FACTOR] = 0.0
    for at in range(1 + n * size, end, 2):
        share = _share_of(mixture[at, LOG_T] - log_reference)
        if share > 0.0:
            t_share += share
            _add_copy_slope(slope, share * mixture[at, SLOPE], u, mixture, at)
    for j in range(n):
        at = 1 + j * size
        share = _share_of(mixture[at, LOG_T] - log_reference)
        factor = share * mixture[at, SLOPE] + mixture[at, FACTOR]
        if factor != 0.0:
            t_share += share
            _add_slope(slope, factor, mixture, at, rank)
    if warp.shape[0] > 0:
        add_warped_slope(reference, t_share, warp, u, slope, mixture[end + 2 :])
    for i in range(dim, x.size):
        reference[i] -= t_share * x[i]
    for i in range(x.size):
        ratio[i] -= reference[i]


def to_mixture(x, values, grads, mixture, warp):  # type: ignore[no-untyped-def]
    """Turn log prior and log likelihood of a point into log_reference and log_ratio."""
    dim = x.size - int(mixture[0, 4])
    n, rank, n_copies = int(mixture[0, 0]), int(mixture[0, 2]), int(mixture[0, 3])
    size = 3 + 2 * dim if rank < 0 else 4 + rank
    copies = 1 + n * size
    end = copies + 2 * n_copies
    u, log_det = x[:dim], 0.0
    for i in range(dim, x.size):
        log_det -= 0.5 * (x[i] * x[i] + LOG_2PI)
    if warp.shape[0] > 0:
        u = mixture[end, :dim]
        log_det = warp_point(x, warp, u, mixture[end + 2 :])
    log_prior, log_likelihood = values[LOG_REFERENCE], values[LOG_RATIO]
    prior_term = mixture[0, 1] + log_prior
    largest = prior_term
    for j in range(n):
        at = 1 + j * size
        square = _whiten(u, mixture, at, rank)
        largest = max(largest, _log_t(mixture, at, square, dim, log_det))
    for at in range(copies, end, 2):
        square = _copy_square(u, mixture, at)
        largest = max(largest, _log_t(mixture, at, square, dim, log_det))
    total = np.exp(prior_term - largest) if prior_term > -np.inf else 0.0
    for j in range(n):
        total += _share_of(mixture[1 + j * size, LOG_T] - largest)
    for at in range(copies, end, 2):
        total += _share_of(mixture[at, LOG_T] - largest)
    log_reference = largest + np.log(total)
    if grads.shape[0] > 0:  # wanted
        share = np.exp(prior_term - log_reference) if prior_term > -np.inf else 0.0
        _to_slopes(grads, x, u, mixture, warp, share, log_reference)
    values[LOG_REFERENCE] = log_reference
    if log_prior == -np.inf or log_likelihood == -np.inf:
        values[LOG_RATIO] = -np.inf
    else:
        values[LOG_RATIO] = log_prior + log_likelihood - log_reference


MIXER = Mixer(to_mixture)


@njit(forceinline=True, **NOT_COUNTED)
def evaluate(density, point):  # type: ignore[no-untyped-def]
    """Evaluate log_reference, log_ratio and their gradients at `point.x`, in place."""
    x, values, grads, mixture = point
    density.code(x, values, grads, density.data)
    if mixture.table.shape[0] > 0:
        mixture.mixer(x, values, grads, mixture.table, mixture.warp)


@njit()
def evaluate_values(density, point):  # type: ignore[no-untyped-def]
    """Evaluate log_reference and log_ratio alone; the gradients stay as they were."""
    evaluate(density, Point(point.x, point.values, point.grads[:0], point.mixture))


@njit(
    types.void(DENSITY, MATRIX, MATRIX, numba.float64[:, :, ::1], MIXTURE),
    **NOT_COUNTED,
)
def _evaluate_rows(density, xs, values, grads, mixture):  # type: ignore[no-untyped-def]
    for i in range(xs.shape[0]):
        evaluate(density, Point(xs[i], values[i], grads[i], mixture))


def evaluate_rows(
    density: Density,
    xs: np.ndarray,
    values: np.ndarray,
    grads: np.ndarray,
    mixture: Mixing,
    cores: int = 1,
) -> None:
    """Evaluate each row of `xs` (n, d) into `values` (n, 2) and `grads` (n, 2, d).

    With several cores that is done on threads, unless Python evaluates the density.
    """

    def work(part: slice, stop: Event) -> bool:
        call_loop(_evaluate_rows, density, xs[part], values[part], grads[part], mixture.copy())
        return True

    parts = 1 if density.data.evaluator is not None else min(cores, len(xs))
    if parts < 2:
        call_loop(_evaluate_rows, density, xs, values, grads, mixture)
        return
    edges = len(xs) * np.arange(parts + 1) // parts
    run_all([partial(work, slice(*ends)) for ends in pairwise(edges)], parts)
