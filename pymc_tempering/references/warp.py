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


KINDS_OF_ROWS = ("index", "scale", "gamma", "bounded", "centered", "falls")
"""Attributes of a warp that say which coordinates follow which scales, and how."""


def log_scale(x: np.ndarray, gamma: np.ndarray | float, bounded: np.ndarray | float) -> np.ndarray:
    """Return s, the log of a scale, at a scale coordinate."""
    logs: np.ndarray = np.where(np.asarray(bounded) > 0, -np.logaddexp(0.0, -x), x)
    return np.asarray(np.clip(gamma * logs, -MAX_S, MAX_S))


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
        return np.asarray(found[np.argsort(-counts, kind="stable")])

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

    @cached_property
    def _packed(self) -> np.ndarray:
        return self.pack(max(WARP_COLUMNS, self.regressors.shape[1]))

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
        xs = np.array(us, order="C")
        unwarp(xs, self._packed)
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


@borrowing
def _means_at(x, mixture, row):  # type: ignore[no-untyped-def]
    """Return A and B of the coordinate in a row."""
    a, b = mixture[row, A0], mixture[row, B0]
    for r in range(int(mixture[row, N_REGRESSORS])):
        other = x[int(mixture[row + 1, r])]
        a += mixture[row + 2, r] * other
        b += mixture[row + 3, r] * other
    return a, b


@borrowing
def _scale_at(x, mixture, row):  # type: ignore[no-untyped-def]
    """Return s of the coordinate in a row, and its slope along the scale coordinate."""
    s, slope = x[int(mixture[row, SCALE])], mixture[row, GAMMA]
    if mixture[row, BOUNDED] > 0.0:
        slope /= 1.0 + np.exp(s)
        s = min(s, 0.0) - np.log1p(np.exp(-abs(s)))
    s *= mixture[row, GAMMA]
    if abs(s) > MAX_S:
        slope = 0.0
    return min(max(s, -MAX_S), MAX_S), slope


@borrowing
def _precisions_at(mixture, row, squared):  # type: ignore[no-untyped-def]
    """Precisions of prior and likelihood part, where exp(2 s) is `squared`, and d log V / ds."""
    widening = mixture[row, KAPPA] * squared
    prior, likelihood = mixture[row, P0], 1.0 / (mixture[row, V0] + widening)
    slope = 2.0 * widening * likelihood
    if mixture[row, C] > 0.0:
        prior /= squared
    if mixture[row, F] > 0.0:
        likelihood *= squared
        slope -= 2.0
    return prior, likelihood, slope


@borrowing
def _same_scale(mixture, row, before):  # type: ignore[no-untyped-def]
    """Whether the coordinates in two rows have the same s, as those of one group have."""
    same = mixture[row, SCALE] == mixture[before, SCALE]
    same &= mixture[row, GAMMA] == mixture[before, GAMMA]
    return same and mixture[row, BOUNDED] == mixture[before, BOUNDED]


@njit(error_model="numpy")
def unwarp(xs, packed):  # type: ignore[no-untyped-def]
    """Turn each row of `xs`, which holds u, into the state with that u, in place."""
    for draw in range(xs.shape[0]):
        x = xs[draw]
        squared, decay = 1.0, 1.0
        for row in range(2, packed.shape[0], WARP_ROWS):
            a, b = _means_at(x, packed, row)
            if row == 2 or not _same_scale(packed, row, row - WARP_ROWS):
                s, _ = _scale_at(x, packed, row)
                squared, decay = np.exp(2.0 * s), np.exp(-s)
            prior, likelihood, _ = _precisions_at(packed, row, squared)
            precision = prior + likelihood
            fading = decay if packed[row, F] > 0.0 else 1.0
            mean = (prior * a + likelihood * fading * b) / precision
            i = int(packed[row, INDEX])
            x[i] = mean + x[i] / np.sqrt(precision)


