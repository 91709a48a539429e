"""What arrivals, annealed passes and a search without an end say of a fitted reference."""

import re
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import xarray as xr
from support.compiled_systems import prior, system
from support.look_checks import checked, leg, looks
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering.core.cycles import LOOK_STATS, FreshLooks
from pymc_tempering.evidence import reference_check
from pymc_tempering.evidence.datatree import read_check
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.reference_check import compare_looks, summarize_looks
from pymc_tempering.sampling.evaluated import evaluate_states

FLOOR = 0.5  # nats


def with_passes(higher, mcse=0.1, **more):
    """Looks that agree, and passes whose mean log Z is higher by so much."""
    return looks(pass_log_z=leg().log_z + higher, pass_mcse=mcse, **more)


def verdicts_of_arrivals():
    return [compare_looks(leg(), looks(arrived=n)).verdict for n in (0, 1, 19, 20, 100)]


def test_a_check_agrees_from_twenty_arrivals_on():
    assert verdicts_of_arrivals() == ["unchecked"] * 3 + ["agreed"] * 2
    after = checked(looks(arrived=19))
    assert after.verdict == "unchecked"
    assert (after.log_z, after.mcse) == (leg().log_z, leg().mcse)
    assert after.warnings[0].startswith("Only 19 of 100 looks from the prior came to where")
    assert "20 are needed" in after.warnings[0]
    assert "3 of 3 annealed passes came there" in after.warnings[0]
    assert checked(looks(arrived=0)).check.missed == 1.0


@pytest.mark.parametrize("least", [0, 19, 21])
def test_another_number_of_arrivals_is_seen(monkeypatch, least):
    """Planted: the old rule, to which a look anywhere counted, and bounds that are off by one."""
    monkeypatch.setattr(reference_check, "MIN_ARRIVALS", least)
    assert verdicts_of_arrivals() != ["unchecked"] * 3 + ["agreed"] * 2


def test_regions_that_were_let_go_are_part_of_the_error():
    """And the verdict stays. Planted: a check without them."""
    for share in (1e-6, 0.004, 0.02):
        found = checked(looks(let_go=share))
        assert found.verdict == "ok"
        assert found.mcse == pytest.approx(np.hypot(leg().mcse, share), rel=1e-2)
    assert checked(looks()).mcse == leg().mcse


def test_a_run_that_was_kept_before_a_field_was_there_has_its_check():
    idata = gaussian_run(draws=30, random_seed=3)
    stats = idata["sample_stats"].to_dataset()
    told = {name: xr.full_like(stats["tour_start"], 3.0, dtype=float) for name in LOOK_STATS}
    for dropped, known in ([("check_let_go", "check_reached"), True], [("check_needed",), False]):
        some = {name: values for name, values in told.items() if name not in dropped}
        idata["sample_stats"] = xr.DataTree(stats.assign(some))
        assert (read_check(idata) is not None) == known


def test_arrivals_hide_no_contradiction():
    assert checked(looks(5.0, arrived=3)).verdict == "disagreed"
    assert checked(with_passes(5.0, arrived=3)).verdict == "disagreed"
    assert "are needed" not in checked(looks(5.0, arrived=3)).warnings[0]


def verdicts_of_passes(side=1.0):
    """Of differences about the floor where errors are small, and about four errors where not."""
    error = float(np.hypot(leg().mcse, 0.3))
    assert 4.0 * np.hypot(leg().mcse, 0.01) < FLOOR < 4.0 * error
    pairs = [(-30.0, 0.01), (0.49, 0.01), (0.51, 0.01), (3.99 * error, 0.3), (4.01 * error, 0.3)]
    return [compare_looks(leg(), with_passes(side * d, mcse)).verdict for d, mcse in pairs]


OF_PASSES = ["agreed", "agreed", "disagreed", "agreed", "disagreed"]


