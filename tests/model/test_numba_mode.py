"""Operations that compile at once: the numbers of NumPy in every layout, alone and in a model."""

import re
from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core import event
from pytensor import config

from pymc_tempering.model.blas import DONE, MULTIPLY, TOO_LARGE, UNEQUAL, make_ready, multiply
from pymc_tempering.model.jit import njit
from pymc_tempering.model.exactly import numba_mode
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.prior import evaluate_draws

LAYOUTS = {
    "C": lambda n, m, rng: rng.normal(size=(n, m)),
    "Fortran": lambda n, m, rng: np.asfortranarray(rng.normal(size=(n, m))),
    "gaps in both": lambda n, m, rng: rng.normal(size=(2 * n, 2 * m))[::2, ::2],
    "columns of a wider one": lambda n, m, rng: rng.normal(size=(n, m + 3))[:, 1 : m + 1],
    "rows of a transpose": lambda n, m, rng: rng.normal(size=(m + 3, n)).T[:, 1 : m + 1],
    "rows backward": lambda n, m, rng: rng.normal(size=(n, m))[::-1],
    "columns backward": lambda n, m, rng: rng.normal(size=(n, m))[:, ::-1],
    "one row": lambda n, m, rng: np.broadcast_to(rng.normal(size=(1, m)), (n, m)),
    "one column": lambda n, m, rng: np.broadcast_to(rng.normal(size=(n, 1)), (n, m)),
}
make_ready()
WRITABLE = [name for name in LAYOUTS if not name.startswith("one")]


@njit(MULTIPLY)
def compiled(m, k, k2, n, a, a_down, a_across, b, b_down, b_across, c, c_down, c_across):
    return multiply(m, k, k2, n, a, a_down, a_across, b, b_down, b_across, c, c_down, c_across)


def place(array):
    return (array.ctypes.data, *array.strides)


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_products_are_those_of_numpy_in_every_layout(left, right):
    rng = np.random.default_rng(1)
    for (m, k, n), out in product(product((0, 1, 2, 5), repeat=3), WRITABLE):
        a, b = LAYOUTS[left](m, k, rng), LAYOUTS[right](k, n, rng)
        c = LAYOUTS[out](m, n, rng)
        c[...] = np.nan
        around = c.base.copy() if c.base is not None else None
        assert compiled(m, k, k, n, *place(a), *place(b), *place(c)) == DONE
        np.testing.assert_allclose(c, a @ b, rtol=1e-12, atol=1e-12)
        if around is not None:  # nothing else was written
            c[...] = np.nan
            np.testing.assert_array_equal(c.base, around)


def test_sizes_that_do_not_fit_are_an_error():
    a = np.ones((2, 3))
    assert compiled(2, 3, 2, 3, *place(a), *place(a), *place(a)) == UNEQUAL
    assert compiled(2**31, 3, 3, 2, *place(a), *place(a), *place(a)) == TOO_LARGE
    left, right = pt.tensor3("left"), pt.tensor3("right")
    one = pytensor.function([left, right], left[0] @ right[0], mode=numba_mode())
    many = pytensor.function([left, right], left @ right, mode=numba_mode())
    for function in (one, many):
        assert function(np.ones((2, 3, 4)), np.ones((2, 4, 5))).shape[-2:] == (3, 5)
        with pytest.raises(ValueError, match="sizes do not fit"):
            function(np.ones((2, 3, 4)), np.ones((2, 3, 5)))


def test_a_graph_has_thin_operations_wherever_they_can_stand():
    matrix, vector, stack = pt.matrix("matrix"), pt.vector("vector"), pt.tensor3("stack")
    other = pt.tensor3("other")
    steps = pytensor.scan(lambda v, m: m @ v, outputs_info=[vector], non_sequences=[matrix],
                          n_steps=3, return_updates=False)  # fmt: skip
    filled, nested = pt.alloc(vector[0], 3, 2), stack[None] @ pt.stack([other, 2.0 * other])
    outputs = [matrix @ vector, stack @ matrix, stack @ other, steps, filled, nested]
    function = pytensor.function([matrix, vector, stack, other], outputs, mode=numba_mode())
    rng = np.random.default_rng(2)
    m, v = rng.normal(size=(3, 3)), rng.normal(size=3)
    s, o = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 3, 5))
    powers = np.array([np.linalg.matrix_power(m, i) @ v for i in (1, 2, 3)])
    expected = [m @ v, s @ m, s @ o, powers, np.full((3, 2), v[0]), s @ np.stack([o, 2.0 * o])]
    for found, value in zip(function(m, v, s, o), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-12)
    names = set(re.findall(r"(\w+) \[id", pytensor.dprint(function, file="str")))
    assert names >= {"ThinDot", "ThinBatchedDot", "ThinAlloc"}
    assert not names & {"Dot", "BatchedDot", "Alloc"}


def test_other_kinds_of_numbers_keep_pytensors_operations():
    whole, single = pt.lmatrix("whole"), pt.fmatrix("single")
    outputs = [whole @ whole, single @ single, pt.alloc(whole[0, 0], 3)]
    function = pytensor.function([whole, single], outputs, mode=numba_mode())  # not yet compiled
    assert "Thin" not in pytensor.dprint(function, file="str")


def test_functions_of_others_keep_pytensors_operations():
    matrix = pt.matrix("matrix")
    numba_mode()
    function = pytensor.function([matrix], matrix @ matrix, mode="NUMBA")
    assert "Thin" not in pytensor.dprint(function, file="str")


def test_no_copy_of_this_package_compiles_the_text_of_an_error():
    """Each would take seconds; see `pymc_tempering.model.copying`."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Normal("y", np.ones((4, 3)) @ x, 1.25, observed=np.zeros(4))
    no_disk = config.change_flags(numba__cache=False)  # what is found there is not compiled
    with no_disk, event.install_recorder("numba:compile") as recorder:
        evaluate_draws(compile_path(model, values=True), np.ones((2, 3)))
    names = [record.data["dispatcher"].py_func.__qualname__ for _, record in recorder.buffer]
    assert any(name == "density" for name in names)
    assert not [name for name in names if "raise_with_shape_context" in name]
