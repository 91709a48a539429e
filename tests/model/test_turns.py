"""A user's own operations are called by one thread at a time, if they do not say that all may."""

import threading
import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_tempering as pmt
from pymc_tempering.core.turns import TURNS
from pymc_tempering.fields.whiten import sampled_model
from pymc_tempering.references.as_written import findings_at
from pymc_tempering.references.compile import compile_model


class Counted(Op):
    """Minus half the square of a number; it counts how many calls there are at once."""

    def __init__(self):
        self.now = self.most = 0

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(1e-5)  # other threads run meanwhile
        outputs[0][0] = np.asarray(-0.5 * inputs[0] ** 2)
        self.now -= 1


class Safe(Counted):
    thread_safe = True


@pytest.mark.parametrize(("kind", "takes_turns"), [(Counted, True), (Safe, False)])
def test_calls_at_once(kind, takes_turns):
    op = kind()
    with pm.Model() as model:
        pm.Potential("likelihood", op(pm.Normal("x")))
    run = pmt.sample(50, chains=2, cores=2, model=model, random_seed=1, quiet=True,
                     progressbar=False)  # fmt: skip
    assert (op.most == 1) == takes_turns
    found = pmt.log_marginal_likelihood(run)
    assert abs(found.log_z + 0.5 * np.log(2)) < 4 * found.mcse


def test_while_a_call_hangs_nothing_is_taken_for_compared():
    with pm.Model(coords={"row": range(3)}) as model:
        mu = pm.Normal("mu", 0, 2, shape=2)
        z = pm.Categorical("z", [0.4, 0.6], dims="row")
        pm.Normal("y", mu[z], 1, observed=[-1.0, 1.0, 2.0], dims="row")
        pm.Potential("likelihood", Counted()(mu[0]))
    path = compile_model(sampled_model(model), gradient=()).path
    xs, release, begun = np.zeros((4, 2)), threading.Event(), threading.Event()
    assert findings_at(path, xs) == ()

    def hang():
        with TURNS.turn("'Solver'"):
            begun.set()
            release.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    begun.wait()
    time.sleep(0.2)
    TURNS.give_up()
    [finding] = findings_at(path, xs)
    release.set()
    thread.join()
    assert (finding.code, finding.severity) == ("not_compared", "unchecked")
    assert "A call of 'Solver' that began 0 s ago" in str(finding)
    assert findings_at(path, xs) == ()