@borrowing
def warp_point(x, mixture, at, n):  # type: ignore[no-untyped-def]
    """Write u into row `at`, and what slopes need into scratch; return the log determinant."""
    for i in range(x.size):
        mixture[at, i] = x[i]
    log_det = 0.0
    s_slope, squared, decay = 0.0, 1.0, 1.0
    for k in range(n):
        row = at + 2 + WARP_ROWS * k
        scratch = row + 4
        a, b = _means_at(x, mixture, row)
        if k == 0 or not _same_scale(mixture, row, row - WARP_ROWS):
            s, s_slope = _scale_at(x, mixture, row)
            squared, decay = np.exp(2.0 * s), np.exp(-s)
        prior, likelihood, slope = _precisions_at(mixture, row, squared)
        fading = decay if mixture[row, F] > 0.0 else 1.0
        precision = prior + likelihood
        w, rest = likelihood / precision, prior / precision
        root = np.sqrt(precision)
        i = int(mixture[row, INDEX])
        mixture[at, i] = min(max((x[i] - rest * a - w * fading * b) * root, -MAX_U), MAX_U)
        log_det += 0.5 * np.log(precision)
        w_slope = w * rest * (2.0 * mixture[row, C] - slope)
        mixture[scratch, ROOT], mixture[scratch, PRIOR_PART] = root, rest
        mixture[scratch, LIKELIHOOD_PART] = w * fading
        by_mean = (w_slope - mixture[row, F] * w) * fading * b - w_slope * a
        mixture[scratch, MEAN_SLOPE] = s_slope * by_mean
        by_root = rest * mixture[row, C] + 0.5 * w * slope
        mixture[scratch, LOG_SLOPE] = -s_slope * by_root
    return log_det


@borrowing
def add_warped_slope(out, share, mixture, at, n):  # type: ignore[no-untyped-def]
    """Add to `out` the slope along x: of a density of u, in row `at + 1`, and of the determinant.

    `share` is that of the warped density in the whole.
    """
    u, slope = at, at + 1
    for k in range(n):
        row = at + 2 + WARP_ROWS * k
        scratch = row + 4
        i, t = int(mixture[row, INDEX]), int(mixture[row, SCALE])
        by_mean = mixture[slope, i] * mixture[scratch, ROOT]
        for r in range(int(mixture[row, N_REGRESSORS])):
            along = mixture[scratch, PRIOR_PART] * mixture[row + 2, r]
            along += mixture[scratch, LIKELIHOOD_PART] * mixture[row + 3, r]
            out[int(mixture[row + 1, r])] -= by_mean * along
        by_log = (mixture[slope, i] * mixture[u, i] + share) * mixture[scratch, LOG_SLOPE]
        out[t] += by_log - by_mean * mixture[scratch, MEAN_SLOPE]
        mixture[slope, i] = by_mean
    for i in range(out.size):
        out[i] += mixture[slope, i]


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
    warp_scores(us, scores, warp.pack(max(WARP_COLUMNS, xs.shape[1])))
    return us, scores


@njit(error_model="numpy")
def warp_scores(xs, scores, packed):  # type: ignore[no-untyped-def]
    """Turn each row of `xs` into u, and the gradient along x in `scores` into that along u."""
    n = (packed.shape[0] - 2) // WARP_ROWS
    for draw in range(xs.shape[0]):
        score = scores[draw]
        warp_point(xs[draw], packed, 0, n)
        # x_i = mean + u_i / root, row after row: from the last row back to the first.
        for k in range(n - 1, -1, -1):
            row = 2 + WARP_ROWS * k
            scratch = row + 4
            i, t = int(packed[row, INDEX]), int(packed[row, SCALE])
            own, root = score[i], packed[scratch, ROOT]
            for r in range(int(packed[row, N_REGRESSORS])):
                along = packed[scratch, PRIOR_PART] * packed[row + 2, r]
                along += packed[scratch, LIKELIHOOD_PART] * packed[row + 3, r]
                score[int(packed[row + 1, r])] += own * along
            of_spread = own * packed[0, i] / root + 1.0  # and of the determinant
            score[t] += own * packed[scratch, MEAN_SLOPE] - of_spread * packed[scratch, LOG_SLOPE]
            score[i] = own / root
        for i in range(xs.shape[1]):
            xs[draw, i] = packed[0, i]
