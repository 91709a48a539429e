"""Functions of graphs: each operation once on disk, for all graphs and processes that have it."""

import os
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import config
from pytensor.graph.op import Op

from pymc_tempering.model.graph_functions import compile_graph, compile_operation
from pymc_tempering.model.exactly import compile_exactly, numba_mode
from pymc_tempering.model.path import compile_path

COUNT = """
import sys
import numpy as np, pytensor.tensor as pt
from numba.core import event
from pymc_tempering.model.exactly import compile_exactly
x = pt.matrix("x")
graph = {"first": lambda: x[1:].reshape((-1,)), "second": lambda: pt.exp(x[1:]).sum(axis=1)}
with event.install_recorder("numba:compile") as told:
    for which in sys.argv[1:]:
        print(compile_exactly([x], graph[which]())(np.ones((3, 2))).tolist())
print(" ".join(sorted(entry.data["dispatcher"].py_func.__name__ for _, entry in told.buffer)))
"""


def compiled_in_a_process(folder, *which):
    flags = f"base_compiledir={folder}/pytensor"
    environment = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/numba", "PYTENSOR_FLAGS": flags}
    command = [sys.executable, "-c", COUNT, *which]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    *values, names = done.stdout.splitlines()
    return values, names.split()


def test_an_operation_is_compiled_once_for_all_graphs_and_processes(tmp_path):
    first, compiled = compiled_in_a_process(tmp_path, "first")
    assert {"subtensor", "reshape", "graph"} <= set(compiled)
    second, others = compiled_in_a_process(tmp_path, "second")
    assert "graph" in others
    assert "subtensor" not in others
    assert compiled_in_a_process(tmp_path, "first", "second") == (first + second, [])


def key_of(outputs, inputs):
    return compile_graph(pytensor.function(inputs, outputs, mode=numba_mode()).maker.fgraph)[1]


def test_graphs_that_differ_have_other_keys_and_equal_graphs_the_same():
    def keys():
        x, y = pt.vector("x"), pt.vector("y")
        graphs = [
            [pt.exp(x) + y],
            [pt.exp(y) + x],
            [pt.exp(x) + y + 1.0],
            [pt.exp(x) + y + 2.0],
            [pt.exp(x), y + 1.0],
            [y + 1.0, pt.exp(x)],
            [x[:2] + y[:2]],
            [x[:3] + y[:3]],
            [pt.specify_shape(x, 3) + y],
            [x.dimshuffle("x", 0) + y.dimshuffle(0, "x")],
            [x.dimshuffle(0, "x") + y.dimshuffle("x", 0)],
        ]
        return [key_of(outputs, [x, y]) for outputs in graphs]

    found = keys()
    assert None not in found
    assert len(set(found)) == len(found)
    assert keys() == found


class InPython(Op):
    """An operation that PyTensor has no compiled form of."""

    itypes = (pt.dvector,)
    otypes = (pt.dvector,)

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = 2.0 * inputs[0]


@pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")
def test_a_graph_with_an_operation_without_a_key_has_none():
    x = pt.vector("x")
    assert key_of([InPython()(x)], [x]) is None
    with config.change_flags(numba__cache=False):
        operation = pt.exp(x)[:2].owner
        function, _ = compile_operation(operation)
        assert not hasattr(function, "keep_by_key")  # PyTensor's own
    np.testing.assert_array_equal(compile_exactly([x], InPython()(x) + 1.0)(np.ones(2)), [3.0, 3.0])


def test_values_that_an_operation_has_closed_over_are_told_apart():
    """Two repetitions are one text with another number behind it."""
    x = pt.vector("x")
    functions = [compile_exactly([x], pt.eye(3, k=k) @ x[:, None]) for k in (-1, 0, 1)]
    given = np.array([1.0, 2.0, 4.0])
    for k, function in zip((-1, 0, 1), functions, strict=True):
        np.testing.assert_array_equal(function(given)[:, 0], np.eye(3, k=k) @ given)


def test_nothing_is_made_of_a_graph_that_is_only_read(monkeypatch):
    """The density has its own adapter around the graph."""
    from pymc_tempering.model import adapters, graph_functions

    made = []
    for place in (adapters, graph_functions):

        def told(graph, *prefix, function=place.write_graph):
            made.append(graph)
            return function(graph, *prefix)

        monkeypatch.setattr(place, "write_graph", told)
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, 1.0, observed=[1.0, 2.0])
    compile_path(model, values=True)
    assert len(made) == 2  # with gradients, and without


def test_fast_and_exact_mathematics_are_other_entries():
    x = pt.vector("x")
    graph = [pt.exp(x[:2]) + x[1:3]]
    keys = []
    for fast in (True, False):
        with config.change_flags(numba__fastmath=fast):
            function = pytensor.function([x], graph, mode=numba_mode())
            nodes = function.maker.fgraph.toposort()
            keys.append({compile_operation(node)[1] for node in nodes} | {key_of(graph, [x])})
    assert None not in keys[0] | keys[1]
    assert not keys[0] & keys[1]
