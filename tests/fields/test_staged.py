"""A density in two stages: the same numbers, the first stage once for each state of the others."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose

from pymc_tempering.fields import staged
from pymc_tempering.fields.conditional import _one_by_one, evaluator_of
from pymc_tempering.model.path import compile_path

N = 40
APART = np.abs(np.subtract.outer(np.arange(N), np.arange(N))) / 10
COUNTS = np.random.default_rng(1).poisson(3, size=N)


def counts(centered):
    with pm.Model() as model:
        length = pm.LogNormal("length", 0, 0.5)
        cov = pt.exp(-0.5 * (APART / length) ** 2) + 1e-3 * np.eye(N)
        if centered:
            f = pm.MvNormal("f", np.zeros(N), cov=cov, shape=N)
        else:
            f = pt.linalg.cholesky(cov) @ pm.Normal("f", shape=N)
        pm.Poisson("y", pt.exp(pm.Normal("mean") + f), observed=COUNTS)
    return model


def lines():
    with pm.Model() as model:
        slope, x = pm.HalfNormal("slope"), pm.Normal("x", shape=4000)
        pm.Poisson("y", pt.exp(slope * x), observed=np.ones(4000))
    return model


@pytest.fixture(scope="module", params=[True, False], ids=["centered", "not centered"])
def path(request):
    return compile_path(counts(request.param))


INSIDE = np.arange(1, N + 2)


def states(rng):
    return rng.normal(size=N + 2), 0.3 * rng.normal(size=(5, N + 1))


@pytest.mark.slow("compiles models of its own")
def test_both_stages_together_are_the_density(path):
    two, one = staged.staged(path, INSIDE), _one_by_one(path, INSIDE)
    for seed in (1, 2, 1):
        state, xs = states(np.random.default_rng(seed))
        for found, expected in zip(two(state, xs), one(state, xs), strict=True):
            assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.slow("compiles models of its own")
def test_a_covariance_is_apart_and_a_line_is_not(path):
    assert staged.is_staged(path, INSIDE)
    assert evaluator_of(path, INSIDE) is staged.staged(path, INSIDE)
    assert not staged.is_staged(compile_path(lines()), np.arange(1, 4001))


@pytest.mark.slow("compiles models of its own")
def test_the_first_stage_is_computed_once_for_each_state_of_the_others(path, monkeypatch):
    compiled, calls = staged.compile_exactly, []

    def counted(inputs, outputs, **options):
        made = compiled(inputs, outputs, **options)
        return made if len(inputs) > 1 else lambda x: calls.append(x) or made(x)

    monkeypatch.setattr(staged, "compile_exactly", counted)
    evaluate = staged._staged(path, INSIDE)
    state, xs = states(np.random.default_rng(3))
    for length in (0.1, 0.2, 0.1):
        for shift in (0.0, 1.0):
            evaluate(np.append(length, state[1:] + shift), xs)
    assert len(calls) == 2
    monkeypatch.setattr(staged, "KEPT_BYTES", 0)
    for length in (0.3, 0.4, 0.3):
        evaluate(np.append(length, state[1:]), xs)
    assert len(calls) == 5
