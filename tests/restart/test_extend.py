"""Draws that are added to a run are those of a longer one, from its DataTree alone."""

import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from support.kept_checkpoints import assert_same, run

import pymc_tempering as pmt
from pymc_tempering.core.findings import Finding
from pymc_tempering.evidence.datatree import findings_of
from pymc_tempering.exceptions import (
    CheckpointError,
    ModelError,
    NotTemperedError,
    TemperingWarning,
)
from pymc_tempering.sampling import finish
from pymc_tempering.storage.plain_values import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore:The draws tell too little")

CASES = {
    "prior": {"reference": "prior", "keep": "states", "tune": 6, "reference_draws": 0},
    "auto": {"reference": "auto", "keep": "states", "reference_draws": 2100},
    "warm-up kept": {"keep": None, "tune": 5, "discard_tuned_samples": False, "chains": 2},
}


@pytest.fixture(scope="module")
def runs(model):
    made = {}

    def make(name, draws):
        if (name, draws) not in made:
            made[name, draws] = run(model, draws=draws, **CASES[name])
        return made[name, draws]

    return make


def extend(idata, draws, model, **kwargs):
    return pmt.extend(idata, draws=draws, model=model, quiet=True, **kwargs)


def stored(idata, path, form):
    """Write and read again, without the objects that made it."""
    if form == "memory":
        return idata
    if form == "netcdf":
        idata.to_netcdf(path, engine="h5netcdf")
        return xr.open_datatree(path, engine="h5netcdf")
    idata.to_zarr(path)
    return xr.open_datatree(path, engine="zarr")


@pytest.mark.slow("interrupts and restarts")
@pytest.mark.parametrize("form", ["memory", "netcdf", "zarr"])
@pytest.mark.parametrize("name", CASES)
def test_the_draws_are_those_of_a_longer_run(runs, model, tmp_path, name, form):
    """Stronger than one law: new draws continue the chains, bit by bit."""
    short, long = runs(name, 300), runs(name, 700)
    back = stored(short, tmp_path / "run", form)
    longer = extend(back, 400, model)
    assert_same(long, longer)
    one, other = (pmt.log_marginal_likelihood(each) for each in (long, longer))
    assert (one.log_z, one.mcse, one.n_tours) == (other.log_z, other.mcse, other.n_tours)
    if CASES[name]["keep"] is not None:
        one, other = (pmt.log_marginal_likelihood(each, method="mbar") for each in (long, longer))
        assert one.log_z == other.log_z
        mean = {"mean": lambda x: x["mu"]}
        one, other = (pmt.expectation(each, mean) for each in (long, longer))
        xr.testing.assert_equal(one, other)
    assert short.posterior.sizes["draw"] == 300
    assert longer["tempering"].attrs["extended_after"] == "[300]"
    if form != "memory":
        back.close()


@pytest.mark.slow("interrupts and restarts")
def test_what_is_noticed_at_the_new_draws_makes_the_verdict(runs, model, monkeypatch):
    """Planted: with the attribute of the old draws alone, nothing is found."""
    short, finding = runs("prior", 300), Finding("sum_without_end", "n", "20", "unchecked")
    monkeypatch.setattr(finish, "findings_at", lambda path, xs: (finding,))
    with pytest.warns(TemperingWarning, match="'n' is summed to 20"):
        longer = extend(short, 100, model)
    assert finding not in findings_of(short)
    assert finding in findings_of(longer)


@pytest.mark.slow("interrupts and restarts")
def test_it_goes_on_and_on(runs, model, tmp_path):
    once = extend(runs("auto", 300), 150, model)
    twice = extend(stored(once, tmp_path / "run", "netcdf"), 250, model, cores=1)
    assert_same(runs("auto", 700), twice)
    assert twice["tempering"].attrs["extended_after"] == "[300, 450]"


def test_without_generators_it_is_no_longer_run(runs, model):
    """Planted: chains that begin with generators of their own."""
    from pymc_tempering.sampling import kept

    restore = kept.read_chains

    def forgetful(*args):
        chains, more = restore(*args)
        for chain in chains:
            chain.state.rng = np.random.default_rng(1)
        return chains, more

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_tempering.sampling.restart.read_chains", forgetful)
        longer = extend(runs("auto", 300), 400, model)
    with pytest.raises(AssertionError):
        assert_same(runs("auto", 700), longer)


