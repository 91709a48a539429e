"""Each kind of input by itself: what its verdict rests on, odd shapes, and what is refused."""

import re
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from pytensor import config
from scipy import stats
from scipy.special import logsumexp
from support.compiled_systems import system
from support.drawn import drawn, points
from support.exact_posteriors import (
    autoregressive,
    mode_draws,
    posterior_tree,
    two_modes,
    with_log_density,
)
from support.small_models import mean_only
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering.comparison import marginal_likelihood as doors
from pymc_tempering.crosscheck.judge import Entry
from pymc_tempering.crosscheck.result import assemble, to_dataset
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.estimators import OWN
from pymc_tempering.evidence.result import LookCheck


def smc_tree(stages, posterior=None, n=200):
    """What ``pm.sample_smc`` returns for the log Z of the stages of each chain."""
    if posterior is None:
        posterior = np.random.default_rng(1).normal(size=(len(stages), n))
    if len(stages) == 1:
        values = ("chain", np.array(stages[0]))  # the stages, along a dimension named chain
    else:
        table = np.empty(len(stages), dtype=object)
        table[:] = stages
        values = ("chain", table)
        if len({len(chain) for chain in stages}) == 1:
            values = (("chain", "stage"), np.array(stages, dtype=object))
    tree = posterior_tree(x=posterior)
    tree["sample_stats"] = xr.DataTree(xr.Dataset({"log_marginal_likelihood": values}))
    return tree


NAN = float("nan")


@pytest.mark.parametrize(
    "stages",
    [
        [[NAN, -3.0], [NAN, NAN, -3.2], [NAN, -2.9], [-3.1]],
        [[NAN, -3.0], [NAN, -3.2], [NAN, -2.9], [NAN, -3.1]],
        [[-3.0], [-3.2], [-2.9], [-3.1]],
    ],
    ids=["ragged", "table", "one stage"],
)
def test_all_shapes_of_a_run_of_smc_are_read(stages):
    found = pmt.log_marginal_likelihood(smc_tree(stages))
    np.testing.assert_array_equal(found.per_chain, [-3.0, -3.2, -2.9, -3.1])
    assert found.log_z == pytest.approx(logsumexp([-3.0, -3.2, -2.9, -3.1]) - np.log(4))
    assert (found.verdict, found.method) == ("ok", "pm.sample_smc")
    assert found.n_tours == 0
    assert "tours" not in repr(found)


def test_one_chain_of_smc_has_no_error_and_two_have_a_guess():
    with pytest.warns(pmt.TemperingWarning, match="one chain.*there is no error.*chains=4"):
        one = pmt.log_marginal_likelihood(smc_tree([[NAN, NAN, -3.0]]))
    assert (one.log_z, one.mcse, one.verdict) == (-3.0, np.inf, "unchecked")
    assert one.per_chain.tolist() == [-3.0]
    with pytest.warns(pmt.TemperingWarning, match="3 chains.*a guess"):
        three = pmt.log_marginal_likelihood(smc_tree([[-3.0], [-3.1], [-3.2]]))
    assert three.verdict == "unchecked"
    assert 0.05 < three.mcse < 0.3


def test_a_chain_of_smc_that_did_not_arrive_is_refused():
    tree = smc_tree([[NAN, -3.0], [NAN, NAN], [NAN, -3.1], [NAN, -3.2]])
    with pytest.raises(pmt.TemperingError, match=r"chains \[1\].*beta = 1"):
        pmt.log_marginal_likelihood(tree)


def test_chains_of_smc_in_different_places_disagree():
    rng = np.random.default_rng(2)
    apart = rng.normal(size=(4, 200)) + 3.0 * np.array([[0], [0], [0], [1]])
    with pytest.warns(pmt.TemperingWarning, match="R-hat.*'x'.*different parts"):
        found = pmt.log_marginal_likelihood(smc_tree([[-3.0], [-3.1], [-3.2], [-3.1]], apart))
    assert found.verdict == "disagreed"


