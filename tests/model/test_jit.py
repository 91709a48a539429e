"""A compiled function is compiled when it is first used, once, and only for its own signature."""

import pickle
import threading

import numba
import numpy as np
import pytest
from numba import float64, int64, types
from numba.core.event import install_recorder

from pymc_tempering.kernels.leapfrog import set_force
from pymc_tempering.model import sources
from pymc_tempering.model.jit import compile_now, njit

VECTOR = float64[::1]
OF_VECTOR = float64(VECTOR, float64)
FUNCTION = types.FunctionType(OF_VECTOR)


def weigh(x, factor):
    """Sum of x, times a factor."""
    total = 0.0
    for value in x:
        total += factor * value
    return total


def weighing():
    """A new dispatcher, not compiled yet."""
    return njit(OF_VECTOR)(weigh)


def compiled_during(call):
    """Names of the functions that Numba compiled, in order."""
    with install_recorder("numba:compile") as recorder:
        call()
    return [e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer if e.is_start]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))


X = np.arange(3.0)


def test_it_compiles_at_the_first_call_and_never_again():
    function = weighing()
    assert function.signatures == []
    assert compiled_during(lambda: function(X, 2.0)) == ["weigh"]
    assert compiled_during(lambda: function(X, 2.0)) == []
    assert function(X, 2.0) == 6.0


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    "bad",
    [np.arange(6.0)[::2], np.arange(3), np.ones((2, 2)), "text"],
    ids=["strided", "whole numbers", "matrix", "text"],
)
def test_other_types_are_refused_and_compile_nothing(bad, settled):
    function = weighing()
    if settled:
        function(X, 1.0)
    with pytest.raises(TypeError, match="No matching definition"):
        function(bad, 1.0)
    assert function.signatures == [(VECTOR, float64)]


def test_numbers_are_converted_at_the_first_call_as_at_later_ones():
    function = weighing()
    assert function(X, 2) == 6.0
    assert function(X, factor=2) == 6.0
    assert function.signatures == [(VECTOR, float64)]


def test_a_compiled_caller_compiles_it_for_its_own_signature():
    function = weighing()

    @njit(float64(VECTOR, int64))
    def caller(x, factor):
        return function(x, factor)

    assert compiled_during(lambda: caller(X, 2)) == ["caller", "weigh"]
    assert caller(X, 2) == 6.0
    assert function.inner.signatures == [(VECTOR, float64)]


def test_python_gets_a_version_of_its_own():
    """What callers have linked in has no way in for Python; a call of it would be a crash."""
    function = weighing()

    @njit(float64(VECTOR))
    def caller(x):
        return function(x, 2.0)

    assert caller(X) == 6.0
    assert function.signatures == []
    assert compiled_during(lambda: function(X, 2.0)) == ["weigh"]
    assert function(X, 2.0) == 6.0


def test_a_compiled_caller_with_other_types_is_refused():
    function = weighing()

    @njit(float64(float64[:], float64))
    def caller(x, factor):
        return function(x, factor)

    with pytest.raises(numba.TypingError, match="Invalid use of type"):
        caller(X[::2], 1.0)
    assert function.inner.signatures == [(VECTOR, float64)]


def test_it_compiles_when_it_is_passed_on_as_a_function():
    @njit(float64(FUNCTION, VECTOR))
    def apply(function, x):
        return function(x, 2.0)

    function = weighing()
    assert apply(function, X) == 6.0
    assert function.signatures == [(VECTOR, float64)]


@pytest.mark.filterwarnings("ignore::numba.NumbaExperimentalFeatureWarning")
def test_it_compiles_when_functions_are_gone_through():
    function, other = weighing(), weighing()

    @njit(float64(VECTOR))
    def caller(x):
        total = 0.0
        for each in (function, other):
            total += each(x, 2.0)
        return total

    assert caller(X) == 12.0
    assert function.signatures == other.signatures == [(VECTOR, float64)]


def test_compile_now_leaves_nothing_for_the_first_call():
    function = weighing()
    compile_now(function, len)
    assert compiled_during(lambda: function(X, 2.0)) == []
    assert function.signatures == [(VECTOR, float64)]


def test_a_function_of_another_type_is_refused_as_an_argument():
    @njit(float64(FUNCTION, VECTOR))
    def apply(function, x):
        return function(x, 2.0)

    with pytest.raises(TypeError, match=r"compilation disabled|No matching definition"):
        apply(set_force, X)


def test_it_may_call_itself():
    @njit(int64(int64))
    def factorial(n):
        if n < 2:
            return 1
        return n * factorial(n - 1)

    assert factorial(5) == 120


def test_threads_compile_it_once():
    function = weighing()
    barrier = threading.Barrier(8)
    found = []

    def call():
        barrier.wait()
        found.append(function(X, 2.0))

    def together():
        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert compiled_during(together) == ["weigh"]
    assert found == [6.0] * 8


def test_an_error_while_compiling_is_raised_at_each_use():
    @njit(float64(VECTOR))
    def wrong(x):
        return x.no_such_thing

    for _ in range(2):
        with pytest.raises(numba.TypingError, match="no_such_thing"):
            wrong(X)


@pytest.mark.parametrize("used", [False, True])
def test_a_pickle_keeps_the_signature(used):
    function = weighing()
    if used:
        function(X, 1.0)
    text = pickle.dumps(function)
    function._memo.pop(str(function._uuid))  # as in another process
    again = pickle.loads(text)
    assert again is not function
    assert again(X, 2.0) == 6.0
    with pytest.raises(TypeError, match="No matching definition"):
        again(np.arange(3), 1.0)


def test_without_numba_it_is_the_function(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert weighing() is weigh


def test_what_was_edited_after_the_import_is_not_cached(monkeypatch, tmp_path):
    function = weighing()
    function(X, 1.0)
    assert sum(function.stats.cache_misses.values()) == 1
    again = weighing()
    again(X, 1.0)
    assert sum(again.stats.cache_hits.values()) == 1
    monkeypatch.setattr(sources, "IMPORTED_AT", 0.0)  # all files look new
    edited = weighing()
    edited(X, 1.0)
    assert edited.stats.cache_path is None
