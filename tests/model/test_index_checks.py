"""Data that are indices outside of their arrays are refused before work, wherever a model has them.

The planted fault is the usual one: groups that are numbered from 1.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_tempering as pmt
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.density_graphs import known_values
from pymc_tempering.model.index_checks import check_indices

GROUP = np.repeat(np.arange(8), 5)
FROM_ONE = GROUP + 1
Y = np.random.default_rng(1).normal(size=40)
ROLES = ("prior", "likelihood", "potential", "deterministic", "container")


def model(wrong="", bad=FROM_ONE):
    """Groups that are selected in several places, one of them with indices that are wrong."""
    at = {role: bad if role == wrong else GROUP for role in ROLES}
    with pm.Model(coords={"group": range(8)}) as made:
        mu = pm.Normal("mu", 0, 2, shape=(2, 8))
        a = pm.Normal("a", mu[1, at["prior"]][::5], 1.0, dims="group")
        pm.Deterministic("d", 2 * a[at["deterministic"]])
        pm.Potential("pot", -0.01 * pt.sum(a[at["potential"]] ** 2))
        which = pm.Data("which", at["container"])
        pm.Normal("y", a[at["likelihood"]] + a[which], 1.0, observed=Y)
    return made


def test_indices_that_fit_pass():
    check_indices(model())
    check_indices(model("likelihood", GROUP - 8))  # from the end
    check_indices(model("prior", GROUP.astype("uint8")))


@pytest.mark.parametrize("role", ROLES)
def test_an_index_that_is_outside_is_named(role):
    array = "mu" if role == "prior" else "a"
    axis = 1 if role == "prior" else 0
    source = " in 'which'" if role == "container" else ""
    with pytest.raises(ModelError) as error:
        check_indices(model(role))
    assert f"Index 8{source} is outside of axis {axis} of '{array}', which has length 8" in str(
        error.value
    )
    with pytest.raises(ModelError, match="Index -9 "):
        check_indices(model(role, GROUP - 9))


FRONTS = {
    "sample": lambda model: pmt.sample(10, model=model, quiet=True, random_seed=1),
    "compile": lambda model: pmt.compile(model, progressbar=False),
    "step": lambda model: pmt.SimulatedTempering(model=model, random_seed=1),
    "ais": lambda model: pmt.ais(model, random_seed=1, progressbar=False),
    "fit": lambda model: pmt.fit(10, model=model, random_seed=1, progressbar=False),
}


@pytest.mark.parametrize("front", FRONTS)
def test_every_front_door_refuses(front):
    with pytest.raises(ModelError, match="Index 8 is outside"):
        FRONTS[front](model("likelihood"))


@pytest.mark.slow("compiles models of its own")
def test_new_data_are_looked_at_anew():
    with pm.Model() as made:
        a = pm.Normal("a", shape=8)
        pm.Normal("y", a[pm.Data("which", GROUP)], 1.0, observed=Y)
    handle = pmt.compile(made, progressbar=False)
    with pytest.raises(ModelError, match="Index 8 in 'which'"):
        pmt.sample(10, model=handle.with_data(which=FROM_ONE), quiet=True)
    with made:
        pm.set_data({"which": FROM_ONE})
    with pytest.raises(ModelError, match="Index 8 in 'which'"):
        pmt.sample(10, model=made, quiet=True)


def test_computed_indices_and_lengths_are_looked_at():
    with pm.Model() as made:
        a = pm.Normal("a", shape=pm.Data("covariate", np.zeros(8)).shape)
        pm.Normal("y", a[pm.Data("which", GROUP) + 1], 1.0, observed=Y)
    with pytest.raises(ModelError, match="axis 0 of 'a', which has length 8"):
        check_indices(made)


def test_what_is_not_known_passes():
    """Masks, labels that are drawn, and slices."""
    with pm.Model() as made:
        mu = pm.Normal("mu", shape=3)
        z = pm.Categorical("z", np.ones(3) / 3, shape=40)
        b = pm.Normal("b", shape=(8, 4))
        pm.Normal("y", mu[z] + b[GROUP, 1] + b[1:, 2][GROUP // 2], 1.0, observed=Y)
        pm.Potential("half", pt.sum(b[GROUP[:8] > 3, -1]))
    check_indices(made)


def test_values_are_known_of_what_is_no_draw_also_beside_draws():
    with pm.Model():
        which = pm.Data("which", GROUP)
        z = pm.Categorical("z", pm.Dirichlet("w", np.ones(3)), shape=40)
        found = known_values([z, which, z[which], which + 1, z.shape[0]])
    assert [value is None for value in found] == [True, False, True, False, False]
    np.testing.assert_array_equal(found[1], GROUP)
    np.testing.assert_array_equal(found[3], GROUP + 1)
    assert found[4] == 40


def test_nothing_is_computed_for_labels_that_are_drawn(caplog):
    """PyTensor would compute what their law is made of, and log what it cannot compute."""
    with pm.Model() as made:
        table = pt.constant(np.full((8, 2), 0.5))
        z = pm.Categorical("z", table[pm.Data("which", FROM_ONE)])
        pm.Normal("y", pm.Normal("mu", shape=2)[z], 1.0, observed=Y)
    with pytest.raises(ModelError, match="Index 8 in 'which' is outside of axis 0"):
        check_indices(made)
    assert not caplog.records


def labels(n_labels, where=lambda z: z, **size):
    """Two means, and so many labels that select them."""
    with pm.Model(coords={"row": range(3)}) as made:
        mu = pm.Normal("mu", 0, 2, shape=2)
        z = pm.Categorical("z", np.full(n_labels, 1 / n_labels), **size)
        pm.Normal("y", mu[where(z)], 1, observed=[1.0, 2.0, 3.0], dims="row")
    return made


@pytest.mark.parametrize("size", [{"dims": "row"}, {"shape": 3}])
def test_labels_are_indices(size):
    check_indices(labels(2, **size))
    check_indices(labels(3, lambda z: pt.minimum(z, 1), **size))
    check_indices(labels(4, lambda z: z // 2, **size))
    for bad in (labels(3, **size), labels(2, lambda z: z + GROUP[:3] + 1, **size)):
        with pytest.raises(ModelError, match=r"Index 2.* is outside of axis 0 of 'mu'"):
            check_indices(bad)


def test_a_label_too_many_is_refused_before_it_is_summed_out(capfd):
    with pytest.raises(ModelError, match="Index 2 in 'z' is outside of axis 0 of 'mu'"):
        pmt.sample(10, model=labels(3, dims="row"), quiet=True, random_seed=1, progressbar=False)
    assert "Traceback" not in capfd.readouterr().err
