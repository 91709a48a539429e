"""A mixture of multivariate t's plus a share of the prior.

`log_reference(x) = log[(1 - eps) sum_j w_j t(x; mean_j, scale_j, dof_j) + eps prior(x)]`. It is
normalized, can be drawn from exactly, and its tails are at least eps times those of the prior.
With a warp the t's are densities of u(x), times |du / dx|.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from pymc_tempering.references.compiled_mixture import (
    ALONG,
    CONSTANT,
    COPY_COLUMNS,
    DOF,
    MIN_COLUMNS,
    ORIGIN,
    OWN,
    WITHIN,
)
from pymc_tempering.references.scales import FullScales, LowRankScales
from pymc_tempering.references.warp import WARP_COLUMNS, FunnelWarp

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
    """

    weights: np.ndarray
    means: np.ndarray
    scales: FullScales | LowRankScales
    dofs: np.ndarray
    prior_share: float
    hull: bool = False
    stretched: int = 0
    warp: FunnelWarp | None = None

    @property
    def n_components(self) -> int:
        """Number of t components; stretched copies count as one with their modes."""
        return len(self.weights) - self.stretched

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
        return modes.scales.mean(modes.weights * spread)

    @property
    def log_constants(self) -> np.ndarray:
        """Log of weight and normalizing constant of each t component, shape (J,)."""
        dim, dofs = self.means.shape[1], self.dofs
        log_gammas = gammaln(0.5 * (dofs + dim)) - gammaln(0.5 * dofs)
        roots = self.scales.log_roots + 0.5 * dim * np.log(dofs * np.pi)
        constants: np.ndarray = np.log(self.weights) + log_gammas - roots
        return constants

    def squares(self, xs: np.ndarray) -> np.ndarray:
        """Squared distances in scales of each t component, shape (n, J), of states (n, d)."""
        xs = xs if self.warp is None else self.warp.forward(xs)[0]
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
        dim = xs.shape[1]
        tails = 0.5 * (self.dofs + dim) * np.log1p(self.squares(xs) / self.dofs)
        log_densities: np.ndarray = self.log_constants - tails
        return log_densities

    def with_cluster(self, draws: np.ndarray, share: float) -> "Mixture":
        """Mixture with a component of weight `share` in front, at the place of draws (n, d)."""
        draws = draws if self.warp is None else self.warp.forward(draws)[0]
        return replace(
            self,
            weights=np.append(share, (1 - share) * self.weights),
            means=np.vstack([draws.mean(axis=0), self.means]),
            scales=self.scales.with_cluster(draws),
            dofs=np.append(CLUSTER_DOF, self.dofs),
        )

    def pack(self) -> np.ndarray:
        """Put the mixture into one matrix, as compiled code reads it."""
        n, dim = self.n_components, self.means.shape[1]
        copies, rows = self.copies, self.scales.packed
        size = 3 + rows.shape[1]
        least = MIN_COLUMNS if self.warp is None else WARP_COLUMNS
        least = max(least, COPY_COLUMNS if self.stretched else 0)
        packed = np.zeros((1 + n * size + 2 * self.stretched, max(dim, least)))
        rank = rows.shape[1] - 1 if isinstance(self.scales, LowRankScales) else -1
        n_warped = 0 if self.warp is None else len(self.warp.index)
        packed[0, :5] = n, np.log(self.prior_share), rank, n_warped, self.stretched
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
        if self.warp is None:
            return packed
        return np.concatenate([packed, self.warp.pack(packed.shape[1])])

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw from the t components alone, shape (n, d)."""
        which = rng.choice(len(self.weights), size=n, p=self.weights)
        turned = self.scales.draw(which, rng)
        dof = self.dofs[which]
        stretch = np.sqrt(dof / rng.chisquare(dof))
        draws = self.means[which] + stretch[:, None] * turned
        return draws if self.warp is None else self.warp.inverse(draws)


def nearest_component(components: Mixture, xs: np.ndarray) -> np.ndarray:
    """Component that is most likely for each state, shape (n,); the mode of a stretched copy."""
    nearest, n = components.log_t(xs).argmax(axis=1), components.n_components
    return np.where(nearest < n, nearest, (nearest - n) % (n - components.hull))
