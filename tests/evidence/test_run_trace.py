"""The flat trace of a run: read exactly, refused where it is of other draws; and its overlap."""

import numpy as np
import pytest
from support.repeated_runs import GAUSSIAN_TOY, repeated_runs, repeated_trees
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering import evidence as ev
from pymc_tempering.evidence.datatree import probabilities_of
from pymc_tempering.evidence.pieces import split_weights
from pymc_tempering.exceptions import NotTemperedError


def test_a_trace_of_other_draws_is_refused():
    idata = gaussian_run(draws=60, chains=2)
    with pytest.raises(NotTemperedError, match="not that of its draws"):
        ev.read_run(idata.isel(draw=slice(20, 60)))
    first = ev.read_run(idata.isel(draw=slice(0, 40)))  # the trace is cut where they end
    assert first.trace.rung.size == first.stats.visits.sum()
    turned = idata.copy()
    turned["tempering_trace"] = idata["tempering_trace"].isel(chain=[1, 0])
    with pytest.raises(NotTemperedError, match="not that of its draws"):
        ev.read_run(turned)


@pytest.mark.parametrize("ladder_move", ["gibbs", "nonreversible"])
def test_pieces_of_the_trace_are_those_of_the_statistics(ladder_move):
    run = ev.read_run(gaussian_run(60, 3, ladder_move=ladder_move, random_seed=4))
    q = probabilities_of(run.stats, run.trace.log_ratio)
    np.testing.assert_allclose(run.sum_table(q, run.piece), split_weights(run.stats))


def test_tuning_draws_in_the_trace_are_skipped():
    idata = gaussian_run(draws=80, chains=2)
    whole = ev.read_run(idata)
    cut = idata.isel(draw=slice(30, 80))
    cut["warmup_sample_stats"] = idata["sample_stats"].to_dataset().isel(draw=slice(0, 30))
    late = ev.read_run(cut)
    assert late.trace.rung.size == late.stats.visits.sum() < whole.trace.rung.size
    assert abs(ev.bar(late).log_z - float(GAUSSIAN_TOY.log_z(1.0))) < 4.0 * ev.bar(late).mcse


@pytest.mark.slow("compiles models of its own")
def test_overlap_is_that_of_the_exact_densities():
    """Rows are E_k[q_j(x)]: by quadrature over the Gaussian path, exact log Z in the ladder."""
    betas = np.array([0.0, 0.1, 0.4, 1.0])
    table = pmt.evidence.overlap(gaussian_run(draws=6000, betas=betas, random_seed=1))
    x = np.linspace(-9.0, 9.0, 40001)
    mean, sd = GAUSSIAN_TOY.moments(betas[:, None])
    p = np.exp(-0.5 * ((x - mean) / sd) ** 2) / sd
    exact = (p / p.sum(axis=1, keepdims=True)) @ (p / p.sum(axis=0)).T
    np.testing.assert_allclose(table["overlap"], exact, atol=0.012)
    np.testing.assert_allclose(table["overlap"].sum("rung_to"), 1.0)
    gap = 1.0 - np.sort(np.linalg.eigvals(exact).real)[-2]
    assert table.attrs["spectral_gap"] == pytest.approx(gap, abs=0.01)
    assert np.all(table["ess_tours"] < table["ess"])
    assert table["beta"].values.tolist() == betas.tolist()


@pytest.mark.slow("compiles models of its own")
def test_runs_with_a_gap_have_next_to_no_spectral_gap():
    wide = pmt.evidence.overlap(
        gaussian_run(draws=50, betas=[0.0, 0.5, 1.0], toy=GaussianToy(5.0, 0.15))
    )
    assert wide.attrs["spectral_gap"] < 0.05


def test_runs_that_are_cut_out_of_one_are_those_of_trees_of_their_own():
    """Repeats of the calibrations come so."""
    settings = {"draws": 30, "chains": 2, "ladder_move": "nonreversible", "seed": 3}
    runs, trees = repeated_runs(4, "cut", **settings), repeated_trees(4, "cut", **settings)
    for cut, tree in zip(runs, trees, strict=True):
        own = ev.read_run(tree)
        for of_cut, of_own in ((cut.stats, own.stats), (cut.trace, own.trace)):
            for name, value in vars(of_own).items():
                np.testing.assert_array_equal(getattr(of_cut, name), value)
