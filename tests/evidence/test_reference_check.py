"""The verdict of looks on a fitted reference, what it says, and how it travels with the draws."""

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import logsumexp
from support.compiled_systems import system
from support.look_checks import checked, leg, looks
from support.repeated_runs import with_stats

import pymc_tempering as pmt
from pymc_tempering.core.cycles import LOOK_STATS, FreshLooks
from pymc_tempering.evidence.datatree import read_check
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.reference_check import (
    MARGIN,
    SPREADS,
    compare_looks,
    no_looks,
    summarize_looks,
    suspect_above,
)

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


def test_looks_that_agree_change_nothing_but_the_check():
    after = checked(looks(0.1))
    assert after.check.verdict == "agreed"
    assert after.check.reasons == ()
    assert after.check.difference == pytest.approx(0.1)
    assert replace(after, check=None).__dict__ == leg().__dict__


@pytest.mark.parametrize("n", [0, 50, 99])
def test_too_few_looks_leave_the_run_unchecked(n):
    after = checked(looks(n=n))
    assert after.check.verdict == after.verdict == "unchecked"
    assert after.mcse == leg().mcse
    assert after.log_z == leg().log_z
    assert len(after.warnings) == 1
    assert after.warnings[0].startswith(f"{n or 'No'} looks")
    assert "100 were asked for" in after.warnings[0]


def test_a_higher_log_z_of_the_looks_disagrees():
    error = float(np.hypot(leg().mcse, 0.05))
    assert checked(looks(3.9 * error)).verdict == "ok"
    after = checked(looks(4.1 * error))
    assert after.verdict == after.check.verdict == "disagreed"
    assert after.mcse == pytest.approx(4.1 * error)
    assert f"{4.1 * error:.2f} nats, {error:.2f} expected" in after.warnings[0]


def test_a_lower_log_z_does_not():
    """Looks that miss a mode state too little."""
    after = checked(looks(-30.0))
    assert after.verdict == "ok"
    assert after.mcse == leg().mcse
    assert after.check.difference == pytest.approx(-30.0)


def test_looks_that_end_elsewhere_disagree():
    after = checked(looks(-0.3, strange=7))
    assert after.verdict == "disagreed"
    assert "7 of 100 looks ended where the reference hardly goes" in after.warnings[0]
    assert after.mcse == np.inf  # nobody knows the mass of what they found
    assert "infinite" in after.warnings[0]


def test_where_the_weights_give_no_log_z_the_error_is_infinite():
    rough = FreshLooks(np.nan, np.inf, 100.0, 100.0, 2.0, 60.0)
    after = checked(rough)
    assert after.verdict == "disagreed"
    assert after.mcse == np.inf
    assert checked(replace(rough, n_strange=0.0)).verdict == "ok"


def test_a_disagreement_outweighs_looks_that_are_too_few_and_both_reasons_are_said():
    after = checked(looks(5.0, n=60, strange=3))
    assert after.verdict == "disagreed"
    assert len(after.check.reasons) == 2
    assert all(reason in after.warnings[0] for reason in after.check.reasons)
    assert "were asked for" not in after.warnings[0]


def test_the_mcse_is_never_smaller_than_before_and_the_curve_follows_it():
    wide = replace(leg(), mcse=9.0)
    assert checked(replace(looks(8.0), mcse=0.01), replace(wide, mcse=1.9)).mcse == pytest.approx(
        8.0
    )
    assert checked(replace(looks(37.0), mcse=0.01), wide).mcse == pytest.approx(37.0)
    after = checked(looks(2.0))
    assert after.mcse == pytest.approx(2.0)
    assert after.log_z_curve_mcse[0] == leg().log_z_curve_mcse[0] == 0.0
    assert (after.log_z_curve_mcse[1:] >= after.mcse).all()
    np.testing.assert_array_equal(after.log_z_curve, leg().log_z_curve)


def test_a_run_with_an_alarm_of_its_own_stays_unchecked():
    alarmed = replace(leg(), verdict="unchecked", warnings=("Too few tours.",))
    after = checked(looks(strange=1), alarmed)
    assert after.verdict == "unchecked"
    assert after.warnings[1:] == ("Too few tours.",)
    assert checked(looks(), alarmed).verdict == "unchecked"


def test_the_check_says_what_its_numbers_mean():
    check = checked(looks()).check
    assert check.missed == pytest.approx(3 / 60)
    assert str(check).startswith("agreed: 60 of 100 looks from the prior arrived")
    assert "0.05 of those that arrive" in str(check)
    assert "no bound" in str(check)
    assert str(check) in repr(checked(looks()))
    assert (1 - check.missed) ** check.n_arrived == pytest.approx(0.05, abs=0.005)
    nothing = compare_looks(leg(), no_looks(100))
    assert (nothing.verdict, nothing.n_looks, nothing.missed) == ("unchecked", 0, 1.0)


def test_the_summary_is_the_mean_of_the_weights_and_its_error():
    log_w = np.random.default_rng(1).normal(-3.0, 0.5, 100)
    fresh = summarize_looks(log_w, 4, 80, 70, np.zeros(3))
    w = np.exp(log_w)
    assert fresh.log_z == pytest.approx(logsumexp(log_w) - np.log(100))
    assert fresh.mcse == pytest.approx(w.std(ddof=1) / 10 / w.mean())
    assert (fresh.n_looks, fresh.needed, fresh.n_strange) == (100.0, 80.0, 4.0)
    assert fresh.n_arrived == 70.0


