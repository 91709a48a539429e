"""Exact one-way imports, no circles, one name for one thing, and short functions."""

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "pymc_tempering"
PROJECT = Path(__file__).resolve().parents[2]
ROOT = PROJECT / PACKAGE
FILES = sorted(ROOT.rglob("*.py"))
MAX_LINES = 600
MAX_ROOT_MODULES = 5

EVERYWHERE = {"exceptions", "arguments", "borrowed"}
"""What every folder may import: modules at the root, and private parts of other libraries."""

# Folder: the folders that it imports, exactly; from the numbers at the top to the front doors.
IMPORTS = {
    "core": set(),
    "executors": {"core"},
    "model": {"core"},
    "testsystems": set(),
    "references": {"core", "model"},
    "evidence": {"core"},
    "arrays": {"core", "evidence"},
    "storage": set(),
    "kernels": {"model", "references"},
    "summed": {"core", "model", "kernels"},
    "fields": {"core", "model", "references", "kernels", "summed"},
    "chain": {"core", "executors", "model", "references", "kernels"},
    "warmup": {"core", "model", "references", "kernels", "chain"},
    "sampling": {
        *("core", "executors", "model", "references", "evidence", "storage"),
        *("kernels", "fields", "chain", "warmup", "bridge"),
    },
    "annealed": {
        *("core", "executors", "model", "references", "evidence", "arrays"),
        *("kernels", "summed", "chain", "warmup"),
    },
    "bridge": {"core", "model", "references", "evidence", "summed", "fields"},
    "nested": {"core", "model", "references", "evidence", "summed", "bridge"},
    "crosscheck": {"core", "executors", "model", "evidence", "annealed", "bridge"},
    "comparison": {"core", "model", "evidence", "crosscheck"},
    "many": {"core", "executors", "model", "evidence", "sampling"},
    "sensitivity": {
        *("core", "model", "evidence", "sampling", "bridge", "crosscheck", "comparison"),
    },
    "plots": {"core", "evidence", "crosscheck", "comparison"},
    "variational": {
        *("core", "executors", "model", "references", "evidence", "plots"),
        *("variational.temperatures", "variational.normalizers", "variational.conjugate"),
    },
    "variational.temperatures": {"core"},
    "variational.normalizers": {
        *("core", "model", "references", "kernels", "chain", "variational.temperatures"),
    },
    "variational.conjugate": {"core", "variational.temperatures"},
}

ARRAY_LAYER = {"core", "evidence", "arrays"}
"""Numbers in, numbers out: these know neither PyMC nor a compiler, nor whoever does."""
NOT_ARRAYS = {"pymc", "pytensor", "numba"}

MAX_BODY = 60
"""Lines of a function, its docstring left out."""


def dotted(path, root=ROOT):
    """Name of the module in a file, without the package's."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in FILES}


def row_of(module):
    """Row of the table that a module belongs to: the deepest folder that has one, or its own."""
    parts = module.split(".")
    rows = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((row for row in rows if row in IMPORTS), parts[0])


def imported(source, modules=MODULES):
    """``(names from outside, modules of the package)`` that a file imports, wherever in it."""
    outside, inside = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top != PACKAGE:
                outside.add(name)
                continue
            own = rest if rest in modules else rest.rpartition(".")[0]
            inside.add(own if own in modules else rest)
    return outside, inside


GRAPH = {module: imported(path.read_text(encoding="utf-8")) for module, path in MODULES.items()}


def faults_of_imports(source, module, modules=MODULES):
    """Sentences that say what is wrong with the imports of one module."""
    row = row_of(module)
    if row not in IMPORTS and row not in EVERYWHERE:
        yield f"{row!r} is new: add a row for it to IMPORTS in {Path(__file__).name}"
        return
    outside, inside = imported(source, modules)
    for name in outside:
        if name.startswith("."):
            yield f"relative import {name!r}: write it in full"
        if row in ARRAY_LAYER and name.split(".")[0] in NOT_ARRAYS:
            yield f"{module!r} is of the array layer and may not import {name!r}"
    for other in inside:
        top = row_of(other)
        if not other or (top not in IMPORTS and top not in EVERYWHERE):
            yield f"{module!r} imports {other!r}: the package's front, or a module without a row"
        elif top not in EVERYWHERE and top != row and top not in IMPORTS.get(row, set()):
            yield f"{module!r} may not import {other!r}: {row} is not above {top}"


def circle_in(graph):
    """Modules that import each other, in a circle; none if there is no circle."""
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return error.args[1]
    return []


def classes_in(source):
    """Classes at the top level of a file."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            yield node.name


def functions_in(source):
    """Public functions at the top level of a file."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def long_functions(source, most=MAX_BODY):
    """``(name, lines)`` of the functions of a file whose bodies, less docstrings, are too long."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[ast.get_docstring(node) is not None :]
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            if lines > most:
                yield node.name, lines


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


