"""What holds while something compiles ends when the last thread has compiled."""

import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import config

from pymc_tempering.model.exactly import compile_exactly, exactly
from pymc_tempering.model.identity import content_hash
from pymc_tempering.model.path import compile_path
from pymc_tempering.model.python_mode import compile_alone
from pymc_tempering.references.compile import compile_model

MESSAGE = "Numba will use object mode to run a test"


@contextmanager
def another_thread_inside():
    """Have a thread compile while the body of the block begins, which leaves soon after."""
    inside = threading.Event()

    def compile_something():
        with exactly():
            inside.set()
            time.sleep(0.05)

    thread = threading.Thread(target=compile_something)
    thread.start()
    inside.wait()
    yield
    thread.join()


@pytest.mark.parametrize("fast_math", [True, False])
def test_a_second_thread_waits_and_the_settings_are_given_back(fast_math):
    with config.change_flags(numba__fastmath=fast_math):
        with another_thread_inside(), exactly():
            assert config.numba__fastmath is False
            with warnings.catch_warnings(record=True) as caught:
                warnings.warn(MESSAGE, stacklevel=1)
            assert not caught
        assert config.numba__fastmath is fast_math
    with pytest.warns(UserWarning, match=MESSAGE):
        warnings.warn(MESSAGE, stacklevel=1)


def test_a_graph_that_does_not_compile_gives_them_back():
    def fail():
        with exactly():
            raise ValueError("no such operation")

    with pytest.raises(ValueError, match="no such operation"):
        fail()
    assert config.numba__fastmath is True


def test_a_model_is_the_same_while_another_thread_compiles():
    with pm.Model() as model:
        pm.Normal("x", pm.Normal("mean"), observed=[1.0, 2.0])
    before = content_hash(model)
    with another_thread_inside():
        assert content_hash(model) == before


def test_threads_that_compile_at_once_leave_the_mode():
    """PyTensor sets the mode of the process while it compiles, and puts back what it found."""

    def graph(i):
        x = pt.vector()
        return [x], pt.exp(x * i).sum()

    before, start = config.mode, threading.Barrier(4)

    def compile_both(i):
        start.wait()
        for _ in range(5):
            compile_exactly(*graph(i))
            compile_alone(*graph(i))

    threads = [threading.Thread(target=compile_both, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert config.mode == before


@pytest.fixture
def restless():
    """Let threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.usefixtures("restless")
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_threads_do_not_get_the_draws_of_each_other():
    """A function of PyTensor's keeps its arguments in itself while Python draws by it.

    Without a lock a fifth of the rounds raised, or gave one thread the draws of another.
    """
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        pm.Poisson("y", rate * (1 + pm.DiscreteUniform("when", 0, 9)), observed=[3, 4])
    prior = compile_model(model, gradient=())

    def draws(seed):
        return prior.draw(256, prior.spawn(np.random.default_rng(seed)))

    alone = list(map(draws, range(8)))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(15):
            np.testing.assert_array_equal(list(pool.map(draws, range(8))), alone)


@pytest.mark.slow("compiles models of its own")
def test_a_rewriting_that_fails_prints_no_traceback(caplog):
    """PyTensor counts to 290 in a byte while it joins the slices of this random walk."""
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        walk = pm.GaussianRandomWalk("walk", sigma=sd, init_dist=pm.Normal.dist(), shape=290)
        pm.Normal("y", walk, 1.0, observed=np.zeros(290))
    compile_path(model)
    assert "Rewrite failure" not in caplog.text
