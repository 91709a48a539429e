"""Variables of many draws, against PyMC's own recording of one draw after the other."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
import pytest
from support.recorded_draws import recorded_draws
from support.small_models import all_transforms, covariance, downstream

from pymc_tempering.model import constrain as constraining
from pymc_tempering.model.constrain import BLOCK, compile_constrain
from pymc_tempering.model.layout import model_layout

COLUMNS = np.array([2, 0, 1, 1])


def elementwise():
    """All that can be computed at once: numbers are picked, and meet none but their own draw's."""
    with pm.Model(coords={"obs": range(4)}) as model:
        scale = pm.HalfNormal("scale", 2.0)
        low = pm.Normal("low")
        between = pm.Uniform("between", low, low + scale)  # the interval follows other variables
        share = pm.Beta("share", 2.0, 2.0, shape=(1, 3))
        matrix = pm.Normal("matrix", low, shape=(2, 3))
        number = pm.Poisson("number", 3.0)
        pm.Bernoulli("labels", 0.4, shape=3)
        pm.Normal("nothing", shape=(0,))
        weight = pm.Data("weight", np.arange(4.0), dims="obs")
        pm.Deterministic("picked", matrix[:, COLUMNS] * weight + number, dims=(None, "obs"))
        pm.Deterministic("joined", pt.concatenate([share[0], matrix[1, 1:] ** scale], axis=-1))
        pm.Deterministic("stacked", pt.stack([low, between, pt.log1p(scale)]))
        whole = pm.Deterministic("whole", number + 1)
        pm.Deterministic("other_name", low)
        pm.Deterministic("further", whole * between)
        pm.Deterministic("fixed", (weight**2).sum())
        pm.Normal("y", between, scale, observed=np.arange(3.0))
    return model


def sums():
    """Sums, a simplex, and a place that is drawn."""
    with pm.Model() as model:
        b = pm.Normal("b", shape=40)
        p = pm.Dirichlet("p", np.ones(30))
        z = pm.Categorical("z", [0.2, 0.3, 0.5])
        pm.Deterministic("entropy", -(p * pt.log(p)).sum())
        pm.Deterministic("mean", pt.exp(b).mean())
        pm.Deterministic("chosen", b[z] + b[:3])
        pm.Normal("y", b.sum(), 1.0, observed=0.3)
    return model


def named_dims():
    """Variables of `pymc.dims`, which have another type."""
    with pm.Model(coords={"group": ["a", "b"]}) as model:
        effect = pmd.HalfNormal("effect", 1.0, dims="group")
        pmd.Deterministic("total", effect.sum("group"))
    return model


def untransformed():
    with pm.Model() as model:
        pm.Normal("mu", shape=(3, 1))
        pm.Normal("x")
    return model


# Whether all draws are computed at once; None where there is nothing to compute.
MODELS = {
    elementwise: True,
    sums: False,
    all_transforms: False,
    covariance: False,
    named_dims: False,
    untransformed: None,
    downstream: None,
}


def drawn(layout, n):
    """Any unconstrained points; whole numbers from 0 to 2 where variables are discrete."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, layout.dim))
    for part, discrete in zip(layout.slices, layout.discrete, strict=True):
        if discrete:
            x[:, part] = rng.integers(0, 2, size=x[:, part].shape)
    return x


@pytest.mark.slow("compiles models of its own", quick=["downstream"])
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_many_draws_are_bit_for_bit_those_that_pymc_records(build, monkeypatch):
    ways = []
    original = constraining._same_bits_together
    monkeypatch.setattr(
        constraining, "_same_bits_together", lambda *a: ways.append(original(*a)) or ways[-1]
    )
    model = build()
    layout = model_layout(model)
    constrain = compile_constrain(model, layout)
    assert ways == ([] if MODELS[build] is None else [MODELS[build]])
    x = drawn(layout, BLOCK + 3 if MODELS[build] else 20)  # blocks of unequal length
    found, expected = constrain(x), recorded_draws(model, layout, x).samples
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values, err_msg=name, strict=True)
    for n in (0, 1):
        for name, values in constrain(x[:n]).items():
            np.testing.assert_array_equal(values, expected[name][:n], err_msg=name, strict=True)


@pytest.mark.slow("compiles models of its own")
def test_only_the_variables_that_are_asked_for_are_computed():
    model = elementwise()
    layout = model_layout(model)
    x = drawn(layout, 5)
    found = compile_constrain(model, layout, ["whole", "low", "scale"])(x)
    assert set(found) == {"whole", "low", "scale"}
    expected = recorded_draws(model, layout, x).samples
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name])


def test_random_numbers_are_not_shared_by_draws():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Deterministic("noisy", x + pm.Normal.dist())
    found = compile_constrain(model, model_layout(model))(np.zeros((50, 1)))
    assert len(np.unique(found["noisy"])) == 50


@pytest.mark.slow("compiles models of its own")
def test_threads_get_the_variables_of_their_own_draws():
    """PyTensor's function holds the arguments of a call, where another thread can put its own."""
    model = sums()
    constrain = compile_constrain(model, model_layout(model))
    rng = np.random.default_rng(1)
    draws = [rng.normal(size=(200, model_layout(model).dim)) for _ in range(80)]
    alone = [constrain(some) for some in draws]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(constrain, draws))
    finally:
        sys.setswitchinterval(before)
    for one, other in zip(together, alone, strict=True):
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])
