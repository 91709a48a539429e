"""The DataTree of a run, against one that PyMC builds from the same draws, recorded one by one."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.backends.base import MultiTrace
from support.recorded_draws import recorded_draws

import pymc_tempering as pmt
from pymc_tempering.chain.loop import SCALAR_STATS
from pymc_tempering.core.cycles import LOOK_STATS, RUNG_STATS
from pymc_tempering.evidence.datatree import convert
from pymc_tempering.references.mixture import nearest_component
from pymc_tempering.sampling import finish

TUNE = 7


def rating():
    """An interval, dims, a whole number and a deterministic variable."""
    with pm.Model(coords={"item": ["a", "b", "c"]}) as model:
        level = pm.Uniform("level", -1.0, 3.0)
        effect = pm.Normal("effect", level, 0.5, dims="item")
        pm.Deterministic("odds", np.exp(1.0) ** effect, dims="item")
        pm.Normal("y", effect, 0.4, observed=[0.2, 0.9, 1.4], dims="item")
    return model


def labels():
    with pm.Model() as model:
        where = pm.Normal("where", 0.0, 2.0, shape=2)
        label = pm.Bernoulli("label", 0.4, shape=3)
        pm.Normal("y", where[label], 1.0, observed=[-1.0, 0.4, 2.0])
    return model


@pytest.fixture
def kept(monkeypatch):
    """What the last run handed over to be put into a DataTree."""
    outcomes = []
    build = finish.build_datatree
    monkeypatch.setattr(
        finish, "build_datatree",
        lambda call, outcome, *more: outcomes.append(outcome) or build(call, outcome, *more),
    )  # fmt: skip
    return outcomes


def statistics(schema, per_rung, scalars, component):
    """Statistics of one draw, as `docs/reference/data_layout.md` has them."""
    named = dict(zip(SCALAR_STATS, scalars.tolist(), strict=True))
    stats = dict(zip(RUNG_STATS, per_rung, strict=True)) | {
        "beta": schema.ladder.betas,
        "log_z_ladder": schema.ladder.log_z,
        "log_weight": schema.ladder.log_weights,
        "beta_min": schema.ladder.betas[int(named["lowest_rung"])],
        "model_logp": named["lp"],
        "log_ratio": named["log_ratio"],
        "tour_start": bool(named["tour_start"]),
        "diverging": bool(named["diverging"]),
    }
    for name in ("tempering_steps", "n_steps", "n_divergences", "n_zero_likelihood"):
        stats[name] = int(named[name])
    if schema.fresh is not None:
        stats |= {n: getattr(schema.fresh, n.removeprefix("check_")) for n in LOOK_STATS}
    return stats if component is None else stats | {"component": int(component)}


def one_by_one(outcome, model):
    """All groups that PyMC makes of the runs' records."""
    schema, layout = outcome.chosen.schema, outcome.chosen.plan.reference.path.layout
    traces = []
    for chain, run in enumerate(outcome.runs):
        record, n = run.record, run.state.n_draws
        own = schema.components
        components = None if own is None else nearest_component(own, record.x[:n])
        stats = [
            statistics(schema, record.per_rung[i], record.scalars[i],
                       None if components is None else components[i])
            for i in range(n)
        ]  # fmt: skip
        traces.append(
            recorded_draws(
                model, layout, record.x[:n], chain=chain, stats=stats, dtypes=schema.dtypes
            )
        )
    multi = MultiTrace(traces)
    multi.report._n_tune, multi.report._n_draws = TUNE, len(multi) - TUNE
    return convert(pm.to_inference_data(multi, model=model, save_warmup=True))


def assert_same(found, expected):
    """The same names, dimensions, coordinates, types and bits."""
    xr.testing.assert_identical(found.drop_attrs(deep=False), expected.drop_attrs(deep=False))
    for name, values in expected.variables.items():
        assert found[name].dtype == values.dtype, name


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("build", [rating, labels], ids=lambda build: build.__name__)
def test_all_groups_are_those_that_pymc_makes_of_single_draws(build, kept):
    model = build()
    idata = pmt.sample(
        40, tune=TUNE, chains=2, cores=1, model=model, random_seed=1, quiet=True, keep="states",
        discard_tuned_samples=False, progressbar=False,
        kernel={"label": "gibbs"} if build is labels else None,
    )  # fmt: skip
    [outcome] = kept
    assert ("component" in idata["sample_stats"]) == (build is rating)
    expected = one_by_one(outcome, model)
    groups = ("posterior", "warmup_posterior", "sample_stats", "warmup_sample_stats")
    for group in (*groups, "observed_data"):
        assert_same(idata[group].to_dataset(), expected[group].to_dataset())
    assert idata["posterior"].attrs["tuning_steps"] == TUNE
    layout = outcome.chosen.plan.reference.path.layout
    states = idata["tempering_states"].to_dataset()
    for chain, run in enumerate(outcome.runs):
        x = np.concatenate([part[2] for part in run.hot.parts])
        trace = recorded_draws(model, layout, x)
        for name in expected["posterior"].data_vars:
            found = states[name].values[chain]
            np.testing.assert_array_equal(found[: len(x)], trace.samples[name])
            first = recorded_draws(model, layout, run.record.x[:1]).samples[name]
            assert (found[len(x) :] == first).all()


@pytest.mark.slow("compiles models of its own")
def test_ends_of_looks_are_variables_of_the_posterior(kept):
    model = rating()
    idata = pmt.sample(
        40, tune=TUNE, chains=2, cores=1, model=model, random_seed=1, quiet=True, progressbar=False
    )
    [outcome] = kept
    looks, posterior = idata["tempering_looks"].to_dataset(), idata["posterior"].to_dataset()
    assert looks.sizes["look"] == idata["tempering_check"].sizes["look"]
    assert looks["item"].identical(posterior["item"])
    trace = recorded_draws(
        model, outcome.chosen.plan.reference.path.layout, outcome.chosen.last.looks.ends.xs
    )
    for name, draws in posterior.data_vars.items():
        assert looks[name].dims == ("look", *draws.dims[2:])
        np.testing.assert_array_equal(looks[name].values, trace.samples[name])
