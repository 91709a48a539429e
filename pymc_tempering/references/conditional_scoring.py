"""Likelihood parts of warped coordinates by Fisher scoring: v, kappa and B by maximum likelihood.

One coordinate after another is fitted by compiled code, many in a call.
"""

from typing import NamedTuple

import numpy as np
from numba import types

from pymc_tempering.model.compiled import MATRIX, VECTOR
from pymc_tempering.model.jit import borrowing, njit

MAX_STEPS, TOLERANCE = 30, 0.005
"""Steps of Fisher scoring at most, and the gain of log likelihood that ends it (nats)."""

RIDGE = 0.01
"""Pull of log v and log kappa to their starting values."""

MAX_SHIFT, MAX_STEP = 25.0, 4.0
"""Largest distance of log v and log kappa from their starting values, and largest step."""

FIRST_DAMPING, LEAST_DAMPING, MAX_DAMPING = 1e-3, 1e-6, 1e4
"""Damping of the steps: where it starts, its least value, and where scoring gives up."""

X, S, PRIOR, A, SCALE, DECAY = range(6)
"""Rows of what is known of a coordinate; the last two are made of s."""

CUBE = types.float64[:, :, ::1]


@borrowing
def evaluate(known, design, center, parameters, row, gradient, information):  # type: ignore[no-untyped-def]
    """Return log likelihood less the ridge; write its gradient and the expected information.

    `known` has rows x, s, the precision and the mean of the prior part, exp(s), and what it decays
    by (exp(-f s)); `row` is scratch. All are zero, and the value is -inf, where something is not
    finite.
    """
    n, size = len(design), parameters.size
    width = size - 2
    v, kappa = np.exp(parameters[0]), np.exp(parameters[1])
    gradient[:] = 0.0
    information[:] = 0.0
    total = 0.0
    for i in range(n):
        squared, decay = known[SCALE, i] * known[SCALE, i], known[DECAY, i]
        variance = v + kappa * squared
        likelihood = 1.0 / (variance * decay * decay)
        precision = known[PRIOR, i] + likelihood
        root, w = np.sqrt(precision), likelihood / precision
        b = 0.0
        for j in range(width):
            b += design[i, j] * parameters[2 + j]
        b *= decay
        a = known[A, i]
        r = (known[X, i] - (1.0 - w) * a - w * b) * root
        total += 0.5 * np.log(precision) - 0.5 * r * r
        share = v / variance  # of v in the variance
        shift, log_sd = -w * (1.0 - w) * (b - a) * root, 0.5 * w  # by log V
        row[0], row[1] = shift * share, shift * (1.0 - share)
        slope = w * decay * root
        for j in range(width):
            row[2 + j] = slope * design[i, j]
        for j in range(size):
            gradient[j] += r * row[j]
            for k in range(j + 1):
                information[j, k] += row[j] * row[k]
        of_v, of_kappa = log_sd * share, log_sd * (1.0 - share)
        gradient[0] += (r * r - 1.0) * of_v
        gradient[1] += (r * r - 1.0) * of_kappa
        information[0, 0] += 2.0 * of_v * of_v
        information[1, 0] += 2.0 * of_v * of_kappa
        information[1, 1] += 2.0 * of_kappa * of_kappa
    sound = np.isfinite(total)
    for j in range(2):
        off = parameters[j] - center[j]
        total -= RIDGE * off * off
        gradient[j] -= 2.0 * RIDGE * off
        information[j, j] += 2.0 * RIDGE
    for j in range(size):
        sound = sound and np.isfinite(gradient[j])
        for k in range(j + 1):
            sound = sound and np.isfinite(information[j, k])
            information[k, j] = information[j, k]
    if not sound:  # beyond the range of numbers
        total = -np.inf
        gradient[:] = 0.0
        information[:] = 0.0
    return total


