"""One small model, compiled once for all tests of this folder."""

import pymc as pm
import pytest


def make_model(observed=(1.0, 2.5, 0.3), scale=2.0):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, scale)
        sd = pm.HalfNormal("sd", 1.0)
        pm.Normal("y", mu, sd, observed=list(observed))
    return model


@pytest.fixture(scope="package")
def model():
    return make_model()


@pytest.fixture
def other_model():
    return make_model
