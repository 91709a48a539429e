"""Annealed passes: independent, the same on any cores, more where they differ, each one a vote."""

from dataclasses import replace

import numpy as np
import pytest
from support.compiled_systems import system
from support.searches import annealed, job_of

import pymc_tempering as pmt
from pymc_tempering.core.deadline import PAST
from pymc_tempering.evidence.reference_check import ISLAND
from pymc_tempering.exceptions import TimeLimitError
from pymc_tempering.model.path import Path
from pymc_tempering.sampling import choose_plan as auto, fit_reference as passing
from pymc_tempering.sampling.fit_reference import (
    MORE_PASSES,
    N_PASSES,
    Passes,
    make_passes,
    more_passes,
)


def bits(passes):
    """All that the passes found, as one string of bytes."""
    arrays = [
        array
        for one in passes.each
        for array in (one.betas, one.log_z, one.log_ratio, one.states, one.tuning.step_sizes)
    ]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def test_same_seed_same_passes_whatever_the_cores():
    one, two = (make_passes(job_of("gaussian", 3, cores=cores)) for cores in (1, 2))
    assert len(one.each) == N_PASSES
    assert bits(one) == bits(two)
    assert one.n_evaluations == two.n_evaluations
    assert bits(one) != bits(make_passes(job_of("gaussian", 4)))
    assert np.unique(one.log_z).size == N_PASSES


def test_passes_of_one_generator_would_depend_on_the_cores(monkeypatch):
    """Planted bug: in the order in which passes happen to end, the generator is another's."""
    original = passing.anneal

    def shared(reference, kernel, own, **options):
        return original(reference, kernel, generators.pop(), **options)

    monkeypatch.setattr(passing, "anneal", shared)
    found = []
    for _ in range(2):
        generators = list(np.random.default_rng(5).spawn(N_PASSES)[:: len(found) or -1])
        found.append(bits(make_passes(job_of("gaussian", 3))))
    assert found[0] != found[1]


def spread_over_seeds(n_seeds=12):
    """Variance of the mean log Z of three passes over that of single ones, times three."""
    log_z = np.array([make_passes(job_of("gaussian", seed)).log_z for seed in range(n_seeds)])
    return 3.0 * log_z.mean(axis=1).var(ddof=1) / log_z.ravel().var(ddof=1), log_z


def test_passes_are_independent(monkeypatch):
    """Ratio of variances with 11 degrees of freedom: sd 0.43, and 4 of them below 2.7.

    The planted bug has one generator for all three: each pass is the same, and the ratio is 3.
    """
    ratio, log_z = spread_over_seeds()
    assert ratio < 2.7
    assert abs(log_z.mean() - system("gaussian").log_evidence) < 4 * log_z.std() / 6 + 0.02
    original = passing.anneal
    same = np.random.default_rng

    def copied(reference, kernel, own, **options):
        seed = own.bit_generator.seed_seq.entropy
        return original(reference, kernel, same(seed), **options)

    monkeypatch.setattr(passing, "anneal", copied)
    assert spread_over_seeds()[0] > 2.7


def fail(monkeypatch, fails, error=pmt.exceptions.LikelihoodError):
    """Let the passes of these numbers end in an error, or be cut; returns what was begun."""
    original, begun = passing.anneal, []

    def anneal(*args, **options):
        begun.append(len(begun))
        if begun[-1] not in fails:
            return original(*args, **options)
        if error is None:
            return replace(original(*args, **options), complete=False)
        raise error(f"nothing there, {begun[-1]}")

    monkeypatch.setattr(passing, "anneal", anneal)
    return begun


@pytest.mark.parametrize("error", [pmt.exceptions.LikelihoodError, TimeLimitError, None])
@pytest.mark.parametrize("fails", [{0}, {1}, {0, 2}])
def test_a_pass_that_fails_or_is_cut_is_left_out_while_another_stands(monkeypatch, fails, error):
    whole = make_passes(job_of("gaussian", 3))
    begun = fail(monkeypatch, fails, error)
    found = make_passes(job_of("gaussian", 3))
    assert begun == [0, 1, 2]
    others = [i for i in range(N_PASSES) if i not in fails]
    np.testing.assert_array_equal(found.log_z, whole.log_z[others])


def test_where_the_time_has_cut_all_passes_there_is_the_first(monkeypatch):
    whole = make_passes(job_of("gaussian", 3))
    fail(monkeypatch, {0, 1, 2}, None)
    found = make_passes(job_of("gaussian", 3))
    assert found.log_z.tolist() == whole.log_z[:1].tolist()
    assert not found.complete


@pytest.mark.parametrize("error", [pmt.exceptions.LikelihoodError, TimeLimitError, None])
def test_further_passes_that_all_fail_leave_those_that_there_are(monkeypatch, error):
    whole = three(0, 9, 0)
    fail(monkeypatch, {0, 1, 2}, error)
    assert more_passes(job_of("gaussian"), whole, ONE_MODE).each == whole.each


