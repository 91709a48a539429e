"""A density that raises gives no number, no old one, and goes on at the next call."""

import _thread
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise

import pymc_tempering as pmt
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.model.compiled import new_point
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.prior import evaluate_draws


class RaisesBelowZero(Op):
    """A likelihood in Python that has no number where the first coordinate is negative."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [pt.as_tensor_variable(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        if inputs[0][0] < 0.0:
            raise ValueError("the solver of the user failed")
        outputs[0][0] = np.asarray(-0.5 * np.sum(inputs[0] ** 2))


def checked():
    """Raise below zero in compiled code; a regression elsewhere."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        mean = np.ones((4, 3)) @ x
        mean = CheckAndRaise(ValueError, "below zero")(mean, pt.all(x[0] >= 0.0))
        pm.Normal("y", mean, observed=np.zeros(4))
    return model


def in_python():
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Potential("solved", RaisesBelowZero()(x))
        pm.Normal("y", x.sum(), observed=1.0)
    return model


BUILDS = {"compiled": (checked, None), "in Python": (in_python, ())}


@pytest.fixture(params=BUILDS, scope="module")
def path(request):
    build, gradient = BUILDS[request.param]
    return compile_path(build(), gradient=gradient, values=True)


def test_it_gives_no_number_and_no_old_one(path):
    point = new_point(3)
    good, bad = np.ones(3), -np.ones(3)
    every = [point.grads, point.grads[:0]] if path.has_gradient else [point.grads[:0]]
    for grads in every:
        path.density(good, point.values, grads)
        before = point.values.copy()
        assert np.isfinite(before).all()
        path.density(bad, point.values, grads)
        assert np.isnan(point.values).all()
        path.density(good, point.values, grads)
        np.testing.assert_array_equal(point.values, before)


def test_compiled_loops_go_on_in_every_thread(path):
    draws = np.random.default_rng(1).normal(size=(400, 3))
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda part: evaluate_draws(path, part), np.split(draws, 4)))
    found = np.concatenate([np.column_stack(part) for part in parts])
    np.testing.assert_array_equal(np.isnan(found).all(axis=1), draws[:, 0] < 0.0)
    np.testing.assert_array_equal(np.isnan(found).any(axis=1), draws[:, 0] < 0.0)


def test_a_likelihood_that_often_raises_is_refused_in_its_own_words():
    with pytest.raises(LikelihoodError, match="the solver of the user failed"):
        pmt.sample(50, chains=2, model=in_python(), random_seed=1, quiet=True, progressbar=False)


class Interrupts(Op):
    """A likelihood in Python, in the hundredth call of which Ctrl-C comes."""

    __props__ = ()
    calls = 0

    def make_node(self, x):
        return Apply(self, [pt.as_tensor_variable(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        Interrupts.calls += 1
        if Interrupts.calls == 100:
            _thread.interrupt_main()
        outputs[0][0] = np.asarray(-0.5 * np.sum(inputs[0] ** 2))


def test_ctrl_c_in_a_python_likelihood_is_no_error_of_it():
    """It ends the compiled loop, which calls Python no more; later calls are as ever."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("slow", Interrupts()(x))
    path = compile_path(model, gradient=(), values=True)
    draws = np.random.default_rng(1).normal(size=(1000, 2))
    Interrupts.calls = 0
    with pytest.raises(KeyboardInterrupt):
        evaluate_draws(path, draws)
    assert Interrupts.calls == 100
    found = np.concatenate(evaluate_draws(path, draws))
    assert Interrupts.calls == 1100
    assert np.isfinite(found).all()