def test_passes_with_a_higher_log_z_disagree():
    """By more than half a nat and four combined errors; who misses a mode states too little."""
    assert verdicts_of_passes() == OF_PASSES
    after = checked(with_passes(2.0, n_passes=6.0))
    error = np.hypot(leg().mcse, 0.1)
    reason = f"the log Z of 6 annealed passes is higher by 2.00 nats, {error:.2f} expected"
    assert after.verdict == after.check.verdict == "disagreed"
    assert after.check.reasons == (reason,)
    assert reason in after.warnings[0]
    assert after.mcse == pytest.approx(2.0)
    assert after.check.pass_difference == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MIN_PASS_DIFFERENCE", 0.4), ("MIN_PASS_DIFFERENCE", 0.6), ("MAX_Z", 3.9), ("MAX_Z", 4.1)],
)
def test_another_threshold_of_passes_is_seen(monkeypatch, name, value):
    monkeypatch.setattr(reference_check, name, value)
    assert verdicts_of_passes() != OF_PASSES


def test_passes_that_speak_on_the_other_side_are_seen():
    assert verdicts_of_passes(side=-1.0) == ["disagreed"] + ["agreed"] * 4


def test_the_larger_difference_is_the_error_and_looks_without_a_log_z_leave_that_of_the_passes():
    assert checked(with_passes(2.0, difference=3.0)).mcse == pytest.approx(3.0)
    assert checked(with_passes(2.0, difference=-30.0)).mcse == pytest.approx(2.0)
    rough = replace(with_passes(2.0), log_z=np.nan, mcse=np.inf)
    assert checked(rough).mcse == pytest.approx(2.0)
    assert checked(rough).verdict == "disagreed"
    none = replace(looks(3.0), pass_log_z=np.nan, pass_mcse=np.inf)
    assert checked(none).mcse == pytest.approx(3.0)


def test_fewer_than_three_passes_have_no_error_and_no_vote():
    for n in (1, 2):
        fresh = summarize_looks(np.zeros(100), 0, 100, 60, leg().log_z + 9.0 + np.arange(n))
        assert fresh.pass_mcse == np.inf
        assert compare_looks(leg(), replace(fresh, log_z=leg().log_z)).verdict == "agreed"


def test_an_island_that_does_not_come_home_disagrees_and_has_any_mass():
    after = checked(looks(n_islands=1.0))
    assert after.verdict == "disagreed"
    assert after.mcse == np.inf
    [reason] = after.check.reasons
    assert reason.startswith("1 of 3 annealed passes have particles that stay where")
    both = checked(with_passes(2.0, n_islands=2.0))
    assert len(both.check.reasons) == 2
    assert both.mcse == np.inf
    assert checked(looks()).check.n_islands == 0


def test_a_search_without_an_end_is_never_agreed():
    after = checked(looks(settled=0.0))
    assert after.verdict == after.check.verdict == "unchecked"
    assert not after.check.settled
    assert after.warnings[0].startswith("The search for modes still found something new")
    assert after.mcse == leg().mcse
    assert checked(looks(5.0, settled=0.0)).verdict == "disagreed"
    assert checked(looks(settled=0.0, n=60)).warnings[0].startswith("60 looks")


def test_the_summary_has_the_mean_of_the_passes_and_its_error():
    log_z = np.array([-3.0, -2.0, -2.5, -4.0])
    fresh = summarize_looks(np.zeros(100), 0, 100, 60, log_z, 3, 2, settled=False)
    assert fresh.pass_log_z == pytest.approx(-2.875)
    assert fresh.pass_mcse == pytest.approx(np.std(log_z, ddof=1) / 2.0)
    assert (fresh.n_passes, fresh.n_home_passes) == (4.0, 3.0)
    assert (fresh.n_islands, fresh.settled) == (2.0, 0.0)
    check = compare_looks(leg(), fresh)
    assert (check.n_passes, check.n_home_passes) == (4, 3)
    assert (check.n_islands, check.settled) == (2, False)
    assert check.pass_difference == pytest.approx(-2.875 - leg().log_z)


