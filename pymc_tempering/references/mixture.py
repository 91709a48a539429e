"""A mixture of multivariate t's plus a share of the prior, evaluated in compiled code.

`log_reference(x) = log[(1 - eps) sum_j w_j t(x; mean_j, scale_j, dof_j) + eps prior(x)]`. It is
normalized, can be drawn from exactly, and its tails are at least eps times those of the prior.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numba import types
from scipy.special import gammaln

from pymc_tempering.model.compiled import DENSITY, LOG_RATIO, LOG_REFERENCE, MATRIX, POINT, Point
from pymc_tempering.model.jit import njit
from pymc_tempering.references.scales import FullScales, LowRankScales

# A packed mixture has a header row [J, log eps, rank or -1], then for each component a row
# [log constant, dof, scratch: log density, scratch: slope], a row with its mean, a scratch row
# with whitened x, and the rows of its whitening (`pymc_tempering.references.scales`): d rows for a
# full scale matrix, 1 + rank rows for one of low rank.
CONSTANT, DOF, LOG_T, SLOPE = range(4)
MIN_COLUMNS = 4

NEGLIGIBLE = -45.0
"""A component is left out where the log of its share of the density is below this (3e-20)."""


@dataclass(frozen=True)
class Mixture:
    """Components of a fitted reference.

    Attributes
    ----------
    weights : array, shape (J,)
        Of the t components; they sum to 1.
    means : array, shape (J, d)
    scales : FullScales or LowRankScales
        Scale matrices.
    dofs : array, shape (J,)
        Degrees of freedom.
    prior_share : float
        Weight eps of the prior in the whole.
    hull : bool
        Whether the last component is a hull, a wide component that spans all others.
    """

    weights: np.ndarray
    means: np.ndarray
    scales: FullScales | LowRankScales
    dofs: np.ndarray
    prior_share: float
    hull: bool = False

    @property
    def n_components(self) -> int:
        """Number of t components J."""
        return len(self.weights)

    @property
    def modes(self) -> "Mixture":
        """The mixture without its hull."""
        if not self.hull:
            return self
        weights = self.weights[:-1] / self.weights[:-1].sum()
        scales = self.scales.first(self.n_components - 1)
        return Mixture(weights, self.means[:-1], scales, self.dofs[:-1], self.prior_share)

    def with_hull(self, share: float, dof: float) -> "Mixture":
        """Mixture with a hull of weight `share`: mean and scale matrix are those of the mixture."""
        center = self.weights @ self.means
        return Mixture(
            np.append((1 - share) * self.weights, share),
            np.vstack([self.means, center]),
            self.scales.with_hull(self.weights, self.means - center),
            np.append(self.dofs, dof),
            self.prior_share,
            hull=True,
        )

    @property
    def log_constants(self) -> np.ndarray:
        """Log of weight and normalizing constant of each t component, shape (J,)."""
        dim, dofs = self.means.shape[1], self.dofs
        log_gammas = gammaln(0.5 * (dofs + dim)) - gammaln(0.5 * dofs)
        roots = self.scales.log_roots + 0.5 * dim * np.log(dofs * np.pi)
        constants: np.ndarray = np.log(self.weights) + log_gammas - roots
        return constants

    def log_t(self, xs: np.ndarray) -> np.ndarray:
        """Log density of each weighted t component, shape (n, J), at states of shape (n, d)."""
        dim = xs.shape[1]
        squares = np.array(
            [
                (self.scales.whiten(j, xs - mean) ** 2).sum(axis=1)
                for j, mean in enumerate(self.means)
            ]
        ).T
        tails = 0.5 * (self.dofs + dim) * np.log1p(squares / self.dofs)
        log_densities: np.ndarray = self.log_constants - tails
        return log_densities

    def pack(self) -> np.ndarray:
        """Put the mixture into one matrix, as compiled code reads it."""
        n, dim = self.means.shape
        rows = self.scales.rows
        size = 3 + rows.shape[1]
        packed = np.zeros((1 + n * size, max(dim, MIN_COLUMNS)))
        rank = rows.shape[1] - 1 if isinstance(self.scales, LowRankScales) else -1
        packed[0, :3] = n, np.log(self.prior_share), rank
        constants = self.log_constants + np.log1p(-self.prior_share)
        for j in range(n):
            block = packed[1 + j * size :]
            block[0, CONSTANT], block[0, DOF] = constants[j], self.dofs[j]
            block[1, :dim] = self.means[j]
            block[3:size, :dim] = rows[j]
        return packed

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw from the t components alone, shape (n, d)."""
        which = rng.choice(self.n_components, size=n, p=self.weights)
        turned = self.scales.draw(which, rng)
        dof = self.dofs[which]
        stretch = np.sqrt(dof / rng.chisquare(dof))
        return self.means[which] + stretch[:, None] * turned


def nearest_component(components: Mixture, xs: np.ndarray) -> np.ndarray:
    """Component that is most likely for each state, shape (n,)."""
    return components.log_t(xs).argmax(axis=1)


