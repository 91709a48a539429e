"""Conventions that all public functions and results share."""

import inspect
import re

import numpy as np
import pymc as pm
import pytest
from support import picture_runs
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering.arguments import as_seed
from pymc_tempering.evidence import Bracket, Evidence
from pymc_tempering.evidence.bracket import join_bounds
from pymc_tempering.variational.assess import Drift
from pymc_tempering.variational.conjugate import GaussianMixture, svi

FUNCTIONS = {name: getattr(pmt, name) for name in pmt.__all__}
FUNCTIONS |= {name: getattr(pmt.annealed, name) for name in pmt.annealed.__all__}
LONG = (
    *("sample", "SimulatedTempering", "ais", "hais", "reverse_ais", "sandwich", "smc", "raise_"),
    *("thermodynamic_integration", "bridge_sampling"),
    *("importance_sampling", "cross_check", "log_marginal_likelihood", "bayes_factor", "compare"),
    *("average", "savage_dickey", "prior_sensitivity", "resume", "extend"),
)
"""What may take longer than a second on the threads of this package."""
ON_ONE_THREAD = ("fit", "refine", "compile")
"""What takes as long, in compiled code of others."""
NO_SEED = ("compile", "refine", "resume", "extend")
"""What draws nothing, or goes on with the generator of an earlier call."""


@pytest.mark.parametrize("name", [*LONG, *ON_ONE_THREAD])
def test_what_takes_long_shows_progress_and_takes_a_seed_and_cores(name):
    arguments = inspect.signature(FUNCTIONS[name]).parameters
    wanted = {"progressbar"} | ({"cores"} if name in LONG else set())
    wanted |= {"quiet"} if name in LONG else set()
    wanted |= set() if name in NO_SEED else {"random_seed"}
    assert wanted <= set(arguments)
    assert arguments["progressbar"].default is True


def seeds():
    """Annotations of the seeds of all public functions."""
    for name, value in FUNCTIONS.items():
        if inspect.isfunction(value) or name == "SimulatedTempering":
            seed = inspect.signature(value).parameters.get("random_seed")
            if seed is not None:
                yield name, seed.annotation


def test_every_seed_may_be_a_number_or_a_generator():
    found = dict(seeds())
    assert len(found) > 15
    wanted = int | np.random.Generator | np.random.RandomState | None
    assert not {name for name, kind in found.items() if kind != wanted}


@pytest.mark.slow("compiles models of its own")
def test_a_generator_stands_for_a_seed_that_is_drawn_from_it():
    seeds = [as_seed(np.random.default_rng(1)) for _ in range(2)]
    assert seeds[0] == seeds[1]
    assert isinstance(seeds[0], int)
    assert (as_seed(3), as_seed(None)) == (3, None)
    with pm.Model() as model:
        a, b = pm.HalfNormal("a"), pm.HalfNormal("b")
        pm.Normal("y", 0.0, a + b, observed=[1.0, 2.0])
    options = {"model": model, "temperatures": [1.0, 2.0], "draws": 200}
    first, again, other = (
        pmt.variational.log_partition(random_seed=seed, **options).log_c[1]
        for seed in (np.random.default_rng(1), np.random.default_rng(1), seeds[0] + 1)
    )
    assert first == again != other


LOW, HIGH = Evidence(-3.1, 0.1, "ais", "ok"), Evidence(-3.0, 0.1, "reverse_ais", "ok")


def tempered_fit():
    nothing = np.zeros(0)
    return pmt.variational.TemperedFit(
        "advi", -3.0, 0.1, 0.2, LOW, True, Drift(0.0, 0.1, 0.0, 100), 0, nothing, nothing, nothing,
        nothing, nothing, None, {}, None, None, ("<be careful>",),
    )  # fmt: skip


def sensitivity():
    one = np.ones(1)
    curve = pmt.sensitivity.SensitivityCurve(
        "x", "scale", one, np.ones(()), one, one, one, one, one, one, 0.7, ("reweighted",)
    )
    return pmt.sensitivity.PriorSensitivity(-3.0, 0.1, "ok", (curve,), warnings=("<be careful>",))


def results():
    """One of each public result."""
    run = gaussian_run(400)
    data = np.concatenate([np.full((5, 1), -2.0), np.full((5, 1), 2.0)])
    with pytest.warns(pmt.TemperingWarning):
        check = pmt.cross_check(run, methods=["rts"])
    return {
        "Evidence": LOW,
        "BayesFactor": pmt.bayes_factor(LOW, HIGH),
        "PosteriorOdds": pmt.bayes_factor(LOW, HIGH).posterior_odds(),
        "SavageDickey": pmt.nested.SavageDickey(-0.1, 0.1, null={"x": np.zeros(1)}),
        "PriorSensitivity": sensitivity(),
        "SensitivityCurve": sensitivity()["x"],
        "Calibration": picture_runs.calibration(),
        "Bracket": Bracket(LOW, HIGH),
        "Sandwich": join_bounds(LOW, HIGH),
        "CrossCheck": check,
        "Diagnosis": pmt.diagnose(run),
        "TemperedOptimum": pmt.variational.TemperedOptimum({}, 3, 0.5, 1.0, True),
        "TemperedFit": tempered_fit(),
        "LogPartition": pmt.variational.LogPartition(
            np.array([1.0, 2.0]), np.zeros(2), np.zeros(2), np.full(2, np.inf), ("exact", "exact")
        ),
        "conjugate.Fit": svi(GaussianMixture(2, 1.0, 3.0), data, method="vi", random_seed=1),
    }


def test_every_result_is_shown_in_a_notebook():
    found = results()
    for name, value in found.items():
        html = value._repr_html_()
        assert html.startswith("<"), name
        plain = re.sub(r"<(?!be)[^>]*>", " ", html)
        assert "<be careful>" not in html
        assert len(plain.split()) > 3, name
        assert repr(value) != object.__repr__(value), name
    # A class with text of its own that is not in the list would be forgotten.
    texts = {
        name for name, value in FUNCTIONS.items()
        if inspect.isclass(value) and "__repr__" in vars(value)
    }  # fmt: skip
    assert texts - {"PartitionTracker", "CompiledModel"} <= set(found)


def test_bounds_are_shown_with_the_lower_one_first():
    assert repr(Bracket(LOW, HIGH)).startswith("Bracket: log Z from -3.10 ± 0.10 to -3.00 ± 0.10")
    crossed = repr(Bracket(HIGH, LOW))
    assert "lower bound -3.00 ± 0.10, upper bound -3.10 ± 0.10 nats, crossed by 0.100" in crossed
    lines = repr(join_bounds(LOW, HIGH)).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["lower", "upper"]


def test_a_method_without_tours_shows_none():
    assert "tours" not in repr(LOW)
    assert pmt.compare({"a": LOW})["n_tours"].isna().all()