def coverage(n_chains, monkeypatch, repeats=4000):
    """Share of 95 % intervals that hold log Z, where log Z of each chain has an sd of 0.2."""
    runs = iter(np.random.default_rng(3).normal(-0.02, 0.2, size=(repeats, n_chains)))  # E[Z] = 1
    monkeypatch.setattr(doors, "chain_log_z", lambda tree: next(runs))  # a tree takes 2 ms
    tree = xr.DataTree.from_dict({"sample_stats": xr.Dataset()})
    found = [doors.smc_evidence(tree) for _ in range(repeats)]
    return np.mean([abs(run.log_z) < 1.959964 * run.mcse for run in found])


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("n_chains", [4, 10])
def test_the_error_of_a_run_of_smc_covers(n_chains, monkeypatch):
    # the share of 4000 intervals is known to 0.0034: 4 of these, false alarm 6e-5
    assert abs(coverage(n_chains, monkeypatch) - 0.95) < 0.014
    # the planted bug: a normal in place of Student's t
    monkeypatch.setattr(doors, "stdtrit", lambda df, p: doors.QUANTILE_95)
    assert coverage(n_chains, monkeypatch) < 0.936


def test_no_verdict_of_ok_where_chains_have_not_mixed():
    two, _ = two_modes()
    rng = np.random.default_rng(4)
    stuck = posterior_tree(x=mode_draws(rng, np.repeat([[0], [1], [1], [1]], 500, axis=1)))
    with pytest.warns(pmt.TemperingWarning) as record:
        evidence = pmt.log_marginal_likelihood(stuck, two.model, random_seed=1)
    assert evidence.verdict != "ok"
    assert any("R-hat" in str(warning.message) for warning in record)


@pytest.mark.parametrize(
    ("chains", "rho", "words"),
    [(4, 0.0, None), (4, 0.95, "R-hat is .* the chains have not mixed"), (1, 0.0, "one chain")],
)
def test_a_bridge_is_ok_only_from_chains_that_have_mixed(chains, rho, words):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, observed=1.0)  # the posterior is N(1/2, 1/2)
    z = autoregressive(np.random.default_rng(5), (chains, 1000, 1), rho)[:, :, 0]
    x = 0.5 + 0.5**0.5 * z
    idata = with_log_density(posterior_tree(x=x), -(x**2) / 2 - (1.0 - x) ** 2 / 2)
    with pytest.warns(pmt.TemperingWarning) if words else nullcontext():
        found = pmt.log_marginal_likelihood(idata, model, random_seed=1)
    assert found.verdict == ("unchecked" if words else "ok")
    assert np.isfinite(found.mcse)
    assert not words or re.search(words, " ".join(found.warnings))


def check_of(*values, mcse=0.01, **more):
    entries = [Entry(f"m{i}", Evidence(v, mcse, f"m{i}", "ok", **more), OWN)
               for i, v in enumerate(values)]  # fmt: skip
    return assemble(entries)


def test_a_cross_check_hands_over_what_it_believes():
    good = check_of(-3.0, -3.005, n_evaluations=100)
    found = pmt.log_marginal_likelihood(good)
    assert found.verdict == "ok"
    assert found.method == f"cross_check ({good.believe})"
    assert (found.mcse, found.n_evaluations) == (0.01, 100)


def test_a_cross_check_that_disagrees_is_not_ok_and_its_scatter_is_the_error():
    bad = check_of(-3.0, -4.0)
    with pytest.warns(pmt.TemperingWarning, match="The cross-check says: The estimates disagree"):
        found = pmt.log_marginal_likelihood(bad)
    assert (found.log_z, found.mcse, found.verdict) == (-3.0, 1.0, "disagreed")


