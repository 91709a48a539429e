"""A function that is called late is compiled at its first call, and errors of that are told."""

import threading

import numba
import numpy as np
import pytest
from numba import float64, types
from numba.extending import intrinsic

from pymc_tempering.borrowed.private import address_of
from pymc_tempering.model.jit import compile_now, njit
from pymc_tempering.model.late import call_late
from pymc_tempering.references.compiled_mixture import evaluate_rows

VECTOR = float64[::1]


class Asked:
    """How often Python was asked for the address, and what it answers."""

    times = 0
    error = None


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Asked, "times", 0)
    monkeypatch.setattr(Asked, "error", None)


@njit(types.void(VECTOR))
def double(x):
    """What is called late."""
    if x[0] < 0.0:
        raise ValueError("below zero")
    for i in range(x.size):
        x[i] *= 2.0


def address():
    """Give its address."""
    Asked.times += 1
    if Asked.error is not None:
        raise Asked.error
    compile_now(double)
    return address_of(double, (VECTOR,))


@intrinsic
def double_late(typingctx, x):
    """Call it."""

    def codegen(context, builder, signature, args):
        return call_late(context, builder, (__name__, "address"), signature.args, args)

    return types.void(VECTOR), codegen


def use(x, wanted):
    """Double it, or not."""
    for _ in range(2):
        if wanted:
            double_late(x)
    return x[0]


def using():
    """A new dispatcher."""
    return njit(float64(VECTOR, types.boolean))(use)


def test_it_is_asked_for_once_and_only_if_it_is_called():
    function, x = using(), np.ones(3)
    assert function(x, False) == 1.0
    assert Asked.times == 0
    assert function(x, True) == 4.0
    assert function(x, True) == 16.0
    assert Asked.times == 1


def test_code_from_disk_asks_anew():
    using()(np.ones(1), True)
    again = using()
    assert again(np.ones(1), True) == 4.0
    assert sum(again.stats.cache_hits.values()) == 1
    assert Asked.times == 2


def test_an_error_of_the_asking_is_raised_and_the_next_call_asks_again():
    function, x = using(), np.ones(1)
    Asked.error = RuntimeError("no compiler here")
    with pytest.raises(RuntimeError, match="no compiler here"):
        function(x, True)
    Asked.error = None
    assert function(x, True) == 4.0


def test_an_error_of_the_function_is_raised():
    with pytest.raises(ValueError, match="below zero"):
        using()(np.array([-1.0]), True)


def test_threads_without_the_lock_may_ask_at_once():
    function = using()
    function(np.ones(1), False)
    barrier, found = threading.Barrier(8), []

    def call():
        x = np.ones(1)
        barrier.wait()
        found.append(function(x, True))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [4.0] * 8


def test_loops_have_no_code_of_mixtures_in_them():
    loop = njit(evaluate_rows.signature)(evaluate_rows.py_func)
    compile_now(loop)
    [code] = loop.inspect_llvm().values()
    assert "mixture_address" in code
    assert "to_mixture" not in code
