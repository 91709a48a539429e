"""The package's modules import in one direction only, stay short, and say what they are for."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = "pymc_tempering"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE
FILES = sorted(ROOT.rglob("*.py"))
MAX_LINES = 320  # about 300, and a little for a docstring

# module or subpackage: what it may import from the package, beside itself and exceptions;
# from the numbers and the compiled layer at the top to the two front doors at the bottom
MAY_IMPORT = {
    "exceptions": set(),
    "arguments": set(),
    "ladder": set(),
    "tracker": {"ladder"},
    "compiled": set(),
    "testsystems": set(),
    "cycles": set(),
    "synthetic": {"cycles"},
    "datatree": {"cycles"},
    "evidence": {"cycles", "datatree", "ladder"},
    "diagnostics": {"cycles", "datatree", "evidence"},
    "layout": set(),
    "split": {"layout"},
    "path": {"compiled", "layout", "split"},
    "references": {"compiled", "layout", "mixture", "path", "split"},
    "scales": set(),
    "mixture": {"compiled", "scales"},
    "low_rank": {"mixture", "scales"},
    "mixture_fit": {"low_rank", "mixture", "scales"},
    "kernels": {"compiled", "layout", "mixture"},
    "variables": {"kernels", "layout", "path"},
    "assign": {"kernels", "layout", "variables"},
    "engine": {"compiled", "kernels", "ladder", "mixture"},
    "prior_checks": {"compiled", "mixture", "path", "references"},
    "fitted": {"mixture", "mixture_fit", "path", "references"},
    "stats": {"cycles", "engine", "fitted", "ladder", "mixture"},
    "chains": {"compiled", "engine", "kernels", "ladder", "references"},
    "population": set(),
    "threads": set(),
    "annealing": {
        *("compiled", "engine", "kernels", "ladder", "mixture", "path", "population", "references"),
    },
}
MAY_IMPORT["adaptation"] = {"compiled", "engine"}
MAY_IMPORT["weights"] = {"adaptation", "chains", "engine", "ladder"}
MAY_IMPORT["warmup"] = MAY_IMPORT["annealing"] | {"annealing", "chains", "weights"}
MAY_IMPORT["prepare"] = MAY_IMPORT["warmup"] | {
    *("warmup", "assign", "layout", "prior_checks", "split"),
}
MAY_IMPORT["unconstrain"] = {"layout", "path"}
MAY_IMPORT["bridge"] = MAY_IMPORT["prepare"] | {
    *("prepare", "cycles", "evidence", "fitted", "mixture_fit", "unconstrain"),
}
MAY_IMPORT["annealed"] = MAY_IMPORT["prepare"] | {
    *("prepare", "progress", "evidence", "threads", "unconstrain"),
}
MAY_IMPORT["crosscheck"] = MAY_IMPORT["bridge"] | {"annealed", "bridge"}
MAY_IMPORT["plots"] = MAY_IMPORT["crosscheck"] | {"crosscheck", "datatree", "diagnostics"}
MAY_IMPORT["workers"] = MAY_IMPORT["prepare"] | {"prepare", "stats", "threads"}
MAY_IMPORT["legs"] = MAY_IMPORT["workers"] | {"workers", "cycles", "evidence"}
MAY_IMPORT["fitting"] = MAY_IMPORT["legs"] | {"legs", "fitted", "mixture_fit"}
MAY_IMPORT["auto"] = MAY_IMPORT["fitting"] | {"fitting"}
MAY_IMPORT["rounds"] = MAY_IMPORT["auto"] | {"auto"}
MAY_IMPORT["normalizer"] = MAY_IMPORT["rounds"] | {"rounds", "references"}
MAY_IMPORT["output"] = MAY_IMPORT["rounds"] | {"rounds", "cycles", "datatree", "stats"}
MAY_IMPORT["progress"] = MAY_IMPORT["workers"] | {"workers", "cycles", "evidence"}
MAY_IMPORT["step"] = MAY_IMPORT["prepare"] | {
    *("prepare", "auto", "fitted", "stats", "cycles", "datatree", "evidence", "diagnostics"),
    "normalizer",
}
MAY_IMPORT["sampling"] = MAY_IMPORT["step"] | {"step", "workers", "output", "progress", "rounds"}
MAY_IMPORT["variational"] = {
    *("compiled", "cycles", "evidence", "layout", "mixture", "path", "plots", "population"),
    "references",
}
ALL_MAY_IMPORT = {"arguments", "exceptions"}
for needs in (MAY_IMPORT[name] for name in MAY_IMPORT if name not in ALL_MAY_IMPORT):
    needs.update(ALL_MAY_IMPORT)

# numbers in, numbers out: these know neither PyMC nor a compiler
NUMERICAL = {"cycles", "evidence", "ladder", "tracker"}
NOT_NUMERICAL = {"pymc", "pytensor", "numba"}


def module_of(path, root=ROOT):
    """Row of the table that a file belongs to; the package's own ``__init__`` has none."""
    first = path.relative_to(root).parts[0]
    return None if first == "__init__.py" else first.removesuffix(".py")


