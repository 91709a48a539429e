"""Whatever a user has, times whatever is wanted of it: it works, or a sentence names what does.

A new want is one row of `WANTS`, a new thing to have one of `THINGS`. A pair that cannot work has a
row in `SENTENCES`, with the sentence that the user gets; every other pair has to work.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats
from support.drawn import all_drawn, points

import pymc_tempering as pmt

Y = np.array([0.3, 1.2, -0.4, 0.9, 2.0])
SCALES = (1.0, 4.0)
"""Standard deviations of the prior of the two models that are compared."""
SAMPLER = {"chains": 4, "cores": 1, "random_seed": 1, "progressbar": False}


@cache
def normal_mean(scale):
    """x ~ N(0, scale), five observations of sd 1; the scale is data, so both are the same code."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, pm.Data("scale", scale))
        pm.Normal("y", x, 1.0, observed=Y)
    return model


def exact(scale):
    return float(stats.multivariate_normal(np.zeros(5), np.eye(5) + scale**2).logpdf(Y))


@dataclass(frozen=True)
class Thing:
    """What a user has, and the model to pass with it, if one is needed."""

    value: Any
    model: Any = None


def tempered(scale, folder):
    return Thing(pmt.sample(500, model=normal_mean(scale), quiet=True, **SAMPLER))


def nuts(scale, folder):
    model = normal_mean(scale)
    idata = pm.sample(
        500, tune=500, model=model, quiet=True, compute_convergence_checks=False, **SAMPLER
    )
    return Thing(idata, model)


def smc(scale, folder):
    with normal_mean(scale):
        return Thing(pm.sample_smc(500, compute_convergence_checks=False, **SAMPLER))


def fit(scale, folder):
    return Thing(
        pmt.fit(
            3000, "advi", normal_mean(scale), approx="fullrank", random_seed=1, progressbar=False,
            obj_optimizer=pm.adam(learning_rate=0.02),
        )
    )  # fmt: skip


def stored_fit(scale, folder):
    return Thing(pmt.to_datatree(things("fit", scale, folder).value, draws=50, random_seed=1))


def read_whole(path):
    with xr.open_datatree(path) as tree:
        return tree.load()


def file(scale, folder):
    path = folder / f"run{scale}.nc"
    things("tempered", scale, folder).value.to_netcdf(path)
    return Thing(read_whole(path))


def evidence(scale, folder):
    return Thing(pmt.log_marginal_likelihood(things("tempered", scale, folder).value))


def cross_check(scale, folder):
    thing = things("nuts", scale, folder)
    methods = ["bridge_sampling", "importance_sampling"]
    return Thing(pmt.cross_check(thing.value, thing.model, methods, random_seed=1))


def model_alone(scale, folder):
    return Thing(normal_mean(scale))


THINGS = {
    "tempered": tempered,
    "nuts": nuts,
    "smc": smc,
    "fit": fit,
    "stored fit": stored_fit,
    "file": file,
    "evidence": evidence,
    "cross_check": cross_check,
    "model alone": model_alone,
}
VERDICTS = {"fit": "unchecked", "stored fit": "unchecked"}
"""Verdicts other than "ok": a fit does not see the modes that it missed."""


@cache
def things(name, scale, folder):
    return THINGS[name](scale, folder)


def log_z(name, folder):
    thing = things(name, SCALES[0], folder)
    found = pmt.log_marginal_likelihood(thing.value, thing.model, random_seed=1)
    # |z| < 4 in eight estimates: false alarm 5e-4, seeds fixed; a fit of a normal is exact
    assert abs(found.log_z - exact(SCALES[0])) < 4.0 * found.mcse + 1e-3 < 0.3
    assert found.verdict == VERDICTS.get(name, "ok")