def test_a_run_with_a_cross_check_that_disagrees_is_not_ok():
    run = gaussian_run(400)
    plain = pmt.log_marginal_likelihood(run)
    run["cross_check"] = xr.DataTree(to_dataset(check_of(-2.0, -3.0)))
    with pytest.warns(pmt.TemperingWarning, match="The cross-check says"):
        found = pmt.log_marginal_likelihood(run)
    assert (plain.verdict, found.verdict, found.log_z) == ("ok", "disagreed", plain.log_z)
    assert found.mcse == 1.0
    run["cross_check"] = xr.DataTree(to_dataset(check_of(-3.0, -3.001)))
    assert pmt.log_marginal_likelihood(run).to_json() == plain.to_json()


@pytest.mark.slow("compiles models of its own")
def test_draws_without_their_density_are_unchecked():
    """Nothing tells whether they are draws of the model, and with another prior log Z is wrong."""
    own, other = normal_mean(1.0), normal_mean(3.0)
    mu = stats.norm(2.0 / 3.0, 3.0**-0.5).rvs((4, 500), random_state=np.random.default_rng(3))
    density = sum(stats.norm(mu, 1.0).logpdf(y) for y in (0.0, 0.5, 1.5))
    for tree, model, verdict, words in (
        (posterior_tree(mu=mu), own, "unchecked", "come without their log density"),
        (posterior_tree(mu=mu), other, "unchecked", "come without their log density"),
        (with_log_density(posterior_tree(mu=mu), density), other, "unchecked", "differ by"),
        (with_log_density(posterior_tree(mu=mu), density), own, "ok", ""),
    ):
        with pytest.warns(pmt.TemperingWarning, match=words) if words else nullcontext():
            assert pmt.log_marginal_likelihood(tree, model, random_seed=1).verdict == verdict


def normal_mean(prior_sd, name="mu"):
    with pm.Model() as model:
        mu = pm.Normal(name, 0.0, prior_sd)
        pm.Normal("y", mu, 1.0, observed=[0.5, 1.5])
    return model


@pytest.mark.slow(
    "compiles models of its own", quick=["<lambda>-draws of 'mu', and the model has 'nu' in"]
)
@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: normal_mean(3.0), "log density and the model's differ by .* pass the model"),
        (lambda: normal_mean(1.0, "nu"), "draws of 'mu', and the model has 'nu' in"),
    ],
)
def test_a_run_is_refused_with_another_model_than_its_own(other, words):
    own = normal_mean(1.0)
    run = pmt.sample(
        200, model=own, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True
    )
    alone = pmt.log_marginal_likelihood(run)
    assert pmt.log_marginal_likelihood(run, own).to_json() == alone.to_json()
    for door in (
        lambda model: pmt.log_marginal_likelihood(run, model),
        lambda model: pmt.log_marginal_likelihood(run, model, method="rts"),
        lambda model: pmt.compare({"a": run}, models={"a": model}),
        lambda model: pmt.bayes_factor(run, run, models=(own, model)),
    ):
        with pytest.raises(pmt.exceptions.DataMismatchError, match=words):
            door(other())
    with other():  # a model that is only on the context stack is not meant
        assert pmt.log_marginal_likelihood(run).to_json() == alone.to_json()


def ordered_means():
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 1.0)
        order = pm.distributions.transforms.ordered
        means = pm.Normal("means", [0.0, 1.0], spread, transform=order, initval=[0.0, 1.0])
        pm.Normal("y", means, 1.0, observed=[0.5, 1.5])
    return model


def many_variables():
    with pm.Model() as model:
        xs = [pm.Normal(f"x{i}") for i in range(45)]
        pm.Normal("y", sum(xs), 1.0, observed=1.0)
    return model


def an_indicator():
    with pm.Model() as model:
        pm.Normal("y", pm.Bernoulli("z", 0.5) * pm.Normal("b"), 1.0, observed=[0.5, 1.5])
    return model


def an_angle():
    with pm.Model() as model:
        circle = pm.distributions.transforms.circular
        mu = pm.Uniform("mu", -np.pi, np.pi, default_transform=circle)
        pm.VonMises("y", mu, 2.0, observed=[3.0, -3.1, 2.6])
    return model


