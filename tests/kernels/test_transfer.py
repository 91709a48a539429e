"""Transfer of units within vectors of counts, on a path whose law at every beta is enumerated."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from support.compiled_density import compiled_density
from support.moves import Moves

from pymc_tempering.kernels import ACCEPTANCE, DIVERGED, N_EVALUATIONS, Block
from pymc_tempering.kernels.discrete import Transfer
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, new_point
from pymc_tempering.model.jit import njit

# Two vectors, of three cells with a sum of 7 and of two with a sum of 4, and a real coordinate
# between them that stays where it is.
LENGTHS, TOTALS = (3, 2), (7, 4)
P = np.array([0.5, 0.3, 0.2, 0.7, 0.3])
PLACES = np.array([0, 1, 2, 4, 5])
LOG_P, LOG_FACTORIAL = np.log(P), gammaln(np.arange(20) + 1.0)
BETAS = (0.05, 0.4, 1.0)

ROWS = {"transfer": (lambda: Transfer(LENGTHS), PLACES, 1.0)}


@compiled_density
def density(x, values, grads):
    """Multinomial priors; the likelihood couples both vectors."""
    values[:] = 0.0
    for i in range(5):
        n = int(x[PLACES[i]])
        if n < 0:
            values[:] = np.nan
            return
        values[0] += n * LOG_P[i] - LOG_FACTORIAL[n]
    values[1] = -0.4 * (x[0] - 2.0 * x[4] + 1.0) ** 2 - 0.3 * (x[1] - 3.0) ** 2


def splits(total, length):
    """All vectors of so many cells with this sum."""
    grid = itertools.product(range(total + 1), repeat=length)
    return [cells for cells in grid if sum(cells) == total]


STATES = np.array([
    [*a, 0.25, *b] for a in splits(TOTALS[0], LENGTHS[0]) for b in splits(TOTALS[1], LENGTHS[1])
])  # fmt: skip
NUMBER = {tuple(state): i for i, state in enumerate(STATES)}


def probabilities(beta):
    """Exact probabilities of all states."""
    point = new_point(6)
    log_p = np.empty(len(STATES))
    for i, x in enumerate(STATES):
        density(x, point.values, point.grads)
        log_p[i] = point.values[0] + beta * point.values[1]
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def moves_of(beta, seed, transition=None):
    """A state under the kernel at one beta."""
    factory, places, step = ROWS["transfer"]
    block = Block(places, np.zeros(5), np.full(5, np.inf), np.ones(5, dtype=bool))
    return Moves(
        factory(), density, 6, block, step, np.ones(5), beta=beta, seed=seed, transition=transition
    )


def law_pvalue(beta, seed, n=20_000, transition=None):
    """Chi-square p-value of the joint law after two moves of exact draws, and what moved."""
    moves, p = moves_of(beta, seed, transition), probabilities(beta)
    start = moves.rng.choice(len(p), n, p=p)
    ends, *_ = moves.each(STATES[start], 2)
    end = np.array([NUMBER[tuple(x)] for x in ends])
    order = np.argsort(p)  # joined until each cell expects 20
    cells = np.empty(len(p), dtype=int)
    cells[order] = np.minimum(np.cumsum(p[order]) * n // 20, n // 20 - 1).astype(int)
    expected = np.bincount(cells, p) * n
    found = np.bincount(cells[end], minlength=expected.size)
    kept = expected > 0
    return stats.chisquare(found[kept], expected[kept]).pvalue, (start != end).mean()


@pytest.mark.parametrize("beta", BETAS)
def test_exact_draws_keep_their_law(beta):
    # p > 1e-4: false alarm 1e-4 a case, seed fixed
    p, moved = law_pvalue(beta, seed=1)
    assert p > 1e-4
    assert moved > 0.5


@njit(KERNEL_SIGNATURE)
def _no_more_than_there_are(density, point, beta, block, params, scratch, rng, info):
    """Draw the number of units from those that the cell holds: the way back is less likely."""
    for _ in range(10):
        i, k = rng.permutation(3)[:2]
        before = point.values[0] + beta * point.values[1]
        units = np.floor(rng.random() * (point.x[block[i]] + 1.0))
        point.x[block[i]] -= units
        point.x[block[k]] += units
        density.code(point.x, point.values, point.grads, density.data)
        if not rng.random() < np.exp(point.values[0] + beta * point.values[1] - before):
            point.x[block[i]] += units
            point.x[block[k]] -= units
            density.code(point.x, point.values, point.grads, density.data)


@njit(KERNEL_SIGNATURE)
def _to_the_right(density, point, beta, block, params, scratch, rng, info):
    """Move one unit to the right three times as often as to the left."""
    for _ in range(10):
        i, k = (0, 1) if rng.random() < 0.75 else (1, 0)
        before = point.values[0] + beta * point.values[1]
        if point.x[block[i]] < 1.0:
            continue
        point.x[block[i]] -= 1.0
        point.x[block[k]] += 1.0
        density.code(point.x, point.values, point.grads, density.data)
        if not rng.random() < np.exp(point.values[0] + beta * point.values[1] - before):
            point.x[block[i]] += 1.0
            point.x[block[k]] -= 1.0
            density.code(point.x, point.values, point.grads, density.data)


@pytest.mark.slow("repeats")
@pytest.mark.parametrize(
    "transition", [_no_more_than_there_are, _to_the_right], ids=["size of the cell", "direction"]
)
def test_planted_asymmetric_proposals_change_the_law(transition):
    p, _ = law_pvalue(0.4, seed=1, transition=transition)
    assert p < 1e-8


def test_values_are_those_of_the_state_and_all_states_are_reached():
    moves = moves_of(0.4, seed=3)
    moves.start([7.0, 0.0, 0.0, 0.25, 0.0, 4.0])
    fresh = new_point(6)
    seen = set()
    for _ in range(3000):
        x = moves()
        density(x, fresh.values, fresh.grads)
        np.testing.assert_array_equal(moves.point.values, fresh.values)
        assert 0.0 <= moves.info[ACCEPTANCE] <= 1.0
        assert 0.0 <= moves.info[N_EVALUATIONS] <= 10.0
        assert moves.info[DIVERGED] == 0.0
        seen.add(tuple(x))
    p = probabilities(0.4)
    assert all(tuple(state) in seen for state in STATES[p > 0.005])


def test_a_vector_of_one_cell_stays_and_without_a_model_there_is_one_vector():
    one = Block(np.arange(1), np.zeros(1), np.full(1, np.inf), np.ones(1, dtype=bool))
    assert Transfer().pack(1.0, np.ones(1), one).tolist() == [0.0, 1.0]
    lonely = Moves(Transfer(), density, 6, one, 1.0, np.ones(1), beta=1.0, seed=0)
    lonely.start(STATES[5])
    np.testing.assert_array_equal(lonely(), STATES[5])
    assert Transfer(LENGTHS).pack(1.0, np.ones(5), None).tolist() == [0, 0, 0, 3, 3, 3, 3, 3, 2, 2]
