"""Thin forms of operations: NumPy's numbers in every layout, and errors where shapes do not fit."""

from itertools import permutations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core import event

from pymc_tempering.model.exactly import exactly
from pymc_tempering.model.exactly import compile_exactly
from pymc_tempering.model.thin_operations import thin_operation

LAYOUTS = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "backward": lambda x: x[::-1, ..., ::-1],
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "one row for all": lambda x: np.broadcast_to(x[:1], x.shape),
}
ROWS = np.array([2, 0, 2, 3, 2])
COLUMNS = np.array([1, 1, 1, 0, 2])


def numbers(shape, dtype="float64"):
    return (10 * np.random.default_rng(len(shape)).normal(size=shape)).astype(dtype)


def is_thin(variable):
    return thin_operation(variable.owner) is not None


ORDERS = [
    *permutations((0, 1, 2)),
    *permutations((0, 2)),
    (0, "x", 2, "x"),
    ("x", 2, 0, 1),
]
SUMMED = [(2, 0, 1), (2, 0), (0, "x", 2, "x")]
"""Orders of axes whose views are used once more: what comes after sees the view, too."""


def shuffled(given, order):
    """What NumPy makes of a stack of rows with another order of its axes."""
    kept = [axis for axis in order if axis != "x"]
    left = given if 1 in kept else given[:, 0]
    place = {axis: i for i, axis in enumerate(sorted(kept))}
    moved = left.transpose([place[axis] for axis in kept])
    return np.expand_dims(moved, tuple(i for i, axis in enumerate(order) if axis == "x"))


# Each kind of layout is compiled for anew: of other numbers than float64 the plain one alone is,
# and of the orders, which are the same code for all numbers, a few.
@pytest.mark.parametrize(
    ("dtype", "layouts", "orders", "summed"),
    [
        ("float64", [*LAYOUTS], ORDERS, SUMMED),
        ("int8", ["C"], ORDERS[3::2], SUMMED[:1]),
        ("bool", ["C"], ORDERS[3::2], SUMMED[:1]),
    ],
    ids=["float64", "int8", "bool"],
)
def test_axes_in_any_order_new_and_left_out(dtype, layouts, orders, summed):
    x = pt.tensor("x", dtype=dtype, shape=(None, 1, None))
    y = pt.scalar("y", dtype=dtype)
    views = [x.dimshuffle(*order) for order in orders]
    ones = [y.dimshuffle("x"), y.dimshuffle("x", "x")]
    assert all(is_thin(output) for output in [*views, *ones] if output is not x)
    sums = [x.dimshuffle(*order).sum(axis=0) for order in summed]
    function = compile_exactly([x, y], [*views, *ones, *sums])
    for shape in [(4, 1, 3), (1, 1, 5), (3, 1, 1), (0, 1, 2)]:
        for change in (LAYOUTS[name] for name in layouts):
            given = change(numbers(shape, dtype)) if 0 not in shape else numbers(shape, dtype)
            expected = [shuffled(given, order) for order in orders]
            expected += [np.ones(1, dtype), np.ones((1, 1), dtype)]
            expected += [shuffled(given, order).sum(axis=0) for order in summed]
            found = function(given, np.array(1, dtype))
            for view, value in zip(found[: -len(sums)], expected, strict=False):
                assert view.dtype == value.dtype
                np.testing.assert_array_equal(view, value)
            for total, value in zip(found[-len(sums) :], expected[-len(sums) :], strict=True):
                np.testing.assert_allclose(total, value, rtol=1e-12)


def test_a_view_outlives_what_it_is_a_view_of():
    """The array that is exponentiated is held by the views alone."""
    x = pt.vector("x")
    base = pt.exp(x)
    function = compile_exactly([x], [base.dimshuffle("x", 0), base.dimshuffle(0, "x").T])
    given = np.linspace(0.0, 1.0, 1000)
    found = [function(given) for _ in range(50)]
    for row, column in found:
        np.testing.assert_allclose(row[0], np.exp(given), rtol=1e-15)
        np.testing.assert_allclose(column[0], np.exp(given), rtol=1e-15)


def test_an_axis_of_unknown_length_that_is_left_out_is_checked():
    x = pt.matrix("x")
    left_out = pt.squeeze(x, axis=1)
    assert not is_thin(left_out)
    function = compile_exactly([x], left_out)
    np.testing.assert_array_equal(function(np.ones((3, 1))), np.ones(3))
    with pytest.raises(ValueError, match="squeeze"):
        function(np.ones((3, 2)))


