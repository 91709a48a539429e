"""Coordinates that straighten funnels: each follows its exact conditional in normal hierarchies.

With s = gamma x_t (or gamma log sigmoid x_t) for a scale coordinate t, a warped coordinate has a
prior part `N(A, exp(2 (delta + c s)))` and a likelihood part `N(exp(-f s) B, V)` with
`V = (v + kappa exp(2 s)) exp(-2 f s)`; A and B are linear in other coordinates. The product of the
two is normal with precision `P = exp(-2 (delta + c s)) + 1 / V` and mean
`m = (1 - w) A + w exp(-f s) B`, `w = 1 / (V P)`. The warp is `u = (x - m) sqrt(P)`.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from pymc_tempering.model.jit import borrowing, njit

# Packed, a warp has a row for each warped coordinate: its numbers by the names below (`FIRST` is
# the first row of the same s, `LAST` how many regressors it has), then its regressors, their
# coefficients in A, and those in B. Compiled code that evaluates it has a scratch matrix, with a
# column for each row.
INDEX, SCALE, FIRST, LAST, GAMMA, BOUNDED, C, F, P0, V0, KAPPA, A0, B0 = range(13)
REGRESSORS = 13
SQUARED, DECAY, S_SLOPE, ROOT, PRIOR_PART, LIKELIHOOD_PART, MEAN_SLOPE, LOG_SLOPE = range(8)
N_SCRATCH = 8

COMPILED_ROWS = 200
"""Rows of a warp above which compiled code takes states to u: regressors of many rows at many
states take too much memory at once."""

MAX_S, MAX_U = 150.0, 1e150
"""Bounds of |s| and |u|, and `MAX_LOG` of the numbers that are logs: nothing overflows."""
MAX_LOG = 50.0


KINDS_OF_ROWS = ("index", "scale", "gamma", "bounded", "centered", "falls")
"""Attributes of a warp that say which coordinates follow which scales, and how."""


def log_scale(x: np.ndarray, gamma: np.ndarray | float, bounded: np.ndarray | float) -> np.ndarray:
    """Return s, the log of a scale, at a scale coordinate."""
    logs = np.where(bounded > 0, -np.logaddexp(0.0, -x), x)
    return np.clip(gamma * logs, -MAX_S, MAX_S)


@dataclass(frozen=True)
class FunnelWarp:
    """A triangular map from unconstrained states x to u, one row for each warped coordinate.

    Scale coordinates are not warped. Regressors are not warped, or warped in an earlier row.

    Attributes
    ----------
    index, scale : array of int, shape (W,)
        The warped coordinate, and its scale coordinate t.
    gamma : array, shape (W,)
        Times x_t it is s, the log of the scale.
    bounded : array, shape (W,)
        1 where the scale has an upper bound: gamma times log sigmoid x_t is s.
    centered, falls : array, shape (W,)
        The numbers c and f, each 0 or 1.
    log_sd, log_v, log_kappa : array, shape (W,)
        delta, log v and log kappa.
    regressors : array of int, shape (W, R)
        Coordinates in A and B; unused places have t and coefficients zero.
    prior_mean, likelihood_mean : array, shape (W, 1 + R)
        Constant and coefficients of A and B.
    """

    index: np.ndarray
    scale: np.ndarray
    gamma: np.ndarray
    bounded: np.ndarray
    centered: np.ndarray
    falls: np.ndarray
    log_sd: np.ndarray
    log_v: np.ndarray
    log_kappa: np.ndarray
    regressors: np.ndarray
    prior_mean: np.ndarray
    likelihood_mean: np.ndarray

    @property
    def scales(self) -> np.ndarray:
        """The scale coordinates, those with most warped coordinates first."""
        found, counts = np.unique(self.scale, return_counts=True)
        return found[np.argsort(-counts, kind="stable")]

    def alike(self, other: "FunnelWarp | None") -> bool:
        """Whether another warp has the same coordinates on the same scales, of the same kinds."""
        return other is not None and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in KINDS_OF_ROWS
        )

    def rows(self, which: slice | np.ndarray) -> "FunnelWarp":
        """Return some of the rows."""
        return FunnelWarp(*(getattr(self, field.name)[which] for field in fields(self)))

    def moments(self, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision of each warped coordinate given the others, shape (n, W)."""
        s = log_scale(xs[:, self.scale], self.gamma, self.bounded)
        prior, likelihood = self.precisions(s)
        others = xs[:, self.regressors]
        a, b = (
            np.einsum("nwr,wr->nw", others, mean[:, 1:]) + mean[:, 0]
            for mean in (self.prior_mean, self.likelihood_mean)
        )
        precision = prior + likelihood
        return (prior * a + likelihood * np.exp(-self.falls * s) * b) / precision, precision

    def precisions(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precisions of the prior and of the likelihood part at s, shape (n, W)."""
        prior = np.exp(-2.0 * (self.log_sd + self.centered * s))
        squared = np.exp(2.0 * s)
        variance = np.exp(self.log_v) + np.exp(self.log_kappa) * squared
        return prior, squared**self.falls / variance

    def forward(self, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Warp states, shape (n, d); return u, of that shape, and log |du / dx|, shape (n,)."""
        if len(self.index) > COMPILED_ROWS:
            us, log_det = np.empty(xs.shape), np.empty(len(xs))
            warp_states(np.ascontiguousarray(xs), self.packed, us, log_det)
            return us, log_det
        us = xs.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            mean, precision = self.moments(xs)
            warped = (xs[:, self.index] - mean) * np.sqrt(precision)
        us[:, self.index] = np.clip(warped, -MAX_U, MAX_U)
        return us, 0.5 * np.log(precision).sum(axis=1)

    def inverse(self, us: np.ndarray) -> np.ndarray:
        """States, shape (n, d), that `forward` takes to u."""
        xs = np.array(us, order="C")
        unwarp(xs, self.packed)
        return xs

    def spread(self, xs: np.ndarray) -> np.ndarray:
        """Return the sd of each warped coordinate given the others, shape (n, d), else 1."""
        spread = np.ones_like(xs)
        prior, likelihood = self.precisions(log_scale(xs[:, self.scale], self.gamma, self.bounded))
        spread[:, self.index] = 1.0 / np.sqrt(prior + likelihood)
        return spread

    @cached_property
    def packed(self) -> np.ndarray:
        """Rows of the warp, as compiled code reads them; nothing writes into them."""
        n = self.regressors.shape[1]
        packed = np.zeros((len(self.index), REGRESSORS + 3 * n))
        kinds = np.column_stack([self.scale, self.gamma, self.bounded])
        _, first, kind = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        used = (self.prior_mean[:, 1:] != 0.0) | (self.likelihood_mean[:, 1:] != 0.0)
        for place, column in {
            INDEX: self.index, SCALE: self.scale, FIRST: first[kind.ravel()],
            LAST: (used * np.arange(1, n + 1)).max(axis=1, initial=0),
            GAMMA: self.gamma, BOUNDED: self.bounded, C: self.centered, F: self.falls,
            P0: np.exp(-2.0 * self.log_sd), V0: np.exp(self.log_v), KAPPA: np.exp(self.log_kappa),
            A0: self.prior_mean[:, 0], B0: self.likelihood_mean[:, 0],
        }.items():  # fmt: skip
            packed[:, place] = column
        parts = self.regressors, self.prior_mean[:, 1:], self.likelihood_mean[:, 1:]
        packed[:, REGRESSORS:] = np.hstack(parts)
        return packed


@borrowing
def _n_regressors(warp):  # type: ignore[no-untyped-def]
    """Places for regressors of each coordinate."""
    return (warp.shape[1] - REGRESSORS) // 3


@borrowing
def _means_at(x, warp, row):  # type: ignore[no-untyped-def]
    """Return A and B of the coordinate in a row."""
    a, b, n = warp[row, A0], warp[row, B0], _n_regressors(warp)
    for r in range(REGRESSORS, REGRESSORS + int(warp[row, LAST])):
        other = x[int(warp[row, r])]
        a += warp[row, r + n] * other
        b += warp[row, r + 2 * n] * other
    return a, b


@borrowing
def scale_at(x, warp, row):  # type: ignore[no-untyped-def]
    """Return s of the coordinate in a row, and its slope along the scale coordinate."""
    s, slope = x[int(warp[row, SCALE])], warp[row, GAMMA]
    if warp[row, BOUNDED] > 0.0:
        slope /= 1.0 + np.exp(s)
        s = min(s, 0.0) - np.log1p(np.exp(-abs(s)))
    s *= warp[row, GAMMA]
    if abs(s) > MAX_S:
        slope = 0.0
    return min(max(s, -MAX_S), MAX_S), slope


@borrowing
def _precisions_at(warp, row, squared):  # type: ignore[no-untyped-def]
    """Precisions of prior and likelihood part, where exp(2 s) is `squared`, and d log V / ds."""
    widening = warp[row, KAPPA] * squared
    prior, likelihood = warp[row, P0], 1.0 / (warp[row, V0] + widening)
    slope = 2.0 * widening * likelihood
    if warp[row, C] > 0.0:
        prior /= squared
    if warp[row, F] > 0.0:
        likelihood *= squared
        slope -= 2.0
    return prior, likelihood, slope


@njit(error_model="numpy")
def unwarp(xs, warp):  # type: ignore[no-untyped-def]
    """Turn each row of `xs`, which holds u, into the state with that u, in place."""
    scratch = np.empty((N_SCRATCH, warp.shape[0]))
    for draw in range(xs.shape[0]):
        unwarp_point(xs[draw], warp, scratch)


@borrowing
def unwarp_point(x, warp, scratch):  # type: ignore[no-untyped-def]
    """Turn u into the state with that u, in place."""
    for k in range(warp.shape[0]):
        a, b = _means_at(x, warp, k)
        squared, decay, _ = _scales_at(x, warp, k, scratch)
        prior, likelihood, _ = _precisions_at(warp, k, squared)
        precision = prior + likelihood
        fading = decay if warp[k, F] > 0.0 else 1.0
        mean = (prior * a + likelihood * fading * b) / precision
        i = int(warp[k, INDEX])
        x[i] = mean + x[i] / np.sqrt(precision)


@borrowing
def _scales_at(x, warp, row, scratch):  # type: ignore[no-untyped-def]
    """Return exp(2 s), exp(-s) and the slope of s in a row; they are computed in the first."""
    first = int(warp[row, FIRST])
    if first == row:
        s, s_slope = scale_at(x, warp, row)
        scratch[SQUARED, row], scratch[DECAY, row] = np.exp(2.0 * s), np.exp(-s)
        scratch[S_SLOPE, row] = s_slope
    return scratch[SQUARED, first], scratch[DECAY, first], scratch[S_SLOPE, first]


@borrowing
def warp_point(x, warp, u, scratch):  # type: ignore[no-untyped-def]
    """Write u, and what slopes need into scratch; return the log determinant."""
    for i in range(x.size):
        u[i] = x[i]
    log_det = 0.0
    for k in range(warp.shape[0]):
        a, b = _means_at(x, warp, k)
        squared, decay, s_slope = _scales_at(x, warp, k, scratch)
        prior, likelihood, slope = _precisions_at(warp, k, squared)
        fading = decay if warp[k, F] > 0.0 else 1.0
        precision = prior + likelihood
        w, rest = likelihood / precision, prior / precision
        root = np.sqrt(precision)
        i = int(warp[k, INDEX])
        u[i] = min(max((x[i] - rest * a - w * fading * b) * root, -MAX_U), MAX_U)
        log_det += 0.5 * np.log(precision)
        w_slope = w * rest * (2.0 * warp[k, C] - slope)
        scratch[ROOT, k], scratch[PRIOR_PART, k] = root, rest
        scratch[LIKELIHOOD_PART, k] = w * fading
        by_mean = (w_slope - warp[k, F] * w) * fading * b - w_slope * a
        scratch[MEAN_SLOPE, k] = s_slope * by_mean
        by_root = rest * warp[k, C] + 0.5 * w * slope
        scratch[LOG_SLOPE, k] = -s_slope * by_root
    return log_det


@njit(error_model="numpy")
def warp_states(xs, warp, us, log_det):  # type: ignore[no-untyped-def]
    """Write u of each row of `xs`, and the log determinants."""
    scratch = np.empty((N_SCRATCH, warp.shape[0]))
    for draw in range(xs.shape[0]):
        log_det[draw] = warp_point(xs[draw], warp, us[draw], scratch)


@borrowing
def add_warped_slope(out, share, warp, u, slope, scratch):  # type: ignore[no-untyped-def]
    """Add to `out` the slope along x: of a density of u, in `slope`, and of the determinant.

    `share` is that of the warped density in the whole. `slope` is used up.
    """
    n = _n_regressors(warp)
    for k in range(warp.shape[0]):
        i, t = int(warp[k, INDEX]), int(warp[k, SCALE])
        by_mean = slope[i] * scratch[ROOT, k]
        for r in range(REGRESSORS, REGRESSORS + int(warp[k, LAST])):
            along = scratch[PRIOR_PART, k] * warp[k, r + n]
            along += scratch[LIKELIHOOD_PART, k] * warp[k, r + 2 * n]
            out[int(warp[k, r])] -= by_mean * along
        by_log = (slope[i] * u[i] + share) * scratch[LOG_SLOPE, k]
        out[t] += by_log - by_mean * scratch[MEAN_SLOPE, k]
        slope[i] = by_mean
    for i in range(out.size):
        out[i] += slope[i]


def warped_scores(
    warp: FunnelWarp, xs: np.ndarray, slopes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Warp states, and the gradients there.

    Parameters
    ----------
    warp : FunnelWarp
    xs, slopes : array, shape (n, d)
        States, and gradients of a log density of x at them.

    Returns
    -------
    us, scores : array, shape (n, d)
        Warped states, and gradients along u of the log density of u, `log p(x) - log |du / dx|`.
    """
    us, scores = (np.array(each, dtype=float, order="C") for each in (xs, slopes))
    warp_scores(us, scores, warp.packed)
    return us, scores


@njit(error_model="numpy")
def warp_scores(xs, scores, warp):  # type: ignore[no-untyped-def]
    """Turn each row of `xs` into u, and the gradient along x in `scores` into that along u."""
    u, scratch = np.empty(xs.shape[1]), np.empty((N_SCRATCH, warp.shape[0]))
    for draw in range(xs.shape[0]):
        warp_point(xs[draw], warp, u, scratch)
        warp_score(scores[draw], warp, u, scratch)
        xs[draw] = u


@borrowing
def warp_score(score, warp, u, scratch):  # type: ignore[no-untyped-def]
    """Turn the gradient of a log density of x into that along u, less the log determinant."""
    n = _n_regressors(warp)
    # x_i = mean + u_i / root, row after row: from the last row back to the first.
    for k in range(warp.shape[0] - 1, -1, -1):
        i, t = int(warp[k, INDEX]), int(warp[k, SCALE])
        own, root = score[i], scratch[ROOT, k]
        for r in range(REGRESSORS, REGRESSORS + int(warp[k, LAST])):
            along = scratch[PRIOR_PART, k] * warp[k, r + n]
            along += scratch[LIKELIHOOD_PART, k] * warp[k, r + 2 * n]
            score[int(warp[k, r])] += own * along
        of_spread = own * u[i] / root + 1.0  # and of the determinant
        score[t] += own * scratch[MEAN_SLOPE, k] - of_spread * scratch[LOG_SLOPE, k]
        score[i] = own / root