@pytest.mark.slow("other processes")
def test_another_process_extends_it(runs, tmp_path):
    stored(runs("auto", 300), tmp_path / "run.nc", "netcdf").close()
    script = (
        "import sys, xarray as xr, pymc_tempering as pmt\n"
        "from conftest import make_model\n"
        "idata = xr.open_datatree(sys.argv[1], engine='h5netcdf')\n"
        "longer = pmt.extend(idata, draws=400, model=make_model(), quiet=True)\n"
        "longer.to_netcdf(sys.argv[2], engine='h5netcdf')\n"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    subprocess.run(
        [sys.executable, "-c", script, tmp_path / "run.nc", tmp_path / "longer.nc"], check=True,
        env=os.environ | {"PYTHONPATH": path}, timeout=300,
    )  # fmt: skip
    with xr.open_datatree(tmp_path / "longer.nc", engine="h5netcdf") as longer:
        assert_same(runs("auto", 700), longer)


def test_chains_of_unequal_length_lose_no_draw(model, monkeypatch):
    """After Ctrl-C the DataTree has the draws that all chains have; the others are kept beside."""
    from pymc_tempering.sampling import rounds

    original = rounds.run_chains

    def stopped(plan, runs, n_draws, **kwargs):
        for i, chain in enumerate(runs):
            original(plan, [chain], 60 + 17 * i, **kwargs)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "run_chains", stopped)
        with pytest.warns(pmt.TemperingWarning, match="Interrupted: the chains had drawn"):
            part = run(model, draws=400, reference="prior", keep="states", reference_draws=0)
    assert part.posterior.sizes["draw"] < 400
    n = part.posterior.sizes["draw"]
    kept = part.posterior["chain"].values
    longer = extend(part, 400 - n, model)
    whole = run(model, draws=400, reference="prior", keep="states", reference_draws=0).isel(
        chain=kept
    )
    np.testing.assert_array_equal(longer.posterior["mu"].values, whole.posterior["mu"].values)
    assert pmt.log_marginal_likelihood(longer, method="mbar").log_z == pytest.approx(
        pmt.log_marginal_likelihood(whole, method="mbar").log_z, abs=1e-12
    )


def test_groups_of_the_old_draws_alone_are_left_out_and_said(runs, model):
    idata = runs("auto", 300).copy()
    evidence = pmt.log_marginal_likelihood(idata)
    idata["evidence"] = evidence.to_datatree()
    idata["posterior_predictive"] = xr.DataTree(
        idata["posterior"].to_dataset()[["mu"]].rename(mu="y")
    )
    with pytest.warns(pmt.TemperingWarning, match="Left out of the longer run, .*: .*evidence"):
        longer = extend(idata, 50, model)
    assert not {"evidence", "posterior_predictive"} & set(longer.children)
    assert "tempering_check" in longer.children


def poisson():
    with pm.Model() as model:
        n = pm.Poisson("n", 3.0)
        pm.Binomial("y", n + 5, 0.4, observed=[2, 4])
    return model


@pytest.mark.slow("interrupts and restarts")
def test_discrete_models_are_extended_and_resumed(tmp_path):
    model = poisson()
    long = run(model, tmp_path / "run.zarr", draws=300, reference_draws=0)
    longer = extend(run(model, draws=100, reference_draws=0), 200, model)
    assert_same(long, longer)
    assert_same(long, pmt.resume(tmp_path / "run.zarr", model=model, quiet=True))


def no_plan(idata):
    return idata.filter(lambda node: node.name != "tempering_plan")


def of_version(idata):
    tree = idata.copy()
    plan = tree["tempering_plan"].to_dataset()
    words, arrays = unpack(plan["about"].values.tobytes())
    words["dict"]["versions"]["dict"]["pymc_tempering"] = "9.9"
    about = np.frombuffer(pack(words, arrays), dtype=np.uint8)
    tree["tempering_plan"] = xr.DataTree(plan.drop_vars("about").assign(about=("bytes", about)))
    return tree


@pytest.mark.parametrize(
    ("change", "kwargs", "error", "words"),
    [
        (lambda t: t, {"draws": 0}, ValueError, "draws must be a whole number of at least 1"),
        (lambda t: t, {"draws": -5}, ValueError, "draws must be a whole number of at least 1"),
        (lambda t: t, {"draws": 2.5}, ValueError, "draws must be a whole number of at least 1"),
        (lambda t: t, {"model": None}, ModelError, "No model: call this inside"),
        (
            lambda t: t.posterior,
            {},
            NotTemperedError,
            "of a run|no group 'tempering_plan'",
        ),
        (
            lambda t: None,
            {},
            NotTemperedError,
            "takes the DataTree of a run, not NoneType",
        ),
        (no_plan, {}, NotTemperedError, "no group 'tempering_plan'"),
        (
            lambda t: t.isel(draw=slice(0, 90)),
            {},
            NotTemperedError,
            "4 chains of 90 draws",
        ),
        (
            lambda t: t.isel(chain=[0, 1]),
            {},
            NotTemperedError,
            "2 chains of 300 draws",
        ),
        (
            of_version,
            {},
            CheckpointError,
            r"begun with pymc_tempering 9\.9 \(here .*go on with it where",
        ),
        (
            lambda t: t,
            {"other": {"observed": (1.0, 2.0)}},
            CheckpointError,
            "the data 'y'",
        ),
        (
            lambda t: t,
            {"other": {"scale": 3.0}},
            CheckpointError,
            "the terms 'mu', 'y'",
        ),
        (
            lambda t: t,
            {"kernel": "slice"},
            CheckpointError,
            "has the kernels hmc for mu",
        ),
    ],
)
def test_broken_trees_get_a_clear_error(runs, model, other_model, change, kwargs, error, words):
    kwargs = {"draws": 10, "model": model, "quiet": True} | kwargs
    if "other" in kwargs:
        kwargs["model"] = other_model(**kwargs.pop("other"))
    with pytest.raises(error, match=words):
        pmt.extend(change(runs("auto", 300)), **kwargs)
