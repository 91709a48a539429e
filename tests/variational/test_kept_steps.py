"""A model's step is compiled once, and each fit of it is the one of a model that is new."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from support import variational_models as models

import pymc_tempering as pmt
from pymc_tempering.borrowed.private import install_listener
from pymc_tempering.model.compilations import CompilationWatch
from pymc_tempering.variational import fit_step, fitting
from pymc_tempering.variational.fitting import RUN

pytestmark = [
    pytest.mark.filterwarnings("ignore:The fit is not at rest"),
    pytest.mark.filterwarnings("ignore:Pareto k-hat"),
    pytest.mark.filterwarnings("ignore:The importance weights"),
]
QUIET = {"progressbar": False, "max_n": 60, "obj_optimizer": pm.adam(learning_rate=0.05)}


def line():
    """A regression with two parameters of different roles."""
    x = np.linspace(-1.0, 1.0, 30)
    with pm.Model() as model:
        slope = pm.Normal("slope")
        scale = pm.HalfNormal("scale")
        pm.Normal("y", slope * x, scale, observed=x + 0.3 * np.cos(40 * x))
    return model


CASES = {
    "fullrank": (line, {"method": "annealed", "approx": "fullrank"}),
    "tempered": (models.gaussian, {"method": "variational_tempering"}),
    "each normalized": (line, {"method": "variational_tempering", "normalizer": "local"}),
    "each datum": (line, {"method": "local_variational_tempering"}),
    "minibatches, each datum": (models.minibatches, {"method": "local_variational_tempering"}),
}


def fit(model, seed, **options):
    return pmt.fit(60, model=model, random_seed=seed, **{**QUIET, **options})


@pytest.fixture
def compiled(monkeypatch):
    """One entry for each step that was compiled."""
    seen, right = [], fitting.compile_step
    monkeypatch.setattr(fitting, "compile_step", lambda *a, **k: seen.append(a) or right(*a, **k))
    return seen


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(("build", "options"), CASES.values(), ids=list(CASES))
def test_fits_of_one_model_are_those_of_new_models_and_go_on_alike(compiled, build, options):
    one = build()
    first = fit(one, 1, **options)
    assert len(compiled) == 1
    watch = CompilationWatch()
    with install_listener("numba:compile", watch):
        second = fit(one, 2, **options)
        third = fit(one, 1, **options)
    assert (len(compiled), watch.count) == (1, 0)
    alone = [fit(build(), seed, **options) for seed in (1, 2)]
    assert not np.array_equal(models.contents(first), models.contents(second))
    for _ in range(2):
        for one, other in [(first, alone[0]), (second, alone[1]), (third, first)]:
            np.testing.assert_array_equal(models.contents(one), models.contents(other))
        for approx in (first, second, third, *alone):
            pmt.refine(approx, 40, progressbar=False)
    assert first.hist.size == 140


@pytest.mark.slow("compiles models of its own")
def test_one_step_serves_all_methods_that_temper_alike(compiled):
    model = models.gaussian()
    for method in ("advi", "annealed", "variational_tempering"):
        ours = fit(model, 1, method=method)
        np.testing.assert_array_equal(
            models.contents(ours), models.contents(fit(models.gaussian(), 1, method=method))
        )
    assert len([1 for approx, *_ in compiled if approx.model is model]) == 1


def add_potential(model):
    with model:
        pm.Potential("push", -(model["slope"] ** 4))


def write_into_observed(model):
    model.rvs_to_values[model["y"]].data[3] = 2.5


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("change", [add_potential, write_into_observed])
def test_a_model_that_was_changed_is_compiled_anew(change):
    model, other = line(), line()
    before = fit(model, 1)
    change(model)
    change(other)
    after = models.contents(fit(model, 1))
    np.testing.assert_array_equal(after, models.contents(fit(other, 1)))
    assert not np.array_equal(after, models.contents(before))
    # what was begun goes on with the model as it was
    pmt.refine(before, 40, progressbar=False)


@pytest.fixture(scope="module")
def fitted():
    """A model with a fit."""
    model = models.gaussian()
    fit(model, 1)
    return model


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(
    "options",
    [
        {"obj_optimizer": pm.adam(learning_rate=0.04)},
        {"obj_optimizer": pm.sgd(learning_rate=0.001)},
        {"total_grad_norm_constraint": 0.1},
        {"obj_n_mc": 2},
    ],
)
def test_a_step_of_other_settings_is_another_one(compiled, fitted, options):
    ours = fit(fitted, 1, **options)
    assert len(compiled) == 1
    np.testing.assert_array_equal(
        models.contents(ours), models.contents(fit(models.gaussian(), 1, **options))
    )


@pytest.mark.slow("compiles models of its own")
def test_what_the_user_wrote_may_act_otherwise_the_next_time(compiled):
    model, rate = models.gaussian(), 0.05

    def own(loss_or_grads, params):
        return pm.adam(loss_or_grads, params, learning_rate=rate)

    first = fit(model, 1, obj_optimizer=own)
    rate = 0.01
    second = fit(model, 1, obj_optimizer=own)
    assert len(compiled) == 2
    assert not np.array_equal(models.contents(first), models.contents(second))


@pytest.mark.slow("compiles models of its own")
def test_threads_fit_one_model():
    model = models.gaussian()
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda seed: fit(model, seed), range(3)))
    for seed, ours in enumerate(together):
        np.testing.assert_array_equal(
            models.contents(ours), models.contents(fit(models.gaussian(), seed))
        )
    first, *others = (getattr(ours, RUN) for ours in together)
    assert all(other.step is first.step for other in others)
    with ThreadPoolExecutor(3) as pool:  # iterations of all three take turns
        list(pool.map(lambda approx: pmt.refine(approx, 500, progressbar=False), together))
    for seed, ours in enumerate(together):
        alone = pmt.refine(fit(models.gaussian(), seed), 500, progressbar=False)
        np.testing.assert_array_equal(models.contents(ours), models.contents(alone))


@pytest.mark.slow("compiles models of its own")
def test_no_more_than_the_latest_are_kept(compiled, monkeypatch):
    monkeypatch.setattr(fit_step, "KEPT", 2)
    model = models.gaussian()
    counts = []
    for rate in (0.1, 0.2, 0.1, 0.3, 0.1, 0.2):
        fit(model, 1, obj_optimizer=pm.adam(learning_rate=rate))
        counts.append(len(compiled))
    assert counts == [1, 2, 2, 3, 3, 4]  # 0.3 drove 0.2 out


def test_a_large_step_is_not_kept(compiled, monkeypatch):
    monkeypatch.setattr(fit_step, "LARGEST", 8)
    model = models.gaussian()
    np.testing.assert_array_equal(models.contents(fit(model, 1)), models.contents(fit(model, 1)))
    assert len(compiled) == 2


def test_a_step_of_another_compiler_is_kept_too(compiled):
    model = models.gaussian()
    options = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
    first, second = fit(model, 1, **options), fit(model, 1, **options)
    np.testing.assert_array_equal(models.contents(first), models.contents(second))
    assert len(compiled) == 1


@pytest.mark.slow("compiles models of its own")
def test_a_model_is_forgotten_with_all_of_its_steps():
    model = line()
    gone = weakref.ref(model)
    fit(model, 1)
    fit(model, 2, method="local_variational_tempering")
    del model
    gc.collect()
    assert gone() is None
