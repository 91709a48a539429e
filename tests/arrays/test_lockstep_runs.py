"""Runs of chains over arrays against exact answers, with their errors, and planted bugs."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import pymc_tempering as pmt
from pymc_tempering.arrays import annealing, temper
from pymc_tempering.arrays.lockstep import (
    LockstepChains,
    SweepTrace,
    cut_rows,
    rows_of_trace,
    run_sweeps,
    tour_starts,
)
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.datatree import read_run
from pymc_tempering.evidence.estimators import ESTIMATORS

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from rbm_density import RBM, BernoulliReference
from rts_initial_iterations import initial_iterations, redraw_rungs, start_chains

# A |z| above 5 comes by chance in one of two million tests of a right estimate.
MAX_Z = 5.0


def small_machine(seed=3):
    rng = np.random.default_rng(seed)
    return RBM(rng.normal(0, 0.8, (7, 4)), rng.normal(0, 0.5, 7), rng.normal(0, 0.5, 4))


MACHINE = small_machine()
REFERENCE = BernoulliReference(np.linspace(0.25, 0.75, 7))
LOG_Z = MACHINE.exact_log_z()


@pytest.fixture(scope="module")
def run():
    return temper(MACHINE.density(REFERENCE), 1000, chains=60, random_seed=1)


def replaced(density, **functions):
    """The density with other functions, and without the check of its reference."""
    names = ("reference_draw", "log_ratio", "move", "reverse_move")
    kept = {name: getattr(density, name) for name in names}
    return pmt.arrays.ArrayDensity(**kept | functions)


# ---- runs -------------------------------------------------------------------------------------


def repeated_z(density, repeats, sweeps=120, chains=40):
    """z of RTS over repeats; the seed is that of all of them."""
    rng, found = np.random.default_rng(5), []
    with warnings.catch_warnings():  # one test of homogeneity in a thousand rejects
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        for _ in range(repeats):
            found.append(
                temper(density, sweeps, chains=chains, round_sweeps=15, random_seed=rng).evidence()
            )
    return np.array([(each.log_z - LOG_Z) / each.mcse for each in found])


def test_stated_errors_are_the_real_ones():
    """Of 30 right z the standard deviation is in [0.6, 1.45] with 99.9 %, the mean within 0.6.

    Of 150 each, with 40 and 100 chains and 150 and 600 sweeps, it was 1.01, 0.99 and 1.04.
    """
    z = repeated_z(MACHINE.density(REFERENCE), 30)
    assert abs(z.mean()) < 0.6
    assert 0.6 < z.std(ddof=1) < 1.45


def test_a_move_that_ignores_beta_is_seen():
    path = MACHINE.density(REFERENCE)
    bad = replaced(path, move=lambda x, beta, rng: path.move(x, np.ones_like(beta), rng))
    assert np.abs(repeated_z(bad, 2)).min() > MAX_Z


def test_a_reference_that_is_not_the_one_drawn_from_is_seen():
    """Draws of the other end of each bit, while log_ratio knows the law that was meant."""
    meant, drawn = BernoulliReference(np.full(7, 0.2)), BernoulliReference(np.full(7, 0.8))
    path, other = MACHINE.density(meant), MACHINE.density(drawn)
    assert np.abs(repeated_z(path, 2)).max() < MAX_Z
    bad = replaced(path, reference_draw=other.reference_draw)
    assert np.abs(repeated_z(bad, 2)).max() > MAX_Z
    # Where the reference says its density, it is refused before the run.
    told = pmt.arrays.ArrayDensity(
        other.reference_draw, path.log_ratio, path.move, log_reference=path.log_reference
    )
    with pytest.raises(pmt.exceptions.ModelError, match="draws from another law"):
        temper(told, 10)


@pytest.mark.slow("compiles models of its own", quick=["forward"])
@pytest.mark.parametrize("method", sorted(set(ESTIMATORS) - {"backward", "pooled"}))
def test_every_estimator_reads_a_run(run, method):
    """Integration rules state their bias; all others are within 5 errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)  # the right Riemann sum is far off
        found = run.evidence(method)
    assert found.verdict == "ok"
    bias = 0.0 if np.isnan(found.bias) else abs(found.bias)
    assert abs(found.log_z - LOG_Z) < MAX_Z * found.mcse + bias
    assert found.details.get("sampling_mcse", found.mcse) < 0.1