def test_the_root_holds_little():
    at_root = list(ROOT.glob("*.py"))
    assert ROOT / "__init__.py" in at_root
    assert len(at_root) <= MAX_ROOT_MODULES


@pytest.mark.parametrize("module", [m for m in MODULES if m], ids=str)
def test_imports_go_in_one_direction(module):
    found = list(faults_of_imports(MODULES[module].read_text(encoding="utf-8"), module))
    assert not found, "\n".join(found)


def test_every_edge_of_the_table_is_used():
    used = defaultdict(set)
    for module, (_, inside) in GRAPH.items():
        for other in inside:
            used[row_of(module)].add(row_of(other))
    unused = {row: needs - used[row] for row, needs in IMPORTS.items() if needs - used[row]}
    assert not unused, f"no import goes there any more: {unused}"


def test_the_table_and_the_modules_have_no_circle():
    assert circle_in(IMPORTS) == []
    assert circle_in({module: inside - {module} for module, (_, inside) in GRAPH.items()}) == []


def test_the_array_layer_reaches_no_compiler():
    """Not by a detour either: what it imports, and what that imports, knows none."""
    waiting = [module for module in MODULES if row_of(module) in ARRAY_LAYER]
    reached = set()
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += GRAPH[module][1]
    outside = {name.split(".")[0] for module in reached for name in GRAPH[module][0]}
    assert not outside & NOT_ARRAYS


def test_no_two_classes_share_a_name():
    places = defaultdict(set)
    for path in FILES:
        for name in classes_in(path.read_text(encoding="utf-8")):
            places[name].add(path)
    twice = {
        name: sorted(str(path.relative_to(ROOT)) for path in paths)
        for name, paths in places.items()
        if len(paths) > 1
    }
    assert not twice


def test_no_two_folders_have_a_public_function_of_the_same_name():
    places = defaultdict(set)
    for module, path in MODULES.items():
        for name in functions_in(path.read_text(encoding="utf-8")):
            places[name].add(row_of(module))
    twice = {name: sorted(rows) for name, rows in places.items() if len(rows) > 1}
    assert not twice


def test_no_function_is_long():
    found = {
        f"{path.relative_to(ROOT)} {name}": lines
        for path in FILES
        for name, lines in long_functions(path.read_text(encoding="utf-8"))
    }
    assert not found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_short_and_says_its_purpose(path):
    source = path.read_text(encoding="utf-8")
    faults = list(summary_faults(source))
    lines = len(source.splitlines())
    if lines > MAX_LINES:
        faults.append(f"{lines} lines, more than {MAX_LINES}: split it")
    assert not faults, "\n".join(faults)


def test_the_developer_page_shows_the_same_table():
    """``docs/developer/principles.md`` has a row a folder, or file: what it holds and imports."""
    page = (PROJECT / "docs" / "developer" / "principles.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+)(?:/|\.py)` \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    shown = {
        folder.replace("/", "."): set(re.findall(r"`([\w.]+)`", needs)) for folder, _, needs in rows
    }
    assert shown == IMPORTS
    assert list(shown) == list(IMPORTS)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.ladder", "from pymc_tempering.chain.loop import run"),
        ("core.ladder", "import numba"),
        ("evidence.rts", "def f():\n    from pymc.model import Model"),
        ("evidence.rts", "from pymc_tempering import sampling"),
        ("evidence.rts", "import pymc_tempering.sampling.sample as s"),
        ("kernels.hmc", "from pymc_tempering.chain import loop"),
        ("annealed.ais", "from pymc_tempering.sampling.call import Options"),
        ("model.path", "from pymc_tempering import sample"),
        ("model.path", "import pymc_tempering"),
        ("warmup.warm_up", "from .annealed_pass import anneal"),
        ("brand_new.file", "import numpy"),
    ],
)
def test_a_planted_bad_import_is_found(module, source):
    assert list(faults_of_imports(source, module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("sampling.sample", "from pymc_tempering.sampling import step_method"),
        ("evidence.rts", "from pymc_tempering.evidence.result import Evidence\nimport scipy.stats"),
        ("chain.loop", "import pymc as pm\nfrom pymc_tempering.exceptions import TemperingError"),
    ],
)
def test_an_allowed_import_passes(module, source):
    assert not list(faults_of_imports(source, module))


def test_a_planted_circle_is_found():
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})


@pytest.mark.parametrize("source", ["import numpy", '"""No period"""', '"""One. Two."""'])
def test_a_planted_bad_docstring_is_found(source):
    assert list(summary_faults(source))


def test_a_planted_long_function_is_found():
    lines = "\n".join(["    x = 1"] * 3)
    assert list(long_functions(f"def f():\n{lines}", most=2)) == [("f", 3)]
    assert not list(long_functions(f'def f():\n    """Text.\n\n    Text."""\n{lines}', most=3))


def test_private_functions_and_methods_may_share_a_name():
    source = "def one(): pass\ndef _two(): pass\nclass A:\n    def three(self): pass"
    assert list(functions_in(source)) == ["one"]
