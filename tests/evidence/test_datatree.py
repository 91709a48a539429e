"""Both forms of a run say the same, survive storage, and broken ones are refused with advice."""

import pickle

import numpy as np
import pytest
import xarray as xr
from support.repeated_runs import join_chains, with_stats
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.exceptions import LadderError, NotTemperedError


@pytest.fixture
def run():
    idata = gaussian_run(100, 3, random_seed=1)
    idata.attrs["origin"] = "here"
    idata["sample_stats"].attrs["sampling_time"] = 1.5
    return idata


def assert_same_numbers(a, b):
    first, second = read_cycles(a), read_cycles(b)
    for name in vars(first):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)


def test_converted_run_says_the_same(run):
    before = run.copy(deep=True)
    tidy = pmt.convert(run)
    xr.testing.assert_identical(run, before)
    assert_same_numbers(run, tidy)
    stats = tidy["sample_stats"].to_dataset()
    assert {stats[name].dims for name in RUNG_STATS} == {("chain", "draw", "rung")}
    assert not [dim for dim in stats.variables if str(dim).endswith("_dim_0")]
    np.testing.assert_array_equal(stats["visits"]["beta"], [0.0, 0.03, 0.12, 0.4, 1.0])
    visits = stats["visits"].sel(rung=stats["beta"] == 0.4).sum()
    assert visits == before["sample_stats"]["visits"].values[..., 3].sum()
    assert (tidy.attrs, stats.attrs) == ({"origin": "here"}, {"sampling_time": 1.5})


def test_tempering_group_holds_the_ladder(run):
    group = pmt.convert(run)["tempering"]
    stats = read_cycles(run)
    np.testing.assert_array_equal(group["beta"], stats.beta)
    np.testing.assert_array_equal(group["log_z"], stats.log_z_ladder)
    np.testing.assert_array_equal(group["log_weight"], stats.log_weight)


def test_convert_is_idempotent_and_keeps_what_others_stored(run):
    tidy = pmt.convert(run)
    xr.testing.assert_identical(pmt.convert(tidy), tidy)
    group = tidy["tempering"].to_dataset().assign(step_size=("rung", np.arange(5.0)))
    tidy["tempering"] = xr.DataTree(group)
    tidy["tempering"].attrs["reference"] = "prior"
    again = pmt.convert(tidy)
    assert again["tempering"]["step_size"].values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert again["tempering"].attrs == {"reference": "prior"}


def test_tuning_draws_are_converted_too(run):
    run["warmup_sample_stats"] = run["sample_stats"].copy()
    tidy = pmt.convert(run)
    assert tidy["warmup_sample_stats"]["rb_weight"].dims == ("chain", "draw", "rung")


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("storage", ["netcdf", "zarr", "pickle"])
def test_storage_keeps_the_evidence(run, tmp_path, storage, converted):
    idata = pmt.convert(run) if converted else run
    path = tmp_path / "run"
    if storage == "netcdf":
        idata.to_netcdf(path, engine="h5netcdf")
        back = xr.open_datatree(path, engine="h5netcdf")
    elif storage == "zarr":
        idata.to_zarr(path)
        back = xr.open_datatree(path, engine="zarr")
    else:
        back = pickle.loads(pickle.dumps(idata))
    assert_same_numbers(idata, back)
    xr.testing.assert_equal(pmt.convert(back), pmt.convert(run))
    assert pmt.log_marginal_likelihood(back).log_z == pmt.log_marginal_likelihood(run).log_z
    back.close()


def test_order_of_dimensions_does_not_matter(run):
    turned = run.copy()
    stats = run["sample_stats"].to_dataset()
    turned["sample_stats"] = xr.DataTree(
        stats.map(lambda v: v.transpose(*v.dims[::-1])).transpose("draw", ..., "chain")
    )
    assert_same_numbers(run, turned)
    tidy = pmt.convert(run)
    tidy["sample_stats"] = xr.DataTree(tidy["sample_stats"].to_dataset().transpose("rung", ...))
    assert_same_numbers(run, tidy)


def test_a_part_of_the_run_is_a_run(run):
    part = run.isel(chain=[2, 0], draw=slice(10, 60))
    whole = read_cycles(run)
    np.testing.assert_array_equal(read_cycles(part).rb_weight, whole.rb_weight[[2, 0], 10:60])


@pytest.mark.parametrize("missing", ["rb_weight", "beta", "tour_start"])
def test_missing_statistics_are_named_with_advice(run, missing):
    run["sample_stats"] = xr.DataTree(run["sample_stats"].to_dataset().drop_vars(missing))
    for reads in (pmt.convert, pmt.log_marginal_likelihood, pmt.diagnose, pmt.plot_ladder):
        with pytest.raises(NotTemperedError, match=rf"'{missing}'.*SimulatedTempering"):
            reads(run)


def test_what_is_not_a_run_is_refused(run):
    with pytest.raises(NotTemperedError, match="got dict"):
        pmt.convert({"sample_stats": 1})
    with pytest.raises(NotTemperedError, match="no group 'sample_stats'"):
        pmt.convert(xr.DataTree.from_dict({"posterior": run["posterior"].to_dataset()}))
    with pytest.raises(NotTemperedError, match="draws >= 1"):
        pmt.convert(run.isel(draw=slice(0, 0)))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda idata: idata.isel(draw=slice(None, None, 2)),
        lambda idata: idata.isel(draw=slice(None, None, -1)),
    ],
)
def test_draws_that_do_not_follow_each_other_are_refused(run, spoil):
    with pytest.raises(NotTemperedError, match="not consecutive"):
        read_cycles(spoil(run))


def test_a_lost_dimension_is_refused_with_advice(run):
    with pytest.raises(NotTemperedError, match=r"isel\(chain=\[0\]\)"):
        read_cycles(run.isel(chain=0))


def test_shapes_that_do_not_fit_the_ladder_are_refused(run):
    with pytest.raises(NotTemperedError, match=r"'visits'\] has shape"):
        read_cycles(run.isel(visits_dim_0=slice(0, 4)))


def test_runs_with_different_ladders_are_refused():
    runs = gaussian_run(50, 2), gaussian_run(50, 2, betas=[0.0, 0.02, 0.12, 0.4, 1.0])
    with pytest.raises(LadderError, match="each run apart"):
        read_cycles(join_chains(*runs))


@pytest.mark.parametrize(
    "ladder", [[0.0, 0.5, 0.4, 0.6, 1.0], [0.1, 0.2, 0.3, 0.4, 1.0], [0.0, 0.1, 0.2, 0.3, 0.9]]
)
def test_a_ladder_must_increase_from_zero_to_one(run, ladder):
    with pytest.raises(LadderError, match="from 0 to 1"):
        read_cycles(with_stats(run, beta=lambda values: values * 0.0 + np.array(ladder)))