@pytest.mark.slow("compiles models of its own")
def test_draws_of_step_methods_that_take_turns_are_of_their_own_model():
    model = an_indicator()
    with model:
        idata = pm.sample(500, chains=2, cores=1, progressbar=False, random_seed=1)
    found = pmt.bridge_sampling(idata, model, random_seed=1)
    assert np.isfinite(found.mcse)
    assert not found.warnings


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("build", [ordered_means, many_variables, an_indicator, an_angle])
def test_a_run_is_known_as_one_of_its_own_model(build):
    """P(ordered | parents) is a part of the density; Python adds up more than 32 terms."""
    model = build()
    run = pmt.sample(
        100, model=model, chains=2, cores=1, random_seed=1, quiet=True, progressbar=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(pmt.log_marginal_likelihood(run, model).log_z)


def test_a_cross_check_is_stored_only_where_it_is_asked_for():
    run = gaussian_run(400)
    with pytest.warns(pmt.TemperingWarning, match="nothing confirms it"):
        pmt.cross_check(run, methods=["rts"])
    assert "cross_check" not in run.children


def test_a_cross_check_without_any_error_is_refused():
    with pytest.raises(pmt.TemperingError, match="believes none"):
        pmt.log_marginal_likelihood(check_of(-3.0, mcse=np.inf))


class Report:
    """Stand in for the report of a fit."""

    elbo, elbo_history = -4.0, np.zeros(1)

    def __init__(self, evidence):
        self.evidence = evidence


def test_the_evidence_of_a_fit_without_an_error_is_said_to_be_a_bound():
    bad = Evidence(-3.0, np.inf, "psis_vi", "unchecked", bias_direction="below")
    with pytest.warns(pmt.TemperingWarning, match="lower bound in expectation, not an estimate"):
        table = pmt.compare({"fit": Report(bad)})
    assert table.loc["fit", "bias_direction"] == "below"
    assert np.isinf(table.loc["fit", "p_mcse"])


def test_a_fit_without_an_evidence_is_refused_and_its_elbo_not_taken():
    with pytest.raises(
        pmt.exceptions.ImproperPriorError, match=r"ELBO, -4\.000 nats, is a lower bound"
    ):
        pmt.log_marginal_likelihood(Report(None))


BAMBI_LIKE = type("Model", (), {"backend": type("Backend", (), {"model": mean_only()})()})()
BOUNDS = pmt.annealed.Sandwich(*[Evidence(-3.0, 0.1, "ais", "ok")] * 2, 0.1, "ok", "")
DATASET = posterior_tree(x=np.zeros((1, 4)))["posterior"].to_dataset()


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (mean_only(), r"no draws yet.*pymc_tempering\.sample\(model=model\)"),
        (BAMBI_LIKE, r"no draws yet"),
        ("run.nc", r"xarray\.open_datatree"),
        (DATASET, r"DataTree\.from_dict"),
        (BOUNDS, r"\.lower or \.upper"),
        (xr.DataTree.from_dict({"prior": DATASET}), r"it has 'prior'.*pymc_tempering\.sample"),
        (xr.DataTree(), r"it has nothing"),
        (3.0, r"from a float; what can be passed: .*posterior draws of any sampler"),
        (posterior_tree(x=np.zeros((1, 4))), r"pass model=.*bridge_sampling\(idata, model\)"),
        (xr.DataTree.from_dict({"variational": DATASET}), r"pmt\.to_datatree"),
        (xr.DataTree.from_dict({"evidence": DATASET}), r"not written by Evidence\.to_datatree"),
    ],
)
def test_what_cannot_be_used_names_what_can(thing, words):
    with pytest.raises(pmt.TemperingError, match=words):
        pmt.log_marginal_likelihood(thing)
    with pytest.raises(pmt.TemperingError, match=words) as error:
        pmt.compare({"odd": thing})
    assert error.value.__notes__ == ["This was model 'odd'."]