def test_shapes_are_checked():
    x, n = pt.matrix("x"), pt.iscalar("n")
    checked = pt.specify_shape(x, (None, n))
    assert is_thin(checked)
    with event.install_recorder("numba:compile") as recorder:
        function = compile_exactly([x, n], 2.0 * checked)
        np.testing.assert_array_equal(function(np.ones((3, 2)), 2), np.full((3, 2), 2.0))
        with pytest.raises(AssertionError, match="dim 1"):
            function(np.ones((3, 2)), 3)
    texts = [e.data["dispatcher"].py_func.__module__ for _, e in recorder.buffer]
    assert not [name for name in texts if "unicode" in str(name)]


SELECTIONS = {
    "rows": lambda x: (x[:, :, 0], (ROWS,)),
    "rows of a stack": lambda x: (x, (ROWS,)),
    "pairs": lambda x: (x[:, :, 0], (ROWS, COLUMNS)),
    "pairs of a stack": lambda x: (x, (ROWS, COLUMNS)),
    "one column": lambda x: (x[:, :, 0], (ROWS, 2)),
    "from the end": lambda x: (x, (ROWS - 4, -1)),
    "one element": lambda x: (x, (ROWS[:1],)),
    "none": lambda x: (x, (ROWS[:0],)),
}


USUAL = ["C", "backward", "every other"]
"""Two kinds of arrays to Numba, so two compilations."""
BROAD = ("rows", "pairs of a stack", "from the end")
"""The selections that are tried in all layouts; the loops are the same for all."""


@pytest.mark.parametrize(
    ("name", "dtype", "layouts"),
    [
        *((name, "float64", [*LAYOUTS] if name in BROAD else USUAL) for name in SELECTIONS),
        *((name, "int64", USUAL[:2] if name in BROAD else ["C"]) for name in SELECTIONS),
    ],
)
def test_selections_and_updates_are_those_of_numpy(name, dtype, layouts):
    array, indices = SELECTIONS[name](numbers((4, 3, 2), dtype))
    x = pt.tensor("x", dtype=dtype, shape=array.shape)
    y = pt.tensor("y", dtype=dtype, shape=array[indices].shape)
    graphs = [
        x[indices], x[indices].inc(y), x[indices].set(y), x[indices].inc(2), x[indices].set(2),
    ]  # fmt: skip
    assert all(is_thin(graph) for graph in graphs)
    function = compile_exactly([x, y], graphs)
    new = numbers((1, *y.type.shape), dtype)[0]
    for change in (LAYOUTS[layout] for layout in layouts):
        array, _ = SELECTIONS[name](change(numbers((4, 3, 2), dtype)))
        before = array.copy()
        found = function(array, new)
        added, written = before.copy(), before.copy()
        np.add.at(added, indices, new)
        written[indices] = new
        more, same = before.copy(), before.copy()
        np.add.at(more, indices, 2)
        same[indices] = 2
        for value, expected in zip(
            found, [before[indices], added, written, more, same], strict=True
        ):
            assert value.dtype == expected.dtype
            np.testing.assert_array_equal(value, expected)
        np.testing.assert_array_equal(array, before)  # what was given is as it was


def test_other_selections_keep_pytensors_forms():
    x, y = pt.matrix("x"), pt.vector("y")
    pairs = np.array([[0, 1], [2, 2]])
    graphs = {
        "mask": x[np.array([True, False, True])],
        "matrix of numbers": x[pairs],
        "after a slice": x[1:, [0, 2]],
        "unequal lengths": x[[0, 1, 2], [1]],
        "a row for all": x[[0, 2]].inc(y),
    }
    assert not [name for name, graph in graphs.items() if is_thin(graph)]
    given, row = numbers((3, 3)), numbers((3,))
    found = compile_exactly([x, y], list(graphs.values()))(given, row)
    added = given.copy()
    added[[0, 2]] += row
    expected = [given[[0, 2]], given[pairs], given[1:, [0, 2]], given[[0, 1, 2], [1]], added]
    for value, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, right)


def test_the_bits_are_those_of_pytensors_own_forms():
    x, y = pt.matrix("x", shape=(50, 3)), pt.vector("y", shape=(7,))
    at = np.array([4, 4, 10, 3, 4, 49, 0])
    effect = x[at, 1] * pt.exp(y)
    graph = effect.sum()
    outputs = [graph, x.T * x[:, 0], *pytensor.grad(graph, [x, y])]
    given = numbers((50, 3)), numbers((7,))
    ours = compile_exactly([x, y], outputs)(*given)
    with exactly():
        theirs = pytensor.function([x, y], outputs, mode="NUMBA")(*given)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)