@njit(
    types.void(types.float64[::1], types.int64, MATRIX, types.int64, types.int64),
    error_model="numpy",
)
def _shrink(z, dim, mixture, at, rank):  # type: ignore[no-untyped-def]
    """Apply `I - sum_k b_k b_k'` to z; the b_k are orthogonal, so the terms do not mix."""
    for k in range(rank):
        row = mixture[at + 4 + k]
        along = 0.0
        for i in range(dim):
            along += row[i] * z[i]
        for i in range(dim):
            z[i] -= along * row[i]


@njit(types.float64(types.float64[::1], MATRIX, types.int64, types.int64), error_model="numpy")
def _whiten(x, mixture, at, rank):  # type: ignore[no-untyped-def]
    """Whiten x for the component in row `at`, into its scratch row; return the squared length."""
    dim = x.size
    mean, z = mixture[at + 1], mixture[at + 2]
    square = 0.0
    if rank < 0:
        for i in range(dim):
            row = mixture[at + 3 + i]
            total = 0.0
            for k in range(i + 1):
                total += row[k] * (x[k] - mean[k])
            z[i] = total
            square += total * total
        return square
    inverse = mixture[at + 3]
    for i in range(dim):
        z[i] = inverse[i] * (x[i] - mean[i])
    _shrink(z, dim, mixture, at, rank)
    for i in range(dim):
        square += z[i] * z[i]
    return square


@njit(
    types.void(types.float64[::1], types.float64, MATRIX, types.int64, types.int64),
    error_model="numpy",
)
def _add_slope(out, factor, mixture, at, rank):  # type: ignore[no-untyped-def]
    """Add factor times scale^-1 (x - mean) to `out`; the scratch row is used up."""
    dim = out.size
    z = mixture[at + 2]
    if rank < 0:
        for i in range(dim):
            row = mixture[at + 3 + i]
            for k in range(i + 1):
                out[k] += factor * z[i] * row[k]
        return
    _shrink(z, dim, mixture, at, rank)
    inverse = mixture[at + 3]
    for i in range(dim):
        out[i] += factor * z[i] * inverse[i]


@njit(types.void(POINT), error_model="numpy")
def _to_mixture(point):  # type: ignore[no-untyped-def]
    """Turn log prior and log likelihood of a point into log_reference and log_ratio."""
    x, values, grads, mixture = point
    dim = x.size
    n, rank = int(mixture[0, 0]), int(mixture[0, 2])
    size = 3 + dim if rank < 0 else 4 + rank
    log_prior, log_likelihood = values[LOG_REFERENCE], values[LOG_RATIO]
    prior_term = mixture[0, 1] + log_prior
    largest = prior_term
    for j in range(n):
        at = 1 + j * size
        square = _whiten(x, mixture, at, rank)
        dof = mixture[at, DOF]
        log_t = mixture[at, CONSTANT] - 0.5 * (dof + dim) * np.log1p(square / dof)
        mixture[at, LOG_T] = log_t
        mixture[at, SLOPE] = -(dof + dim) / (dof + square)
        largest = max(largest, log_t)
    total = np.exp(prior_term - largest) if prior_term > -np.inf else 0.0
    for j in range(n):
        log_share = mixture[1 + j * size, LOG_T] - largest
        if log_share > NEGLIGIBLE:
            total += np.exp(log_share)
    log_reference = largest + np.log(total)
    prior_share = np.exp(prior_term - log_reference) if prior_term > -np.inf else 0.0
    if grads.shape[0] > 0:  # wanted
        reference, ratio = grads[0], grads[1]
        for i in range(dim):
            ratio[i] += reference[i]  # of the target
            reference[i] = prior_share * reference[i] if prior_share > 0.0 else 0.0
        for j in range(n):
            at = 1 + j * size
            log_share = mixture[at, LOG_T] - log_reference
            if log_share > NEGLIGIBLE:
                _add_slope(reference, np.exp(log_share) * mixture[at, SLOPE], mixture, at, rank)
        for i in range(dim):
            ratio[i] -= reference[i]
    values[LOG_REFERENCE] = log_reference
    if log_prior == -np.inf or log_likelihood == -np.inf:
        values[LOG_RATIO] = -np.inf
    else:
        values[LOG_RATIO] = log_prior + log_likelihood - log_reference


@njit(types.void(DENSITY, POINT))
def evaluate(density, point):  # type: ignore[no-untyped-def]
    """Evaluate log_reference, log_ratio and their gradients at `point.x`, in place."""
    density(point.x, point.values, point.grads)
    if point.mixture.shape[0] > 0:
        _to_mixture(point)


@njit(types.void(DENSITY, POINT))
def evaluate_values(density, point):  # type: ignore[no-untyped-def]
    """Evaluate log_reference and log_ratio alone; the gradients stay as they were."""
    evaluate(density, Point(point.x, point.values, point.grads[:0], point.mixture))


@njit(types.void(DENSITY, MATRIX, MATRIX, numba.float64[:, :, ::1], MATRIX))
def evaluate_rows(density, xs, values, grads, mixture):  # type: ignore[no-untyped-def]
    """Evaluate each row of `xs` (n, d) into `values` (n, 2) and `grads` (n, 2, d)."""
    for i in range(xs.shape[0]):
        evaluate(density, Point(xs[i], values[i], grads[i], mixture))
