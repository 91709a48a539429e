"""A function is compiled once, for its own signature, and found on disk by its edition."""

import threading

import numba
import numpy as np
import pytest
from numba import float64, int64, types
from numba.core.event import install_recorder
from pytensor import config
from pytensor.link.numba import cache

from pymc_tempering.model import jit
from pymc_tempering.model.jit import compile_now, njit

VECTOR = float64[::1]
OF_VECTOR = float64(VECTOR, float64)
FUNCTION = types.FunctionType(OF_VECTOR)
X = np.arange(3.0)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "NUMBA_CACHE_PATH", tmp_path)
    monkeypatch.setattr(jit, "FOLDER", tmp_path)
    return tmp_path


def weigh(x, factor):
    """Sum of x, times a factor."""
    total = 0.0
    for value in x:
        total += factor * value
    return total


def weighing():
    """A new dispatcher, not compiled yet, as another process has it."""
    return njit(OF_VECTOR)(weigh)


def compiled_during(call):
    """Names of the functions that Numba compiled, in order."""
    with install_recorder("numba:compile") as recorder:
        call()
    return [e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer if e.is_start]


def test_compile_now_leaves_nothing_for_the_first_call():
    function = weighing()
    assert function.signatures == []
    assert compiled_during(lambda: compile_now(function)) == ["weigh"]
    assert compiled_during(lambda: function(X, 2.0)) == []
    assert function(X, 2) == 6.0
    assert function.signatures == [(VECTOR, float64)]


@pytest.mark.parametrize(
    "bad",
    [np.arange(6.0)[::2], np.arange(3), np.ones((2, 2)), "text"],
    ids=["strided", "whole numbers", "matrix", "text"],
)
def test_other_types_are_refused_and_compile_nothing(bad):
    function = weighing()
    compile_now(function)
    with pytest.raises(TypeError, match="No matching definition"):
        function(bad, 1.0)
    assert function.signatures == [(VECTOR, float64)]


def test_functions_are_passed_on_and_called():
    @njit(float64(FUNCTION, VECTOR))
    def apply(function, x):
        return function(x, 2.0)

    function = weighing()
    compile_now(function, apply)
    assert compiled_during(lambda: apply(function, X)) == []
    assert apply(function, X) == 6.0


def test_errors_of_a_function_that_is_passed_on_reach_python():
    @njit(OF_VECTOR)
    def wrong(x, factor):
        if factor > 1.0:
            raise ValueError("in the middle")
        return factor

    @njit(float64(FUNCTION, VECTOR))
    def apply(function, x):
        return function(x, 2.0)

    compile_now(wrong, apply)
    with pytest.raises(ValueError, match="in the middle"):
        apply(wrong, X)


def test_it_may_call_itself():
    @njit(int64(int64))
    def factorial(n):
        if n < 2:
            return 1
        return n * factorial(n - 1)

    assert factorial(5) == 120


def test_threads_compile_it_once():
    function, barrier, found = weighing(), threading.Barrier(8), []

    def call():
        barrier.wait()
        compile_now(function)
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
            compile_now(wrong)


def hits(function):
    compile_now(function)
    return sum(function.stats.cache_hits.values())


def test_another_edition_of_the_package_is_another_entry(monkeypatch):
    """The edition is a hash of all files, so that no edit of a callee leaves a caller as it was."""
    assert hits(weighing()) == 0
    assert hits(weighing()) == 1
    monkeypatch.setattr(jit, "EDITION", "another")
    assert hits(weighing()) == 0
    assert hits(weighing()) == 1


def test_a_key_tells_functions_of_one_template_apart():
    assert hits(njit(OF_VECTOR, key="one")(weigh)) == 0
    assert hits(njit(OF_VECTOR, key="two")(weigh)) == 0
    assert hits(njit(OF_VECTOR, key="one")(weigh)) == 1


def test_what_is_not_to_be_kept_is_not(folder):
    with config.change_flags(numba__cache=False):
        compile_now(weighing())
    compile_now(njit(OF_VECTOR, key=None)(weigh))
    assert not list(folder.iterdir())