def test_the_library_that_drew_is_named():
    idata = posterior_tree(x=np.zeros((1, 4)))
    idata["posterior"].attrs["inference_library"] = "nutpie"
    with pytest.raises(pmt.exceptions.NotTemperedError, match="posterior draws of nutpie"):
        pmt.log_marginal_likelihood(idata)


def test_a_plain_fit_of_pymc_is_told_of_ours():
    model = mean_only()
    with config.change_flags(mode="FAST_COMPILE"):
        approx = pm.fit(2, model=model, progressbar=False, random_seed=1)
    with pytest.raises(
        pmt.exceptions.NotTemperedError, match=r"pymc_tempering\.fit\(method='advi'\)"
    ):
        pmt.log_marginal_likelihood(approx)


def test_a_method_by_name_is_taken_whatever_else_there_is():
    run = gaussian_run(400)
    assert pmt.log_marginal_likelihood(run, method="counts").method == "counts"
    gaussian = system("gaussian")
    draws = pmt.sample(200, model=gaussian.model, random_seed=1, quiet=True, progressbar=False)
    with gaussian.model:
        for method in ("bridge_sampling", "importance_sampling"):
            found = pmt.log_marginal_likelihood(draws, method=method, random_seed=1)
            # |z| < 4: false alarm 6e-5
            assert abs(found.log_z - gaussian.log_evidence) < 4.0 * found.mcse < 0.3
            assert found.method == method
        bound = pmt.log_marginal_likelihood(draws, method="reverse_ais", random_seed=1)
    assert bound.bias_direction == "above"
    with pytest.raises(ValueError, match=r"method must be one of .*'rts'.* not 'smc'"):
        pmt.log_marginal_likelihood(run, method="smc")
    with pytest.raises(pmt.exceptions.ModelError, match="method='bar'"):
        pmt.log_marginal_likelihood(run, "bar")


def test_models_of_a_comparison_are_checked():
    run, model = gaussian_run(100), mean_only()
    with pytest.raises(ValueError, match=r"models has names that runs lacks: \['b'\]"):
        pmt.compare({"a": run}, models={"b": model})
    with pytest.raises(ValueError, match="must be the two models"):
        pmt.bayes_factor(run, run, models=[model])
    with pytest.raises(pmt.exceptions.ModelError, match=r"model must be a pymc\.Model.*not str"):
        pmt.compare({"a": run}, models={"a": "a"})
    with pytest.raises(ValueError, match="compare takes runs by name, a list of them"):
        pmt.compare(run)
    assert pmt.compare([run, run]).index.tolist() == ["0", "1"]


def test_a_model_on_the_stack_is_not_taken_for_all_models():
    idata = posterior_tree(mu=np.zeros((1, 4)))
    with mean_only(), pytest.raises(pmt.exceptions.NotTemperedError, match="pass model="):
        pmt.compare({"a": idata, "b": idata})


