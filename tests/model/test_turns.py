"""A user's own operations are called by one thread at a time, if they do not say that all may."""

import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_tempering as pmt


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
