"""Reductions by plain loops: NumPy's results for all axes, layouts and sizes."""

import re
from itertools import combinations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core import event

from pymc_tempering.model.exactly import compile_exactly, numba_mode

REDUCTIONS = {
    "sum": ("float64", lambda x, axis: x.sum(axis), np.sum),
    "prod": ("float64", lambda x, axis: x.prod(axis), np.prod),
    "max": ("float64", lambda x, axis: x.max(axis), np.max),
    "min": ("float64", lambda x, axis: x.min(axis), np.min),
    "all": ("bool", lambda x, axis: pt.all(x, axis), np.all),
    "any": ("bool", lambda x, axis: pt.any(x, axis), np.any),
}
USUAL = {
    "C": lambda x: x,
    "backward": lambda x: x[::-1, ..., ::-1],
    "backward columns": lambda x: np.asfortranarray(x)[::-1, ..., ::-1],
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
}
"""Two kinds of arrays to Numba, so two compilations, with either order of the strides."""
LAYOUTS = USUAL | {
    "F": np.asfortranarray,
    "one row for all": lambda x: np.broadcast_to(x[:1], x.shape),
}


def numbers(dtype, shape):
    rng = np.random.default_rng(sum(shape))
    return rng.random(shape) < 0.6 if dtype == "bool" else rng.normal(size=shape)


def names_in(function):
    return set(re.findall(r"(\w+)(?:\{[^}]*\})? \[id", pytensor.dprint(function, file="str")))


# The loops are written by the number of axes: of each kind of numbers, one reduction has three.
# They are the same for all reductions but for the step in them, so one has all layouts.
@pytest.mark.parametrize(
    ("kind", "ndim", "layouts"),
    [
        ("sum", 2, LAYOUTS),
        ("sum", 3, LAYOUTS),
        *((kind, 2, USUAL) for kind in REDUCTIONS if kind != "sum"),
        ("max", 3, USUAL),
        ("all", 3, USUAL),
    ],
)
def test_reductions_are_those_of_numpy(kind, ndim, layouts):
    dtype, symbolic, concrete = REDUCTIONS[kind]
    x = pt.tensor("x", dtype=dtype, shape=(None,) * ndim)
    every = [axes for n in range(1, ndim + 1) for axes in combinations(range(ndim), n)]
    function = compile_exactly([x], [symbolic(x, axes) for axes in every])
    assert "ThinReduce" in names_in(function)
    shapes = [(3, 5, 4)[:ndim], (1, 2, 7)[:ndim], (6, 1, 1)[:ndim]]
    if kind not in ("max", "min"):  # those of nothing are an error in NumPy
        shapes += [(0, 3, 2)[:ndim], (3, 0, 2)[:ndim]]
    for shape in shapes:
        for change in layouts.values():
            given = change(numbers(dtype, shape))
            for axes, found in zip(every, function(given), strict=True):
                expected = concrete(given, axis=axes)
                assert found.dtype == expected.dtype
                np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_so(kind, value):
    _, symbolic, concrete = REDUCTIONS[kind]
    x = pt.matrix("x")
    function = compile_exactly([x], [symbolic(x, 0), symbolic(x, 1), symbolic(x, None)])
    for place in ((0, 0), (1, 2), (2, 3)):
        given = numbers("float64", (3, 4))
        given[place] = value
        for axis, found in zip((0, 1, None), function(given), strict=True):
            np.testing.assert_allclose(found, concrete(given, axis=axis), rtol=1e-13)


def test_other_kinds_of_numbers_and_functions_keep_pytensors_reductions():
    whole, single, matrix = pt.lmatrix("whole"), pt.fmatrix("single"), pt.matrix("matrix")
    outputs = [whole.sum(0), single.sum(1), single.max(0)]
    function = pytensor.function([whole, single], outputs, mode=numba_mode())
    assert "ThinReduce" not in names_in(function)
    theirs = pytensor.function([matrix], matrix.sum(0), mode="NUMBA")
    assert "ThinReduce" not in names_in(theirs)


def test_no_sorting_is_compiled_for_a_sum():
    x = pt.tensor3("x")
    function = compile_exactly([x], [x.sum(1), pt.logsumexp(x, axis=2), x.sum()])
    with event.install_recorder("numba:compile") as recorder:
        function(np.ones((2, 3, 4)))
    compiled = {str(found.data["dispatcher"]) for _, found in recorder.buffer}
    assert not [name for name in compiled if "sort" in name]