@pytest.mark.parametrize("log_w", [np.arange(100.0) * 3, np.full(100, -np.inf)])
def test_uneven_weights_give_no_log_z(log_w):
    fresh = summarize_looks(log_w, 0, 100, 60, np.full(3, leg().log_z))
    assert np.isnan(fresh.log_z)
    assert fresh.mcse == np.inf
    assert checked(fresh).verdict == "ok"


def test_planted_bugs_of_the_comparison_are_seen():
    """Of the side, of the threshold, and of the strange looks."""
    error = float(np.hypot(leg().mcse, 0.05))
    verdicts = [
        compare_looks(leg(), fresh).verdict
        for fresh in (looks(5 * error), looks(-5 * error), looks(strange=1))
    ]
    assert verdicts == ["disagreed", "agreed", "disagreed"]
    turned = [
        compare_looks(leg(), replace(fresh, log_z=2 * leg().log_z - fresh.log_z)).verdict
        for fresh in (looks(5 * error), looks(-5 * error))
    ]
    assert turned == ["agreed", "disagreed"]


def test_suspects_are_told_from_the_spread_of_draws():
    assert suspect_above(np.zeros(11)) == MARGIN
    wide = np.linspace(-10.0, 10.0, 101)
    assert suspect_above(wide) == pytest.approx(SPREADS * 8.0)
    assert suspect_above(wide - 7.0) == pytest.approx(suspect_above(wide) - 7.0)


def test_draws_of_a_lost_mode_do_not_lift_the_bar():
    """A third of the draws 23 nats above the others, as in a mode that the fit has lost."""
    log_ratio = np.concatenate([np.linspace(-1.0, 1.0, 200), np.full(100, 23.0)])
    assert suspect_above(log_ratio) < 10.0
    assert suspect_above(np.append(log_ratio, np.full(20, -np.inf))) < 10.0


@cache
def run(door):
    model = system("gaussian").model
    if door == "step":
        step = pmt.SimulatedTempering(model=model, random_seed=1, check_looks=60)
        return pm.sample(300, step=step, model=model, chains=2, cores=1, random_seed=2, **QUIET)
    return pmt.sample(300, model=model, chains=2, cores=1, random_seed=1, check_looks=60, **QUIET)


both_doors = pytest.mark.parametrize("door", ["step", "sample"])


@both_doors
def test_every_draw_carries_the_summary(door):
    stats = run(door)["sample_stats"].to_dataset()
    for name in LOOK_STATS:
        assert stats[name].shape == (2, 300)
        assert np.unique(stats[name]).size == 1
    fresh = read_check(run(door))
    assert (fresh.n_looks, fresh.needed, fresh.n_strange) == (60.0, 60.0, 0.0)
    assert abs(fresh.log_z - system("gaussian").log_evidence) < 4 * fresh.mcse
    evidence = pmt.log_marginal_likelihood(run(door))
    assert evidence.check.verdict == "agreed"
    assert evidence.check.n_looks == 60


@both_doors
@pytest.mark.parametrize("storage", ["netcdf", "zarr", "pickle"])
def test_storage_keeps_the_check(door, storage, tmp_path):
    idata, path = run(door), tmp_path / "run"
    if storage == "pickle":
        back = pickle.loads(pickle.dumps(idata))
    else:
        engine = {"netcdf": "h5netcdf"}.get(storage, "zarr")
        write = idata.to_netcdf if storage == "netcdf" else idata.to_zarr
        write(path, **({"engine": engine} if storage == "netcdf" else {}))
        back = xr.open_datatree(path, engine=engine)
    assert vars(read_check(back)) == vars(read_check(idata))
    assert str(pmt.log_marginal_likelihood(back).check) == str(
        pmt.log_marginal_likelihood(idata).check
    )
    back.close()


@both_doors
def test_strange_looks_in_a_stored_run_are_heard(door):
    spoilt = with_stats(run(door), check_n_strange=lambda values: values + 2.0)
    with pytest.warns(pmt.TemperingWarning, match="2 of 60 looks ended"):
        evidence = pmt.log_marginal_likelihood(spoilt)
    assert evidence.verdict == "disagreed"
    assert estimate_quietly(run(door)).verdict == "ok"


def test_a_run_from_the_prior_has_no_check():
    idata = pmt.sample(
        50, model=system("gaussian").model, random_seed=1, cores=1, reference="prior", **QUIET
    )
    assert read_check(idata) is None
    assert "tempering_check" not in idata.children


def test_the_looks_themselves_are_in_a_group():
    group, fresh = run("sample")["tempering_check"].to_dataset(), read_check(run("sample"))
    assert set(group.data_vars) == {
        "log_ratio", "log_weight", "log_likelihood", "log_posterior", "arrived",
    }  # fmt: skip
    assert group.sizes == {"look": 60}
    log_w = group["log_weight"].values
    assert logsumexp(log_w) - np.log(60) == pytest.approx(fresh.log_z)
    assert np.isfinite(group["log_likelihood"]).all()
    assert group["log_ratio"].attrs["units"] == "nats"
    top = run("sample")["sample_stats"]["log_ratio"].values.max()
    assert group["log_ratio"].values.max() < top + 3.0
