"""Calibration of small models: exact evidences, the law of data and ranks, failures, going on."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import signal, stats
from support.small_runs import SHORT

import pymc_tempering as pmt
from pymc_tempering.exceptions import (
    ArgumentError,
    DataMismatchError,
    ImproperPriorError,
    ModelError,
    TemperingError,
    TemperingWarning,
    UndrawableError,
)
from pymc_tempering.many import sample_many as many
from pymc_tempering.many.calibrate import draw_cases
from pymc_tempering.many.sample_many import ranks_of

pytestmark = pytest.mark.filterwarnings("ignore:.*another verdict:UserWarning")

SD = {"narrow": 0.5, "wide": 3.0}


def normal(sd, size=2):
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, sd)
        pm.Normal("y", mu, 1.0, observed=np.zeros(size))
    return model


def models():
    return {name: normal(sd) for name, sd in SD.items()}


def exact(sd, y):
    return stats.multivariate_normal(np.ones(2), np.eye(2) + sd**2).logpdf(y)


@pytest.fixture(scope="module")
def first():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        return pmt.calibrate(models(), 12, prior_odds=0.5, **SHORT)


@pytest.mark.slow("compiles models of its own")
def test_evidences_are_those_of_data_that_the_models_drew(first):
    assert first.log_z.shape == (12, 2)
    np.testing.assert_allclose(first.prior, [1 / 3, 2 / 3])
    cases = draw_cases(models(), first.generated.tolist(), 3)
    mcse = first.runs["mcse"].to_numpy().reshape(12, 2)
    for i, row in enumerate(np.reshape(np.array(cases, dtype=object), (12, 2))):
        for j, case in enumerate(row):
            z = first.log_z[i, j] - exact(SD[case.name.split()[1]], case.data["y"])
            assert abs(z) < 5 * mcse[i, j]  # 24 runs: a false alarm in 70,000 seeds
            assert bool(case.truth) == (first.generated[i] == j)
    counts = {name: len(shares) for name, shares in first.ranks.items()}
    assert counts == {
        "narrow: mu": np.sum(first.generated == 0), "wide: mu": np.sum(first.generated == 1)
    }  # fmt: skip
    assert first.verdict in ("ok", "unchecked")


def test_data_follow_the_parameters_that_they_came_from():
    """Bounds of 4 standard errors: a false alarm in 3,000 seeds."""
    chosen = np.random.default_rng(0).integers(2, size=3000).tolist()
    cases = [case for case in draw_cases(models(), chosen, 1) if case.truth]
    for j, sd in enumerate(SD.values()):
        own = [case for case, k in zip(cases, chosen, strict=True) if k == j]
        mu = np.array([case.truth["mu"] for case in own])
        noise = np.array([case.data["y"] for case in own]) - mu[:, None]
        n = len(own)
        assert abs(mu.mean() - 1.0) < 4 * sd / np.sqrt(n)
        assert abs(noise.std() - 1.0) < 4 / np.sqrt(4 * n)
        assert abs(np.corrcoef(mu, noise[:, 0])[0, 1]) < 4 / np.sqrt(n)
        # Planted: data of another draw.
        assert abs(np.std(noise + mu[:, None] - np.roll(mu, 1)[:, None]) - 1.0) > 4 / np.sqrt(4 * n)


def test_more_data_sets_begin_with_the_same():
    chosen = [0, 1, 1, 0, 1, 0]
    few, more = draw_cases(models(), chosen[:3], 1), draw_cases(models(), chosen, 1)
    for a, b in zip(few, more, strict=False):
        assert a.name == b.name
        np.testing.assert_array_equal(a.data["y"], b.data["y"])


def shares(draw, n=400, size=600, **settings):
    """Ranks of n truths, each among draws of a chain."""
    rng, found = np.random.default_rng(3), []
    for _ in range(n):
        truth, draws, ess = draw(rng, size)
        posterior = xr.Dataset({"x": (("chain", "draw"), draws.reshape(2, -1))})
        found.append(ranks_of(posterior, {"x": np.asarray(truth)}, ess, rng)["x"])
    return np.array(found)


def independent(rng, size):
    return rng.normal(), rng.normal(size=size), size


def correlated(rng, size):
    noise = rng.normal(size=size) * np.sqrt(1 - 0.99**2)
    noise[0] = rng.normal()
    return rng.normal(), signal.lfilter([1.0], [1.0, -0.99], noise), size / 199


def of_few_values(rng, size):
    return rng.poisson(1.0), rng.poisson(1.0, size), size


def of_few_draws(rng, size):
    return rng.normal(), rng.normal(size=size), 6


def too_narrow(rng, size):
    return rng.normal(), 0.6 * rng.normal(size=size), size


@pytest.mark.parametrize("draw", [independent, correlated, of_few_values, of_few_draws])
def test_ranks_of_right_draws_are_uniform(draw):
    """A false alarm in 1,000 seeds each."""
    assert stats.kstest(shares(draw), "uniform").pvalue > 1e-3


def test_ranks_of_wrong_draws_are_not():
    assert stats.kstest(shares(too_narrow), "uniform").pvalue < 1e-3
    # Planted: correlated draws that are taken for independent ones.
    wrong = shares(lambda rng, size: (*correlated(rng, size)[:2], size))
    assert stats.kstest(wrong, "uniform").pvalue < 1e-3


def test_scalars_are_named_and_not_too_many():
    posterior = xr.Dataset(
        {"b": (("chain", "draw", "i", "j"), np.zeros((1, 9, 2, 3))),
         "w": (("chain", "draw", "k"), np.zeros((1, 9, 400)))}
    )  # fmt: skip
    rng = np.random.default_rng(0)
    found = ranks_of(posterior, {"b": np.ones((2, 3)), "gone": np.ones(2)}, 9.0, rng)
    assert [*found] == ["b[0, 0]", "b[0, 1]", "b[0, 2]", "b[1, 0]", "b[1, 1]", "b[1, 2]"]
    assert len(ranks_of(posterior, {"w": np.ones(400)}, 9.0, rng)) == many.MOST_RANKED
    assert all(share > 0.8 for share in found.values())


@pytest.mark.slow("compiles models of its own")
def test_it_goes_on_where_it_stopped(first, tmp_path, monkeypatch):
    path, sample, calls = tmp_path / "runs", many.sample, []

    def interrupted(**arguments):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return sample(**arguments)

    interrupted.__signature__ = many.inspect.signature(sample)
    monkeypatch.setattr(many, "sample", interrupted)
    with pytest.warns(TemperingWarning, match="Interrupted. 7 of 24 runs were finished"):
        part = pmt.calibrate(models(), 12, prior_odds=0.5, path=path, **SHORT)
    assert part.log_z.shape == (3, 2)
    assert part.verdict == "unchecked"
    unseeded = SHORT | {"random_seed": None}
    whole = pmt.calibrate(models(), 12, prior_odds=0.5, path=path, **unseeded)
    assert len(calls) == 25
    np.testing.assert_array_equal(whole.log_z, first.log_z)
    for name, ranks in first.ranks.items():
        np.testing.assert_array_equal(whole.ranks[name], ranks)
    with pytest.raises(DataMismatchError, match="another model or other data"):
        pmt.calibrate(models(), 12, prior_odds=5.0, path=path, **SHORT)


@pytest.mark.filterwarnings("ignore:Interrupted:UserWarning")
@pytest.mark.parametrize(("at", "error"), [(1, KeyboardInterrupt), (2, TemperingError)])
def test_an_interrupt_before_the_first_data_set(at, error, monkeypatch):
    sample, calls = many.sample, []

    def interrupted(**arguments):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return sample(**arguments)

    interrupted.__signature__ = many.inspect.signature(sample)
    monkeypatch.setattr(many, "sample", interrupted)
    with pytest.raises(error, match=r"first run|before a data set"):
        pmt.calibrate(models(), 3, **SHORT)


def test_a_failed_run_is_counted(monkeypatch):
    sample, calls = many.sample, []

    def failing(**arguments):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("no solution")
        return sample(**arguments)

    failing.__signature__ = many.inspect.signature(sample)
    monkeypatch.setattr(many, "sample", failing)
    with pytest.warns(TemperingWarning) as said:
        found = pmt.calibrate(models(), 2, **SHORT)
    texts = " ".join(str(w.message) for w in said)
    assert "1 of 4 runs failed: '0 wide': RuntimeError: no solution" in texts
    assert "1 of 2 data sets have a failed run" in texts
    assert np.isnan(found.log_z).tolist() == [[False, True], [False, False]]
    assert found.runs["verdict"].tolist().count("failed") == 1


def built(**extra):
    """Make a model with what is to be refused."""
    with pm.Model() as model:
        mu = pm.Flat("mu") if "flat" in extra else pm.Normal("mu", 0.0, 1.0, shape=2)
        if "ordered" in extra:
            mu = pm.Normal(
                "a", 0, 1, shape=2, transform=pm.distributions.transforms.ordered,
                initval=[0.0, 1.0],
            )  # fmt: skip
        if "potential" in extra:
            pm.Potential("pull", -(mu**2).sum())
        if "undrawable" in extra:
            mu = pm.CustomDist("odd", 0.0, logp=lambda x, m: -0.5 * (x - m) ** 2 - 0.918938533)
        kind = pm.Poisson if "counts" in extra else pm.Normal
        rest = () if "counts" in extra else (1.0,)
        data = np.array(extra.get("data", [1, 2] if "counts" in extra else [1.0, 2.0]))
        mean = pm.math.exp(mu) if "counts" in extra else mu
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind(extra.get("name", "y"), mean, *rest, observed=data)
    return model


REFUSED = {
    "a potential": ({"b": built(potential=1)}, ModelError, r"'b'\] has a pm.Potential: 'pull'"),
    "imputed data": (
        {"b": built(data=[1.0, np.nan])}, ModelError, r"'b'\] has imputed data: 'y_unobserved'"
    ),
    "an ordered prior": ({"b": built(ordered=1)}, ModelError, "has an ordered prior: 'a'"),
    "a flat prior": ({"b": built(flat=1)}, ImproperPriorError, "mu"),
    "no random draws": (
        {"b": built(undrawable=1)}, UndrawableError, r"'b'\]: 'odd'.* has no random draws"
    ),
    "another name of the data": ({"b": built(name="z")}, DataMismatchError, "equal names"),
    "another shape": (
        {"b": normal(1.0, 3)}, DataMismatchError, r"cannot take data of .* shape \(3,\)"
    ),
    "data of another kind": ({"b": built(counts=1)}, DataMismatchError, "cannot take data"),
    "one model": ({}, ArgumentError, "two or more"),
    "no model": ({"b": None}, ModelError, r"models\['b'\] is None"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_models_are_refused_before_any_run(case, monkeypatch):
    monkeypatch.setattr(many, "run_one", None)
    given, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        pmt.calibrate({"a": built()} | given, 8, **SHORT)


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"n": 0}, ValueError, "n must be"),
        ({"prior_odds": -1.0}, ValueError, "positive and finite"),
        ({"prior_odds": {"narrow": 1.0}}, ValueError, "a dict with a weight of each"),
        ({"prior_odds": [1.0, 2.0]}, ValueError, "prior_odds must be positive"),
        ({"tempered": ["y"]}, ArgumentError, "does not take tempered"),
        ({"drawz": 9}, ArgumentError, r"calibrate\(\) does not take drawz.*'draws'"),
        ({"path": __file__}, DataMismatchError, "is a file"),
    ],
)
def test_arguments_are_refused_before_any_run(more, error, words, monkeypatch):
    monkeypatch.setattr(many, "run_one", None)
    with pytest.raises(error, match=words):
        pmt.calibrate(models(), **{"n": 3} | SHORT | more)


@pytest.mark.slow("compiles models of its own")
def test_functions_and_handles_stand_for_models(first):
    given = {"narrow": lambda: normal(0.5), "wide": pmt.model.handle.CompiledModel(normal(3.0))}
    found = pmt.calibrate(given, 2, prior_odds={"wide": 2, "narrow": 1}, **SHORT)
    np.testing.assert_array_equal(found.log_z, first.log_z[:2])