def imported_names(source):
    """Every dotted name that a file imports, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(source, module):
    """Sentences that say what is wrong with the imports of one file of ``module``."""
    if module not in MAY_IMPORT:
        yield f"{module!r} is new: add a row for it to MAY_IMPORT in {Path(__file__).name}"
        return
    for name in imported_names(source):
        top, *rest = name.split(".")
        if top == "":
            yield f"relative import {name!r}: write it in full"
        elif top == PACKAGE and (not rest or rest[0] not in MAY_IMPORT):
            yield f"{name!r} comes from the package's front or from a module without a row"
        elif top == PACKAGE and rest[0] != module and rest[0] not in MAY_IMPORT[module]:
            yield f"{module!r} may not import {rest[0]!r}"
        elif top in NOT_NUMERICAL and module in NUMERICAL:
            yield f"{module!r} is numerical and may not import {top!r}"


def summary_faults(source):
    """Sentences that say what is wrong with the docstring a file opens with."""
    docstring = ast.get_docstring(ast.parse(source))
    if not docstring:
        yield "no docstring at the top"
        return
    summary = " ".join(docstring.split("\n\n")[0].split())
    if not summary.endswith("."):
        yield "the first paragraph of the docstring is no sentence that ends with a period"
    elif re.search(r"[.!?] [A-Z]", summary):
        yield "the first paragraph of the docstring has more than one sentence"


def test_there_are_files_to_check():
    assert ROOT / "__init__.py" in FILES


def test_table_is_acyclic():
    remaining = dict(MAY_IMPORT)
    while remaining:
        leaves = [name for name, needs in remaining.items() if not needs & remaining.keys()]
        assert leaves, f"the table has a cycle among {sorted(remaining)}"
        for name in leaves:
            del remaining[name]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_in_one_direction(path):
    module = module_of(path)
    if module is None:
        return  # the package's front may import everything
    found = list(violations(path.read_text(encoding="utf-8"), module))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_short_and_says_its_purpose(path):
    source = path.read_text(encoding="utf-8")
    faults = list(summary_faults(source))
    lines = len(source.splitlines())
    if lines > MAX_LINES:
        faults.append(f"{lines} lines, more than {MAX_LINES}: split it")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ladder", "from pymc_tempering.engine import run"),
        ("ladder", "import numba"),
        ("evidence", "def f():\n    from pymc.model import Model"),
        ("evidence", "from pymc_tempering import sampling"),
        ("step", "import pymc_tempering.sampling as s"),
        ("kernels", "from pymc_tempering import engine"),
        ("path", "from pymc_tempering import sample"),
        ("path", "import pymc_tempering"),
        ("warmup", "from .engine import run"),
        ("brand_new", "import numpy"),
    ],
)
def test_a_planted_bad_import_is_found(module, source):
    assert list(violations(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("sampling", "from pymc_tempering import step"),
        ("evidence", "from pymc_tempering.evidence.result import Evidence\nimport scipy.stats"),
        ("step", "import pymc as pm\nfrom pymc_tempering.exceptions import TemperingError"),
    ],
)
def test_an_allowed_import_passes(module, source):
    assert not list(violations(source, module))


@pytest.mark.parametrize("source", ["import numpy", '"""No period"""', '"""One. Two."""'])
def test_a_planted_bad_docstring_is_found(source):
    assert list(summary_faults(source))
