"""Data are arguments: the same bits as constants give, and other data find the same code."""

import gc
import weakref

import numba
import numpy as np
import pymc as pm
import pytest
from numba.core import event
from support.small_models import all_transforms

import pymc_tempering as pmt
from pymc_tempering.borrowed.private import function_of_text
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model import density as densities
from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.constrain import compile_constrain
from pymc_tempering.model.density import OpenGraph, Packed
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.prior import compile_prior, evaluate_draws

N = 40
XS = np.random.default_rng(5).normal(size=(30, 15))


def regression(seed, n=N):
    """Covariates in both orders, an index, a truth value, and a prior that depends on data."""
    rng = np.random.default_rng(seed)
    table, group = rng.normal(size=(n, 3)), rng.integers(0, 4, size=n)
    group[:4] = range(4)
    with pm.Model() as model:
        weights = pm.Data("weights", rng.uniform(1.0, 2.0, size=(n, 3)))
        slope = pm.Normal("slope", weights.mean(axis=0), 2.0, shape=3)
        level = pm.Normal("level", 0.0, 1.0, shape=4)
        scale = pm.HalfNormal("scale", 2.0)
        mean = table @ slope + level[group] + rng.random(n) * pm.math.sqrt(scale)
        pm.Normal("y", mean, scale, observed=rng.normal(size=n))
        pm.Bernoulli("b", logit_p=mean, observed=rng.random(n) < 0.5)
    return model


def values_and_gradients(path):
    found = []
    for x in XS[:, : path.dim]:
        point = new_point(path.dim)
        path.density(np.ascontiguousarray(x), point.values, point.grads)
        found.append(np.append(point.values, point.grads))
    return np.array(found)


BUILDS = {
    "data": lambda: regression(1),
    "kinds": all_transforms,
    "overwritten": lambda: pmt.testsystems.eight_schools().model,  # parts of it are, in place
}


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_arrays_as_arguments_give_the_bits_of_constants(build, monkeypatch):
    path = compile_path(build(), values=True)
    found = values_and_gradients(path)
    assert path.density.data.array.size > 8
    monkeypatch.setattr(densities, "_large_constants", lambda graph: [])
    baked = compile_path(build(), values=True)
    assert baked.density.data.array.size == 8
    np.testing.assert_array_equal(found, values_and_gradients(baked))


@pytest.mark.slow("compiles models of its own")
def test_other_data_of_the_same_shapes_find_the_same_code_and_their_own_numbers():
    models = [regression(seed) for seed in (1, 2, 3)]
    paths = [compile_path(model) for model in models]
    priors = [compile_prior(path) for path in paths]
    assert len({id(path.density.code) for path in paths}) == 1
    assert len({id(prior.draw_into.func) for prior in priors}) == 1
    for model, path in zip(models, paths, strict=True):  # all are alive at once
        log_density = model.compile_logp(mode="FAST_COMPILE")
        expected = [log_density(path.layout.unravel(x)) for x in XS[:, :8]]
        np.testing.assert_allclose(values_and_gradients(path)[:, :2].sum(1), expected, rtol=1e-10)
    for model, prior in zip(models, priors, strict=True):
        draws = prior.draw(4000, prior.spawn(np.random.default_rng(1)))[:, :3]
        center = model["weights"].get_value().mean(axis=0)
        # |z| < 4 for 9 means: false alarm 6e-4, seeds fixed
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - center), 4 * 2.0 / 4000**0.5)


@pytest.mark.slow("other processes")
def test_other_data_compile_nothing_here_nor_in_another_process(monkeypatch):
    compile_prior(compile_path(regression(1)))
    with event.install_recorder("numba:compile") as here:
        compile_prior(compile_path(regression(5)))
    # Another process has the cache on disk and nothing else.
    monkeypatch.setattr(densities, "_COMPILED", weakref.WeakValueDictionary())
    with event.install_recorder("numba:compile") as elsewhere:
        compile_prior(compile_path(regression(6)))
    assert not here.buffer
    assert not elsewhere.buffer


