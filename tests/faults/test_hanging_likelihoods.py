"""A likelihood that hangs: time limits and Ctrl-C act, and the other chains are returned."""

import _thread
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from support.kept_checkpoints import assert_same

import pymc_tempering as pmt
from pymc_tempering.chain import chains, pieces
from pymc_tempering.core import threads
from pymc_tempering.core.deadline import deadline_in
from pymc_tempering.core.threads import run_tasks
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.executors.chunks import send_chunks
from pymc_tempering.sampling import rounds


class Solver:
    """A likelihood in Python, one call of which hangs once that is asked for.

    Attributes
    ----------
    after : int
        Calls that come back, once armed.
    until : float
        When calls come back in any case, by `perf_counter`.
    interrupts : bool
        Whether Ctrl-C comes when it hangs.
    """

    def __init__(self):
        self.lock, self.release = threading.Lock(), threading.Event()
        self.after, self.until, self.interrupts = np.inf, 0.0, False

    def arm(self, after, *, seconds=0.0, interrupts=False):
        self.release.clear()
        self.after, self.interrupts = after, interrupts
        self.until = time.perf_counter() + seconds

    def let_go(self):
        """Let the call that hangs come back, and its thread end."""
        self.after = np.inf
        self.release.set()
        time.sleep(0.5)

    def __call__(self, x):
        with self.lock:
            self.after -= 1
            hangs = self.after <= 0 and time.perf_counter() > self.until
            if hangs:
                self.after = np.inf
        if hangs:
            if self.interrupts:
                _thread.interrupt_main()
            self.release.wait()
        return np.asarray(-0.5 * np.sum((x - 1.0) ** 2))


SOLVER = Solver()


