"""Scale matrices of the components of a mixture: full, or diagonal plus low rank.

A component uses its scale matrix S to whiten a difference (|z|^2 = y' S^-1 y), for the log
determinant, for normal draws with covariance S, and for the rows of the compiled density.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular


@dataclass(frozen=True)
class FullScales:
    """Full scale matrices of J components.

    Attributes
    ----------
    cholesky : array, shape (J, d, d)
        Lower Cholesky factors.
    """

    cholesky: np.ndarray

    @property
    def log_roots(self) -> np.ndarray:
        """Half the log determinants, shape (J,)."""
        logs: np.ndarray = np.log(np.diagonal(self.cholesky, axis1=1, axis2=2)).sum(axis=1)
        return logs

    @cached_property
    def rows(self) -> np.ndarray:
        """Inverse Cholesky factors, shape (J, d, d)."""
        eye = np.eye(self.cholesky.shape[1])
        return np.array([solve_triangular(each, eye, lower=True) for each in self.cholesky])

    @property
    def packed(self) -> np.ndarray:
        """These rows and then the columns, for compiled code, shape (J, 2 d, d)."""
        return np.concatenate([self.rows, self.rows.transpose(0, 2, 1)], axis=1)

    @property
    def precisions(self) -> np.ndarray:
        """Inverses of the scale matrices, shape (J, d, d)."""
        rows = self.rows
        inverses: np.ndarray = rows.transpose(0, 2, 1) @ rows
        return inverses

    @property
    def variances(self) -> np.ndarray:
        """Diagonals of the scale matrices, shape (J, d)."""
        diagonals: np.ndarray = (self.cholesky**2).sum(axis=2)
        return diagonals

    def precision_row(self, j: int, t: int) -> np.ndarray:
        """Row t of the inverse scale matrix of component j, shape (d,)."""
        row: np.ndarray = self.rows[j][:, t] @ self.rows[j]
        return row

    def whiten(self, j: int, ys: np.ndarray) -> np.ndarray:
        """Whiten differences from the mean of component j, shape (n, d)."""
        whitened: np.ndarray = ys @ self.rows[j].T
        return whitened

    def draw(self, which: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a centered normal for each component in `which`, shape (n, d)."""
        own = rng.standard_normal((len(which), self.cholesky.shape[1]))
        for j in np.unique(which):  # the matrices of each draw at once would be n of them
            own[which == j] = own[which == j] @ self.cholesky[j].T
        return own

    def first(self, n: int) -> "FullScales":
        """Scale matrices of the first n components."""
        return FullScales(self.cholesky[:n])

    def mean(self, weights: np.ndarray) -> np.ndarray:
        """Sum of the scale matrices times their weights, shape (d, d)."""
        total: np.ndarray = np.einsum("j,jik,jlk->il", weights, self.cholesky, self.cholesky)
        return total

    def with_hull(self, weights: np.ndarray, offsets: np.ndarray) -> "FullScales":
        """Append the scale matrix of the mixture; `offsets` (J, d): the centered means."""
        whole = self.mean(weights) + np.einsum("j,ji,jk->ik", weights, offsets, offsets)
        return FullScales(np.concatenate([self.cholesky, np.linalg.cholesky(whole)[None]]))

    def with_cluster(self, draws: np.ndarray) -> "FullScales":
        """Put the covariance of draws (n, d) in front."""
        covariance = np.cov(draws, rowvar=False).reshape(2 * draws.shape[1:])
        return FullScales(np.concatenate([np.linalg.cholesky(covariance)[None], self.cholesky]))

    def inflated(self, factors: np.ndarray) -> "FullScales":
        """Scale matrices times a factor each, shape (J,)."""
        return FullScales(np.sqrt(factors)[:, None, None] * self.cholesky)

    def stretched(self, factors: np.ndarray) -> "FullScales":
        """Scales after the variables were multiplied by `factors`, shape (d,)."""
        return FullScales(factors[:, None] * self.cholesky)

    def with_widened(self, first: int, ts: np.ndarray, factor: float) -> "FullScales":
        """Append, for each coordinate t, the first scale matrices with another spread along t.

        It is `factor` times as wide, and the other coordinates do not depend on t.
        """
        whole = np.einsum("jik,jlk->jil", self.cholesky[:first], self.cholesky[:first])
        every = [self.cholesky]
        for t in ts:
            wide = whole.copy()
            wide[:, t], wide[:, :, t] = 0.0, 0.0
            wide[:, t, t] = factor**2 * whole[:, t, t]
            every.append(np.linalg.cholesky(wide))
        return FullScales(np.concatenate(every))


