"""One table of estimators: its contract for those with a model, and the pages made from it."""

import importlib.util
import re
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from support.exact_posteriors import posterior_tree

import pymc_tempering as pmt
from pymc_tempering.crosscheck.registry import ALL_ESTIMATORS, MODEL_ESTIMATORS, run_estimator
from pymc_tempering.evidence import ESTIMATORS
from pymc_tempering.evidence.estimators import MODEL, OWN, POSTERIOR, Estimator, lists_estimators

DOCS = Path(__file__).resolve().parents[2] / "docs"

# Estimator with a model: the number of estimates that it returns.
CONTRACT = {
    "bridge_sampling": 1,
    "importance_sampling": 1,
    "ais": 1,
    "hais": 1,
    "thermodynamic_integration": 1,
    "smc": 1,
    "reverse_ais": 1,
    "sandwich": 2,
}

EXACT = -0.5 * (np.log(4 * np.pi) + 0.5)


@cache
def model():
    """x ~ N(0, 1), y ~ N(x, 1) with y = 1; the posterior is N(1/2, 1/2)."""
    with pm.Model() as made:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=1.0)
    return made


@cache
def estimates(name, seed):
    """What an estimator returns for exact posterior draws, its own seed being the same."""
    x = np.random.default_rng(seed).normal(0.5, 0.5**0.5, size=(4, 500))
    found = run_estimator(name, posterior_tree(x=x), model(), np.random.default_rng(1), 1)
    return list(found.values())


def test_every_estimator_with_a_model_has_a_row_here():
    assert list(CONTRACT) == list(MODEL_ESTIMATORS)


def test_the_full_table_is_both_tables_and_follows_them():
    assert dict(ALL_ESTIMATORS) == ESTIMATORS | MODEL_ESTIMATORS
    assert list(ALL_ESTIMATORS) == [*ESTIMATORS, *MODEL_ESTIMATORS]


@pytest.mark.parametrize("name", CONTRACT)
def test_value_error_and_side_are_right(name):
    """Within 4 of its errors, or on the side that it states; each counts its evaluations."""
    found = estimates(name, 1)
    assert len(found) == CONTRACT[name]
    for evidence in found:
        off = (evidence.log_z - EXACT) / evidence.mcse
        side = {"below": off < 0.0, "above": off > 0.0}.get(evidence.bias_direction, False)
        assert abs(off) < 4.0 or side
        assert evidence.n_evaluations > 0


@pytest.mark.parametrize("name", CONTRACT)
def test_it_rests_on_the_draws_that_the_row_names(name):
    """With its own draws the posterior draws do not matter, else they do."""
    row = MODEL_ESTIMATORS[name]
    assert row.reads == MODEL
    assert row.draws in (OWN, POSTERIOR)
    first, second = ([e.log_z for e in estimates(name, seed)] for seed in (1, 2))
    assert (first == second) == (row.draws == OWN)


@pytest.mark.parametrize("name", CONTRACT)
def test_the_row_says_what_it_is_and_the_docstring_shows_it(name):
    row = MODEL_ESTIMATORS[name]
    assert re.search(r"\(\d{4}\)", row.summary), "a paper with its year"
    assert row.summary.endswith(".")
    assert f'- "{name}" (model)' in pmt.cross_check.__doc__
    assert f'- "{name}"' not in pmt.log_marginal_likelihood.__doc__


def test_the_docstring_says_what_a_cross_check_leaves_out():
    rows = {"new": Estimator(MODEL, print, "What it is (2000).", OWN, by_default=False)}

    @lists_estimators(rows)
    def function():
        """Say so.

        {estimators}
        """

    assert '- "new" (model): What it is (2000). A cross-check runs it only by name.\n' in (
        function.__doc__
    )


def test_the_reference_page_is_made_from_the_table():
    path = DOCS / "extensions" / "estimator_table.py"
    spec = importlib.util.spec_from_file_location("estimator_table", path)
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    source = [(DOCS / "reference" / "estimators.rst").read_text(encoding="utf-8")]
    assert page.TABLE in source[0]
    assert page.FUNCTIONS in source[0]
    page.fill(None, "estimators", source)
    for name, row in ALL_ESTIMATORS.items():
        assert f'   * - ``"{name}"``\n     - {row.summary}\n' in source[0]
    assert ".. autofunction:: pymc_tempering.evidence.rts\n" in source[0]
    assert page.TABLE not in source[0]


def test_the_guide_names_estimators_that_exist():
    guide = (DOCS / "explanation" / "estimators.md").read_text(encoding="utf-8")
    named = re.findall(r'^\| `"(\w+)"`', guide, re.MULTILINE)
    assert named
    assert set(named) <= set(ESTIMATORS)
