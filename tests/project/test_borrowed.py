"""Private parts of other libraries are as `borrowed/` uses them; each may be gone."""

import ast
import builtins
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.backends.base import IBaseTrace
from pytensor.tensor.random.basic import NormalRV
from support.foreign_imports import foreign_imports

from pymc_tempering.borrowed import private
from pymc_tempering.exceptions import ModelError
from pymc_tempering.sampling.finish import ArrayTrace

PACKAGE = "pymc_tempering"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE
HOME = ROOT / "borrowed" / "private.py"
SOURCES = {str(p.relative_to(ROOT)): p.read_text("utf-8") for p in sorted(ROOT.rglob("*.py"))}
TREE = ast.parse(HOME.read_text("utf-8"))

NAMES = sorted(
    (node.module, alias.name)
    for node in ast.walk(TREE)
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.name.startswith("_") or node.module.startswith(("numba.core", "pytensor.link"))
)
"""What the module imports that may be gone."""

MAX_ATTRIBUTES = 10
"""Private attributes of objects of others, which no import can tell of."""


def attributes():
    """Private attributes of others that the module reads, writes or overrides."""
    for node in ast.walk(TREE):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            yield node.attr
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            yield ast.literal_eval(node.args[1])


USED = {name for name in attributes() if not name.endswith("__")}


def without(hidden):
    """The module as it is where some imports of it fail, and what it said."""
    real = builtins.__import__

    def guard(name, given=None, local=None, fromlist=(), level=0):
        if (given or {}).get("__name__") == "without" and set(hidden) & {
            (name, each) for each in fromlist or ()
        }:
            raise ImportError("hidden")
        return real(name, given, local, fromlist, level)

    spec = importlib.util.spec_from_file_location("without", HOME)
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings(record=True) as said, pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(builtins, "__import__", guard)
        spec.loader.exec_module(module)
    return module, [str(warning.message) for warning in said]


def test_all_parts_are_there_and_nothing_is_said():
    module, said = without(())
    assert not said, f"in {', '.join(f'{n} {version(n)}' for n in ('numba', 'pymc', 'pytensor'))}"
    assert module.NOT_COUNTED == {"_nrt": False}


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_that_is_gone_is_one_warning_and_another_way(module, name):
    changed, [said] = without([(module, name)])
    assert "are not where they were" in said
    assert said.count("without ") == 1
    for each in set(vars(private)) - {"DefaultOptions"}:  # which gives the options, and no more
        assert hasattr(changed, each), f"{each} has no other way"


FOLDER = """
import json, warnings
import pymc
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    from pymc_tempering.model import jit
half = jit.njit()(lambda x: 0.5 * x)
half(3.0)
from pytensor.link.numba import cache
print(json.dumps([str(cache.NUMBA_CACHE_PATH), str(jit.FOLDER), len([*jit.FOLDER.glob("*.nbc")]),
                  [str(w.message) for w in said if "pymc_tempering" in w.filename]]))
"""


@pytest.mark.slow("other processes")
@pytest.mark.skipif(os.name != "posix", reason="needs a path below which nobody can write")
def test_a_folder_that_takes_nothing_is_replaced_for_the_process():
    done = subprocess.run(
        [sys.executable, "-c", FOLDER],
        env=os.environ
        | {"PYTENSOR_FLAGS": "base_compiledir=/dev/null/x", "PYTHONPATH": str(ROOT.parent)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    pytensors, ours, n_kept, [said] = json.loads(done.stdout)
    assert pytensors == ours
    assert n_kept == 1
    assert "cannot be kept in /dev/null/x/numba (Not a directory)" in said
    assert not Path(ours).exists()


def test_two_names_that_are_gone_are_one_warning():
    _, [said] = without(NAMES)
    assert said.count("without ") > 5


def test_the_ways_without_names_work():
    changed, _ = without(NAMES)
    assert changed.NOT_COUNTED == {}
    assert not changed.keep_on_disk(test_the_ways_without_names_work, "key")
    with changed.install_listener("numba:compile", changed.Listener()):
        pass
    with pytest.raises(ModelError, match="range of 'x' is not known"):
        changed.default_transform(None, SimpleNamespace(name="x"))
    assert changed.choose_chains([[1, 2, 3], [1, 2]], 1) == ([[1, 2, 3], [1, 2]], 2)
    assert not isinstance(1, changed.AnyMixtureRV | changed.HurdleRV)


def test_there_are_few_private_attributes():
    assert len(USED) <= MAX_ATTRIBUTES, sorted(USED)


def test_without_infer_shape_a_shape_is_a_graph():
    class Op:
        def make_node(self, rng, size, *params):
            return NormalRV().make_node(rng, size, *params)

    size = pt.as_tensor_variable([3])
    params = [pt.constant(0.0), pt.constant(1.0)]
    found = private.infer_shape(Op(), size, params)
    assert [int(length.eval()) for length in found] == [3]


def test_without_a_print_name_there_is_none():
    assert private.print_name_of(object()) is None
    assert private.print_name_of(pm.Normal.dist().owner.op) == "Normal"


def test_a_report_without_its_attributes_gets_them():
    report = SimpleNamespace()
    private.set_report(SimpleNamespace(report=report), tune=1, draws=2, seconds=3.0)
    assert vars(report) == {"_n_tune": 1, "_n_draws": 2, "_t_sampling": 3.0}


def test_a_trace_is_made_where_pymc_slices_by_another_name(monkeypatch):
    monkeypatch.delattr(IBaseTrace, "_slice")
    trace = ArrayTrace(0, 2, {"x": [1.0, 2.0]})
    assert len(trace.part(slice(0, 1))) == 1


@pytest.mark.parametrize(
    "name", ["_state_class", "_progressbar_config", "_make_progressbar_update_functions"]
)
def test_a_step_method_is_made_where_pymc_asks_by_other_names(monkeypatch, name):
    for base in private.BlockedStep.__mro__:
        if name in vars(base):
            monkeypatch.delattr(base, name)

    class Step(private.BlockedStepWithBars, state_class=int):
        shown = staticmethod(lambda stats: {"tries": 0})
        columns = staticmethod(list)

    assert Step._state_class is int
    assert Step._progressbar_config(2) == ([], {"tries": [0, 0]})


def fault_of(dotted):
    """Say whether a name is gone."""
    names = dotted.split(".")
    for n in range(len(names), 0, -1):
        try:
            value = import_module(".".join(names[:n]))
        except ModuleNotFoundError as error:
            if not ".".join(names[:n]).startswith(str(error.name)):
                raise
            continue
        for name in names[n:]:
            if not hasattr(value, name):
                return True
            value = inspect.getattr_static(value, name)
        return False
    return True


@pytest.mark.slow("compiles models of its own")
def test_every_name_from_elsewhere_is_there():
    """No private one either; but a library that moves a name says so here, and to whom."""
    lost = [
        f"{name}: {file}"
        for file, text in SOURCES.items()
        for name in foreign_imports(text)
        if fault_of(name)
    ]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("name", ["pymc.backends.base._choose_many", "pymc.backends.no.choose"])
def test_a_planted_fault_is_named(name):
    assert fault_of(name)