@dataclass(frozen=True)
class LowRankScales:
    """Scale matrices diag(sds_j^2) + loadings_j loadings_j' of J components.

    With G = diag(1 / sds) loadings = U diag(s) V' (singular values), the Woodbury identity reads
    `S^-1 = A'A, A = (I - U diag(1 - 1 / sqrt(1 + s^2)) U') diag(1 / sds)`, and the matrix
    determinant lemma `log det S = 2 sum log sds + sum log(1 + s^2)`; both take O(d r).

    Attributes
    ----------
    sds : array, shape (J, d)
    loadings : array, shape (J, d, r)
    """

    sds: np.ndarray
    loadings: np.ndarray

    @cached_property
    def _directions(self) -> tuple[np.ndarray, np.ndarray]:
        """U of shape (J, d, r), and s of shape (J, r)."""
        u, s, _ = np.linalg.svd(self.loadings / self.sds[:, :, None], full_matrices=False)
        return u, s

    @property
    def log_roots(self) -> np.ndarray:
        """Half the log determinants, shape (J,)."""
        _, s = self._directions
        logs: np.ndarray = np.log(self.sds).sum(axis=1) + 0.5 * np.log1p(s**2).sum(axis=1)
        return logs

    @property
    def packed(self) -> np.ndarray:
        """Row 1 / sds, then r rows sqrt(1 - 1 / sqrt(1 + s_k^2)) u_k, shape (J, 1 + r, d)."""
        u, s = self._directions
        shrink = np.sqrt(1.0 - 1.0 / np.sqrt(1.0 + s**2))
        along = (u * shrink[:, None, :]).transpose(0, 2, 1)
        return np.concatenate([1.0 / self.sds[:, None, :], along], axis=1)

    @property
    def variances(self) -> np.ndarray:
        """Diagonals of the scale matrices, shape (J, d)."""
        diagonals: np.ndarray = self.sds**2 + (self.loadings**2).sum(axis=2)
        return diagonals

    def precision_row(self, j: int, t: int) -> np.ndarray:
        """Row t of the inverse scale matrix of component j, shape (d,)."""
        unit = np.zeros((1, self.sds.shape[1]))
        unit[0, t] = 1.0
        [row] = self.whiten(j, self.whiten(j, unit) * self.sds[j]) / self.sds[j]
        return np.asarray(row)

    def whiten(self, j: int, ys: np.ndarray) -> np.ndarray:
        """Whiten differences from the mean of component j, shape (n, d)."""
        u, s = self._directions
        scaled = ys / self.sds[j]
        whitened: np.ndarray = (
            scaled - (scaled @ u[j]) * (1.0 - 1.0 / np.sqrt(1.0 + s[j] ** 2)) @ u[j].T
        )
        return whitened

    def draw(self, which: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a centered normal for each component in `which`, shape (n, d)."""
        own = self.sds[which] * rng.standard_normal((len(which), self.sds.shape[1]))
        common = rng.standard_normal((len(which), self.loadings.shape[2]))
        for j in np.unique(which):  # the loadings of each draw at once would be n matrices
            own[which == j] += common[which == j] @ self.loadings[j].T
        return own

    def first(self, n: int) -> "LowRankScales":
        """Scale matrices of the first n components."""
        return LowRankScales(self.sds[:n], self.loadings[:n])

    def with_hull(self, weights: np.ndarray, offsets: np.ndarray) -> "LowRankScales":
        """Append a diagonal scale matrix of the mixture; `offsets` (J, d): the centered means."""
        within = self.sds**2 + (self.loadings**2).sum(axis=2)
        whole = np.sqrt(weights @ (within + offsets**2))
        none = np.zeros((1, *self.loadings.shape[1:]))
        return LowRankScales(np.vstack([self.sds, whole]), np.concatenate([self.loadings, none]))

    def with_cluster(self, draws: np.ndarray) -> "LowRankScales":
        """Put the variances of draws (n, d) in front."""
        none = np.zeros((1, *self.loadings.shape[1:]))
        sds = np.vstack([draws.std(axis=0), self.sds])
        return LowRankScales(sds, np.concatenate([none, self.loadings]))

    def inflated(self, factors: np.ndarray) -> "LowRankScales":
        """Scale matrices times a factor each, shape (J,)."""
        roots = np.sqrt(factors)
        return LowRankScales(roots[:, None] * self.sds, roots[:, None, None] * self.loadings)

    def stretched(self, factors: np.ndarray) -> "LowRankScales":
        """Scales after the variables were multiplied by `factors`, shape (d,)."""
        return LowRankScales(factors * self.sds, factors[:, None] * self.loadings)

    def with_widened(self, first: int, ts: np.ndarray, factor: float) -> "LowRankScales":
        """Append, for each coordinate t, the first scale matrices with another spread along t.

        It is `factor` times as wide, and the other coordinates do not depend on t.
        """
        sds, loadings = [self.sds], [self.loadings]
        for t in ts:
            wide, others = self.sds[:first].copy(), self.loadings[:first].copy()
            wide[:, t] = factor * np.sqrt(wide[:, t] ** 2 + (others[:, t] ** 2).sum(axis=1))
            others[:, t] = 0.0
            sds.append(wide)
            loadings.append(others)
        return LowRankScales(np.concatenate(sds), np.concatenate(loadings))
