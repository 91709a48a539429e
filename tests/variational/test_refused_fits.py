"""Fits and normalizers that are refused, before any work."""

import numpy as np
import pymc as pm
import pytest

import pymc_tempering as pmt


def normal_mean(**options):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu, 1.0, **({"observed": np.zeros(3)} | options))
    return model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "variational_tempering", "tA": -1.0}, "tA must be zero or positive, got -1"),
        (
            {
                "method": "local_variational_tempering", "temperatures": [1.0, 2.0],
                "inverse_temperature_prior": (1.0, 1.0),
            },
            "give temperatures or inverse_temperature_prior, not both",
        ),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        pmt.fit(10, model=normal_mean(), **options)


def test_models_that_do_not_fit():
    with pm.Model() as model:
        pm.Normal("y", 0.0, 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.ModelError, match="no free variables to fit"):
        pmt.fit(10, model=model)
    some = normal_mean(observed=pm.Minibatch(np.zeros(50), batch_size=5), total_size=50)
    with pytest.raises(ValueError, match=r"obj_n_mc must be 1 with pm\.Minibatch, got 2"):
        pmt.fit(10, model=some, obj_n_mc=2)


def test_normalizers_that_there_are_not():
    with pytest.raises(TypeError, match="must be a random variable of PyMC, not float"):
        pmt.variational.log_tempered_normalizer(1.0, 2.0)
    with pytest.raises(ValueError, match="T has 1 dimensions"):
        pmt.variational.log_tempered_normalizer(pm.Normal.dist(0.0, 1.0), np.array([1.0, 2.0]))
    atom = pm.Mixture.dist([0.5, 0.5], [pm.DiracDelta.dist(0.0), pm.Normal.dist(0.0, 1.0)])
    with pytest.raises(pmt.exceptions.NormalizerError, match="adds an atom"):
        pmt.variational.log_tempered_normalizer(atom, 2.0)
