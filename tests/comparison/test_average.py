"""Averages over models: shares, laws of the mixture, which draws are used, and bad input."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from arviz_stats.base import array_stats
from support.exact_posteriors import autoregressive
from support.small_models import mean_only
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering.comparison import model_average
from pymc_tempering.crosscheck.judge import Entry
from pymc_tempering.crosscheck.result import assemble
from pymc_tempering.exceptions import DataMismatchError, NotTemperedError, TemperingWarning


def tree(x, y_rep=None, log_lik=None, coords=None, dims=(), **more):
    """Draws of one model; x has the shape (chain, draw, ...)."""
    groups = {"posterior": xr.Dataset({"x": (("chain", "draw", *dims), x)}, coords)}
    for name, variable, values in (
        ("posterior_predictive", "y", y_rep), ("log_likelihood", "y", log_lik),
    ):  # fmt: skip
        if values is not None:
            groups[name] = xr.Dataset({variable: (("chain", "draw", "obs"), values)})
    for name, values in more.items():
        groups["posterior"][name] = (("chain", "draw"), values)
    return xr.DataTree.from_dict(groups)


def marked(model, chains=4, draws=100):
    """Draws that tell where they come from: x = 1e6 model + place, and y = -x in two columns."""
    x = 1e6 * model + np.arange(chains * draws, dtype=float).reshape(chains, draws)
    return tree(x, np.stack([-x, -x], axis=2), np.stack([x, x], axis=2))


def counts_of(result):
    names, counts = np.unique(result["posterior"]["model"].values, return_counts=True)
    return dict(zip(names, counts.tolist(), strict=True))


def test_shares_are_the_posterior_probabilities_of_the_models():
    toys = {"near": GaussianToy(2.0, 0.5), "wide": GaussianToy(2.0, 2.0)}
    runs = {name: gaussian_run(400, toy=toy, random_seed=3) for name, toy in toys.items()}
    result = pmt.average(runs, prior={"near": 0.8, "wide": 0.2}, random_seed=1)
    table = pmt.compare(runs, prior={"near": 0.8, "wide": 0.2}).loc[list(runs)]
    assert result.attrs["models"] == ["near", "wide"]
    assert result.attrs["weights"] == pytest.approx(table["probability"].tolist())
    assert result.attrs["weights_mcse"] == pytest.approx(table["p_mcse"].tolist())
    assert result.attrs["weights_from"] == "evidence"
    assert counts_of(result) == dict(zip(runs, result.attrs["counts"], strict=True))
    # the exact mixture: 1,600 draws are nearly independent; |z| < 4 fails once in 16,000
    log_p = np.array([toy.log_z(1.0) for toy in toys.values()]) + np.log([0.8, 0.2])
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    moments = [toy.moments(1.0) for toy in toys.values()]
    mean = sum(share * m for share, (m, _) in zip(p, moments, strict=True))
    square = sum(share * (m**2 + s**2) for share, (m, s) in zip(p, moments, strict=True))
    x = result["posterior"]["x"].values
    assert abs(x.mean() - mean) < 4.0 * np.sqrt((square - mean**2) / 1600)
    assert x.std() == pytest.approx(np.sqrt(square - mean**2), rel=0.1)


@pytest.mark.parametrize("draws", [None, 7, 250])
@pytest.mark.parametrize("weights", [[0.2, 0.5, 0.3], [1.0, 0.0, 2.0], [0.001, 0.5, 0.499]])
def test_shares_are_exact_to_one_draw(weights, draws):
    runs = [marked(1), marked(2, chains=2, draws=300), marked(3, chains=3, draws=70)]
    share = np.array(weights) / sum(weights)
    for seed in range(20):
        result = pmt.average(runs, weights, draws=draws, random_seed=seed)
        sizes = result["posterior"].sizes
        assert (sizes["chain"], sizes["draw"]) == (2, 105 if draws is None else draws)
        counts = np.array(result.attrs["counts"])
        n = counts.sum()
        assert n == sizes["chain"] * sizes["draw"]
        assert np.all(np.abs(counts - n * share) < 1.0)


def test_the_expected_number_of_draws_is_the_share():
    one = xr.Dataset({"x": (("chain", "draw"), np.zeros((1, 10)))})
    rng, weights = np.random.default_rng(1), np.array([0.123, 0.877])
    picked = [model_average.pick_draws([one, one], weights, None, rng) for _ in range(1000)]
    counts = [np.sum(model == 0) for model, _ in picked]
    assert set(counts) == {1, 2}  # 2 with probability 0.23; |z| < 4
    assert abs(np.mean(counts) - 1.23) < 4.0 * np.sqrt(0.23 * 0.77 / 1000)


def test_groups_keep_together_what_belongs_to_one_draw():
    runs = {"a": marked(1), "b": marked(2)}
    result = pmt.average(runs, {"b": 0.7, "a": 0.3}, random_seed=2)
    x = result["posterior"]["x"].values
    np.testing.assert_array_equal(result["posterior_predictive"]["y"].values[..., 1], -x)
    np.testing.assert_array_equal(result["log_likelihood"]["y"].values[..., 0], x)
    model = result["posterior_predictive"]["model"].values
    np.testing.assert_array_equal(np.where(model == "a", 1, 2), x // 1e6)
    # no draw of a model is used twice while others are left, and chains stay chains, in order
    for mark, chain in ((1, 0), (2, 3)):
        place = x[chain][x[chain] // 1e6 == mark] % 1e6
        assert np.all(np.diff(place) > 0)
        assert np.all(place // 100 == chain)


def test_a_group_that_one_model_lacks_is_left_out():
    plain = marked(2)
    del plain["posterior_predictive"]
    result = pmt.average([marked(1), plain], [1, 1], random_seed=1)
    assert set(result.children) == {"posterior", "log_likelihood"}


def test_every_draw_is_used_as_often_as_any_other_or_once_more():
    result = pmt.average([marked(1, 2, 30), marked(2, 2, 30)], [0.9, 0.1], draws=100)
    x = result["posterior"]["x"].values
    _, times = np.unique(x[x < 2e6], return_counts=True)
    assert times.size == 60
    assert set(times) == {3}  # 180 of the 200 draws, from 60


def test_seeds_and_generators_give_the_same_draws():
    runs = [marked(1), marked(2)]
    same = [pmt.average(runs, [0.4, 0.6], random_seed=5) for _ in range(2)]
    assert same[0].identical(same[1])
    rng = pmt.average(runs, [0.4, 0.6], random_seed=np.random.default_rng(5))
    assert same[0].identical(rng)
    assert not same[0].identical(pmt.average(runs, [0.4, 0.6], random_seed=6))


def correlated_pair(seed):
    rng = np.random.default_rng(seed)
    return [tree(autoregressive(rng, (4, 600), 0.9)) for _ in range(2)]


def mean_and_ess(runs):
    x = pmt.average(runs, [0.5, 0.5], random_seed=1)["posterior"]["x"].values
    return x.mean(), float(array_stats.ess(x, chain_axis=0, draw_axis=1, method="mean"))


def test_the_effective_size_tells_of_autocorrelation():
    """Standardized means of 100 averages have the spread 1, within 4 of its errors (6e-5)."""
    z = []
    for seed in range(100):
        mean, ess = mean_and_ess(correlated_pair(seed))
        z.append(mean * np.sqrt(ess))
    assert abs(np.std(z) - 1.0) < 4.0 / np.sqrt(200)


def test_shuffled_draws_would_hide_it(monkeypatch):
    """The planted bug of the test above."""
    original = model_average.pick_draws

    def shuffled(posteriors, probability, draws, rng):
        model, place = original(posteriors, probability, draws, rng)
        order = rng.permuted(np.tile(np.arange(model.shape[1]), (len(model), 1)), axis=1)
        return tuple(np.take_along_axis(one, order, axis=1) for one in (model, place))

    monkeypatch.setattr(model_average, "pick_draws", shuffled)
    z = []
    for seed in range(100):
        mean, ess = mean_and_ess(correlated_pair(seed))
        z.append(mean * np.sqrt(ess))
    assert np.std(z) - 1.0 > 4.0 / np.sqrt(200)


def test_arviz_reads_it_and_it_can_be_saved(tmp_path):
    coords = {"k": ["u", "v"]}
    rng = np.random.default_rng(1)
    runs = {
        name: tree(rng.normal(size=(2, 50, 2)), coords=coords, dims=("k",), tau=rng.random((2, 50)))
        for name in "ab"
    }
    result = pmt.average(runs, {"a": 1.0, "b": 3.0}, random_seed=1)
    assert list(az.summary(result).index) == ["x[u]", "x[v]", "tau"]
    assert list(result["posterior"]["k"].values) == ["u", "v"]
    result.to_netcdf(tmp_path / "mean.nc")
    back = xr.open_datatree(tmp_path / "mean.nc")
    np.testing.assert_array_equal(back["posterior"]["model"], result["posterior"]["model"])
    assert list(np.ravel(back.attrs["weights"])) == [0.25, 0.75]
    back.close()


@pytest.mark.parametrize("form", ["mapping", "series", "frame", "evidences", "list of evidences"])
def test_weights_come_in_many_forms(form):
    runs = {"a": marked(1), "b": marked(2)}
    log_z = {"b": np.log(3.0), "a": 0.0}
    evidence = {name: pmt.evidence.Evidence(z, 0.1, "bridge", "ok") for name, z in log_z.items()}
    table = pmt.compare(evidence)
    weights = {
        "mapping": {"b": 3, "a": 1},
        "series": table["probability"],
        "frame": table,
        "evidences": evidence,
        "list of evidences": [evidence["a"], evidence["b"]],
    }[form]
    result = pmt.average(runs, weights, random_seed=1)
    assert counts_of(result) == {"a": 100, "b": 300}
    known = form in ("frame", "evidences", "list of evidences")
    error = 0.25 * 0.75 * np.hypot(0.1, 0.1) if known else 0.0
    assert result.attrs["weights_mcse"] == pytest.approx([error, error])


def test_warnings_stand_at_the_callers_line():
    runs = {"long": gaussian_run(100, 4, random_seed=1), "short": gaussian_run(5, 2)}
    with pytest.warns(TemperingWarning) as record:
        result = pmt.average(runs, random_seed=1)
    assert {w.filename for w in record} == {__file__}
    assert any("Model 'short': Only" in str(w.message) for w in record)
    assert any("error of an evidence is not known" in str(w.message) for w in record)
    assert result.attrs["weights_mcse"] == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "one for each of 2 models"),
        (0.5, "one for each of 2 models"),
        ({"0": 1.0}, "weights must be of the models"),
        ([-1.0, 2.0], "finite, not negative"),
        ([np.nan, 2.0], "finite, not negative"),
        ([0.0, 0.0], "not all 0"),
        (["much", "little"], "weights must be numbers"),
        ([pmt.evidence.Evidence(0.0, 0.1, "rts", "ok"), 1.0], "weights must be numbers"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        pmt.average([marked(1), marked(2)], weights)


def test_prior_and_given_weights_do_not_mix():
    with pytest.raises(ValueError, match="prior is for weights that come from evidences"):
        pmt.average([marked(1), marked(2)], [1, 1], prior={"0": 0.5, "1": 0.5})


def three_columns(**coords):
    return tree(np.zeros((2, 10, 3)), coords=coords, dims=("k",))


@pytest.mark.parametrize(
    ("other", "options", "message"),
    [
        (tree(np.zeros((2, 10, 2)), dims=("k",)), {}, "'x' of posterior has the dimensions"),
        (tree(np.zeros((2, 10, 3)), dims=("j",)), {}, "Rename it, or choose other variables"),
        (three_columns(k=[1, 2, 4]), {}, "other coordinates along 'k' in model '1'"),
        (three_columns(), {"var_names": ["x", "z"]}, "var_names must be variables of all models"),
        (xr.DataTree(), {}, "have no group 'posterior'"),
    ],
)
def test_variables_that_differ_are_refused(other, options, message):
    with pytest.raises(ValueError, match=message):
        pmt.average([three_columns(k=[1, 2, 3]), other], [1, 1], **options)


def test_var_names_leave_out_what_differs():
    one = tree(np.zeros((2, 10, 2)), dims=("k",), tau=np.ones((2, 10)))
    other = tree(np.zeros((2, 10)), tau=np.ones((2, 10)))
    result = pmt.average([one, other], [1, 1], var_names=["tau"])
    assert list(result["posterior"].data_vars) == ["tau"]
    renamed = other["posterior"].to_dataset().rename({"x": "z", "tau": "s"})
    with pytest.raises(ValueError, match="no variable in common"):
        pmt.average([one, xr.DataTree.from_dict({"posterior": renamed})], [1, 1])


def test_predictions_of_other_draws_are_refused():
    thin = marked(2)
    thin["posterior_predictive"] = thin["posterior_predictive"].isel(draw=slice(None, None, 2))
    with pytest.raises(ValueError, match="are not of the same draws"):
        pmt.average([marked(1), thin], [1, 1])


def test_other_data_and_no_evidence_are_refused():
    runs = [gaussian_run(50, 2), gaussian_run(50, 2, toy=GaussianToy(1.0, 1.0))]
    for weights in (None, [1, 1]):
        with pytest.raises(DataMismatchError, match="model '0' and model '1'"):
            pmt.average(runs, weights)
    assert pmt.average(runs, [1, 1], check_data=False).attrs["counts"] == [50, 50]
    with pytest.raises(NotTemperedError, match="models= to compare, bayes_factor and average"):
        pmt.average([marked(1), marked(2)])


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([None], "models must be one for each of 2 models, or by their names"),
        (mean_only(), "models must be one for each of 2 models"),
        ({"2": None}, r"models must be of the models \['0', '1'\], not of \['2'\]"),
    ],
)
def test_models_of_other_runs_are_refused(models, message):
    with pytest.raises(ValueError, match=message):
        pmt.average([marked(1), marked(2)], models=models)


def test_data_of_models_are_compared_where_the_draws_hold_none():
    models = []
    for y in (0.5, 1.5):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("x"), 1.0, observed=y)
        models.append(model)
    with pytest.raises(DataMismatchError, match=r"model '0' and model '1'.*'y'"):
        pmt.average([marked(1), marked(2)], [1, 1], models=models)


def test_cross_checks_are_weights():
    names = ("rts", "ais")
    check = assemble([Entry(name, pmt.evidence.Evidence(0.0, 0.1, name, "ok")) for name in names])
    evidence = pmt.evidence.Evidence(np.log(3.0), 0.1, "rts", "ok")
    result = pmt.average([marked(1), marked(2)], [check, evidence], random_seed=1)
    assert result.attrs["counts"] == [100, 300]


@pytest.mark.parametrize("bad", [{}, [], "runs", None, marked(1)])
def test_what_is_no_list_of_runs_is_refused(bad):
    with pytest.raises(
        ValueError, match=r"average (takes runs by name, a list|needs at least one)"
    ):
        pmt.average(bad, [1, 1])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            pmt.evidence.Evidence(0, 1, "rts", "ok"),
            "a Evidence holds no draws: pass the run.*an estimate of log Z in weights=",
        ),
        (pm.Model(), r"a Model holds no draws.*pymc_tempering\.sample"),
        (1.0, "a float holds no draws"),
    ],
)
def test_what_holds_no_draws_is_refused_by_name(bad, message):
    with pytest.raises(pmt.exceptions.ArgumentError, match=rf"idatas\['b'\]: {message}"):
        pmt.average({"a": marked(1), "b": bad})


def test_counts_that_are_no_counts_are_refused():
    with pytest.raises(ValueError, match="draws must be a whole number"):
        pmt.average([marked(1), marked(2)], [1, 1], draws=0)


def test_frames_that_are_no_table_of_these_models_are_refused():
    runs = {"a": marked(1), "b": marked(2)}
    with pytest.raises(ValueError, match=r"without the columns probability .*table\[.weight.\]"):
        pmt.average(runs, pd.DataFrame({"weight": [1.0, 1.0]}, index=["a", "b"]))
    table = pd.DataFrame({"probability": [0.5, 0.5], "p_mcse": 0.1}, index=["a", "c"])
    with pytest.raises(ValueError, match="weights must be of the models"):
        pmt.average(runs, table)


def test_a_posterior_without_draws_is_refused():
    bare = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"x": (("chain", "sample"), np.ones((2, 5)))})}
    )
    with pytest.raises(ValueError, match="has no draws along 'chain' and 'draw'"):
        pmt.average([bare, bare], [1, 1], var_names=["x"])