def test_backward_is_refused_in_words(run):
    with pytest.raises(pmt.exceptions.NotTemperedError, match="stopped after a number of sweeps"):
        run.evidence("backward")
    with pytest.raises(pmt.exceptions.NotTemperedError, match="no reference draws"):
        run.evidence("pooled")


def test_same_seeds_same_run():
    first, second = (temper(MACHINE.density(), 30, chains=20, random_seed=7) for _ in range(2))
    assert np.array_equal(first.trace.log_ratio, second.trace.log_ratio)
    assert np.array_equal(first.trace.cold_states, second.trace.cold_states)


def test_any_r_gives_the_same_log_z():
    run = temper(MACHINE.density(), 300, chains=60, log_weights=lambda b: 2 * b, random_seed=2)
    found = run.evidence()
    assert abs(found.log_z - LOG_Z) < MAX_Z * found.mcse
    share = run.stats.visits.sum(axis=(0, 1))
    assert share[-1] > 3 * share[0]


def test_both_ladder_moves_keep_the_law_of_the_rungs():
    """Share of rungs of each of 60 independent chains against q, with |z| < 5."""
    for move in ("gibbs", "metropolized_gibbs"):
        run = temper(MACHINE.density(), 400, chains=60, ladder_move=move, random_seed=3)
        visits = run.stats.visits.sum(axis=1) / 400
        off = visits - run.trace.probabilities()
        z = off.mean(axis=0) / (off.std(axis=0, ddof=1) / np.sqrt(60))
        assert np.abs(z).max() < MAX_Z


def test_cold_states_are_draws_of_the_machine(run):
    """Means of v at beta = 1 against enumeration; chains are independent, |z| < 5."""
    states, chain = run.cold_states()
    bits = (np.arange(2**7)[:, None] >> np.arange(7) & 1).astype(np.float32)
    exact = np.exp(MACHINE.log_marginal(bits) - LOG_Z) @ bits
    n = np.bincount(chain, minlength=60)
    by_chain = np.array([np.bincount(chain, states[:, j], minlength=60) for j in range(7)])
    off = by_chain - exact[:, None] * n
    z = off.sum(axis=1) / np.sqrt(60 * off.var(axis=1, ddof=1))
    assert np.abs(z).max() < MAX_Z
    assert abs(np.diff(np.flatnonzero(np.diff(chain) < 0))).sum() == 0  # sorted by chain


def test_a_run_goes_into_diagnose_and_cross_check(run):
    assert run.diagnose().verdict.startswith("ok")
    states, chain = run.cold_states()
    ways = annealing(MACHINE.density(REFERENCE), 60, random_seed=1)
    others = {
        "ais": ways.ais(400, random_seed=1),
        "reverse": ways.reverse_ais(states, chain, random_seed=1),
    }
    methods = ["rts", "ti", "bar", "backward"]
    with pytest.raises(pmt.exceptions.NotTemperedError, match="stopped after a number of sweeps"):
        pmt.cross_check(run.to_datatree(), methods=methods, progressbar=False)
    check = pmt.cross_check(
        run.to_datatree(), methods=methods[:3], others=others, progressbar=False
    )
    assert check.verdict == "agree"
    assert set(check.table.index) == {"rts", "ti", "bar", "ais", "reverse"}


def test_many_chains_are_shown_by_the_least_and_the_largest(run):
    text = repr(run.evidence())
    assert "in 60 chains" in text
    assert max(map(len, text.splitlines())) < 120
    assert "in 60 chains" in repr(run.diagnose())


def test_a_trace_that_is_not_that_of_the_rows_is_refused(run):
    tree = run.to_datatree()
    assert np.array_equal(read_run(tree).trace.cycle, rows_of_trace(run.trace)[1].cycle)
    tree["tempering_trace"]["row"].values[0, 0] += 1
    with pytest.raises(pmt.exceptions.NotTemperedError, match="not that of the rows"):
        read_run(tree)


# ---- rows -------------------------------------------------------------------------------------


def test_tours_start_at_the_first_return_to_beta_zero():
    rung = np.array([[0, 1, 2, 0, 0, 2, 1, 0]]).T
    assert tour_starts(rung, np.array([False]), 2)[0].tolist() == [3, 7]
    assert tour_starts(rung, np.array([True]), 2)[0].tolist() == [0, 3, 7]


