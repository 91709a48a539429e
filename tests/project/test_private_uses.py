"""Private parts of others are used in the files of `borrowed/` alone, to be found."""

import ast
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest
from support.foreign_imports import foreign_imports

PACKAGE = "pymc_tempering"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE
HOMES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("borrowed/*.py"))

PRIVATE_FOLDERS = ("numba.core.", "pytensor.link.")
"""Libraries' own rooms, whose names have no underscore."""
OF_TUPLES = {"_replace", "_fields", "_asdict", "_make"}
"""Public names of named tuples."""
GIVEN = {"_abc_impl", "_is_protocol", "_state_class"}
"""What classes get from Python, and by `BlockedStepWithBars` of `borrowed/`."""


def private(name):
    """Whether a name begins with one underscore, and is no public one of named tuples."""
    return name.startswith("_") and not name.endswith("__") and name not in OF_TUPLES


def own_names(tree):
    """Names that a file itself defines or assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] if ast.unparse(node.value) in ("self", "cls") else []


def private_uses(source):
    """Private names of others that a file uses."""
    tree = ast.parse(source)
    own = set(own_names(tree))
    for name in foreign_imports(source):
        if name.startswith(PRIVATE_FOLDERS) or any(map(private, name.split("."))):
            yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own:
            yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            names = [keyword.arg for keyword in node.keywords if keyword.arg]
            if ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
                names += [a.value for a in node.args[1:2] if isinstance(a, ast.Constant)]
            yield from (name for name in names if private(name) and name not in own)


def test_no_other_file_uses_a_private_part():
    sources = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    found = {file: list(private_uses(text)) for file, text in sources.items()}
    assert not {file: uses for file, uses in found.items() if uses and file not in HOMES}


def test_no_other_class_overrides_a_private_method():
    package = import_module(PACKAGE)
    found = {}
    for info in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        for name, value in vars(import_module(info.name)).items():
            if inspect.isclass(value) and value.__module__ == info.name:
                foreign = [b for b in value.__mro__ if not b.__module__.startswith(PACKAGE)]
                theirs = {n for base in foreign for n in vars(base) if private(n)}
                ours = set(vars(value)) & theirs - GIVEN
                if ours and not info.name.startswith(f"{PACKAGE}.borrowed."):
                    found[f"{info.name}.{name}"] = ours
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "from numba.core.caching import Cache",
        "from pymc.logprob.abstract import _logprob",
        "import pytensor._version",
        "trace.report._n_tune = 3",
        "x = getattr(backend, '_progress', None)",
        "class A(B):\n    def f(self):\n        return self._theirs",
        "import numba\nnumba.njit(_nrt=False)",
    ],
)
def test_a_planted_private_use_is_found(source):
    assert list(private_uses(source))


def test_own_private_names_pass():
    source = "class A:\n    def __init__(self):\n        self._x = 1\n\n    def f(self):\n        "
    assert not list(private_uses(source + "return self._x, self.row._replace(a=1), self.__dict__"))
