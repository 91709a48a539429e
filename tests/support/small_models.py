"""Small models: all transforms in one, a covariance, a missing link, and a single mean."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions import transforms

X = np.linspace(-1.0, 1.0, 6)
Y = np.array([0.3, -0.2, 0.8, 1.1, 0.4, 1.9])
COUNTS = np.array([3, 1, 6])


def all_transforms(**initvals):
    """Transforms of all kinds, two likelihoods and a potential, data and deterministics."""
    with pm.Model(coords={"obs": np.arange(6), "kind": ["a", "b", "c"]}) as model:
        x = pm.Data("x", X, dims="obs")
        half = pm.HalfNormal("half", 0.7, initval=initvals.get("half"))
        uniform = pm.Uniform("uniform", -1.0, 3.0)
        shares = pm.Dirichlet("shares", np.array([2.0, 3.0, 1.5]), dims="kind")
        cuts = pm.Normal(
            "cuts", 0.5, 1.2, shape=3, transform=transforms.ordered, initval=initvals.get("cuts")
        )
        angle = pm.VonMises("angle", 0.4, 1.5)
        zero_sum = pm.ZeroSumNormal("zero_sum", sigma=0.9, shape=3)
        matrix = pm.Normal("matrix", half, 1.3, shape=(2, 2), initval=initvals.get("matrix"))
        mu = pm.Deterministic("mu", uniform + zero_sum[0] * x + pt.sin(angle), dims="obs")
        pm.Normal("y", mu + matrix.sum() / 4, 0.5 + half, observed=Y, dims="obs")
        pm.Multinomial("counts", n=10, p=shares, observed=COUNTS)
        pm.Potential("pull", -0.5 * ((cuts - 0.2) ** 2).sum())
    return model


def covariance():
    """A covariance matrix, in a model of its own because it takes long to compile."""
    with pm.Model() as model:
        sd_dist = pm.HalfNormal.dist(1.0, shape=2)
        packed = pm.LKJCholeskyCov("packed", n=2, eta=2.0, sd_dist=sd_dist, compute_corr=False)
        pm.Normal("y", packed[1], packed[2], observed=[1.0, 0.5, -0.4])
    return model


def downstream():
    """b is free and lies downstream of the observed y; log evidence in closed form."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0)
        y = pm.Normal("y", a, 0.5, observed=2.0)
        b = pm.Normal("b", y, 0.7)
        pm.Normal("z", b, 0.4, observed=1.2)
    return model


def mean_only(observed=(1.0, 2.5), **prior):
    """The smallest model there is: the mean of a normal."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0, **prior)
        pm.Normal("y", mu, 1.0, observed=list(observed))
    return model