class Solved(Op):
    """Calls the solver; a worker finds it by its name. All chains wait for one that hangs."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [pt.as_tensor_variable(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = SOLVER(inputs[0])


@pytest.fixture(scope="module")
def solver():
    return SOLVER


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("solved", Solved()(x))
    return model


@pytest.fixture(autouse=True)
def released(solver):
    yield
    solver.after = np.inf
    solver.release.set()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(chains, "SILENCE", 0.5)
    monkeypatch.setattr(chains, "SILENCE_TIMES", 5.0)
    monkeypatch.setattr(threads, "LEAVE_SECONDS", 0.5)


@pytest.fixture
def armed(monkeypatch, solver):
    """Let the solver hang some calls after the chains of the run have begun."""

    def arm(after, name="run_chains", **kwargs):
        original, begun = getattr(rounds, name), []

        def run(*args, **options):
            if not begun:
                begun.append(1)
                solver.arm(after, **kwargs)
            return original(*args, **options)

        monkeypatch.setattr(rounds, name, run)

    return arm


def sample(model, **kwargs):
    few = {"draws": 60, "chains": 3, "cores": 3, "random_seed": 1, "quiet": True}
    options = {"reference": "prior", "reference_draws": 0, "kernel": "slice"}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        idata = pmt.sample(model=model, **few | options | kwargs)
    return idata, [str(one.message) for one in said]


@pytest.fixture(scope="module")
def whole(model):
    return sample(model)[0]


def assert_begins(part, whole):
    """Draws of a run are the first ones of chains of another; they are whole, with their trace."""
    n = part.posterior.sizes["draw"]
    assert 0 < n <= whole.posterior.sizes["draw"]
    of_whole = whole.posterior["x"].values[:, :n]
    for chain in part.posterior["x"].values:
        assert any(np.array_equal(chain, other) for other in of_whole)
    assert np.isfinite(estimate_quietly(part, "bar").log_z)  # it reads the trace


@pytest.mark.slow("interrupts and restarts")
def test_max_time_returns_what_the_chains_have(impatient, armed, solver, model, tmp_path):
    """The chain that hangs stands where it did before: it goes on from there, and so can resume."""
    path, kwargs = tmp_path / "run.zarr", {"draws": 10_000, "max_time": 5.0}
    armed(2000)
    part, said = sample(model, checkpoint=path, **kwargs)
    assert any("has been in one piece of its work" in one for one in said)
    assert any("A chain hangs: the chains had drawn at least" in one for one in said)
    assert part["tempering"].attrs["interrupted"] == 1
    with pytest.raises(pmt.exceptions.LikelihoodError, match="A call of 'Solved' that began"):
        sample(model)
    solver.let_go()
    long, _ = sample(model, draws=part.posterior.sizes["draw"] + 1)
    assert_begins(part, long)


@pytest.mark.slow("interrupts and restarts")
@pytest.mark.parametrize("cores", [1, 3])
def test_ctrl_c_returns_what_the_chains_have(
    impatient, armed, solver, model, whole, tmp_path, cores
):
    path = tmp_path / "run.zarr"
    armed(3000, interrupts=True)
    part, said = sample(model, checkpoint=path, cores=cores)
    assert any("has been in one piece of its work" in one for one in said)
    assert_begins(part, whole)
    solver.let_go()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmt.TemperingWarning)
        assert_same(whole, pmt.resume(path, model=model, quiet=True))


@pytest.mark.slow("interrupts and restarts")
def test_without_a_limit_it_is_said(impatient, armed, solver, model, monkeypatch):
    """And waited for, however long it takes."""
    message = chains.hanging_message

    def said_and_released(*args):
        solver.release.set()
        return message(*args)

    monkeypatch.setattr(chains, "hanging_message", said_and_released)
    armed(2000)
    idata, said = sample(model)
    assert idata.posterior.sizes == {"chain": 3, "draw": 60, "x_dim_0": 2}
    [words] = [one for one in said if "seems to hang" in one]
    assert "Ctrl-C, or max_time= another time, returns the draws so far" in words


@pytest.mark.slow("interrupts and restarts")
def test_where_no_chain_has_a_draw_it_is_an_error(impatient, armed, model):
    armed(1)
    with pytest.raises(pmt.exceptions.StuckChainError, match=r"No chain has a draw.*seems to hang"):
        sample(model, cores=1, max_time=0.5)


@pytest.mark.slow("other processes")
def test_workers_that_hang_are_waited_for_no_longer(impatient, armed, solver, model, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_SECONDS", 0.2)
    armed(1000, seconds=2.0, name="send_chains")  # chains have come back with pieces
    with ThreadPoolExecutor(3) as pool:
        try:
            idata, said = sample(model, draws=10_000, max_time=5.0, executor=pool)
        finally:
            solver.let_go()
    assert any("A chain hangs" in one for one in said)
    assert idata.posterior.sizes["draw"] > 4


@pytest.mark.slow("interrupts and restarts")
def test_chunks_are_given_up_once_that_is_asked_for():
    release, back = threading.Event(), {}
    with ThreadPoolExecutor(2) as pool:
        ended = send_chunks(
            pool, _wait_if, None, [False, True], back.__setitem__,
            give_up=lambda silence, longest: silence > 0.3,
        )  # fmt: skip
        RELEASE.set()
        release.set()
    assert ended.silent
    assert ended.early
    assert back == {0: "done"}


RELEASE = threading.Event()


def _wait_if(shared, waits):
    if waits:
        RELEASE.wait()
    return "done"


@pytest.mark.slow("interrupts and restarts")
def test_tasks_that_hang_are_left_when_the_time_is_over(monkeypatch):
    monkeypatch.setattr(threads, "LEAVE_SECONDS", 0.2)
    release = threading.Event()
    tasks = [lambda stop: 1, lambda stop: release.wait(), lambda stop: 3]
    assert run_tasks(tasks, 3, deadline=deadline_in(0.1)) == ([1, 3], True)
    release.set()


@pytest.mark.slow("interrupts and restarts")
def test_ctrl_c_while_threads_start_keeps_what_is_done(monkeypatch):
    start, begun, stops = threading.Thread.start, [], []

    def interrupted(thread):
        start(thread)
        begun.append(thread)
        begun[0].join()  # it has taken the first task, and the second
        raise KeyboardInterrupt

    def last(stop):
        stops.append(stop)
        return 2

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        assert run_tasks([lambda stop: 1, last], 2) == ([1, 2], True)
    assert len(begun) == 1
    assert stops[0].is_set()


@pytest.mark.slow("other processes")
def test_a_thread_that_hangs_does_not_keep_the_process():
    script = (
        "import threading; from pymc_tempering.core import threads\n"
        "threads.LEAVE_SECONDS = 0.1\n"
        "from pymc_tempering.core.deadline import PAST\n"
        "tasks = [lambda stop: 1, lambda stop: threading.Event().wait()]\n"
        "print(threads.run_tasks(tasks, 2, deadline=PAST))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "([1], True)"


@pytest.mark.slow("interrupts and restarts")
def test_a_chain_that_is_set_back_goes_on_as_if_nothing_had_been(model):
    """Planted: with generators, point or sums of later, the next draws would be others."""
    from pymc_tempering.chain.chains import make_runner, new_record, start_chain
    from pymc_tempering.kernels.assign import compile_with_kernels
    from pymc_tempering.sampling.call import Job, Options
    from pymc_tempering.sampling.choose_plan import choose_plan

    prior, kernel = compile_with_kernels(model, "slice", 0.8)
    job = Job(prior, kernel, Options(reference="prior"), np.random.default_rng(1))
    plan = choose_plan(job).plan
    state = start_chain(plan, np.random.default_rng(2))
    advance, record = make_runner(plan), new_record(200, plan.ladder.n_rungs, 2)
    advance(state, record, 200, 300)
    mark = chains.mark_of(state)
    n = state.n_draws
    advance(state, record, 200, 600)
    back = chains.state_at(mark, plan)
    assert back.n_draws == n < state.n_draws
    again = new_record(200, plan.ladder.n_rungs, 2)
    advance(back, again, 200, 600)
    for name in ("x", "per_rung", "scalars"):
        one, other = (getattr(of, name)[n : state.n_draws] for of in (record, again))
        np.testing.assert_array_equal(one, other)
    assert back.rung == state.rung


@pytest.mark.slow("interrupts and restarts")
def test_a_thread_that_comes_back_late_changes_nothing(impatient, armed, solver, model, whole):
    armed(3000, interrupts=True)
    part, _ = sample(model)
    before = part.posterior["x"].values.copy()
    solver.let_go()
    np.testing.assert_array_equal(part.posterior["x"].values, before)
    assert_begins(part, whole)