def compare(name, folder):
    pair = {f"scale {s:g}": things(name, s, folder) for s in SCALES}
    table = pmt.compare(
        {label: thing.value for label, thing in pair.items()},
        models={label: thing.model for label, thing in pair.items() if thing.model is not None},
        random_seed=1,
    )
    assert list(table.index) == ["scale 1", "scale 4"]
    odds = np.exp(exact(SCALES[1]) - exact(SCALES[0]))
    row = table.loc["scale 1"]
    assert abs(row["probability"] - 1.0 / (1.0 + odds)) < 4.0 * row["p_mcse"] + 1e-3
    assert set(table["verdict"]) == {VERDICTS.get(name, "ok")}


def factor(name, folder):
    a, b = (things(name, s, folder) for s in SCALES)
    found = pmt.bayes_factor(a.value, b.value, models=(a.model, b.model), random_seed=1)
    assert abs(found.log_bf - (exact(SCALES[0]) - exact(SCALES[1]))) < 4.0 * found.mcse + 1e-3


def save(name, folder):
    thing = things(name, SCALES[0], folder)
    found = pmt.log_marginal_likelihood(thing.value, thing.model, random_seed=1)
    same_evidence(pmt.evidence.Evidence.from_json(found.to_json()), found)
    path = folder / f"evidence of {name}.nc"
    found.to_datatree().to_netcdf(path)
    read = read_whole(path)
    same_evidence(pmt.evidence.Evidence.from_datatree(read), found)
    if not found.warnings:
        same_evidence(pmt.log_marginal_likelihood(read), found)


def average(name, folder):
    pair = {f"scale {s:g}": things(name, s, folder) for s in SCALES}
    mean = pmt.average(
        {label: thing.value for label, thing in pair.items()},
        models={label: thing.model for label, thing in pair.items()},
        draws=400, random_seed=1,
    )  # fmt: skip
    share = 1.0 / (1.0 + np.exp(exact(SCALES[1]) - exact(SCALES[0])))
    assert abs(mean.attrs["weights"][0] - share) < 4.0 * mean.attrs["weights_mcse"][0] + 1e-3
    x, model = (mean["posterior"][n].values for n in ("x", "model"))
    assert (model == "scale 1").sum() == mean.attrs["counts"][0]
    for label, scale in zip(pair, SCALES, strict=True):  # of a normal mean, |z| < 6 if independent
        variance = 1.0 / (1.0 / scale**2 + len(Y))
        own = x[model == label]
        assert abs(own.mean() - variance * Y.sum()) < 6.0 * np.sqrt(variance / min(own.size, 50))


def point_null(name, folder):
    thing = things(name, SCALES[0], folder)
    found = pmt.savage_dickey(
        thing.value, normal_mean(SCALES[0]), null={"x": 0.0}, random_seed=1, progressbar=False
    )
    null = stats.norm.logpdf(Y).sum()
    assert abs(found.log_bf - (exact(SCALES[0]) - null)) < 4.0 * found.mcse + 1e-3 < 0.3


def sensitivity(name, folder):
    thing = things(name, SCALES[0], folder)
    found = pmt.prior_sensitivity(
        thing.value,
        normal_mean(SCALES[0]),
        {"x": SCALES},
        rerun=False,
        progressbar=False,
        random_seed=1,
    )["x"]
    off = found.log_z - [exact(s) for s in SCALES]
    assert np.all(np.abs(off) < 4.0 * found.mcse + 1e-3)
    assert np.all(found.mcse < 0.1)


def picture(name, folder):
    thing = things(name, SCALES[0], folder)
    if thing.model is None:
        pc = pmt.plot_evidence(thing.value, backend="none")
    else:
        with thing.model:
            pc = pmt.plot_evidence(thing.value, backend="none")
    shown = [
        x
        for (visual, _, _), artist in all_drawn(pc).items()
        if visual.startswith(("estimate", "no_error"))
        for x in points(artist)[0]
    ]
    assert any(abs(x - exact(SCALES[0])) < 0.3 for x in shown)


WANTS = {
    "log Z": log_z,
    "compare": compare,
    "factor": factor,
    "average": average,
    "point null": point_null,
    "sensitivity": sensitivity,
    "save": save,
    "picture": picture,
}

