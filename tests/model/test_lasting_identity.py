"""What a model is, in words: the same in another process, another for another model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_tempering.model.identity import content_hash, differences, identity_of
from pymc_tempering.model.new_data import copy_of

HERE = Path(__file__)


def twice(x, scale):
    return pm.logp(pm.Normal.dist(0.0, scale), x) * 2


def regression(sd: float = 2.0, y: float = 1.0, name: str = "slope") -> pm.Model:
    """Build a model with data of both kinds, a transform and a potential."""
    with pm.Model(coords={"row": range(30)}) as model:
        x = pm.Data("x", np.linspace(-1, 1, 30), dims="row")
        slope = pm.Normal(name, 0.0, sd)
        noise = pm.HalfNormal("noise")
        pm.Potential("pull", -(slope**2))
        pm.Normal("y", slope * x, noise, observed=np.full(30, y), dims="row")
    return model


def own_density() -> pm.Model:
    """Build a model whose density is a function of the user."""
    with pm.Model() as model:
        scale = pm.Exponential("scale", 1.0)
        pm.CustomDist("x", scale, logp=twice, observed=np.array([0.5, 1.0]))
    return model


def inner_graphs() -> pm.Model:
    """Build a model of operations with graphs inside, a matrix and a discrete variable."""
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=1.0, sd_dist=pm.Exponential.dist(1.0))
        weights = pm.Dirichlet("weights", np.ones(2))
        places = pm.Normal.dist(pt.stack([chol[0, 0], chol[1, 1]]), 1.0)
        pm.Mixture("x", weights, places, observed=np.array([0.3, np.e]))
        pm.Poisson("n", 3.0)
    return model


def missing_values() -> pm.Model:
    """Build a model with missing data."""
    with pm.Model() as model:
        mean = pm.Normal("mean")
        with pytest.warns(UserWarning, match="missing"):
            pm.Normal("x", mean, observed=np.array([1.0, np.nan, 2.0]))
    return model


def deterministic_between() -> pm.Model:
    """Build a model with a deterministic variable between the unknowns and the data."""
    with pm.Model(coords={"row": range(2)}) as model:
        z = pm.Bernoulli("z", 0.3, dims="row")
        mean = pm.Deterministic("mean", z * pm.Normal("gap"), dims="row")
        pm.Normal("x", mean, observed=np.array([1.0, 2.0]), dims="row")
    return model


MODELS = (regression, own_density, inner_graphs, missing_values, deterministic_between)


@pytest.mark.parametrize("build", MODELS)
def test_a_copy_says_the_same(build):
    model = build()
    assert identity_of(copy_of(model)) == identity_of(model)


def all_identities() -> list:
    return [[identity_of(build()), content_hash(build())] for build in MODELS]


@pytest.mark.slow("other processes")
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_says_the_same(hash_seed):
    code = f"import sys; sys.path.insert(0, {str(HERE.parent)!r}); import {HERE.stem} as m\n"
    code += "import json; print('\\n' + json.dumps(m.all_identities()))"
    output = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(output.splitlines()[-1]) == json.loads(json.dumps(all_identities()))


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"sd": 3.0}, "'slope'"), ({"y": 1.5}, "'y'"), ({"name": "steep"}, "free variables")],
)
def test_what_differs_is_named(changed, named):
    assert named in differences(identity_of(regression()), identity_of(regression(**changed)))
    assert content_hash(regression()) != content_hash(regression(**changed))


def test_new_numbers_of_shared_data_are_data():
    model = regression()
    stored = identity_of(model)
    model.set_data("x", np.linspace(-2, 1, 30))
    assert "data 'x'" in differences(stored, identity_of(model))


def test_the_same_model_differs_in_nothing():
    for build in MODELS:
        assert differences(identity_of(build()), identity_of(build())) == ""
