"""Factors of sparse precisions, against those of dense matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from pymc_tempering.core.sparse_curvature import find_pattern
from pymc_tempering.fields.arrow import arrange
from pymc_tempering.fields.curvature import Curvature

N = 60


def band(rng, width):
    lower = np.tril(rng.normal(size=(N, N)))
    lower[np.subtract.outer(np.arange(N), np.arange(N)) > width] = 0.0
    return lower @ lower.T


def crossed(rng):
    design = np.zeros((5 * N, N))
    rows = np.arange(len(design))
    design[rows, rng.integers(40, size=len(rows))] = 1.0
    design[rows, rng.integers(40, N, size=len(rows))] = 1.0
    return design.T @ design


PRECISIONS = {
    "diagonal": lambda rng: np.zeros((N, N)),
    "walk": lambda rng: band(rng, 1),
    "wide band": lambda rng: band(rng, 7),
    "crossed": crossed,
    "dense": lambda rng: np.cov(rng.normal(size=(N, 2 * N))),
}


def precision(kind, *, border=0, shuffled=False):
    rng = np.random.default_rng(1)
    made = PRECISIONS[kind](rng) + 3.0 * np.eye(N)
    for i in range(border):
        made[i, :] = made[:, i] = rng.normal(size=N) / 5.0
        made[i, i] = 4.0 * N
    order = rng.permutation(N) if shuffled else np.arange(N)
    return made[np.ix_(order, order)]


def root_of(matrix, parts=()):
    """Factor, as it is found from gradients of a normal density."""

    def slopes(xs):
        return -xs @ matrix

    steps = np.full(N, 1e-3)
    pattern = csr_array((matrix != 0.0).astype(np.int8))
    curvature = Curvature.of(pattern, parts, steps)
    return curvature, curvature.root_at(slopes, np.zeros(N), np.zeros(N))


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize("border", [0, 2])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_factor_is_that_of_the_dense_matrix(kind, border, shuffled):
    matrix = precision(kind, border=border, shuffled=shuffled)
    _, root = root_of(matrix, [np.arange(40), np.arange(40, N)])
    x = np.random.default_rng(2).normal(size=N)
    _, log_det = np.linalg.slogdet(matrix)
    assert_allclose(root.log_det, 0.5 * log_det, rtol=1e-9)
    assert_allclose(root.solve(x), np.linalg.solve(matrix, x), atol=1e-9)
    assert_allclose(root.whiten(root.color(x)), x, atol=1e-9)
    assert_allclose(root.deviations, 1.0 / np.sqrt(np.diag(matrix)), rtol=1e-9)
    colored = np.array([root.color(row) for row in np.eye(N)])
    assert_allclose(colored.T @ colored, np.linalg.inv(matrix), atol=1e-9)
    assert root.whiten_slope(x) @ x == pytest.approx(x @ root.color(x))  # transposes of each other


@pytest.mark.parametrize(("kind", "border", "most"), [("walk", 0, 3), ("walk", 2, 5)])
def test_a_walk_takes_few_gradients_and_a_narrow_band(kind, border, most):
    curvature, root = root_of(precision(kind, border=border, shuffled=True))
    assert len(curvature.moves) == most
    assert root.arrow.width == 1
    assert root.arrow.n_band == N - border


def test_one_of_two_crossed_effects_is_the_border():
    pattern = csr_array((precision("crossed") != 0.0).astype(np.int8))
    arrow = arrange(pattern, [np.arange(40), np.arange(40, N)])
    assert (arrow.n_band, arrow.width) == (40, 0)
    assert arrow.cost < arrange(pattern, []).cost


def test_the_pattern_is_found_from_gradients():
    matrix = precision("wide band", border=1, shuffled=True)
    x = np.random.default_rng(3).normal(size=N)
    found = find_pattern(lambda xs: -(xs @ matrix), x, np.full(N, 1e-4), 7)
    # A product of matrices may round a row of a batch in another way, so more can be found.
    assert (found.toarray()[matrix != 0.0] == 1).all()


def test_a_precision_that_is_not_positive_gets_a_positive_stand_in():
    matrix = precision("walk")
    matrix[5, 5] = -1.0
    _, root = root_of(matrix)
    assert np.isfinite(root.log_det)
    assert (np.array([root.color(row) for row in np.eye(N)]) != 0.0).any()


def test_a_field_in_another_order_is_another_field():
    # The planted bug: the border's rows are told, and placed in another order.
    _, root = root_of(precision("walk", shuffled=True))
    x = np.random.default_rng(2).normal(size=N)
    object.__setattr__(root.arrow, "order", np.arange(N))
    assert np.abs(root.solve(x) - np.linalg.solve(precision("walk", shuffled=True), x)).max() > 0.1