SENTENCES = {
    ("model alone", want): r"a model alone has no draws yet.*pymc_tempering\.sample"
    for want in WANTS
}
SENTENCES |= {
    ("model alone", "average"): r"a \w+ holds no draws.*pymc_tempering\.sample",
    ("evidence", "average"): r"a Evidence holds no draws: pass the run.*in weights=",
    ("cross_check", "average"): r"a CrossCheck holds no draws: pass the run.*in weights=",
    ("fit", "average"): r"pymc_tempering\.to_datatree\(fit\) makes a DataTree",
}
SENTENCES |= {
    (name, "point null"): r"expected .* 'posterior', got .*to_datatree\(fit\) of a fit"
    for name in ("evidence", "cross_check", "fit")
}
SENTENCES |= {
    (
        name,
        "sensitivity",
    ): r"sample with pymc_tempering\.sample\(\), or pass the draws of pm\.sample"
    for name in ("smc", "fit", "stored fit", "evidence", "cross_check")
}
"""What cannot work, and the sentence that names what does."""


def same_evidence(a, b):
    assert a.to_json() == b.to_json()
    assert repr(a) == repr(b)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.mark.slow("compiles models of its own", quick=["tempered-log Z"])
@pytest.mark.filterwarnings(
    "ignore:.*rests on draws around the fit:pymc_tempering.TemperingWarning",
    "ignore:There is one chain:pymc_tempering.TemperingWarning",  # that of a stored fit
    "ignore:.*come without their log density:pymc_tempering.TemperingWarning",
)
@pytest.mark.parametrize("want", WANTS)
@pytest.mark.parametrize("name", THINGS)
def test_it_works_or_a_sentence_names_what_does(name, want, folder):
    sentence = SENTENCES.get((name, want))
    if sentence is None:
        WANTS[want](name, folder)
    else:
        with pytest.raises(pmt.TemperingError, match=sentence):
            WANTS[want](name, folder)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings(
    "ignore:.*rests on draws around the fit:pymc_tempering.TemperingWarning"
)
def test_all_kinds_stand_in_one_table(folder):
    have = {name: things(name, SCALES[0], folder) for name in THINGS if name != "model alone"}
    table = pmt.compare(
        {name: thing.value for name, thing in have.items()},
        models={name: thing.model for name, thing in have.items() if thing.model is not None},
        random_seed=1, check_data=False,
    )  # fmt: skip
    assert table["method"].to_dict() == {
        "tempered": "pooled", "file": "pooled", "evidence": "pooled", "nuts": "bridge_sampling",
        "smc": "pm.sample_smc", "fit": "psis_vi", "stored fit": "psis_vi",
        "cross_check": f"cross_check ({have['cross_check'].value.believe})",
    }  # fmt: skip
    assert table["n_tours"].notna().to_dict() == {
        name: name in ("tempered", "file", "evidence") for name in table.index
    }
    assert np.ptp(table["log_z"]) < 0.3


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", ["nuts", "smc", "fit"])
def test_other_data_are_refused_whatever_they_come_from(name, folder):
    with pm.Model() as other:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Normal("y", x, 1.0, observed=Y + 0.5)
    thing = things(name, SCALES[0], folder)
    draws = xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw"), [[0.0]])})})
    with pytest.raises(
        pmt.exceptions.DataMismatchError, match=r"different observed data in \['y'\]"
    ):
        pmt.compare({"a": thing.value, "b": draws}, models={"b": other})


@pytest.mark.slow("compiles models of its own")
def test_a_run_of_smc_is_saved_without_its_statistics(folder):
    idata = things("smc", SCALES[0], folder).value.copy()
    found = pmt.log_marginal_likelihood(idata)
    idata["evidence"] = found.to_datatree()["evidence"]
    del idata["sample_stats"]
    idata.to_netcdf(folder / "smc.nc")
    same_evidence(pmt.log_marginal_likelihood(read_whole(folder / "smc.nc")), found)
