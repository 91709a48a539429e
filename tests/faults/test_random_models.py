"""Hypothesis over small conjugate models: their sizes, numbers, data, ladders, seeds and cuts.

What is compiled depends on the sizes alone, which are few; all numbers are data. Examples are the
same in each run of the tests (`derandomize`).
"""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from scipy import stats
from scipy.special import betaln, gammaln
from support.kept_checkpoints import assert_same

import pymc_tempering as pmt
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.sampling.kept import CheckpointRecorder

pytestmark = pytest.mark.filterwarnings(
    "ignore::pymc_tempering.TemperingWarning", "ignore:Found chain dimension to be longer"
)


def examples(n):
    return settings(
        max_examples=n, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],  # no search for less
    )  # fmt: skip


ordinary = st.floats(-20.0, 20.0, allow_subnormal=False)
positive = st.floats(0.05, 20.0)
seeds = st.integers(0, 2**32 - 1)


def table(elements, size):
    """Arrays of a size."""
    n = int(np.prod(size))
    return st.lists(elements, min_size=n, max_size=n).map(lambda flat: np.reshape(flat, size))


def coords(size):
    return {"place": np.arange(size[0]), "time": np.arange(size[1])}


@cache
def normal_model(size):
    """A normal mean with a normal prior, in each of some places."""
    with pm.Model(coords=coords(size)) as model:
        center = pm.Data("center", np.zeros(size[0]), dims="place")
        scale, noise = (pm.Data(n, np.ones(size[0]), dims="place") for n in ("scale", "noise"))
        mu = pm.Normal("mu", center, scale, dims="place")
        pm.Normal("y", mu[:, None], noise[:, None], observed=np.zeros(size), dims=(*coords(size),))
    return pmt.compile(model)


def normal_case(size, center, scale, noise, y):
    data = {"center": center, "scale": scale, "noise": noise, "y": y}
    exact = 0.0
    for mean, prior, error, values in zip(center, scale, noise, y, strict=True):
        covariance = error**2 * np.eye(size[1]) + prior**2
        exact += stats.multivariate_normal(np.full(size[1], mean), covariance).logpdf(values)
    return normal_model(size).with_data(**data), float(exact)


@st.composite
def normals(draw):
    size = draw(st.sampled_from([(2, 3), (3, 1)]))
    each = (draw(table(kind, size[:1])) for kind in (ordinary, positive, positive))
    return normal_case(size, *each, draw(table(ordinary, size)))


@cache
def model_of_counts(size, name, prior, likelihood):
    """A conjugate model of counts, whose prior has two numbers in each of some places."""
    with pm.Model(coords=coords(size)) as model:
        a, b = (pm.Data(number, np.ones(size[0]), dims="place") for number in "ab")
        free = prior(name, a, b, dims="place")
        y = np.zeros(size, dtype=np.int64)
        likelihood("y", free[:, None], observed=y, dims=(*coords(size),))
    return pmt.compile(model)


def binomial_of_five(name, p, **kwargs):
    return pm.Binomial(name, 5, p, **kwargs)


def beta_case(size, a, b, y):
    k, n = y.sum(axis=1), 5 * size[1]
    binomials = gammaln(6) - gammaln(y + 1) - gammaln(6 - y)
    log_z = np.sum(betaln(a + k, b + n - k) - betaln(a, b)) + binomials.sum()
    model = model_of_counts(size, "p", pm.Beta, binomial_of_five)
    return model.with_data(a=a, b=b, y=y), float(log_z)


@st.composite
def betas_binomials(draw):
    a, b = (draw(table(st.floats(0.5, 20.0), (4,))) for _ in range(2))
    return beta_case((4, 2), a, b, draw(table(st.integers(0, 5), (4, 2))))


def gamma_case(size, a, b, y):
    s, n = y.sum(axis=1), size[1]
    by_place = a * np.log(b) - gammaln(a) + gammaln(a + s) - (a + s) * np.log(b + n)
    exact = float(by_place.sum() - gammaln(y + 1).sum())
    model = model_of_counts(size, "rate", pm.Gamma, pm.Poisson)
    return model.with_data(a=a, b=b, y=y), exact


