"""One table of kernels: the front doors, their docstrings, the docs and the tests follow it."""

import inspect
import re
from pathlib import Path

import pytest
from kernels import test_discrete_kernels, test_kernel_contract, test_transfer

import pymc_tempering as pmt
from pymc_tempering.kernels.assign import KERNELS, default_kernels, find_kernel

DOCS = Path(__file__).resolve().parents[2] / "docs"
FRONT_DOORS = (pmt.sample, pmt.SimulatedTempering)

CONTINUOUS, BINARY, BOUNDED, INTEGER = "continuous", "binary", "bounded", "integer"
FIXED_SUM = "fixed sum"

every_name = pytest.mark.parametrize("name", KERNELS)


def names_of(rows):
    """Names of the kernels that have a row in a contract test."""
    return {name.split(",")[0] for name in rows}


def words_for(kinds):
    """Say which variables a set of kinds means."""
    words = ["real variables"] if CONTINUOUS in kinds else []
    if kinds >= {BINARY, BOUNDED, INTEGER}:
        return " and ".join([*words, "integers"])
    words += ["binary variables"] if BINARY in kinds else []
    words += ["integers in known bounds"] if BOUNDED in kinds else []
    words += ["vectors of counts with a fixed sum"] if FIXED_SUM in kinds else []
    return " and ".join(words)


def names_without_a_line(text):
    """Kernels that a text does not list with a sentence and the variables that each moves."""
    flat = " ".join(text.split())
    return [
        name
        for name in KERNELS
        if not re.search(
            rf'- "{name}": [A-Z][^.]*\. Moves {words_for(find_kernel(name, 0.5).kinds)}\.', flat
        )
    ]


@every_name
def test_a_row_says_what_its_kernel_says(name):
    row, kernel = KERNELS[name], find_kernel(name, 0.77)
    assert kernel.name == name
    assert kernel.kinds >= set(row.default_for)
    assert (kernel.target_accept == 0.77) == row.takes_target_accept


def test_langevin_keeps_its_own_target_though_it_has_gradients():
    targets = {"hmc": 0.77, "nuts": 0.77, "langevin": 0.57, "metropolis": 0.3, "slice": None}
    assert {name: find_kernel(name, 0.77).target_accept for name in targets} == targets


def test_defaults_by_kind_of_variable():
    with_gradient = {k: v.name for k, v in default_kernels(0.8, gradient=True).items()}
    without = {k: v.name for k, v in default_kernels(0.8, gradient=False).items()}
    discrete = {BINARY: "gibbs", BOUNDED: "gibbs", INTEGER: "slice", FIXED_SUM: "transfer"}
    assert with_gradient == {CONTINUOUS: "hmc"} | discrete
    assert without == {CONTINUOUS: "slice"} | discrete
    shared = default_kernels(0.8, gradient=False)
    assert shared[CONTINUOUS] is shared[INTEGER]


@every_name
def test_every_kernel_has_rows_in_the_contract_tests_of_its_variables(name):
    tables = {CONTINUOUS: test_kernel_contract.ROWS, FIXED_SUM: test_transfer.ROWS} | dict.fromkeys(
        (BINARY, BOUNDED, INTEGER), test_discrete_kernels.ROWS
    )
    for kind in find_kernel(name, 0.5).kinds:
        assert name in names_of(tables[kind]), f"a contract row of {name!r} for {kind} variables"


def test_every_contract_row_is_a_kernel_of_the_table():
    rows = {**test_kernel_contract.ROWS, **test_discrete_kernels.ROWS, **test_transfer.ROWS}
    assert names_of(rows) == set(KERNELS)
    for row, (factory, *_) in rows.items():
        assert factory().name == row.split(",")[0]


@pytest.mark.parametrize("front_door", FRONT_DOORS, ids=lambda f: f.__name__)
def test_the_docstrings_of_the_front_doors_show_the_table(front_door):
    text = inspect.getdoc(front_door)
    flat = " ".join(text.split())
    assert names_without_a_line(text) == []
    assert re.findall(r'- "(\w+)": ', text) == list(KERNELS)
    tuned = [name for name, row in KERNELS.items() if row.takes_target_accept]
    stated = re.search(r"each rung is tuned for. It is for (.*?), by name or", flat)[1]
    assert re.findall(r'"(\w+)"', stated) == tuned
    assert (
        'gets a default: "hmc" for real variables ("slice" where the density has no gradient, '
        '"metropolis" where it is dear too), "slice" for integers without known bounds, "gibbs" '
        'for binary variables and integers in known bounds, "transfer" for vectors of counts with '
        "a fixed sum."
    ) in flat
    assert max(map(len, front_door.__doc__.splitlines())) <= 100


def test_the_documentation_shows_the_table():
    """The page of kernels shows the list; a public factory is on the reference page as well."""
    page = (DOCS / "explanation" / "kernels.md").read_text("utf-8")
    assert names_without_a_line(page) == []
    reference = (DOCS / "reference" / "sample_and_compare.rst").read_text("utf-8")
    for row in KERNELS.values():
        if row.factory.__name__ in pmt.kernels.__all__:
            assert f"   kernels.{row.factory.__name__}\n" in reference


def test_a_kernel_that_a_text_leaves_out_is_seen():
    assert names_without_a_line(pmt.sample.__doc__.replace('"gibbs": ', "")) == ["gibbs"]
