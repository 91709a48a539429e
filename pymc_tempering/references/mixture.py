"""A mixture of multivariate t's plus a share of the prior: the reference that is fitted to draws.

`log_reference(x) = log[(1 - eps) sum_j w_j t(x; mean_j, scale_j, dof_j) + eps prior(x)]`. It is
normalized, can be drawn from exactly, and its tails are at least eps times those of the prior.
With a warp the t's are densities of u(x), times |du / dx|.

A component uses its scale matrix S, full or diagonal plus low rank, to whiten a difference
(|z|^2 = y' S^-1 y), for the log determinant, for normal draws with covariance S, and for the rows
of the compiled density.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag, solve_triangular
from scipy.special import gammaln

from pymc_tempering.references.compiled_mixture import (
    ALONG,
    CONSTANT,
    COPY_COLUMNS,
    DOF,
    LOG_2PI,
    MIN_COLUMNS,
    ORIGIN,
    OWN,
    WITHIN,
)
from pymc_tempering.references.warp import N_SCRATCH, FunnelWarp


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
        return np.log(np.diagonal(self.cholesky, axis1=1, axis2=2)).sum(axis=1)

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
        return rows.transpose(0, 2, 1) @ rows

    @property
    def variances(self) -> np.ndarray:
        """Diagonals of the scale matrices, shape (J, d)."""
        return (self.cholesky**2).sum(axis=2)

    def precision_row(self, j: int, t: int) -> np.ndarray:
        """Row t of the inverse scale matrix of component j, shape (d,)."""
        return self.rows[j][:, t] @ self.rows[j]

    def whiten(self, j: int, ys: np.ndarray) -> np.ndarray:
        """Whiten differences from the mean of component j, shape (n, d)."""
        return ys @ self.rows[j].T

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
        return np.einsum("j,jik,jlk->il", weights, self.cholesky, self.cholesky)

    def with_hull(self, weights: np.ndarray, offsets: np.ndarray) -> "FullScales":
        """Append the scale matrix of the mixture; `offsets` (J, d): the centered means."""
        whole = self.mean(weights) + np.einsum("j,ji,jk->ik", weights, offsets, offsets)
        return FullScales(np.concatenate([self.cholesky, np.linalg.cholesky(whole)[None]]))

    def with_cluster(self, draws: np.ndarray) -> "FullScales":
        """Put the covariance of draws (n, d) in front."""
        covariance = np.cov(draws, rowvar=False).reshape(2 * draws.shape[1:])
        return FullScales(np.concatenate([np.linalg.cholesky(covariance)[None], self.cholesky]))

    def scaled(self, factors: np.ndarray) -> "FullScales":
        """Scales after the variables were multiplied by factors, shape (J, d) or (d,)."""
        return FullScales(factors[..., None] * self.cholesky)

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
        return np.log(self.sds).sum(axis=1) + 0.5 * np.log1p(s**2).sum(axis=1)

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
        return self.sds**2 + (self.loadings**2).sum(axis=2)

    def precision_row(self, j: int, t: int) -> np.ndarray:
        """Row t of the inverse scale matrix of component j, shape (d,)."""
        unit = np.zeros((1, self.sds.shape[1]))
        unit[0, t] = 1.0
        [row] = self.whiten(j, self.whiten(j, unit) * self.sds[j]) / self.sds[j]
        return row

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

    def scaled(self, factors: np.ndarray) -> "LowRankScales":
        """Scales after the variables were multiplied by factors, shape (J, d) or (d,)."""
        return LowRankScales(factors * self.sds, factors[..., None] * self.loadings)

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


CLUSTER_DOF = 5.0
"""Degrees of freedom of a component that was added at a place where draws are few."""


@dataclass(frozen=True, eq=False)
class Copies:
    """How S stretched copies differ from their modes, so that their squares need no matrix.

    With y the distance from the mode's mean and P its inverse scale matrix, the square of a copy is
    `y' P y - (P y)_t^2 / P_tt + y_t^2 / V`, V the copy's own variance of coordinate t.

    Attributes
    ----------
    modes, along : array of int, shape (S,)
        Component that each is a copy of, and t.
    rows : array, shape (S, d)
        Rows t of P.
    within, own : array, shape (S,)
        1 / P_tt and 1 / V.
    """

    modes: np.ndarray
    along: np.ndarray
    rows: np.ndarray
    within: np.ndarray
    own: np.ndarray

    def square(self, k: int, ys: np.ndarray, of_mode: np.ndarray) -> np.ndarray:
        """Squares of copy k, shape (n,), from `ys`, shape (n, d), and the squares of its mode."""
        with np.errstate(over="ignore", invalid="ignore"):
            rest = of_mode - (ys @ self.rows[k]) ** 2 * self.within[k]
            # Less than zero but for rounding, or of infinite numbers.
            rest = np.where(rest >= 0.0, rest, np.where(of_mode < np.inf, 0.0, np.inf))
            square: np.ndarray = rest + ys[:, self.along[k]] ** 2 * self.own[k]
        return square


@dataclass(frozen=True)
class Mixture:
    """Components of a fitted reference.

    Attributes
    ----------
    weights : array, shape (J,)
        Of the t components; they sum to 1.
    means : array, shape (J, d)
        In warped coordinates, if there is a warp; the scale matrices too.
    scales : FullScales or LowRankScales
        Scale matrices.
    dofs : array, shape (J,)
        Degrees of freedom.
    prior_share : float
        Weight eps of the prior in the whole.
    hull : bool
        Whether the last component, stretched ones left out, is a hull: a wide component that spans
        all others.
    stretched : int
        Number of components at the end that are stretched copies of the modes, in their order.
    warp : FunnelWarp, optional
        Coordinates that the t's are densities of.
    n_white : int
        Further coordinates behind those of the t's, which are standard normal.
    curved : bool
        Whether the curvature of the target told the warp, and draws hardly anything.
    labelings : array, shape (G, d, d), optional
        Linear maps that make of the first 1 / G of the modes all others, in their order.
    """

    weights: np.ndarray
    means: np.ndarray
    scales: FullScales | LowRankScales
    dofs: np.ndarray
    prior_share: float
    hull: bool = False
    stretched: int = 0
    warp: FunnelWarp | None = None
    n_white: int = 0
    curved: bool = False
    labelings: np.ndarray | None = None

    @property
    def dim(self) -> int:
        """Number of coordinates that the t's have, d without the white ones."""
        return int(self.means.shape[1])

    @property
    def n_components(self) -> int:
        """Number of t components; stretched copies count as one with their modes."""
        return len(self.weights) - self.stretched

    @property
    def n_labelings(self) -> int:
        """How many times the same modes are there."""
        return 1 if self.labelings is None else len(self.labelings)

    @cached_property
    def modes(self) -> "Mixture":
        """The mixture without its hull and without stretched components."""
        if not self.hull and self.stretched == 0:
            return self
        n = self.n_components - self.hull
        return replace(
            self,
            weights=self.weights[:n] / self.weights[:n].sum(),
            means=self.means[:n],
            scales=self.scales.first(n),
            dofs=self.dofs[:n],
            hull=False,
            stretched=0,
        )

    def with_hull(self, share: float, dof: float) -> "Mixture":
        """Mixture with a hull of weight `share`: mean and scale matrix are those of the mixture."""
        center = self.weights @ self.means
        return replace(
            self,
            weights=np.append((1 - share) * self.weights, share),
            means=np.vstack([self.means, center]),
            scales=self.scales.with_hull(self.weights, self.means - center),
            dofs=np.append(self.dofs, dof),
            hull=True,
        )

    def with_stretched(self, scales: np.ndarray, share: float, factor: float) -> "Mixture":
        """Mixture with copies of its modes that are `factor` times as wide along a coordinate.

        In them the other coordinates do not depend on it. The copies have weight `share` for each
        of the coordinates `scales`.
        """
        modes, n = self.modes, len(scales)
        return replace(
            self,
            weights=np.append((1 - n * share) * self.weights, share * np.tile(modes.weights, n)),
            means=np.vstack([self.means, *n * [modes.means]]),
            scales=self.scales.with_widened(modes.n_components, scales, factor),
            dofs=np.append(self.dofs, np.tile(modes.dofs, n)),
            stretched=self.stretched + n * modes.n_components,
        )

    @cached_property
    def copies(self) -> Copies:
        """How the stretched copies differ from their modes."""
        first, variances = self.n_components, self.scales.variances
        modes = np.arange(self.stretched) % (first - self.hull)
        widened = np.abs(variances[first:] / variances[modes] - 1.0)
        along = widened.argmax(axis=1)  # the only coordinate of another variance
        pairs = zip(modes.tolist(), along.tolist(), strict=True)
        rows = [self.scales.precision_row(j, t) for j, t in pairs]
        every, at = np.reshape(rows, (-1, self.means.shape[1])), np.arange(self.stretched)
        return Copies(
            modes, along, every, 1.0 / every[at, along], 1.0 / variances[first:][at, along]
        )

    @property
    def covariance(self) -> np.ndarray | None:
        """Mean covariance of the modes, shape (d, d); None with a warp, or without full scales."""
        modes = self.modes
        if self.warp is not None or not isinstance(modes.scales, FullScales):
            return None
        spread = np.where(modes.dofs > 2.0, modes.dofs / np.maximum(modes.dofs - 2.0, 1e-9), 1.0)
        return block_diag(modes.scales.mean(modes.weights * spread), np.eye(self.n_white))

    @property
    def log_constants(self) -> np.ndarray:
        """Log of weight and normalizing constant of each t component, shape (J,)."""
        dim, dofs = self.dim, self.dofs
        log_gammas = gammaln(0.5 * (dofs + dim)) - gammaln(0.5 * dofs)
        roots = self.scales.log_roots + 0.5 * dim * np.log(dofs * np.pi)
        return np.log(self.weights) + log_gammas - roots

    def squares(self, xs: np.ndarray) -> np.ndarray:
        """Squared distances in scales of each t component, shape (n, J), of states (n, d)."""
        xs = xs[:, : self.dim] if self.warp is None else self.warp.forward(xs)[0]
        columns = [
            (self.scales.whiten(j, xs - mean) ** 2).sum(axis=1)
            for j, mean in enumerate(self.means[: self.n_components])
        ]
        for k, j in enumerate(self.copies.modes):
            columns.append(self.copies.square(k, xs - self.means[j], columns[j]))
        return np.array(columns).T

    def log_t(self, xs: np.ndarray) -> np.ndarray:
        """Log density of each weighted t component, shape (n, J), at states of shape (n, d)."""
        if self.warp is not None:
            us, log_det = self.warp.forward(xs)
            return replace(self, warp=None).log_t(us) + log_det[:, None]
        tails = 0.5 * (self.dofs + self.dim) * np.log1p(self.squares(xs) / self.dofs)
        white = -0.5 * ((xs[:, self.dim :] ** 2).sum(axis=1) + self.n_white * LOG_2PI)
        return self.log_constants - tails + white[:, None]

    def with_cluster(self, draws: np.ndarray, share: float) -> "Mixture":
        """Mixture with a component of weight `share` in front, at the place of draws (n, d)."""
        draws = draws[:, : self.dim] if self.warp is None else self.warp.forward(draws)[0]
        return replace(
            self,
            weights=np.append(share, (1 - share) * self.weights),
            means=np.vstack([draws.mean(axis=0), self.means]),
            scales=self.scales.with_cluster(draws),
            dofs=np.append(CLUSTER_DOF, self.dofs),
            curved=False,
        )

    def pack(self) -> np.ndarray:
        """Put the mixture without its warp into one matrix, as compiled code reads it."""
        n, dim = self.n_components, self.dim
        copies, rows = self.copies, self.scales.packed
        size = 3 + rows.shape[1]
        least = COPY_COLUMNS if self.stretched else MIN_COLUMNS
        scratch = 0 if self.warp is None else 2 + N_SCRATCH
        packed = np.zeros((1 + n * size + 2 * self.stretched + scratch, max(dim, least)))
        rank = rows.shape[1] - 1 if isinstance(self.scales, LowRankScales) else -1
        packed[0, :5] = n, np.log(self.prior_share), rank, self.stretched, self.n_white
        constants = self.log_constants + np.log1p(-self.prior_share)
        for j in range(n):
            block = packed[1 + j * size :]
            block[0, CONSTANT], block[0, DOF] = constants[j], self.dofs[j]
            block[1, :dim] = self.means[j]
            block[3:size, :dim] = rows[j]
        for k in range(self.stretched):
            block = packed[1 + n * size + 2 * k :]
            block[0, CONSTANT], block[0, DOF] = constants[n + k], self.dofs[n + k]
            block[0, ORIGIN], block[0, ALONG] = 1 + copies.modes[k] * size, copies.along[k]
            block[0, WITHIN], block[0, OWN] = copies.within[k], copies.own[k]
            block[1, :dim] = copies.rows[k]
        return packed

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw from the t components alone, shape (n, d)."""
        which = rng.choice(len(self.weights), size=n, p=self.weights)
        turned = self.scales.draw(which, rng)
        dof = self.dofs[which]
        stretch = np.sqrt(dof / rng.chisquare(dof))
        draws = self.means[which] + stretch[:, None] * turned
        draws = draws if self.warp is None else self.warp.inverse(draws)
        return np.hstack([draws, rng.standard_normal((n, self.n_white))])


def nearest_component(components: Mixture, xs: np.ndarray) -> np.ndarray:
    """Component that is most likely for each state, shape (n,); the mode of a stretched copy."""
    nearest, n = components.log_t(xs).argmax(axis=1), components.n_components
    return np.where(nearest < n, nearest, (nearest - n) % (n - components.hull))