@st.composite
def gammas_poissons(draw):
    a, b = draw(table(st.floats(0.5, 20.0), (2,))), draw(table(positive, (2,)))
    return gamma_case((2, 4), a, b, draw(table(st.integers(0, 30), (2, 4))))


@cache
def known_case(kind, number):
    """One of a few models, which many examples share."""
    rng = np.random.default_rng(number)
    if kind == "normal":
        numbers = 3.0 * rng.normal(size=2), rng.gamma(2.0, size=2), rng.gamma(2.0, size=2)
        return normal_case((2, 3), *numbers, rng.normal(size=(2, 3)))[0]
    if kind == "beta":
        return beta_case((4, 2), *rng.gamma(2.0, size=(2, 4)), rng.integers(0, 6, size=(4, 2)))[0]
    return gamma_case((2, 4), *rng.gamma(2.0, size=(2, 2)), rng.poisson(3.0, size=(2, 4)))[0]


known = st.builds(known_case, st.sampled_from(["normal", "beta", "gamma"]), st.integers(0, 1))


def run(model, **kwargs):
    few = {"draws": 40, "chains": 2, "cores": 1, "reference": "prior", "quiet": True}
    return pmt.sample(model=model, **few | {"reference_draws": 50} | kwargs)


@pytest.mark.slow("random models")
@given(
    st.one_of(normals(), betas_binomials(), gammas_poissons()),
    seeds,
    st.sampled_from(["auto", "prior"]),
)
@examples(10)
def test_log_z_is_exact_within_its_error_or_the_verdict_says_no(case, seed, reference):
    """10 cases, 6 errors each: of normal errors one fails in 5e7 suites."""
    model, exact = case
    idata = run(
        model, draws=300, chains=4, random_seed=seed, reference=reference, reference_draws=None
    )
    evidence = estimate_quietly(idata)
    assert np.isfinite(evidence.log_z)
    if evidence.verdict == "ok":
        assert abs(evidence.log_z - exact) < 6.0 * evidence.mcse


@pytest.mark.slow("random models")
@given(known, seeds, st.integers(1, 3), st.integers(1, 30))
@examples(6)
def test_draws_have_the_shapes_and_dimensions_of_the_model(model, seed, chains, draws):
    posterior = run(model, draws=draws, chains=chains, random_seed=seed)["posterior"]
    [rv], places = model.model.free_RVs, model.model.coords["place"]
    found = posterior[rv.name]
    assert found.dims == ("chain", "draw", "place")
    assert found.shape == (chains, draws, len(places))
    assert found.coords["place"].values.tolist() == list(places)
    assert np.isfinite(found.values).all()
    if rv.name == "p":
        assert ((found.values > 0.0) & (found.values < 1.0)).all()


@pytest.mark.slow("random models")
@given(known, seeds, st.integers(1, 3))
@examples(5)
def test_a_seed_decides_all_bits_whoever_computes_them(model, seed, chains):
    kwargs = {"random_seed": seed, "chains": chains, "keep": "states"}
    one = run(model, **kwargs)
    assert_same(one, run(model, cores=3, **kwargs))
    with ThreadPoolExecutor(2) as pool:
        assert_same(one, run(model, executor=pool, **kwargs))


@pytest.mark.slow("random models")
@given(known, seeds, seeds)
@examples(4)
def test_another_seed_gives_other_draws(model, seed, other):
    if seed != other:
        one, two = (run(model, random_seed=s)["posterior"] for s in (seed, other))
        [name] = one.data_vars
        assert not np.array_equal(one[name].values, two[name].values)


class Killed(BaseException):
    """The process has ended."""


