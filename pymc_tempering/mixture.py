"""A mixture of multivariate t's plus a share of the prior, evaluated in compiled code.

`log_reference(x) = log[(1 - eps) sum_j w_j t(x; mean_j, scale_j, dof_j) + eps prior(x)]`:
normalized, drawn from exactly, and never lighter in its tails than eps times the prior.
"""

from dataclasses import dataclass

import numba
import numpy as np
from numba import types
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from pymc_tempering.compiled import DENSITY, LOG_RATIO, LOG_REFERENCE, MATRIX, POINT, Point

# A packed mixture has a header row [J, log eps], then for each component a row
# [log constant, dof, scratch: log density, scratch: slope], a row with its mean, a scratch row,
# and d rows with the inverse of the Cholesky factor of its scale matrix.
CONSTANT, DOF, LOG_T, SLOPE = range(4)
MIN_COLUMNS = 4


@dataclass(frozen=True)
class Mixture:
    """Components of a fitted reference.

    Attributes
    ----------
    weights : array, shape (J,)
        Of the t components; they sum to 1.
    means : array, shape (J, d)
    cholesky : array, shape (J, d, d)
        Lower Cholesky factors of the scale matrices.
    dofs : array, shape (J,)
        Degrees of freedom.
    prior_share : float
        Weight eps of the prior in the whole.
    """

    weights: np.ndarray
    means: np.ndarray
    cholesky: np.ndarray
    dofs: np.ndarray
    prior_share: float

    @property
    def n_components(self) -> int:
        """Number of t components J."""
        return len(self.weights)

    def pack(self) -> np.ndarray:
        """All of it in one matrix, as compiled code reads it."""
        n, dim = self.means.shape
        packed = np.zeros((1 + n * (dim + 3), max(dim, MIN_COLUMNS)))
        packed[0, :2] = n, np.log(self.prior_share)
        for j in range(n):
            block = packed[1 + j * (dim + 3) :]
            dof = self.dofs[j]
            block[0, CONSTANT] = (
                np.log1p(-self.prior_share)
                + np.log(self.weights[j])
                + gammaln(0.5 * (dof + dim))
                - gammaln(0.5 * dof)
                - 0.5 * dim * np.log(dof * np.pi)
                - np.log(np.diag(self.cholesky[j])).sum()
            )
            block[0, DOF] = dof
            block[1, :dim] = self.means[j]
            inverse = solve_triangular(self.cholesky[j], np.eye(dim), lower=True)
            block[3 : 3 + dim, :dim] = inverse
        return packed

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw from the t components alone, shape (n, d)."""
        which = rng.choice(self.n_components, size=n, p=self.weights)
        normal = rng.standard_normal((n, self.means.shape[1]))
        dof = self.dofs[which]
        stretch = np.sqrt(dof / rng.chisquare(dof))
        turned = np.einsum("nij,nj->ni", self.cholesky[which], normal)
        return self.means[which] + stretch[:, None] * turned


@numba.njit(types.void(POINT), cache=True, nogil=True, error_model="numpy")
def _to_mixture(point):  # type: ignore[no-untyped-def]
    """Turn log prior and log likelihood of a point into log_reference and log_ratio."""
    x, values, grads, mixture = point
    dim = x.size
    n = int(mixture[0, 0])
    log_prior, log_likelihood = values[LOG_REFERENCE], values[LOG_RATIO]
    prior_term = mixture[0, 1] + log_prior
    largest = prior_term
    for j in range(n):
        at = 1 + j * (dim + 3)
        mean, slope = mixture[at + 1], mixture[at + 2]
        square = 0.0
        slope[:dim] = 0.0
        for i in range(dim):
            row = mixture[at + 3 + i]
            z = 0.0
            for k in range(i + 1):
                z += row[k] * (x[k] - mean[k])
            square += z * z
            for k in range(i + 1):
                slope[k] += row[k] * z
        dof = mixture[at, DOF]
        mixture[at, LOG_T] = mixture[at, CONSTANT] - 0.5 * (dof + dim) * np.log1p(square / dof)
        mixture[at, SLOPE] = -(dof + dim) / (dof + square)
        largest = max(largest, mixture[at, LOG_T])
    total = np.exp(prior_term - largest) if prior_term > -np.inf else 0.0
    for j in range(n):
        total += np.exp(mixture[1 + j * (dim + 3), LOG_T] - largest)
    log_reference = largest + np.log(total)
    prior_share = np.exp(prior_term - log_reference) if prior_term > -np.inf else 0.0
    for i in range(dim if grads.shape[0] > 0 else 0):
        target = grads[0, i] + grads[1, i]
        reference = prior_share * grads[0, i] if prior_share > 0.0 else 0.0
        for j in range(n):
            at = 1 + j * (dim + 3)
            share = np.exp(mixture[at, LOG_T] - log_reference)
            reference += share * mixture[at, SLOPE] * mixture[at + 2, i]
        grads[0, i] = reference
        grads[1, i] = target - reference
    values[LOG_REFERENCE] = log_reference
    if log_prior == -np.inf or log_likelihood == -np.inf:
        values[LOG_RATIO] = -np.inf
    else:
        values[LOG_RATIO] = log_prior + log_likelihood - log_reference


@numba.njit(types.void(DENSITY, POINT), cache=True, nogil=True)
def evaluate(density, point):  # type: ignore[no-untyped-def]
    """Evaluate log_reference, log_ratio and their gradients at `point.x`, in place."""
    density(point.x, point.values, point.grads)
    if point.mixture.shape[0] > 0:
        _to_mixture(point)


@numba.njit(types.void(DENSITY, POINT), cache=True, nogil=True)
def evaluate_values(density, point):  # type: ignore[no-untyped-def]
    """Evaluate log_reference and log_ratio alone; the gradients stay as they were."""
    evaluate(density, Point(point.x, point.values, point.grads[:0], point.mixture))


@numba.njit(
    types.void(DENSITY, MATRIX, MATRIX, numba.float64[:, :, ::1], MATRIX), cache=True, nogil=True
)
def evaluate_rows(density, xs, values, grads, mixture):  # type: ignore[no-untyped-def]
    """Evaluate each row of `xs` (n, d) into `values` (n, 2) and `grads` (n, 2, d)."""
    for i in range(xs.shape[0]):
        evaluate(density, Point(xs[i], values[i], grads[i], mixture))
