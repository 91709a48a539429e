"""Tours are the pieces between fresh starts: recounted from single iterations, and independent."""

import numpy as np
import pytest
from support.repeated_runs import ignore_head, q_of_trace, repeats
from support.synthetic import gaussian_run

from pymc_tempering.evidence import tour_sums
from pymc_tempering.evidence.datatree import read_cycles


def tours_of(stats):
    return tour_sums(stats.rb_weight, stats.rb_weight_head, stats.tour_start)


def recounted(idata, chain, top=4):
    """Sums over tours by walking along single iterations, the last one being unfinished."""
    rung, q = q_of_trace(idata, chain)
    sums, came_from_top = [], True
    for k, weights in zip(rung, q, strict=True):
        if k == 0 and came_from_top:
            sums.append(np.zeros(top + 1))
        came_from_top = k == top or (came_from_top and k != 0)
        sums[-1] += weights
    return np.array(sums)


@pytest.mark.parametrize("ladder_move", ["gibbs", "nonreversible"])
def test_tours_are_those_recounted_from_single_iterations(ladder_move):
    idata = gaussian_run(60, 3, ladder_move=ladder_move, random_seed=4)
    tours = tours_of(read_cycles(idata))
    ignored = tours_of(ignore_head(read_cycles(idata)))
    for chain in range(3):
        expected = recounted(idata, chain)
        np.testing.assert_allclose(tours.of_chain(chain).sums, expected, atol=1e-12)
        assert tours.of_chain(chain).complete.tolist() == [True] * (len(expected) - 1) + [False]
        # the planted bug is seen
        assert not np.allclose(ignored.of_chain(chain).sums, expected)


def test_every_iteration_is_in_one_fragment():
    rng = np.random.default_rng(1)
    for _ in range(50):
        shape = (rng.integers(1, 4), rng.integers(1, 12))
        start = rng.random(shape) < rng.random()
        weight = rng.random((*shape, 3))
        head = weight * rng.random((*shape, 1)) * start[..., None]
        tours = tour_sums(weight, head, start)
        for chain in range(shape[0]):
            total = tours.of_chain(chain).sums.sum(axis=0)
            np.testing.assert_allclose(total, weight[chain].sum(axis=0))
        trips = np.maximum(start.sum(axis=1) - 1, 0)
        assert tours.round_trips(shape[0]) == tuple(trips)


def test_what_comes_before_the_first_start_is_incomplete():
    idata = gaussian_run(100, 1, random_seed=2)
    full = tours_of(read_cycles(idata))
    starts = np.flatnonzero(read_cycles(idata).tour_start[0])
    cut = int(np.setdiff1d(np.arange(40, 100), starts)[0])
    later = tours_of(read_cycles(idata.isel(draw=slice(cut, None))))
    lost = int(np.sum(starts < cut))
    assert not later.complete[0]
    np.testing.assert_allclose(later.sums[later.complete], full.sums[lost:-1])


def test_a_chain_without_a_start_is_one_incomplete_fragment():
    weight = np.ones((2, 5, 3))
    start = np.zeros((2, 5), dtype=bool)
    start[1, 0] = True
    tours = tour_sums(weight, np.zeros_like(weight), start)
    assert tours.chain.tolist() == [0, 1]
    assert not tours.complete.any()
    assert tours.round_trips(2) == (0, 0)


@pytest.fixture(scope="module")
def long_tours():
    """Complete tours of 160 chains whose x is slow everywhere but at beta = 0."""
    stats = repeats(40, draws=600, rho=0.97, seed=11)
    return stats, [tours_of(s).of_chain(c) for s in stats for c in range(4)]


def lag_one_z(parts):
    """z-score of the correlation between consecutive complete tours of their share at beta = 1."""
    pairs = [p.sums[p.complete][:, -1] / p.sums[p.complete].sum(axis=1) for p in parts]
    x = np.concatenate([p[:-1] for p in pairs])
    y = np.concatenate([p[1:] for p in pairs])
    return np.corrcoef(x, y)[0, 1] * np.sqrt(x.size)


def test_consecutive_tours_are_uncorrelated(long_tours):
    # |z| < 4: false alarm 6e-5, seed fixed
    stats, parts = long_tours
    assert abs(lag_one_z(parts)) < 4.0
    # Pieces between arrivals at beta = 1 share the state that they meet in.
    wrong = [tours_of(ignore_head(s)).of_chain(c) for s in stats for c in range(4)]
    assert abs(lag_one_z(wrong)) > 4.0


def test_shapes_that_do_not_fit_are_refused():
    weight = np.ones((2, 5, 3))
    with pytest.raises(ValueError, match="rb_weight_head"):
        tour_sums(weight, weight[:, :4], np.ones((2, 5), dtype=bool))
    with pytest.raises(ValueError, match="tour_start"):
        tour_sums(weight, weight, np.ones((2, 4), dtype=bool))
