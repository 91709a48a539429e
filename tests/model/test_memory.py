"""What was compiled for a model is found again, and never for a model that was changed since."""

import gc
import weakref

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from support.small_models import covariance, mean_only

import pymc_tempering as pmt
from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.constrain import compile_constrain
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.prior import compile_prior, evaluate_draws

RNG = np.random.default_rng(1)
WEIGHTS = np.ones(30)
QUIET = {"progressbar": False, "random_seed": 3}


def weighted_logp(value, mu):
    return pt.sum(-0.5 * pt.as_tensor(WEIGHTS) * (value - mu) ** 2)


def build():
    """A model with each kind of thing that can be changed afterwards."""
    with pm.Model(coords={"row": range(30)}) as model:
        x = pm.Data("x", RNG.normal(size=30), dims="row")
        slope = pm.Normal("slope", initval=0.5)
        scale = pm.HalfNormal("scale")
        y = RNG.normal(size=30)
        pm.Normal("y", slope * x, scale, observed=y, dims="row")
        pm.CustomDist("w", slope, logp=weighted_logp, observed=RNG.normal(size=30))
        pm.Potential("pull", pytensor.shared(np.array(-0.1), name="weight") * slope**2)
    return model


def add_variable(model):
    with model:
        pm.Normal("more")


def add_potential(model):
    with model:
        pm.Potential("push", -(model["slope"] ** 4))


def set_data(model):
    with model:
        pm.set_data({"x": np.linspace(0, 1, 30)})


def write_into_observed(model):
    model.rvs_to_values[model["y"]].data[3] = 2.5


def write_into_container(model):
    model["x"].get_value(borrow=True)[3] = 2.5


def change_shared(model):
    [weight] = [v for v in pytensor.graph.traversal.graph_inputs(model.potentials)
                if v.name == "weight"]  # fmt: skip
    weight.set_value(np.array(-0.7))


def change_transform(model):
    model.rvs_to_transforms[model["scale"]] = transforms.Interval(0.0, 50.0)


def drop_bounds(model):
    model.check_bounds = False


def change_users_array(model):
    WEIGHTS[:] = 2.0


CHANGES = (add_variable, add_potential, set_data, write_into_observed, write_into_container,
           change_shared, change_transform, drop_bounds, change_users_array)  # fmt: skip


def log_density(path, x):
    point = new_point(path.dim)
    path.density(x, point.values, point.grads)
    return point.values.sum()


