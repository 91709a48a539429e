"""Coordinates that straighten funnels: each follows its exact conditional in normal hierarchies.

With s = gamma x_t (or gamma log sigmoid x_t) for a scale coordinate t, a warped coordinate has a
prior part `N(A, exp(2 (delta + c s)))` and a likelihood part `N(exp(-f s) B, V)` with
`V = (v + kappa exp(2 s)) exp(-2 f s)`; A and B are linear in other coordinates. The product of the
two is normal with precision `P = exp(-2 (delta + c s)) + 1 / V` and mean
`m = (1 - w) A + w exp(-f s) B`, `w = 1 / (V P)`. The warp is `u = (x - m) sqrt(P)`.
"""

from dataclasses import dataclass, fields

import numpy as np
from numba import types

from pymc_tempering.model.compiled import MATRIX, VECTOR
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.jit import njit

# Packed, a warp has a row for u, a scratch row for the slope along u, and `WARP_ROWS` rows for each
# warped coordinate: its numbers (in the order of the names below), regressors, their coefficients
# in A, those in B, and scratch (the names of the last line).
WARP_ROWS = 5
INDEX, SCALE, N_REGRESSORS, GAMMA, BOUNDED, C, F, P0, V0, KAPPA, A0, B0 = range(12)
ROOT, PRIOR_PART, LIKELIHOOD_PART, MEAN_SLOPE, LOG_SLOPE = range(5)
WARP_COLUMNS = 12

MAX_S, MAX_U = 150.0, 1e150
"""Bounds of |s| and |u|, and `MAX_LOG` of the numbers that are logs: nothing overflows."""
MAX_LOG = 50.0