def with_deterministic(seed):
    """A regression that records its line."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(N, 3))
    with pm.Model() as model:
        slope = pm.Normal("slope", shape=3)
        line = pm.Deterministic("line", table @ slope)
        pm.Normal("y", line, 0.5, observed=rng.normal(size=N))
    return model, table


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_deterministics_and_fits_of_other_data_compile_nothing():
    found = []
    for seed in (1, 2):
        model, table = with_deterministic(seed)
        with event.install_recorder("numba:compile") as compiled:
            lines = compile_constrain(model, model_layout(model))(XS[:, :3])["line"]
            fit = pmt.fit(60, model=model, max_n=60, progressbar=False, random_seed=1)
        np.testing.assert_allclose(lines, XS[:, :3] @ table.T, rtol=1e-12)
        found.append(fit.hist)
    assert not compiled.buffer
    plain, _ = with_deterministic(2)
    options = {"model": plain, "progressbar": False, "random_seed": 1}
    theirs = pm.fit(60, obj_optimizer=pm.adagrad_window, **options)
    ours = pmt.fit(60, "advi", max_n=60, **options)
    np.testing.assert_allclose(ours.hist, theirs.hist, rtol=1e-9)
    assert not np.allclose(*found)


@pytest.mark.slow("compiles models of its own")
def test_a_handle_with_other_data_finds_the_same_code():
    handle = pmt.compile(regression(1), progressbar=False)
    other = handle.with_data(y=np.linspace(-1.0, 1.0, N))
    path, same = compile_path(other.model), compile_path(handle.model)
    assert path.density.code is same.density.code
    assert path.layout == same.layout
    assert [rv.name for rv in other.model.observed_RVs] == ["y", "b"]


@pytest.mark.slow("compiles models of its own")
def test_another_shape_is_other_code_with_the_right_numbers():
    model = regression(1, N + 1)
    path = compile_path(model)
    assert path.density.code is not compile_path(regression(1)).density.code
    expected = model.compile_logp(mode="FAST_COMPILE")(path.layout.unravel(XS[0, :8]))
    assert values_and_gradients(path)[0, :2].sum() == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.slow("compiles models of its own")
def test_the_density_keeps_its_data_alive():
    density = compile_path(regression(4)).density
    point = new_point(8)
    density(XS[0, :8], point.values, point.grads)
    first = point.values.copy()
    gc.collect()
    junk = [np.full(1000, np.nan) for _ in range(200)]
    density(XS[0, :8], point.values, point.grads)
    np.testing.assert_array_equal(first, point.values)
    assert len(junk) == 200


@pytest.mark.slow("compiles models of its own")
def test_compiled_loops_and_python_call_the_same_density():
    path = compile_path(regression(1))
    log_reference, log_ratio = evaluate_draws(path, XS[:, :8])
    found = values_and_gradients(path)
    np.testing.assert_array_equal(np.column_stack([log_reference, log_ratio]), found[:, :2])


@pytest.mark.slow("compiles models of its own", quick=["gaps"])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24.0).reshape(4, 6)[:, ::2],
        np.arange(9, dtype=np.uint8),
        np.arange(9) % 2 == 0,
        np.array(1.5),
    ],
    ids=["C", "Fortran", "gaps", "bytes", "truth", "number"],
)
def test_packed_arrays_are_where_the_text_looks_for_them(array):
    graphs = {"odd": OpenGraph(None, None, [np.ones(11, np.int16), array])}
    packed = Packed.of("0.0", graphs)
    text = f"def unpack(data):\n record = data.view(kind)[0]\n return {packed.given['odd'][5:]}"
    function = function_of_text(text, "unpack", global_env={"np": np, "kind": packed.kind})
    first, found = numba.njit(function)(packed.data)
    np.testing.assert_array_equal(first, np.ones(11))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def plain_way(monkeypatch, build, name):
    """The path of a model where a part of PyTensor is gone."""
    monkeypatch.setattr(densities, name, None)
    return compile_path(build(), values=True)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", ["function_and_key", "function_of_text"])
def test_without_parts_of_pytensor_python_gives_the_same_numbers(monkeypatch, name):
    fast = compile_path(regression(1), values=True)
    path = plain_way(monkeypatch, lambda: regression(1), name)
    assert path.density.data.evaluator is not None
    np.testing.assert_allclose(
        values_and_gradients(path), values_and_gradients(fast), rtol=1e-12, atol=1e-12
    )
    for one, other in zip(
        evaluate_draws(path, XS[:, :8]), evaluate_draws(fast, XS[:, :8]), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    prior = compile_prior(path)
    draws = prior.draw(400, prior.spawn(np.random.default_rng(1)))
    assert draws.shape == (400, 8)
    # |z| < 4.5 for the mean of a standard normal; false alarm 7e-6, seed fixed
    assert abs(draws[:, 3].mean()) < 4.5 / 20.0


@pytest.mark.slow("compiles models of its own")
def test_a_density_that_draws_is_refused_by_name():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("closeness", -((x - pm.Normal.dist()) ** 2))
        pm.Normal("y", x, 1, observed=0.3)
    with pytest.raises(ModelError, match="log density of 'closeness' draws random numbers"):
        compile_path(model)