@pytest.mark.slow("compiles models of its own", quick=["change_shared"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_model_is_noticed(change):
    model = build()
    before = compile_path(model)
    assert compile_path(model).density is before.density
    change(model)
    try:
        after = compile_path(model)
        assert after.density is not before.density
        x = np.linspace(0.3, 0.9, after.dim)
        expected = model.compile_logp(mode="FAST_COMPILE")(after.layout.unravel(x))
        assert log_density(after, x) == pytest.approx(float(expected), rel=1e-10)
        assert compile_path(model).density is after.density
    finally:
        WEIGHTS[:] = 1.0


def test_another_initial_value_gives_the_same_bits():
    model, x = build(), np.array([0.2, -0.3])
    before = compile_path(model)
    model.set_initval(model["slope"], 1.5)
    assert log_density(compile_path(model), x) == log_density(before, x)


@pytest.mark.slow("compiles models of its own")
def test_draws_of_the_prior_follow_a_change():
    with pm.Model() as model:
        center = pm.Data("center", 0.0)
        mu = pm.Normal("mu", center, 1e-3)
        pm.Normal("y", mu, 1.0, observed=[1.0])
    first = compile_prior(compile_path(model))
    with model:
        pm.set_data({"center": 5.0})
    second = compile_prior(compile_path(model))
    for prior, expected in ((first, 0.0), (second, 5.0)):
        draws = prior.draw(3, prior.spawn(np.random.default_rng(1)))
        np.testing.assert_allclose(draws, expected, atol=0.1)


@pytest.mark.slow("compiles models of its own")
def test_parts_of_one_model_are_kept_apart():
    model = build()
    whole = compile_path(model)
    part = compile_path(model, gradient=["slope"])
    assert part.density is not whole.density
    assert compile_path(model, values=True).density is not whole.density
    assert compile_path(model).density is whole.density


@pytest.mark.slow("compiles models of its own")
def test_a_model_that_nobody_has_is_forgotten():
    model = covariance()
    path = compile_path(model)
    compile_prior(path)
    compile_constrain(model, path.layout)
    del path
    seen = weakref.ref(model)
    del model
    gc.collect()
    assert seen() is None


def same_bits(a, b):
    return all(
        np.array_equal(a[group][name].values, b[group][name].values, equal_nan=True)
        for group in ("posterior", "sample_stats")
        for name in a[group].data_vars
    )


@pytest.mark.slow("compiles models of its own")
def test_a_handle_gives_the_bits_of_its_model_and_of_one_built_anew():
    model = mean_only()
    handle = pmt.compile(model, progressbar=False)
    assert model_layout(handle.model) == model_layout(model)
    first, *others = (
        pmt.sample(50, chains=2, cores=1, model=m, random_seed=3, quiet=True)
        for m in (handle, model, mean_only(), pmt.compile(mean_only(), progressbar=False))
    )
    assert all(same_bits(first, other) for other in others)


ON_A_MODEL = {
    "ais": lambda m, run: pmt.ais(m, n_particles=50, **QUIET),
    "hais": lambda m, run: pmt.annealed.hais(m, n_particles=50, **QUIET),
    "smc": lambda m, run: pmt.smc(m, n_particles=50, islands=10, **QUIET),
    "ti": lambda m, run: pmt.thermodynamic_integration(m, **QUIET),
    "reverse": lambda m, run: pmt.reverse_ais(run, m, n_particles=50, **QUIET),
    "sandwich": lambda m, run: pmt.sandwich(run, m, n_particles=50, **QUIET).lower,
    "bridge": lambda m, run: pmt.bridge_sampling(run, m, random_seed=3),
    "importance": lambda m, run: pmt.importance_sampling(run, m, random_seed=3),
    "check": lambda m, run: pmt.cross_check(run, m, ["bridge_sampling"], random_seed=3).table.iloc[
        0
    ],
}


@pytest.mark.slow("compiles models of its own", quick=["bridge"])
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
@pytest.mark.parametrize("name", ON_A_MODEL)
def test_each_front_door_takes_a_handle(name):
    handle = pmt.compile(mean_only(), progressbar=False)
    run = pmt.sample(200, chains=2, cores=1, model=handle, random_seed=3, quiet=True)
    by_model, by_handle = (ON_A_MODEL[name](m, run) for m in (handle.model, handle))
    assert by_handle.log_z == by_model.log_z
    assert by_handle.mcse == by_model.mcse


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_the_step_method_and_fits_take_a_handle():
    handle = pmt.compile(mean_only(), progressbar=False)
    step = pmt.SimulatedTempering(model=handle, random_seed=1)
    assert step.model is handle.model
    assert pmt.fit(20, model=handle, progressbar=False).hist.size > 0
    assert pmt.variational.log_partition(handle, [1.0]).log_c[0] == 0.0


@pytest.mark.slow("compiles models of its own")
def test_other_data_give_the_density_of_the_model_built_with_them():
    handle = pmt.compile(build(), progressbar=False)
    old = log_density(compile_path(handle.model), np.array([0.2, -0.3]))
    fresh = {"x": np.linspace(0.0, 1.0, 30), "y": np.linspace(1.0, 3.0, 30)}
    model = handle.with_data(**fresh).model
    path = compile_path(model)
    xs = np.random.default_rng(1).normal(size=(20, 2))
    slope, scale = xs[:, 0], np.exp(xs[:, 1])
    w = handle.model.rvs_to_values[handle.model["w"]].data
    residual = (fresh["y"] - slope[:, None] * fresh["x"]) / scale[:, None]
    expected = (
        -0.5 * (residual**2).sum(1) - 30 * np.log(scale) - 15 * np.log(2 * np.pi)
        - 0.5 * ((w - slope[:, None]) ** 2).sum(1) - 0.1 * slope**2
    )  # fmt: skip
    np.testing.assert_allclose(evaluate_draws(path, xs)[1], expected, rtol=1e-10)
    assert log_density(compile_path(handle.model), np.array([0.2, -0.3])) == old
    run = pmt.sample(20, chains=1, model=model, reference="prior", random_seed=1, quiet=True)
    np.testing.assert_array_equal(run.observed_data["y"], fresh["y"])
    np.testing.assert_array_equal(run.constant_data["x"], fresh["x"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"z": np.ones(30)}, r"no data named 'z'; its data: 'x', 'y', 'w'"),
        ({"y": np.ones(29)}, r"'y' have the shape \(29,\), those of the model \(30,\)"),
        ({"y": np.full(30, 1j)}, r"'y' are complex128, and rounded as float64"),
        ({"y": ["a"] * 30}, r"'y' are no numbers"),
    ],
)
def test_data_that_do_not_fit_are_refused(data, message):
    handle = CompiledModel(build())
    with pytest.raises(pmt.exceptions.DataMismatchError, match=message):
        handle.with_data(**data)


def test_values_that_are_computed_from_others_are_refused_by_name():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=2.0 * pm.Data("half", [1.0, 2.0]))
    with pytest.raises(
        pmt.exceptions.DataMismatchError, match=r"'y' are computed .* give those of 'half'"
    ):
        CompiledModel(model).with_data(y=[1.0, 2.0])