@pytest.mark.slow("random models")
@given(known, seeds, st.integers(1, 3), st.integers(1, 60))
@examples(5)
def test_a_run_that_ends_at_any_checkpoint_goes_on_to_the_same_draws(model, seed, number, every):
    kwargs = {"random_seed": seed, "draws": 80}
    whole, saved = run(model, **kwargs), []

    def due(self):
        done = sum(one.state.n_draws for one in self.at.runs)
        return done - sum(draws for draws, *_ in self.written) >= every

    def save(self, job, standing, original=CheckpointRecorder._save):
        original(self, job, standing)
        saved.append(1)
        if len(saved) == number:
            raise Killed

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "run.zarr")
        patch.setattr(CheckpointRecorder, "_save", save)
        patch.setattr(CheckpointRecorder, "due", due)
        with pytest.raises(Killed):
            run(model, checkpoint=path, **kwargs)
        patch.undo()
        assert_same(whole, pmt.resume(path, model=model, quiet=True))


@pytest.mark.slow("random models")
@given(known, seeds, st.integers(1, 79), st.booleans())
@examples(5)
def test_a_run_that_is_cut_anywhere_is_extended_to_the_same_draws(model, seed, cut, from_file):
    whole = run(model, random_seed=seed, draws=80)
    idata = run(model, random_seed=seed, draws=cut)
    with tempfile.TemporaryDirectory() as folder:
        if from_file:
            path = os.path.join(folder, "run.nc")
            idata.to_netcdf(path, engine="h5netcdf")
            with xr.open_datatree(path, engine="h5netcdf") as stored:
                longer = pmt.extend(stored, draws=80 - cut, model=model, quiet=True)
        else:
            longer = pmt.extend(idata, draws=80 - cut, model=model, quiet=True)
    assert_same(whole, longer)


@pytest.mark.slow("random models")
@given(known, seeds, st.sampled_from([None, "log_ratio", "states"]))
@examples(4)
def test_a_run_survives_a_file(model, seed, keep):
    idata = run(model, random_seed=seed, keep=keep)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.nc")
        idata.to_netcdf(path, engine="h5netcdf")
        with xr.open_datatree(path, engine="h5netcdf") as stored:
            stored.load()
    assert set(stored.children) == set(idata.children)
    assert_same(idata, stored)
    one, two = estimate_quietly(idata), estimate_quietly(stored)
    assert one.to_json() == two.to_json()


valid_ladders = st.lists(st.floats(1e-6, 0.999), max_size=5, unique=True).map(
    lambda inner: [0.0, *sorted(inner), 1.0]
)
any_ladders = st.lists(
    st.one_of(st.floats(-0.5, 1.5), st.sampled_from([0.0, 1.0, np.nan, np.inf])), max_size=5
)


@pytest.mark.slow("random models")
@given(st.one_of(valid_ladders, any_ladders), seeds)
@examples(40)
def test_a_ladder_is_refused_or_used_as_it_is(betas, seed):
    model = known_case("normal", 0)
    if not (betas[:1] == [0.0] and betas[-1:] == [1.0] and (np.diff(betas) > 0.0).all()):
        with pytest.raises(pmt.exceptions.LadderError, match=r"beta|ladder|temperatures"):
            run(model, betas=betas)
        return
    idata = run(model, draws=10, random_seed=seed, betas=betas)
    assert idata["tempering"]["beta"].values.tolist() == betas


@pytest.mark.slow("random models")
@given(
    st.lists(st.one_of(st.floats(-1.0, 5.0), st.just(np.nan)), min_size=2, max_size=4),
    valid_ladders,
)
@examples(30)
def test_weights_of_rungs_are_refused_or_used(weights, betas):
    model, good = known_case("normal", 0), np.array(weights)
    if not (good.size == len(betas) and np.isfinite(good).all() and (good > 0.0).all()):
        with pytest.raises(pmt.exceptions.LadderError):
            run(model, betas=betas, rung_weights=weights)
        return
    idata = run(model, draws=10, random_seed=1, betas=betas, rung_weights=weights)
    found = np.exp(idata["tempering"]["log_weight"].values)
    np.testing.assert_allclose(found, good / good.sum())