def test_rows_keep_tours_whole_and_cut_the_longest():
    assert cut_rows(np.array([3]), 20, 4).tolist() == [0, 3, 11, 15]


def test_rows_add_up_to_the_trace(run):
    stats, flat = rows_of_trace(run.trace)
    assert stats.rb_weight.sum() == pytest.approx(run.trace.rung.size)
    assert stats.visits.sum() == run.trace.rung.size
    assert np.allclose(stats.rb_weight.sum(axis=1) / run.trace.n_sweeps, run.trace.probabilities())
    total = np.bincount(flat.rung, flat.log_ratio, minlength=stats.beta.size)
    assert np.allclose(stats.log_ratio_sum.sum(axis=(0, 1)), total)


def test_states_of_zero_density_stay_at_the_reference():
    """exp(-3 x^2 / 2) over N(0, 1), for x > 0 alone: Z is 1/2 / sqrt(1 + 3)."""
    path = pmt.arrays.ArrayDensity(
        lambda n, rng: rng.standard_normal((n, 1)),
        lambda x: np.where(x[:, 0] > 0, -1.5 * x[:, 0] ** 2, -np.inf),
        lambda x, b, rng: np.abs(rng.standard_normal(x.shape)) / np.sqrt(1 + 3 * b[:, None]),
        reversible=True,
    )
    run = temper(path, 300, chains=50, betas=[0.0, 0.5, 1.0], random_seed=1)
    found = run.evidence()
    assert abs(found.log_z + np.log(4)) < MAX_Z * found.mcse
    assert np.all(run.trace.log_ratio[run.trace.rung > 0] > -np.inf)
    assert run.stats.n_zero_likelihood.sum() > 1000
    ways, states = annealing(path, [0.0, 0.5, 1.0]), run.cold_states()[0]
    for each in (ways.ais(500, random_seed=1), ways.reverse_ais(states, random_seed=1)):
        assert abs(each.log_z + np.log(4)) < MAX_Z * each.mcse


# ---- initial iterations -----------------------------------------------------------------------


def test_the_procedure_of_the_paper_starts_from_one_and_ends_by_its_rule():
    """With 300 sweeps of 100 chains the errors of log Z-hat are below 0.03."""
    learned = initial_iterations(MACHINE.density(), 5, sweeps=300, random_seed=1)
    assert learned.settled
    assert np.all(learned.log_z[0] == 0.0)
    assert np.abs(learned.occupancy[-1] - 0.2).max() < 0.1 / 5
    assert abs(learned.ladder.log_z[-1] - LOG_Z) < 0.15


def test_the_rule_that_fails_by_noise_is_said():
    with pytest.warns(pmt.TemperingWarning, match="fails by noise"):
        initial_iterations(MACHINE.density(), 20, sweeps=2, chains=10, max_rounds=3, random_seed=1)


def test_counts_are_rougher_than_rao_blackwell_weights():
    """Occupancies of one round at known log Z: the mean square error of counts is larger."""
    settings = {"sweeps": 20, "max_rounds": 1, "chains": 20, "betas": 10, "random_seed": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)  # one round does not settle
        rb = initial_iterations(MACHINE.density(), **settings)
        counted = initial_iterations(MACHINE.density(), **settings, rao_blackwell=False)
    assert np.var(np.diff(counted.log_z[-1], 2)) > 4 * np.var(np.diff(rb.log_z[-1], 2))


def test_rungs_that_are_drawn_anew_have_the_law_r():
    ladder = Ladder(np.array([0.0, 0.5, 1.0]), np.zeros(3), np.log([0.2, 0.3, 0.5]))
    rng = np.random.default_rng(1)
    chains = start_chains(MACHINE.density(), 5000, np.zeros(5000, int), rng)
    drawn = redraw_rungs(chains, ladder, rng)
    off = np.bincount(drawn.rung) / 5000 - [0.2, 0.3, 0.5]
    assert np.abs(off).max() < 0.035  # five standard errors
    end, trace = run_sweeps(MACHINE.density(), ladder, drawn, 1, rng)
    assert isinstance(end, LockstepChains)
    assert isinstance(trace, SweepTrace)
    assert np.array_equal(trace.rung[0], drawn.rung)