def false_alarms(thrice):
    """Share of 4000 sets of three passes of the same log Z as the run that disagree with it."""
    rng, count = np.random.default_rng(4), 0
    log_z = leg().log_z + rng.normal(0.0, 0.15, (4000, 3))
    for passes in log_z:
        fresh = replace(looks(), pass_log_z=passes.mean(), pass_mcse=thrice(passes))
        count += compare_looks(leg(), fresh).verdict == "disagreed"
    return count / 4000


def test_passes_that_are_near_each_other_by_chance_have_an_error_all_the_same():
    """In many dimensions: those of an item response model of 1,000 are 6.9 above, .7 expected."""
    log_z = leg().log_z + np.array([5.7, 6.9, 8.2])

    def verdict(**least):
        fresh = summarize_looks(np.zeros(100), 0, 100, 60, log_z, 3, **least)
        return compare_looks(leg(), replace(fresh, log_z=np.nan)).verdict

    assert (verdict(), verdict(least_spread=5.0)) == ("disagreed", "agreed")
    log_z = log_z + 20.0
    assert verdict(least_spread=5.0) == "disagreed"


def test_passes_of_the_same_log_z_do_not_disagree(monkeypatch):
    """Half a nat is six standard errors of their mean: no false alarm in 4000.

    Planted: without the floor, since an error from three numbers is often far too small.
    """

    def error(passes):
        return summarize_looks(np.zeros(9), 0, 9, 9, passes).pass_mcse

    assert false_alarms(error) == 0.0
    monkeypatch.setattr(reference_check, "MIN_PASS_DIFFERENCE", 0.0)
    assert false_alarms(error) > 2e-3


def test_all_fields_of_the_check_come_back_from_a_run():
    """Each statistic has a number of its own, so none can stand in for another."""
    idata = gaussian_run(draws=30, random_seed=3)
    names = [each.name for each in fields(FreshLooks)]
    assert [f"check_{name}" for name in names] == list(LOOK_STATS)
    numbers = dict(zip(names, 1.0 + np.arange(len(names)) / 7, strict=True))
    stats = idata["sample_stats"].to_dataset()
    like = stats["tour_start"]
    told = {f"check_{n}": xr.full_like(like, v, dtype=float) for n, v in numbers.items()}
    idata["sample_stats"] = xr.DataTree(stats.assign(told))
    assert vars(read_check(idata)) == numbers


@cache
def run():
    return pmt.sample(
        300, model=system("gaussian").model, chains=2, cores=1, random_seed=1, check_looks=60,
        quiet=True, progressbar=False,
    )  # fmt: skip


@pytest.mark.slow("compiles models of its own")
def test_a_run_says_which_looks_arrived_and_how_high_they_ended():
    group = run()["tempering_check"].to_dataset()
    assert group["arrived"].dtype == bool
    check = estimate_quietly(run()).check
    assert check.n_arrived == int(group["arrived"].sum()) == read_check(run()).n_arrived
    assert 20 <= check.n_arrived <= check.n_looks
    assert group["log_posterior"].attrs["units"] == "nats"
    ends = evaluate_states(prior("gaussian"), run()["tempering_looks"]["x"].values)
    np.testing.assert_allclose(group["log_posterior"], ends.log_target, rtol=1e-10)
    np.testing.assert_allclose(group["log_likelihood"], ends.log_likelihood, rtol=1e-10)


@pytest.mark.slow("compiles models of its own")
def test_a_run_says_what_its_passes_were():
    check, attrs = estimate_quietly(run()).check, run()["tempering"].attrs
    assert check.n_passes == attrs["passes"] >= 3
    fresh = read_check(run())
    assert abs(fresh.pass_log_z - system("gaussian").log_evidence) < max(6 * fresh.pass_mcse, 0.5)
    assert check.settled
    assert re.match(rf"agreed: {check.n_arrived} of {check.n_looks} looks", str(check))
