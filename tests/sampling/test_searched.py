"""What has not looked for modes is noted in each result, and leaves the verdict as it is."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import wrap_py

import pymc_tempering as pmt

TOURS = ("not_searched", "the tours")


def level():
    with pm.Model(coords={"row": list("abc")}) as model:
        mu = pm.Normal("mu", 0, 2)
        pm.Normal("y", mu, 1, observed=[0.3, -0.4, 1.0], dims="row")
    return model


@wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
def squared(x):
    return np.asarray(x**2)


def black_box():
    with pm.Model() as model:
        pm.Potential("likelihood", -squared(pm.Normal("mu", 0, 2)))
    return model


def noted(idata):
    found = pmt.log_marginal_likelihood(idata)
    assert all(finding.severity == "note" for finding in found.findings)
    return found, [(finding.code, finding.about) for finding in found.findings]


def run(model, **options):
    return pmt.sample(model=model, random_seed=1, cores=1, quiet=True, progressbar=False, **options)


def test_a_run_from_the_prior_says_that_nothing_else_has_searched():
    idata = run(level(), reference="prior")
    found, notes = noted(idata)
    assert (found.verdict, notes) == ("ok", [TOURS])
    assert "note: nothing but the tours looked for modes" in repr(found)
    longer = pmt.extend(idata, draws=100, model=level(), quiet=True, progressbar=False)
    assert noted(longer)[1] == [TOURS]


def test_a_default_run_has_searched():
    assert noted(run(level()))[1] == []


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(
    ("build", "options", "kernel"),
    [(level, {"kernel": "slice"}, "'slice'"), (black_box, {}, "'metropolis'")],
)
def test_without_gradients_nothing_climbs(build, options, kernel):
    assert noted(run(build(), **options))[1] == [("not_climbed", kernel)]


@pytest.mark.slow("PyMC's chains take seconds")
@pytest.mark.filterwarnings("ignore:R-hat", "ignore:The effective")
def test_a_step_method_has_not_searched():
    with level():
        idata = pm.sample(
            200, chains=2, cores=1, step=pmt.SimulatedTempering(), random_seed=1, progressbar=False
        )
    assert noted(idata)[1] == [TOURS]


@pytest.mark.parametrize(
    ("door", "who"),
    [
        (pmt.smc, "the particles"),
        pytest.param(pmt.ais, "the particles", marks=pytest.mark.slow("as smc")),
        pytest.param(pmt.thermodynamic_integration, "the chains", marks=pytest.mark.slow("as smc")),
    ],
)
def test_what_starts_from_the_prior_alone_says_so(door, who):
    found = door(level(), random_seed=1, progressbar=False)
    assert [(f.code, f.about, f.severity) for f in found.findings] == [
        ("not_searched", who, "note")
    ]
