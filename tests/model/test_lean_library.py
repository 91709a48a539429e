"""Functions are optimized, and become machine code, with their callers; bits and errors stay."""

import importlib.util

import numba
import numpy as np
import pytest
from numba import float64, int64

from pymc_tempering.borrowed.numba_code import OpenLibrary, libraries_of
from pymc_tempering.model.jit import njit
from pymc_tempering.model.lean_library import LeanLibrary, lean_libraries

VECTOR = float64[::1]
X = np.random.default_rng(1).normal(size=1000)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))


@pytest.fixture
def finished(monkeypatch):
    """Names of the libraries that became machine code."""
    names = []
    finish = OpenLibrary.finish

    def counted(self):
        names.append(self.name)
        finish(self)

    monkeypatch.setattr(OpenLibrary, "finish", counted)
    return names


def total(x):
    """Sum of terms that an optimizer could put in another order, if it was allowed to."""
    sum_of_terms = 0.0
    for value in x:
        sum_of_terms += np.exp(-value * value) / 3.0 + np.log1p(value * value)
    return sum_of_terms


def chain_of_three(jit):
    """Three functions that call each other in a row, and the innermost."""
    inner = jit(float64(VECTOR))(total)

    @jit(float64(VECTOR))
    def middle(x):
        return inner(x) + inner(x[::-1].copy())

    @jit(float64(VECTOR))
    def outer(x):
        return middle(x) * middle(0.5 * x)

    return outer, inner


def test_one_library_of_three_becomes_machine_code(finished):
    outer, inner = chain_of_three(njit)
    outer(X)
    own = [name for name in finished if name != "nrt"]  # that of Numba's own, once in a process
    assert own == ["chain_of_three.<locals>.outer"]
    [compiled] = inner.inner.overloads.values()
    assert isinstance(compiled.library, LeanLibrary)
    assert not compiled.library.is_final


def test_the_bits_are_those_of_numba_alone():
    lean, plain = (chain_of_three(jit)[0] for jit in (njit, numba.njit))
    assert lean(X) == plain(X)


def test_what_a_caller_has_linked_in_can_be_called_by_others():
    """By Python, by plain compiled code, and by its address."""
    outer, inner = chain_of_three(njit)
    outer(X)

    @numba.njit(float64(VECTOR))
    def plain(x):
        return inner(x)

    @numba.njit(float64(numba.types.FunctionType(float64(VECTOR)), VECTOR))
    def by_address(function, x):
        return function(x)

    assert plain(X) == inner(X) == by_address(inner, X) == numba.njit(total)(X)


def test_parts_of_numba_that_were_compiled_meanwhile_serve_others():
    """The code behind `np.full` comes with a lean caller; Numba keeps it for all."""
    value = 2.5

    @njit(float64(int64))
    def lean(n):
        return np.full((n, n, 1, 1), value).sum()

    @numba.njit(float64(int64))
    def plain(n):
        return np.full((n, n, 1, 1), value).sum()

    assert lean(3) == plain(3) == 22.5


def test_an_error_keeps_its_words_and_numbers():
    @njit(float64(float64))
    def root(x):
        if x < 0.0:
            raise ValueError("a number below zero", x)
        return np.sqrt(x)

    @njit(float64(float64))
    def caller(x):
        return root(x) + 1.0

    assert caller(4.0) == 3.0
    with pytest.raises(ValueError, match="below zero") as caught:
        caller(-2.0)
    assert caught.value.args == ("a number below zero", -2.0)


def test_functions_may_call_each_other_in_a_circle():
    @njit(int64(int64))
    def is_even(n):
        return 1 if n == 0 else is_odd(n - 1)

    @njit(int64(int64))
    def is_odd(n):
        return 0 if n == 0 else is_even(n - 1)

    @njit(int64(int64))
    def caller(n):
        return 10 * is_even(n) + is_odd(n)

    assert [caller(n) for n in (0, 1, 7, 8)] == [10, 1, 1, 10]


FILE = """
import numba, numpy as np

@numba.njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
def innermost(x):
    if x > 100.0:
        raise ValueError("too large", x)
    with numba.objmode(y="float64"):  # needs what Numba calls an environment
        y = float(str(x))
    return np.exp(y) + 1.0

@numba.njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
def inner(x):
    return 2.0 * innermost(x)

def outer():
    @numba.njit
    def outer(x):
        return inner(x) - 1.0
    return outer
"""


def module_from(path):
    """The module in a file, anew."""
    spec = importlib.util.spec_from_file_location("kept_functions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def file(tmp_path, monkeypatch):
    """File of functions that Numba keeps on disk; entries import their module by its name."""
    path = tmp_path / "kept_functions.py"
    path.write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    return path


@pytest.mark.parametrize("reader", [lean_libraries, lambda: libraries_of(OpenPlain)])
def test_what_is_kept_while_it_is_open_can_be_read_by_lean_and_by_plain_libraries(file, reader):
    with lean_libraries():
        module = module_from(file)
        outer = module.outer()
        value = outer(1.0)
        with pytest.raises(ValueError, match="too large"):
            outer(1000.0)
    assert value == 2.0 * (np.exp(1.0) + 1.0) - 1.0
    assert sum(module.inner.stats.cache_misses.values()) == 1
    again = module_from(file)
    with reader():
        outer = again.outer()
        assert outer(1.0) == value
        with pytest.raises(ValueError, match="too large"):
            outer(1000.0)
    assert sum(again.inner.stats.cache_hits.values()) == 1
    assert sum(again.inner.stats.cache_misses.values()) == 0


OpenPlain = OpenLibrary.__mro__[1]
"""Numba's own kind of library."""


def test_constants_of_a_callee_are_there_where_python_is_called():
    @njit(float64(float64), nogil=False)
    def inner(x):
        with numba.objmode(y="float64"):
            y = float(str(x)) + 1.0
        return y

    @njit(float64(float64), nogil=False)
    def outer(x):
        return 2.0 * inner(x)

    assert outer(1.5) == 5.0


ADDRESSES = """
import ctypes, numba

labs = ctypes.CDLL(None).labs
labs.argtypes, labs.restype = [ctypes.c_long], ctypes.c_long

@numba.njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
def inner(x):
    return labs(x)

@numba.njit
def outer(x):
    return inner(x) + 1
"""


def test_addresses_of_this_process_are_not_kept(file):
    file.write_text(ADDRESSES)
    module = module_from(file)
    with lean_libraries(), pytest.warns(numba.NumbaWarning, match="dynamic globals"):
        assert module.outer(-3) == 4
    assert not list(file.parent.rglob("kept_functions*.nbc"))


def test_the_kind_of_libraries_is_as_before_after_an_error():
    @njit(float64(float64))
    def wrong(x):
        return x.no_such_thing

    with pytest.raises(numba.TypingError, match="no_such_thing"):
        wrong(1.0)

    @numba.njit(float64(float64))
    def plain(x):
        return x

    [compiled] = plain.overloads.values()
    assert type(compiled.library) is OpenPlain
