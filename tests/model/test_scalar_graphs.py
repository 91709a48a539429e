"""Composites of scalar operations: the bits of PyTensor's own functions, in one function."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core import event
from pytensor import config
from pytensor.scalar.basic import Composite, add, float64, mul, sub

from pymc_tempering.model.exactly import exactly
from pymc_tempering.model.exactly import compile_exactly, numba_mode
from pymc_tempering.model.scalar_graphs import ThinComposite, thin_composite

GRAPHS = {
    "sums and products": lambda x, y: (x + y * 2.0 + 1) * (x - y) * x,
    "functions of NumPy": lambda x, y: pt.exp(-pt.sqr(x)) + pt.log1p(pt.sqr(y)) / pt.sqrt(2 + x**2),
    "choices": lambda x, y: pt.switch(pt.gt(x, y), x * 2.0, pt.switch(x >= 0, -np.inf, y + 1.0)),
    "functions of their own": lambda x, y: pt.gammaln(2 + x**2) + pt.sigmoid(y) * pt.softplus(x),
    "powers and parts of whole numbers": lambda x, y: (x**3 + y**-2) * pt.clip(x, -1, 1),
    "two results": lambda x, y: pt.exp(x + y) * pt.exp(x + y + 1) + pt.abs(x * y),
    "truth": lambda x, y: pt.and_(pt.gt(x * 2, y), pt.lt(x + 1, y * 3)),
    "whole numbers": lambda x, y: pt.floor(x * 3).astype("int64") * 2 + pt.ceil(y).astype("int64"),
}


def values():
    rng = np.random.default_rng(1)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 700.0, -800.0, 1e-300])
    x, y = np.meshgrid(special, special)
    return np.concatenate([x.ravel(), rng.normal(size=500)]), np.concatenate(
        [y.ravel(), rng.normal(size=500)]
    )


def both(graph, shapes):
    """The numbers of our mode and of PyTensor's, for inputs of these shapes."""
    x, y = (pt.tensor(name, shape=shape) for name, shape in zip("xy", shapes, strict=True))
    outputs = graph(x, y)
    ours = compile_exactly([x, y], outputs)
    with exactly():
        theirs = pytensor.function([x, y], outputs, mode="NUMBA")
    return ours, theirs


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_bits_of_arrays_are_those_of_pytensors_own(name):
    ours, theirs = both(GRAPHS[name], [(None,), (None,)])
    text = pytensor.dprint(ours, file="str")
    assert ("ThinComposite" in repr([n.op for n in ours.maker.fgraph.toposort()])) or any(
        isinstance(node.op.scalar_op, ThinComposite)
        for node in ours.maker.fgraph.toposort()
        if hasattr(node.op, "scalar_op")
    ), text
    x, y = values()
    with np.errstate(all="ignore"), exactly():
        mine, other = ours(x, y), theirs(x, y)
    assert mine.dtype == other.dtype
    np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", GRAPHS)
def test_bits_of_single_numbers_are_those_of_pytensors_own(name):
    ours, theirs = both(GRAPHS[name], [(), ()])
    with exactly():
        for x, y in zip(*values(), strict=True):
            np.testing.assert_array_equal(ours(x, y), theirs(x, y))


def test_a_composite_is_one_function():
    x = pt.vector("x")
    graph = GRAPHS["functions of NumPy"](x, 2 * x)
    with config.change_flags(numba__cache=False), event.install_recorder("numba:compile") as told:
        compile_exactly([x], graph)(np.ones(3))
    names = [record.data["dispatcher"].py_func.__name__ for _, record in told.buffer]
    assert "composite" in names
    assert not {"exp", "log1p", "sqrt", "add", "mul", "square"} & set(names)


def test_composites_with_other_results_keep_pytensors_functions():
    x = pytensor.scalar.basic.float32("x")
    assert thin_composite(Composite([x], [add(x, x)])) is None
    assert thin_composite(add) is None


def test_composites_that_differ_have_other_keys():
    """Equal texts with other numbers in them, or other functions, are other entries on disk."""
    x, y = float64("x"), float64("y")
    ops = [
        Composite([x], [mul(add(x, 2.0), x)]),
        Composite([x], [mul(add(x, 3.0), x)]),
        Composite([x], [mul(add(x, np.int8(2)), x)]),
        Composite([x], [add(mul(x, 2.0), x)]),
        Composite([x, y], [sub(add(x, y), x)]),
        Composite([x, y], [sub(add(x, y), y)]),
    ]
    from pymc_tempering.borrowed.private import numba_funcify_and_cache_key

    keys = []
    for op in ops:
        thin = thin_composite(op)
        node = thin.make_node(*(kind() for kind in thin.inputs_type))
        keys.append(numba_funcify_and_cache_key(thin, node=node)[1])
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_functions_of_others_keep_pytensors_composites():
    x = pt.vector("x")
    numba_mode()
    function = pytensor.function([x], pt.exp(x) * x + 1, mode="NUMBA")
    ops = [node.op.scalar_op for node in function.maker.fgraph.toposort()]
    assert any(isinstance(op, Composite) for op in ops)
    assert not any(isinstance(op, ThinComposite) for op in ops)
