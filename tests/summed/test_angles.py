"""Circles that are cut: the transform, where it cuts, and evidences by quadrature."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import i0e, logsumexp

import pymc_tempering as pmt
from pymc_tempering.model.origin import origin_of
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.summed.angles import CutTransform, angle_of, emptiest
from pymc_tempering.summed.sum_out import sum_out

Y = np.array([3.0, -3.1, 2.6, -2.7, 3.05, -2.9, 2.2])


def direction():
    """Mean direction of angles about pi."""
    with pm.Model() as model:
        mu = pm.VonMises("mu", 0.0, 0.5)
        pm.VonMises("y", mu, 2.0, observed=Y)
    return model


def exact_direction():
    angles = np.linspace(-np.pi, np.pi, 4000, endpoint=False)
    log_p = 0.5 * np.cos(angles) - np.log(i0e(0.5)) - 0.5 + 2 * np.cos(Y[:, None] - angles).sum(0)
    log_p = log_p - Y.size * (np.log(i0e(2.0)) + 2.0) - (Y.size + 1) * np.log(2 * np.pi)
    return float(logsumexp(log_p) + np.log(2 * np.pi / angles.size))


def test_the_transform_has_an_inverse_and_its_jacobian():
    value = pt.vector("value")
    cut = CutTransform(np.array([0.3, -2.9, 3.1]))
    angle = cut.backward(value)
    slope = pytensor.gradient.jacobian(angle, value)
    graphs = [angle, cut.forward(angle), cut.log_jac_det(value), pt.log(pt.diag(slope))]
    function = pytensor.function([value], graphs, mode=python_mode())
    x = np.array([0.7, -1.9, 2.5])
    angles, again, log_slope, expected = function(x)
    assert ((angles >= -np.pi) & (angles < np.pi)).all()
    np.testing.assert_allclose(again, x, rtol=1e-10)
    np.testing.assert_allclose(log_slope, expected, rtol=1e-10)
    np.testing.assert_allclose(angle_of(x, cut.place), angles)


def test_a_circle_is_cut_opposite_to_its_modes():
    assert abs(emptiest(np.array([3.1, -3.1]))) < 0.1
    between = emptiest(np.array([[0.0, 3.0], [1.0, 3.0]]))
    assert abs(np.angle(np.exp(1j * (between[0] - 0.5 - np.pi)))) < 0.1
    assert abs(np.angle(np.exp(1j * (between[1] - 3.0 - np.pi)))) < 0.1


def test_angles_across_the_end_of_the_circle_have_one_mode_and_a_fitted_reference():
    model = direction()
    idata = pmt.sample(model=model, random_seed=1, quiet=True, cores=1)
    found = pmt.log_marginal_likelihood(idata)
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert found.verdict == "ok"
    assert found.mcse < 0.004
    assert abs(found.log_z - exact_direction()) < 4 * found.mcse
    mu = idata.posterior["mu"]
    assert ((mu >= -np.pi) & (mu < np.pi)).all()
    assert abs(mu).min() > 1
    assert (mu > 0).any()
    assert (mu < 0).any()


@pytest.mark.slow("compiles models of its own")
def test_without_the_jacobian_of_the_cut_the_evidence_would_be_wrong(monkeypatch):
    """Planted."""
    monkeypatch.setattr(
        CutTransform, "log_jac_det", lambda self, value, *inputs: pt.zeros_like(value)
    )
    short = sum_out(direction())
    grid, step = np.linspace(-30, 30, 6001, retstep=True)
    log_p = short.compile_logp(mode=python_mode())
    total = logsumexp([float(log_p({"mu_cut__": u})) for u in grid]) + np.log(step)
    assert abs(total - exact_direction()) > 0.1


@pytest.mark.slow("compiles models of its own")
def test_a_cut_model_has_the_evidence_of_the_whole_one():
    short = sum_out(direction())
    grid, step = np.linspace(-30, 30, 6001, retstep=True)
    log_p = short.compile_logp(mode=python_mode())
    total = logsumexp([float(log_p({"mu_cut__": u})) for u in grid]) + np.log(step)
    assert total == pytest.approx(exact_direction(), abs=1e-4)


@pytest.mark.slow("compiles models of its own")
def test_angles_and_labels_together():
    with pm.Model() as model:
        mu = pm.VonMises("mu", np.array([0.0, 3.0]), 1.0, shape=2)
        z = pm.Bernoulli("z", 0.3, shape=Y.size)
        pm.VonMises("y", mu[z], 2.0, observed=Y)
    short = sum_out(model)
    assert [rv.name for rv in short.free_RVs] == ["mu"]
    rows = origin_of(short).whole(np.array([[0.3, -0.4], [1.2, 0.1]]))
    assert rows.shape == (2, 2 + Y.size)
    assert (np.abs(rows[:, :2]) <= np.pi).all()
    assert set(np.unique(rows[:, 2:])) <= {0.0, 1.0}


@pytest.mark.slow("repeats")
def test_labels_have_their_law_given_the_angles():
    """Where a circle is cut, the tables of labels must still be those of the angles of a draw."""
    with pm.Model() as model:
        mu = pm.VonMises("mu", np.array([0.0, 3.0]), 1.0, shape=2)
        z = pm.Bernoulli("z", 0.3, shape=Y.size)
        pm.VonMises("y", mu[z], 2.0, observed=Y)
    u = np.array([0.3, -0.4]) + np.random.default_rng(1).uniform(-1e-9, 1e-9, (3000, 2))
    rows = origin_of(sum_out(model)).whole(u)
    density = np.exp(2.0 * np.cos(Y[:, None] - rows[0, :2])) * [0.7, 0.3]
    p = density[:, 1] / density.sum(axis=1)
    error = np.sqrt(p * (1 - p) / 3000)
    assert (np.abs(rows[:, 2:].mean(axis=0) - p) < 4.5 * error).all()


@pytest.mark.skipif(not hasattr(pmd, "VonMises"), reason="pymc.dims has none before 6.4")
def test_an_angle_of_pymc_dims_is_cut_too():
    """Left on its circle, which has no end on the line, log Z was log(2 pi) too high."""
    with pm.Model(coords={"row": range(Y.size)}) as model:
        mu = pmd.VonMises("mu", 0.0, 0.5)
        pmd.VonMises("y", mu, 2.0, observed=pmd.Data("data", Y, dims="row"))
    idata = pmt.sample(model=model, random_seed=1, quiet=True, cores=1)
    found = pmt.log_marginal_likelihood(idata)
    assert found.verdict == "ok"
    assert abs(found.log_z - exact_direction()) < 4.0 * found.mcse < 0.05
    assert abs(idata.posterior["mu"]).max() <= np.pi