@pytest.mark.parametrize("max_columns", [0, 20])
@pytest.mark.parametrize("names", [("linear", "quadratic"), ("a name of 24 characters.", "b")])
def test_the_columns_that_matter_are_seen_in_a_narrow_terminal(names, max_columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = pmt.compare(dict(zip(names, [gaussian_run(400), gaussian_run(400)], strict=True)))
    with pd.option_context("display.max_columns", max_columns, "display.width", 80):
        lines = repr(table).splitlines()
    assert max(map(len, lines)) <= 80
    shown = " ".join(lines)
    assert all(word in shown for word in ("log_z", "mcse", "probability", "verdict", *names, "ok"))


def test_arviz_draws_the_table_under_its_own_names():
    import arviz as az

    table = pmt.compare({"a": gaussian_run(400), "b": gaussian_run(400)})
    with pytest.raises(ValueError, match="elpd"):
        az.plot_compare(table)
    own = table.rename(columns={"log_z": "elpd", "mcse": "se"})
    assert az.plot_compare(own, relative_scale=False) is not None


def test_the_table_is_drawn_with_a_row_for_each_model():
    table = pmt.compare({"a": gaussian_run(400), "b": gaussian_run(400, random_seed=2)})
    pc = pmt.plot_evidence(table, backend="none")
    x, y = points(drawn(pc, "estimate", "forest", part="models"))
    assert (x.tolist(), y.tolist()) == (table["log_z"].tolist(), [1.0, 0.0])
    assert not {"disagrees", "believed"} & set(pc.viz.children)
    with pytest.raises(ValueError, match="lacks"):
        pmt.plot_evidence(pd.DataFrame({"log_z": [1.0]}))


def full_evidence():
    """An ``Evidence`` with a value in each field, some of them not finite."""
    return Evidence(
        log_z=-3.25, mcse=np.inf, method="rts", verdict="unchecked", n_tours=7, round_trips=(3, 4),
        ess=5.5, per_chain=np.array([np.nan, -3.0]), per_chain_mcse=np.array([np.inf, 0.1]),
        log_z_curve=np.array([0.0, -1.0]), log_z_curve_mcse=np.array([0.0, 0.1]),
        betas=np.array([0.0, 1.0]), halves=(-3.0, -np.inf), warnings=("one", "two"), bias=0.25,
        check=LookCheck(
            np.nan, np.inf, 100, 100, 2, 30, difference=0.5, verdict="disagreed",
            reasons=("a reason",),
        ),
        n_evaluations=12, bias_direction="below", seconds=1.5, details={"a": np.nan},
        prior_term=(0.5, 0.1),
    )  # fmt: skip


@pytest.mark.parametrize(
    "evidence",
    [full_evidence(), replace(full_evidence(), check=None), Evidence(-1.0, 0.1, "x", "ok")],
)
def test_an_evidence_survives_json_and_a_datatree(evidence, tmp_path):
    text = evidence.to_json()
    assert "NaN" not in text
    assert "Infinity" not in text
    path = tmp_path / "evidence.nc"
    evidence.to_datatree().to_netcdf(path)
    with xr.open_datatree(path) as stored:
        read = Evidence.from_datatree(stored)
    for again in (
        Evidence.from_json(text),
        Evidence.from_datatree(evidence.to_datatree()),
        read,
    ):
        assert type(again) is Evidence
        for name, value in vars(evidence).items():
            assert repr(getattr(again, name)) == repr(value), name
            assert type(getattr(again, name)) is type(value), name
    tree = evidence.to_datatree()
    assert float(tree["evidence"]["log_z"]) == evidence.log_z


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not the JSON text"),
        ("[1]", "holds no object"),
        ('{"log_z": 1}', "it lacks .*'mcse'"),
        ('{"log_z": 1, "mcse": 1, "method": "a", "verdict": "ok", "odd": 1}', "'odd'"),
    ],
)
def test_other_json_is_refused(text, words):
    with pytest.raises(pmt.TemperingError, match=words):
        Evidence.from_json(text)


def test_a_method_in_the_place_of_the_model_is_told_its_name():
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"give the method by name, as method='bar'"
    ):
        pmt.log_marginal_likelihood(gaussian_run(draws=30), "bar")


def test_chains_that_were_taken_out_of_a_run_of_smc():
    stats = xr.Dataset({"log_marginal_likelihood": (("chain", "stage"), np.zeros((3, 4)))})
    posterior = xr.Dataset({"x": (("chain", "draw"), np.zeros((2, 5)))})
    tree = xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})
    with pytest.raises(pmt.TemperingError, match="has 3 chains and the posterior 2"):
        pmt.log_marginal_likelihood(tree)


@pytest.mark.slow("compiles models of its own")
def test_a_stored_fit_of_a_model_without_an_evidence():
    attrs = {"log_z": np.nan, "log_z_mcse": np.nan, "elbo": -4.0}
    tree = xr.DataTree.from_dict({"variational": xr.Dataset(attrs=attrs)})
    with pytest.raises(pmt.exceptions.ImproperPriorError, match=r"has no evidence.*ELBO, -4\.000"):
        pmt.log_marginal_likelihood(tree)