@borrowing
def damped_step(gradient, information, damping, factor, last, step):  # type: ignore[no-untyped-def]
    """Write the damped step; parameters that nothing depends on stay; `factor`, `last`: scratch."""
    size = gradient.size
    for j in range(size):
        step[j] = np.sqrt(max(information[j, j], 1e-30))
    for j in range(size):  # Cholesky factor of the scaled and damped information
        for k in range(j + 1):
            value = information[j, k] / (step[j] * step[k])
            if j == k:
                value += damping[j] + 1e-9
            for m in range(k):
                value -= factor[j, m] * factor[k, m]
            factor[j, k] = np.sqrt(max(value, 1e-12)) if j == k else value / factor[k, k]
    for j in range(size):
        step[j] = 1.0 / step[j]
    for j in range(size):
        value = gradient[j] * step[j]
        for m in range(j):
            value -= factor[j, m] * last[m]
        last[j] = value / factor[j, j]
    for j in range(size - 1, -1, -1):
        value = last[j]
        for m in range(j + 1, size):
            value -= factor[m, j] * last[m]
        last[j] = value / factor[j, j]
    for j in range(size):
        step[j] *= last[j]
    for j in range(2):
        step[j] = min(max(step[j], -MAX_STEP), MAX_STEP)


@njit(error_model="numpy")
def score_one(known, design, center, parameters, vectors, matrices):  # type: ignore[no-untyped-def]
    """Fisher scoring with damping from `parameters`, which are written over; the log likelihood."""
    size = parameters.size
    gradient, new_gradient, step = vectors[0, :size], vectors[1, :size], vectors[2, :size]
    trial, damping, row = vectors[3, :size], vectors[4, :size], vectors[5, :size]
    information, new_information, factor = matrices[0], matrices[1], matrices[2]
    value = evaluate(known, design, center, parameters, row, gradient, information)
    # log v and log kappa stay in the first step, in which the rest is linear.
    damping[:] = 0.0
    damping[0], damping[1] = 1e12, 1e12
    damped_step(gradient, information, damping, factor, row, step)
    for j in range(size):
        parameters[j] += step[j]
    value = evaluate(known, design, center, parameters, row, gradient, information)
    damp = FIRST_DAMPING
    for _ in range(MAX_STEPS):
        damping[:] = damp
        damped_step(gradient, information, damping, factor, row, step)
        for j in range(size):
            trial[j] = parameters[j] + step[j]
        for j in range(2):
            low, high = center[j] - MAX_SHIFT, center[j] + MAX_SHIFT
            trial[j] = min(max(trial[j], low), high)
        new = evaluate(known, design, center, trial, row, new_gradient, new_information)
        if not new > value:
            damp *= 8.0
            if damp > MAX_DAMPING:
                break
            continue
        gain, value = new - value, new
        for j in range(size):
            parameters[j] = trial[j]
        gradient, new_gradient = new_gradient, gradient
        information, new_information = new_information, information
        damp = max(0.2 * damp, LEAST_DAMPING)
        if gain < TOLERANCE:
            break
    return value


@njit(types.void(CUBE, VECTOR, CUBE, MATRIX, CUBE, MATRIX, MATRIX), error_model="numpy")
def score_all(known, falls, design, center, starts, parameters, likelihoods):  # type: ignore[no-untyped-def]
    """Write the parameters of each coordinate that are likeliest of the fits from its starts.

    Parameters
    ----------
    known : array, shape (W, 4, n)
        x, s, and the precision and mean of the prior part.
    falls : array, shape (W,)
    design : array, shape (W, n, 1 + R)
        Columns at the end that are zero are not looked at; their coefficients are zero.
    center : array, shape (W, 2)
        log v and log kappa that the ridge pulls to.
    starts : array, shape (W, m, 2)
    parameters : array, shape (W, 3 + R)
    likelihoods : array, shape (W, 1)
        Both are written.
    """
    size, n = parameters.shape[1], known.shape[2]
    own = np.empty((6, n))
    vectors, matrices = np.zeros((6, size)), np.zeros((3, size, size))
    every = np.empty(size)
    for k in range(known.shape[0]):
        for i in range(n):
            for j in range(SCALE):
                own[j, i] = known[k, j, i]
            own[SCALE, i] = np.exp(known[k, S, i])
            own[DECAY, i] = 1.0 / own[SCALE, i] if falls[k] > 0.0 else 1.0
        likelihoods[k, 0] = -np.inf
        used = size
        while used > 3 and not design[k, :, used - 3].any():
            used -= 1
        found = every[:used]
        parameters[k] = 0.0
        for m in range(starts.shape[1]):
            found[:] = 0.0
            found[0], found[1] = starts[k, m, 0], starts[k, m, 1]
            value = score_one(own, design[k], center[k], found, vectors, matrices)
            if value > likelihoods[k, 0] or m == 0:
                likelihoods[k, 0] = value
                parameters[k, :used] = found


