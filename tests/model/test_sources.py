"""An edit of any function that compiled code calls makes its entry in the disk cache stale."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pymc_tempering.kernels.assign import KERNELS
from pymc_tempering.model import sources
from pymc_tempering.model.sources import PACKAGE, hash_of_sources, imports_of, sources_of

LOOP = PACKAGE / "chain" / "loop.py"
MIXTURE = PACKAGE / "references" / "compiled_mixture.py"
KERNEL_FILES = sorted({Path(row.factory.__code__.co_filename) for row in KERNELS.values()})

FORMS = """
import numpy, pymc_tempering.arguments, os
import pymc_tempering.core.deadline as d  # a comment, import pymc_tempering.many
from pymc_tempering.model import jit, late as later  # and another, exactly
from pymc_tempering.chain import (  # the loop
    loop,  # (why)
    # plan,
    record as kept, state
)
quotes = 'QQQ' + "'"  # and QQQ in a comment
late = QQQ
from pymc_tempering import many
QQQ
from numpy import array
def local():
    from pymc_tempering import kernels
    return "from pymc_tempering import storage"
""".replace("Q", '"')
CALLEE = """
{imports}

@{decorator}
def answer(x):
    return x + {added}
"""
CALLER = """
{imports}
from pymc_tempering.callee import answer

@{decorator}
def call(x):
    return 10.0 * answer(x)
"""
# Imported anew, they are compiled anew or loaded from disk, as in a fresh process; but that need
# not import PyMC again.
IMPORTS = """
import json, sys
from importlib import import_module, invalidate_caches

sys.dont_write_bytecode = True  # an edit within the second would not be seen
package, edited, text = sys.argv[1:]

def fresh_import():
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]
    call = import_module(package + ".caller").call
    return call(0.0), sum(call.stats.cache_hits.values())

found = [fresh_import(), fresh_import()]
with open(edited, "w") as file:
    file.write(text)
invalidate_caches()
print(json.dumps([*found, fresh_import()]))
"""
OURS = {"imports": "from pymc_tempering.model.jit import njit", "decorator": "njit()"}
NUMBAS = {"imports": "import numba", "decorator": "numba.njit(cache=True)"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the same name with the files that decide about the cache, and no more."""
    root = tmp_path / PACKAGE.name
    for file in sources_of(PACKAGE / "model" / "jit.py"):
        copy = root / file.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
        (copy.parent / "__init__.py").touch()
    (root / "__init__.py").write_text("")
    monkeypatch.setattr(sources, "PACKAGE", root)
    return root


def edit_the_callee(root, kind):
    """Results of the caller and what came from disk: at first, again, and after the edit."""
    callee = root / "callee.py"
    callee.write_text(CALLEE.format(added=1.0, **kind))
    (root / "caller.py").write_text(CALLER.format(**kind))
    output = subprocess.run(
        [sys.executable, "-c", IMPORTS, root.name, callee, CALLEE.format(added=2.0, **kind)],
        env=os.environ | {"NUMBA_CACHE_DIR": str(root.parent / "cache"), "PYTHONPATH": "."},
        cwd=root.parent, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return json.loads(output)


def test_an_edit_in_another_file_compiles_the_caller_again(package):
    assert edit_the_callee(package, OURS) == [[10.0, 0], [10.0, 1], [20.0, 0]]


def test_numbas_own_stamp_would_load_the_old_code(package):
    # The planted bug: the caller's file is as it was, so its machine code is taken from the cache.
    assert edit_the_callee(package, NUMBAS) == [[10.0, 0], [10.0, 1], [10.0, 1]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from pymc_tempering.a import f", {"a.py"}),
        ("from pymc_tempering.a import (\n    f,  # (why)\n    g,\n)", {"a.py"}),
        ("from pymc_tempering.b import \\\n    c", {"b/__init__.py", "b/c.py"}),
        ("from pymc_tempering.b import (\n    c as d,\n    f,\n)", {"b/__init__.py", "b/c.py"}),
        ("from pymc_tempering.b.c import f as g", {"b/c.py"}),
        ("import pymc_tempering.b.c as d", {"b/c.py"}),
        ("import numpy as np, pymc_tempering.a", {"a.py"}),
        ("import pymc_tempering.b", {"b/__init__.py"}),
        ("from pymc_tempering import a", {"__init__.py", "a.py"}),
        ("def f():\n    from pymc_tempering.a import g", {"a.py"}),
        ("import numpy\nfrom pymc_tempering_more.a import f", set()),
        ('"""\nfrom pymc_tempering.a import f\n"""', set()),
    ],
)
def test_imports_of_all_forms_are_found(package, text, found):
    (package / "b").mkdir()
    for name in ("a.py", "b/__init__.py", "b/c.py"):
        (package / name).write_text("")
    file = package / "importer.py"
    file.write_text(text)
    assert set(imports_of(file)) == {package / name for name in found}


def test_the_kernels_reach_what_they_call_and_no_model():
    for file in KERNEL_FILES:
        assert MIXTURE in sources_of(file)
        assert PACKAGE / "model" / "path.py" not in sources_of(file)


@pytest.mark.parametrize("file", [LOOP, *KERNEL_FILES], ids=lambda file: file.stem)
def test_an_edit_of_the_mixture_changes_the_hash_of_loop_and_kernels(file, monkeypatch):
    before = hash_of_sources(file)
    read = sources._text
    monkeypatch.setattr(sources, "_text", lambda path: read(path) + "\n" * (path == MIXTURE))
    assert hash_of_sources(file) != before


def test_an_edit_of_what_is_not_imported_leaves_the_hash(monkeypatch):
    before = hash_of_sources(LOOP)
    read = sources._text
    other = PACKAGE / "model" / "path.py"
    monkeypatch.setattr(sources, "_text", lambda path: read(path) + "\n" * (path == other))
    assert hash_of_sources(LOOP) == before


def names_by_syntax(text):
    """What Python itself takes for imports from the package."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == PACKAGE.name)


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: file.stem)
def test_imports_are_those_that_python_sees(file):
    text = file.read_text("utf-8")
    found = {name for name in sources._imported_names(text) if name.split(".")[0] == PACKAGE.name}
    assert found >= set(names_by_syntax(text))
    files = {sources._file_of(name) for name in names_by_syntax(text)} - {None}
    assert set(imports_of(file)) == files


def test_every_form_of_an_import_is_seen():
    found = {name for name in sources._imported_names(FORMS) if name.startswith(PACKAGE.name)}
    assert found == set(names_by_syntax(FORMS))
