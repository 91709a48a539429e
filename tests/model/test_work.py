"""The work of a density is counted in its graph: by elements and steps, and users' own as dear."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.op import Op
from support.compiled_systems import system

from pymc_tempering.model import exactly, path as work
from pymc_tempering.model.path import FOREIGN, compile_path, graph_work


class Twice(Op):
    """A user's own operation, which runs in Python."""

    itypes = (pt.dscalar,)
    otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2.0 * inputs[0])


def regression(n, *, containers=False):
    """Graphs of the terms of a regression with n rows."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    with pm.Model() as model:
        if containers:
            x, y = pm.Data("x", x), pm.Data("y_data", y)
        slopes, sd = pm.Normal("slopes", 0.0, 1.0, shape=3), pm.HalfNormal("sd", 1.0)
        pm.Normal("y", x @ slopes, sd, observed=y)
    return compile_path(model).work


def loop(n, *, all_steps=False):
    """Graph of a recursion of n steps."""
    a = pt.dscalar("a")
    steps = pytensor.scan(
        lambda x, a: a * x + 1.0, outputs_info=[pt.constant(0.0, dtype="float64")],
        non_sequences=[a], n_steps=n, return_updates=False,
    )  # fmt: skip
    return graph_work([steps.sum() if all_steps else steps[-1]])


def slope(count, n, **options):
    """How much the work from n to 2 n grows, over that from n / 2 to n: 2 if it is linear."""
    half, one, two = (count(m, **options) for m in (n // 2, n, 2 * n))
    return (two - one) / (one - half)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("containers", [False, True])
def test_work_grows_in_proportion_to_the_rows(containers):
    assert slope(regression, 1000, containers=containers) == pytest.approx(2.0)
    small, large = (regression(n, containers=containers) for n in (100, 10_000))
    assert 30 < large / small < 100  # beside what is there without rows


@pytest.mark.slow("compiles models of its own")
def test_data_in_containers_count_as_others_do():
    """Their lengths may change, so that less is known of the graph; but no order of magnitude."""
    ratio = regression(10_000, containers=True) / regression(10_000)
    assert 0.3 < ratio <= 1.0


@pytest.mark.slow("compiles models of its own")
def test_rows_that_are_not_counted_are_seen(monkeypatch):
    """Planted bug: all lengths are unknown."""
    monkeypatch.setattr(work, "_size", lambda variable: 1)
    assert regression(4001) == regression(101)


def test_an_element_of_a_special_function_counts_more():
    x = pt.dvector("x")
    few, many = (graph_work([function(x)]) for function in (pt.exp, pt.gammaln))
    assert many - few == work.PER_SPECIAL - 1
    rows = pt.constant(np.ones(1000))
    few, many = (graph_work([function(rows)]) for function in (pt.exp, pt.sigmoid))
    assert many - few == 1000 * (work.PER_SPECIAL - 1)


def test_special_functions_of_a_cheap_density_do_not_count_more():
    """Its scouts, whose number is by its work, stay as many."""
    x = pt.dvector("x")
    small, large = ([pt.sigmoid(x + np.ones(n)).sum()] for n in (100, 1000))
    assert work.work_of(small) == graph_work(small, 1) < graph_work(small)
    assert work.work_of(large) == graph_work(large) > work.CHEAP_WORK


def test_an_operation_of_a_user_is_dear():
    x = pt.dscalar("x")
    own, ours = graph_work([Twice()(x) + 1.0]), graph_work([2.0 * x + 1.0])
    assert ours < 100
    assert own - FOREIGN == pytest.approx(ours, abs=40)
    assert graph_work([Twice()(Twice()(x))]) == 2 * FOREIGN


def test_an_operation_of_a_user_that_counts_as_ours_is_seen(monkeypatch):
    monkeypatch.setattr(exactly, "OURS", ("",))
    assert graph_work([Twice()(pt.dscalar("x"))]) < 100


@pytest.mark.parametrize("all_steps", [False, True])
def test_a_loop_counts_its_steps(all_steps):
    assert slope(loop, 200, all_steps=all_steps) == pytest.approx(2.0, rel=0.02)
    assert loop(2000, all_steps=all_steps) > 2000 * 2 * work.PER_NODE


def test_a_loop_that_counts_once_is_seen(monkeypatch):
    monkeypatch.setattr(work, "Scan", Twice)
    assert loop(2000) < 2000 * 2 * work.PER_NODE


@pytest.mark.slow("compiles models of its own")
def test_the_same_model_has_the_same_work_each_time():
    """By no clock, so that a seed sends the same scouts on any machine."""
    counts = {compile_path(system("gaussian").model).work for _ in range(3)}
    assert len(counts) == 1
    again = {regression(50) for _ in range(3)}
    assert len(again) == 1