STARTS = ((0.0, 0.0), (-2.0, 5.0))
"""Shifts of log v and log kappa that scoring starts from."""

CHUNK = 100
"""Coordinates at a time."""


class Conditionals(NamedTuple):
    """What is known of W coordinates at n draws; see `pymc_tempering.references.warp`.

    Attributes
    ----------
    x, s : array, shape (W, n)
    prior, a : array, shape (W, n)
        Precision and mean of the prior parts.
    design : array, shape (W, n, 1 + R)
        Ones and regressors of B.
    falls : array, shape (W,)
    """

    x: np.ndarray
    s: np.ndarray
    prior: np.ndarray
    a: np.ndarray
    design: np.ndarray
    falls: np.ndarray


def fit_conditionals(
    known: Conditionals, start: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit log v, log kappa and the coefficients of B of each coordinate.

    Parameters
    ----------
    start : array, shape (W, 2), optional
        log v and log kappa of an earlier fit; NaN where there is none.

    Returns
    -------
    parameters : array, shape (W, 3 + R)
    likelihood, plain : array, shape (W,)
        Log likelihoods of this fit, and of a linear regression on the regressors and s, which has
        one variance (nats).
    """
    found = []
    for first in range(0, len(known.x), CHUNK):
        part = slice(first, first + CHUNK)
        some = Conditionals(*(each[part] for each in known))
        parameters, likelihood = _best(some, None if start is None else start[part])
        found.append((parameters, likelihood, _plain_likelihood(some)))
    parameters, likelihood, plain = (np.concatenate(each) for each in zip(*found, strict=True))
    return parameters, likelihood, plain


def _residual_variance(design: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Variance of x, shape (W, n), around its regression on a design, shape (W, n, p)."""
    size = np.sqrt((design**2).sum(axis=1, keepdims=True))
    scaled = design / np.where(size > 0, size, 1.0)
    turned = scaled.transpose(0, 2, 1)
    gram = np.linalg.pinv(turned @ scaled, rcond=1e-12, hermitian=True)
    fitted = scaled @ (gram @ (turned @ x[:, :, None]))
    return np.maximum(((x - fitted[:, :, 0]) ** 2).mean(axis=1), 1e-300)


def _plain_likelihood(known: Conditionals) -> np.ndarray:
    design = np.concatenate([known.design, known.s[:, :, None]], axis=2)
    variance = _residual_variance(design, known.x)
    return -0.5 * known.x.shape[1] * (1 + np.log(variance))


def _best(known: Conditionals, start: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of the likeliest of the fits from all starts, and their log likelihoods."""
    middle = np.median(known.s, axis=1)
    log_v = np.log(_residual_variance(known.design, known.x)) + 2.0 * known.falls * middle
    center = np.column_stack([log_v, log_v - 6.0 - 2.0 * middle])
    if start is not None and np.isfinite(start).all():
        starts = np.clip(start, center - MAX_SHIFT, center + MAX_SHIFT)[:, None]
    else:
        starts = center[:, None] + np.array(STARTS)
    rows = np.stack([known.x, known.s, known.prior, known.a], axis=1)
    parameters = np.empty((len(center), 2 + known.design.shape[2]))
    likelihoods = np.empty((len(center), 1))
    score_all(rows, known.falls, known.design, center, starts, parameters, likelihoods)
    return parameters, likelihoods[:, 0]