def test_where_all_passes_fail_the_error_is_that_of_the_first(monkeypatch):
    fail(monkeypatch, {0, 1, 2})
    with pytest.raises(pmt.exceptions.LikelihoodError, match="nothing there, 0"):
        make_passes(job_of("gaussian", 3))


def test_an_error_that_is_not_caught_is_seen(monkeypatch):
    """Planted bug: one pass that fails ends the call."""
    monkeypatch.setattr(passing, "LikelihoodError", ZeroDivisionError)
    fail(monkeypatch, {1})
    with pytest.raises(pmt.exceptions.LikelihoodError):
        make_passes(job_of("gaussian", 3))


def test_an_interrupt_goes_through(monkeypatch):
    monkeypatch.setattr(passing, "run_tasks", lambda *args: ([annealed("gaussian")], True))
    with pytest.raises(KeyboardInterrupt, match="annealed"):
        make_passes(job_of("gaussian"))


def three(*log_z):
    """Passes that say this of log Z."""
    whole = annealed("gaussian")
    return Passes(
        tuple(replace(whole, log_z=np.append(whole.log_z[:-1], value)) for value in log_z)
    )


ONE_MODE = np.zeros(3 * 256, dtype=int)


def two_modes(*n_second):
    """Modes of the particles of three passes, so many of which are in the second one."""
    return np.concatenate([np.arange(256) < n for n in n_second]).astype(int)


def numbers_of_passes():
    """How many there are for log Z that are the same, near, and apart; and with two modes.

    Of 768 particles 77 are a tenth. Passes that share two modes unevenly do not differ.
    """
    cases = [(three(*log_z), ONE_MODE) for log_z in [(0, 0, 0), (0, 1.99, 1), (0, 2.01, 1)]]
    modes = [(128, 128, 128), (200, 55, 1), (40, 36, 0), (40, 37, 0), (255, 0, 255), (256, 256, 0)]
    cases += [(three(0, 0, 0), two_modes(*n)) for n in modes]
    return [len(more_passes(job_of("gaussian"), *case).each) for case in cases]


NUMBERS = [3, 3, 6, 3, 3, 3, 6, 6, 6]


def test_there_are_more_passes_only_where_they_differ():
    assert (N_PASSES, MORE_PASSES) == (3, 3)
    assert numbers_of_passes() == NUMBERS
    whole = three(0, 9, 0)
    assert more_passes(job_of("gaussian", deadline=PAST), whole, ONE_MODE) is whole
    more = more_passes(job_of("gaussian"), whole, ONE_MODE)
    assert more.each[:3] == whole.each
    assert np.unique(more.log_z[3:]).size == MORE_PASSES


def test_log_z_of_passes_tells_no_modes_apart_in_many_dimensions_or_of_few_particles(monkeypatch):
    rough = [3, 3, 3, *NUMBERS[3:]]
    with monkeypatch.context() as patch:
        patch.setattr(passing, "is_wide", lambda path: True)
        assert numbers_of_passes() == rough
    monkeypatch.setattr(Path, "dear", True)
    assert numbers_of_passes() == rough


@pytest.mark.parametrize(
    ("name", "value"),
    [("MAX_SPREAD", 1.9), ("MAX_SPREAD", 2.1), ("MODE_SHARE", 0.09), ("MODE_SHARE", 0.11)],
)
def test_another_spread_or_share_is_seen(monkeypatch, name, value):
    monkeypatch.setattr(passing, name, value)
    assert numbers_of_passes() != NUMBERS


def test_the_best_pass_is_that_of_the_largest_log_z():
    assert three(-1, 3, 2).best.log_z[-1] == 3
    assert three(5).best.log_z[-1] == 5
    assert three(1, 2).particles.shape == (512, 2)
    assert three(1, 2).n_evaluations == 2 * annealed("gaussian").n_evaluations


def test_shares_are_of_each_pass():
    """Three particles of 256 are an island, and two are none."""
    marked = np.zeros(3 * 256, dtype=bool)
    marked[[255, 256, 257, 258]] = True
    shares = three(0, 0, 0).shares(marked)
    np.testing.assert_allclose(shares * 256, [1, 3, 0])
    assert (shares >= ISLAND).tolist() == [False, True, False]
    marked[258] = False
    assert not (three(0, 0, 0).shares(marked) >= ISLAND).any()


def test_a_plan_has_the_passes_that_it_was_fitted_to():
    chosen = auto.choose_plan(job_of("gaussian"))
    assert chosen.fresh.n_passes == len(chosen.passes.each) == N_PASSES
    assert chosen.fresh.pass_log_z == pytest.approx(chosen.passes.log_z.mean())
    assert chosen.work["prior_warmup"] == chosen.passes.n_evaluations
    assert (chosen.fresh.n_home_passes, chosen.fresh.n_islands) == (N_PASSES, 0)
