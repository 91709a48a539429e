"""A restricted Boltzmann machine of 8 visible and 5 hidden units, all of them free variables."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp

_RNG = np.random.default_rng(0)
WEIGHTS, VISIBLE, HIDDEN = (_RNG.normal(0, s, n) for s, n in ((1.0, (8, 5)), (0.5, 8), (0.5, 5)))

STATES_OF_HIDDEN = np.array(list(itertools.product([0, 1], repeat=5)))
FIELDS = VISIBLE + STATES_OF_HIDDEN @ WEIGHTS.T
"""Log odds of the visible units, given each state of the hidden ones."""
LOG_P = STATES_OF_HIDDEN @ HIDDEN + np.log1p(np.exp(FIELDS)).sum(axis=1)
"""Log of the weight of each state of the hidden units, the visible ones summed out."""
LOG_Z = logsumexp(LOG_P)


def machine():
    """Build the model, from coin flips on: PyMC knows nothing of how its units are coupled."""
    with pm.Model() as model:
        v, h = pm.Bernoulli("v", 0.5, shape=8), pm.Bernoulli("h", 0.5, shape=5)
        energy = pt.dot(v, VISIBLE) + pt.dot(h, HIDDEN) + pt.dot(v, pt.dot(WEIGHTS, h))
        pm.Potential("energy", energy + 13 * np.log(2.0))  # undo the prior's constant
    return model


def draws(rng, chains, n):
    """Exact draws of both layers, by name."""
    which = rng.choice(len(LOG_P), (chains, n), p=np.exp(LOG_P - LOG_Z))
    v = rng.random((chains, n, 8)) < 1.0 / (1.0 + np.exp(-FIELDS[which]))
    return {"v": v.astype(int), "h": STATES_OF_HIDDEN[which]}
