"""Benchmarks: private names come through one file, files import in one direction, names are one."""

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from benchmarks import private

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PUBLIC = {
    "testsystems", "kernels", "arrays", "evidence", "evidence.calibration", "exceptions",
    "variational", "variational.conjugate",
}  # fmt: skip
"""Modules of the package from which users import."""

TREES = {
    ".".join(("benchmarks", *path.relative_to(BENCHMARKS).with_suffix("").parts)): ast.parse(
        path.read_text("utf-8")
    )
    for path in sorted(BENCHMARKS.rglob("*.py"))
}


def imports(tree):
    """Modules that a file imports, with those that a name of another one may be."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def is_public(module):
    """Whether users import from it, or it is none of the package's."""
    package, _, name = module.partition(".")
    return package != "pymc_tempering" or not name or name in PUBLIC


def test_what_is_private_comes_through_one_file():
    froms = {
        (name, node.module)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not is_public(node.module)
    }
    assert not froms
    assert not is_public("pymc_tempering.chain.loop")


@pytest.mark.parametrize("name", [*private.PLACES, *private.MODULES])
def test_a_private_name_is_there(name):
    assert getattr(private, name) is not None


def test_files_import_in_one_direction():
    graph = {name: TREES.keys() & set(imports(tree)) for name, tree in TREES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(TREES)
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


def test_a_name_is_one_script():
    twice = [name for name, n in Counter(name.split(".")[-1] for name in TREES).items() if n > 1]
    assert twice == ["__init__"]