def log_scale(x: np.ndarray, gamma: np.ndarray | float, bounded: np.ndarray | float) -> np.ndarray:
    """Return s, the log of a scale, at a scale coordinate."""
    logs: np.ndarray = np.where(np.asarray(bounded) > 0, -np.logaddexp(0.0, -x), x)
    clipped: np.ndarray = np.clip(gamma * logs, -MAX_S, MAX_S)
    return clipped


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
        ordered: np.ndarray = found[np.argsort(-counts, kind="stable")]
        return ordered

    def alike(self, other: "FunnelWarp | None") -> bool:
        """Whether another warp has the same coordinates on the same scales, of the same kinds."""
        names = ("index", "scale", "gamma", "bounded", "centered", "falls")
        return other is not None and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in names
        )

    def rows(self, which: slice | np.ndarray) -> "FunnelWarp":
        """Return some of the rows."""
        return FunnelWarp(*(getattr(self, field.name)[which] for field in fields(self)))

    def moments(self, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision of each warped coordinate given the others, shape (n, W)."""
        s = log_scale(xs[:, self.scale], self.gamma, self.bounded)
        prior, likelihood = self.precisions(s)
        precision = prior + likelihood
        others = xs[:, self.regressors]
        a, b = (
            np.einsum("nwr,wr->nw", others, mean[:, 1:]) + mean[:, 0]
            for mean in (self.prior_mean, self.likelihood_mean)
        )
        return (prior * a + likelihood * np.exp(-self.falls * s) * b) / precision, precision

    def precisions(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precisions of the prior and of the likelihood part at s, shape (n, W)."""
        prior = np.exp(-2.0 * (self.log_sd + self.centered * s))
        squared = np.exp(2.0 * s)
        variance = np.exp(self.log_v) + np.exp(self.log_kappa) * squared
        return prior, squared**self.falls / variance

    def forward(self, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Warp states, shape (n, d); return u, of that shape, and log |du / dx|, shape (n,)."""
        us = xs.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            mean, precision = self.moments(xs)
            warped = (xs[:, self.index] - mean) * np.sqrt(precision)
        us[:, self.index] = np.clip(warped, -MAX_U, MAX_U)
        return us, 0.5 * np.log(precision).sum(axis=1)

    def inverse(self, us: np.ndarray) -> np.ndarray:
        """States, shape (n, d), that `forward` takes to u."""
        xs = us.copy()
        for k, index in enumerate(self.index):
            mean, precision = self.rows(slice(k, k + 1)).moments(xs)
            xs[:, index] = mean[:, 0] + us[:, index] / np.sqrt(precision[:, 0])
        return xs

    def spread(self, xs: np.ndarray) -> np.ndarray:
        """Return the sd of each warped coordinate given the others, shape (n, d), else 1."""
        spread = np.ones_like(xs)
        spread[:, self.index] = 1.0 / np.sqrt(self.moments(xs)[1])
        return spread

    def pack(self, columns: int) -> np.ndarray:
        """Rows of the warp, as compiled code reads them."""
        n_regressors = self.regressors.shape[1]
        packed = np.zeros((2 + WARP_ROWS * len(self.index), columns))
        for k in range(len(self.index)):
            block = packed[2 + WARP_ROWS * k :]
            block[0, : B0 + 1] = (
                *(self.index[k], self.scale[k], n_regressors, self.gamma[k], self.bounded[k]),
                *(self.centered[k], self.falls[k], np.exp(-2.0 * self.log_sd[k])),
                *(np.exp(self.log_v[k]), np.exp(self.log_kappa[k])),
                *(self.prior_mean[k, 0], self.likelihood_mean[k, 0]),
            )
            block[1, :n_regressors] = self.regressors[k]
            block[2, :n_regressors] = self.prior_mean[k, 1:]
            block[3, :n_regressors] = self.likelihood_mean[k, 1:]
        return packed


@njit(types.float64(VECTOR, MATRIX, types.int64, types.int64), error_model="numpy")
def warp_point(x, mixture, at, n):  # type: ignore[no-untyped-def]
    """Write u into row `at`, and what slopes need into scratch; return the log determinant."""
    u = mixture[at]
    copy_numbers(u, x)
    log_det = 0.0
    for k in range(n):
        row = at + 2 + WARP_ROWS * k
        numbers, which = mixture[row], mixture[row + 1]
        a_coefficients, b_coefficients = mixture[row + 2], mixture[row + 3]
        scratch = mixture[row + 4]
        a, b = numbers[A0], numbers[B0]
        for r in range(int(numbers[N_REGRESSORS])):
            other = x[int(which[r])]
            a += a_coefficients[r] * other
            b += b_coefficients[r] * other
        s = x[int(numbers[SCALE])]
        s_slope = numbers[GAMMA]
        if numbers[BOUNDED] > 0.0:
            s_slope /= 1.0 + np.exp(s)
            s = min(s, 0.0) - np.log1p(np.exp(-abs(s)))
        s *= numbers[GAMMA]
        if abs(s) > MAX_S:
            s_slope = 0.0
        s = min(max(s, -MAX_S), MAX_S)
        squared = np.exp(2.0 * s)
        v, widening = numbers[V0], numbers[KAPPA] * squared
        prior, likelihood, slope = numbers[P0], 1.0 / (v + widening), 2.0 * widening
        slope *= likelihood  # of log V by s
        decay = 1.0
        if numbers[C] > 0.0:
            prior /= squared
        if numbers[F] > 0.0:
            decay = np.exp(-s)
            likelihood *= squared
            slope -= 2.0
        precision = prior + likelihood
        w, rest = likelihood / precision, prior / precision
        root = np.sqrt(precision)
        i = int(numbers[INDEX])
        u[i] = min(max((x[i] - rest * a - w * decay * b) * root, -MAX_U), MAX_U)
        log_det += 0.5 * np.log(precision)
        w_slope = w * rest * (2.0 * numbers[C] - slope)
        scratch[ROOT], scratch[PRIOR_PART], scratch[LIKELIHOOD_PART] = root, rest, w * decay
        scratch[MEAN_SLOPE] = s_slope * ((w_slope - numbers[F] * w) * decay * b - w_slope * a)
        scratch[LOG_SLOPE] = -s_slope * (rest * numbers[C] + 0.5 * w * slope)  # of log root
    return log_det


@njit(types.void(VECTOR, types.float64, MATRIX, types.int64, types.int64), error_model="numpy")
def add_warped_slope(out, share, mixture, at, n):  # type: ignore[no-untyped-def]
    """Add to `out` the slope along x: of a density of u, in row `at + 1`, and of the determinant.

    `share` is that of the warped density in the whole.
    """
    u, slope = mixture[at], mixture[at + 1]
    for k in range(n):
        row = at + 2 + WARP_ROWS * k
        numbers, which = mixture[row], mixture[row + 1]
        a_coefficients, b_coefficients = mixture[row + 2], mixture[row + 3]
        scratch = mixture[row + 4]
        i, t = int(numbers[INDEX]), int(numbers[SCALE])
        by_mean = slope[i] * scratch[ROOT]
        for r in range(int(numbers[N_REGRESSORS])):
            along = scratch[PRIOR_PART] * a_coefficients[r]
            along += scratch[LIKELIHOOD_PART] * b_coefficients[r]
            out[int(which[r])] -= by_mean * along
        by_log = (slope[i] * u[i] + share) * scratch[LOG_SLOPE]
        out[t] += by_log - by_mean * scratch[MEAN_SLOPE]
        slope[i] = by_mean
    for i in range(out.size):
        out[i] += slope[i]
