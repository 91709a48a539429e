"""The part of a density that depends on a pm.Data is found, and evaluated as PyMC does."""

import numpy as np
import pymc as pm
import pytest

from pymc_tempering.exceptions import DataMismatchError, ModelError
from pymc_tempering.model.density_change import density_change

X = np.random.default_rng(1).normal(size=(30, 2))


def regression():
    with pm.Model() as model:
        design = pm.Data("design", X)
        seen = pm.Data("seen", X.sum(axis=1))
        sigma_b = pm.Data("sigma_b", 2.0)
        scale = pm.Data("scale", 1.5)
        top = pm.Data("top", 4.0)
        rate = pm.Data("rate", 3.0)
        pm.Data("idle", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=2)  # not centered: sigma_b is in the likelihood
        noise = pm.HalfNormal("noise", scale)
        u = pm.Uniform("u", 0.0, top)
        k = pm.Poisson("k", rate)
        pm.Potential("soft", -0.5 * (u / scale) ** 2)
        pm.Normal("y", design @ (z * sigma_b) + u + k, noise, observed=seen)
    return model


MODEL = regression()


@pytest.mark.parametrize(
    ("container", "terms", "needs", "moves"),
    [
        ("sigma_b", ("y",), {"z", "noise", "u", "k"}, ()),
        ("scale", ("noise", "soft"), {"noise", "u"}, ()),
        ("top", ("u",), {"u"}, ("u",)),
        ("rate", ("k",), {"k"}, ("k",)),  # of a discrete variable nothing is known
    ],
)
def test_terms_are_those_that_depend_on_the_data(container, terms, needs, moves):
    change = density_change(MODEL, container)
    assert (change.terms, set(change.needs), change.moves_support) == (terms, needs, moves)


def test_change_is_that_of_the_whole_log_density():
    """Transforms cancel: the difference in the unconstrained space is the whole difference."""
    rng = np.random.default_rng(2)
    n = 7
    point = {
        "z": rng.normal(size=(n, 2)),
        "noise_log__": rng.normal(size=n),
        "u_interval__": rng.normal(size=n),
        "k": rng.poisson(3.0, size=n),
    }
    log_density = MODEL.compile_logp(mode="FAST_COMPILE")
    rows = [{name: values[i] for name, values in point.items()} for i in range(n)]
    for container, new in (("sigma_b", 0.7), ("scale", 3.0)):
        change = density_change(MODEL, container)
        old = MODEL[container].get_value()
        found = change.evaluate(point, np.array(new)) - change.evaluate(point, old)
        before = np.array([log_density(row) for row in rows])
        MODEL[container].set_value(new)
        after = np.array([log_density(row) for row in rows])
        MODEL[container].set_value(old)
        np.testing.assert_allclose(found, after - before, rtol=1e-8)


@pytest.mark.parametrize(
    ("container", "error", "message"),
    [
        ("nobody", DataMismatchError, "no pm.Data named 'nobody'; it has 'design'"),
        ("idle", ModelError, "Nothing in the density .* 'idle'"),
        ("seen", ModelError, "'seen' holds the observed values of 'y'"),
    ],
)
def test_data_that_no_prior_depends_on_are_refused(container, error, message):
    with pytest.raises(error, match=message):
        density_change(MODEL, container)


def test_a_value_outside_its_range_has_no_density():
    change = density_change(MODEL, "scale")
    point = {"noise_log__": np.zeros(3), "u_interval__": np.zeros(3)}
    assert np.all(change.evaluate(point, np.array(-1.0)) == -np.inf)
