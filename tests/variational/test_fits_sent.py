"""Fits from several starts on the workers of an executor: the same fits, which can go on."""

from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from support import variational_models as models

import pymc_tempering as pmt
from pymc_tempering.executors import chunks as crew
from pymc_tempering.executors.chunks import Ended
from pymc_tempering.variational import fitting, methods

pytestmark = [
    pytest.mark.filterwarnings("ignore:The fit is not at rest"),
    pytest.mark.filterwarnings("ignore:Pareto k-hat"),
]
SHORT = {
    "n": 60,
    "restarts": 2,
    "random_seed": 2,
    "obj_optimizer": pm.adam(learning_rate=0.05),
    "progressbar": False,
}


def same(some, others):
    return len(some) == len(others) and all(
        np.array_equal(models.contents(one), models.contents(other), equal_nan=True)
        for one, other in zip(some, others, strict=True)
    )


@pytest.mark.slow("other processes")
@pytest.mark.parametrize(
    ("method", "build"),
    [
        ("variational_tempering", models.gaussian),
        ("local_variational_tempering", models.gaussian),
        ("annealed", models.minibatches),
    ],
)
def test_fits_of_workers_are_those_of_this_process_and_go_on_alike(method, build):
    here, there = build(), build()
    alone = pmt.fit(method=method, model=here, **SHORT).restarts
    with ThreadPoolExecutor(1) as pool:
        sent = pmt.fit(method=method, model=there, executor=pool, **SHORT).restarts
    assert same(sent, alone)
    assert not np.array_equal(models.contents(alone[0]), models.contents(alone[1]))
    assert all(fit.model is there for fit in sent)
    for fits in (alone, sent):
        for fit in fits:
            pmt.refine(fit, 40, progressbar=False)
    assert same(sent, alone)
    assert sent[0].hist.size == alone[0].hist.size > 60


@pytest.mark.slow("other processes")
def test_the_partition_function_is_computed_once(monkeypatch):
    calls, right = [], methods.log_partition
    monkeypatch.setattr(methods, "log_partition", lambda *a, **k: calls.append(a) or right(*a, **k))
    model = models.gaussian()
    with ThreadPoolExecutor(1) as pool:
        pmt.fit(method="variational_tempering", model=model, executor=pool, **SHORT)
    assert {id(found) for found, *_ in calls} == {id(model)}  # a worker has a copy


@pytest.mark.slow("other processes")
@pytest.mark.parametrize("failing", [1, 2])
def test_a_start_that_fails_in_a_worker_ends_the_call_only_where_all_fail(monkeypatch, failing):
    calls, right = [], fitting.finish

    def fragile(session):
        calls.append(1)
        if len(calls) <= failing:
            raise pmt.exceptions.LikelihoodError(f"start {len(calls)} is not finite")
        return right(session)

    monkeypatch.setattr(fitting, "finish", fragile)
    with ThreadPoolExecutor(1) as pool:
        arguments = {"model": models.gaussian(), "executor": pool, **SHORT}
        if failing == 2:
            with pytest.raises(pmt.exceptions.LikelihoodError, match="start 1"):
                pmt.fit(**arguments)
            return
        with pytest.warns(pmt.TemperingWarning, match="1 of 2 fits are missing"):
            assert len(pmt.fit(**arguments).restarts) == 1


@pytest.mark.slow("other processes")
def test_ctrl_c_keeps_the_fits_that_came_back(monkeypatch):
    model, right = models.gaussian(), crew.send_chunks

    def interrupted(executor, function, common, arguments, take, **more):
        right(executor, function, common, arguments[:kept], take, **more)
        return Ended(interrupted=True)

    monkeypatch.setattr(crew, "send_chunks", interrupted)
    with ThreadPoolExecutor(1) as pool:
        arguments = {"model": model, "executor": pool, **SHORT}
        kept = 1
        with pytest.warns(pmt.TemperingWarning, match="1 of 2 fits are missing"):
            assert len(pmt.fit(**arguments).restarts) == 1
        kept = 0
        with pytest.raises(KeyboardInterrupt, match="before the first fit"):
            pmt.fit(**arguments)


@pytest.mark.slow("other processes")
def test_what_cannot_be_sent_is_refused():
    class Broken(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            future = Future()
            future.set_exception(BrokenExecutor("it died"))
            return future

    model = models.gaussian()
    with pytest.raises(pmt.exceptions.ArgumentError, match=r"callbacks.*leave one of the two out"):
        pmt.fit(60, model=model, executor=Broken(1), callbacks=[print])
    with pytest.raises(pmt.exceptions.ArgumentError, match=r"concurrent\.futures\.Executor"):
        pmt.fit(60, model=model, executor=3)
    with pytest.raises(pmt.exceptions.WorkerError, match=r"it died.*0 of 2 parts"):
        pmt.fit(model=model, executor=Broken(1), **SHORT)
