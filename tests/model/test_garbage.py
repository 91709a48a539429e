"""The search for garbage pauses while a function is compiled, and is as it was afterwards."""

import gc

import pymc as pm
import pytest
from numba import int64

from pymc_tempering.kernels.assign import compile_with_kernels
from pymc_tempering.model import jit
from pymc_tempering.model.exactly import no_search_for_garbage
from pymc_tempering.model.memory import remembered


@pytest.fixture(params=[True, False])
def was_on(request):
    """Whether the search is on before; it is on again after the test."""
    if not request.param:
        gc.disable()
    yield request.param
    gc.enable()


def test_the_search_is_off_in_between_and_then_as_it_was(was_on):
    with no_search_for_garbage():
        assert not gc.isenabled()
        with no_search_for_garbage():  # a function that another one calls
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == was_on


def test_an_error_leaves_it_as_it_was(was_on):
    def pause_and_fail():
        with no_search_for_garbage():
            raise ValueError("a graph that does not compile")

    with pytest.raises(ValueError, match="does not compile"):
        pause_and_fail()
    assert gc.isenabled() == was_on


def test_a_compilation_pauses_it(monkeypatch):
    function, seen = jit.njit(int64(int64))(lambda x: x + 2), []
    base = function.compile
    monkeypatch.setattr(function, "compile", lambda sig: seen.append(gc.isenabled()) or base(sig))
    jit.compile_now(function)
    assert function(1) == 3
    assert seen == [False]
    assert gc.isenabled()


def test_it_pauses_once_for_all_that_is_compiled_of_a_model():
    """Between two functions of a model there is no search either."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=[1.0, 2.0])
    assert not remembered(model, "anything", gc.isenabled)
    seen = []
    gc.callbacks.append(lambda phase, info: seen.append(phase))
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1000, 1000)
    try:
        compile_with_kernels(model, None, 0.8)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.pop()
    assert len(seen) < 20  # before it and after it, and by the thousand without the pause
