"""A warning points at the line that called the package, and its sentence is shown once."""

import re
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_tempering as pmt
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.variational.conjugate import FactorialMixture, svi

PACKAGE = Path(pmt.__file__).parent


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 3), 1, observed=[1.0, 2.0])
    return model


@pytest.fixture(scope="module")
def short(model):
    """A run too short for a verdict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pmt.sample(10, chains=2, model=model, random_seed=1, quiet=True, reference="prior")


def said(call):
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        result = call()
    return result, [one for one in record if issubclass(one.category, pmt.TemperingWarning)]


DOORS = {
    "sample": lambda model, run: pmt.sample(
        3, chains=2, model=model, random_seed=1, quiet=True, reference="prior"
    ),
    "extend": lambda model, run: pmt.extend(run, draws=2, model=model, quiet=True),
    "log_marginal_likelihood": lambda model, run: pmt.log_marginal_likelihood(run),
    "bayes_factor": lambda model, run: pmt.bayes_factor(run, run),
    "compare": lambda model, run: pmt.compare({"a": run}),
    "plot_bayes_factors": lambda model, run: pmt.plot_bayes_factors({"a": run}),
    "bridge_sampling": lambda model, run: pmt.bridge_sampling(run, model, quiet=True),
    "sample_many": lambda model, run: pmt.sample_many(
        [model], draws=3, chains=2, random_seed=1, quiet=True, reference="prior"
    ),
    "fit": lambda model, run: pmt.fit(40, model=model, max_n=40, progressbar=False, random_seed=1),
    "refine": lambda model, run: pmt.refine(said(lambda: DOORS["fit"](model, run))[0], 5),
    "log_partition": lambda model, run: pmt.variational.log_partition(
        scales(), [1.0, 2.0], draws=320, random_seed=1
    ),
    "svi": lambda model, run: svi(
        FactorialMixture(2, sd=1.0, prior_sd=1.0),
        np.random.default_rng(1).normal(size=(30, 3)), "vi", iterations=2, random_seed=1,
    ),
}  # fmt: skip


def scales():
    """A normalizer that is found by annealing, and so with an error."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.5, shape=2)
        pm.Normal("y", 0.0, sigma[np.repeat([0, 1], 5)], observed=np.zeros(10))
    return model


@pytest.mark.slow("compiles models of its own", quick=["svi"])
@pytest.mark.parametrize("door", DOORS)
def test_it_points_at_the_line_of_the_user(door, model, short, monkeypatch):
    """With `stacklevel` some point at a line of the package; `fit` did at `fitting.py`."""
    monkeypatch.setattr("pymc_tempering.variational.normalizers.log_partition.LARGE_ERROR", 0.0)
    _, record = said(lambda: DOORS[door](model, short))
    assert record
    assert {one.filename for one in record} == {__file__}
    texts = [str(one.message) for one in record]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("door", ["log_marginal_likelihood", "bayes_factor", "bridge_sampling"])
def test_what_was_warned_of_is_counted_where_the_result_is_printed(door, model, short):
    result, record = said(lambda: DOORS[door](model, short))
    number = len(result.warnings)
    assert number >= 1
    for text in (repr(result), result._repr_html_()):
        assert not [one for one in record if str(one.message)[:40] in text]
        assert f"{number} warning{'s' if number > 1 else ''}, see .warnings" in text


def test_without_warnings_nothing_is_counted():
    assert "warning" not in repr(Evidence(log_z=1.0, mcse=0.1, method="rts", verdict="ok"))


def test_all_warnings_go_the_same_way():
    """But for those of an import, which has a line of the user's above it, too."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"warnings\.warn\(|stacklevel", path.read_text())
    }
    assert found == {"exceptions.py", "borrowed/private.py"}
