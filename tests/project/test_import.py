"""What `import pymc_tempering` loads and compiles: little, and nothing."""

import ast
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import pymc_tempering as pmt

FRONT = Path(pmt.__file__)
SLOW = ("numba", "scipy.stats", "scipy.optimize", "sklearn", "arviz_base", "arviz_stats")
"""Libraries that `import pymc` does not load, and that take from .1 to .8 s."""

WATCHED = """
import json, sys
from numba.core.event import install_recorder
with install_recorder("numba:compile") as recorder:
    {touch}
functions = [e.data["dispatcher"].py_func for _, e in recorder.buffer if e.is_start]
print(json.dumps([f"{{f.__module__}} {{f.__name__}}" for f in functions]))
"""
LOADED = """
import json, sys
{touch}
print(json.dumps([name for name in sys.modules]))
"""
EVERYTHING = "import pymc_tempering as pmt; [getattr(pmt, name) for name in dir(pmt)]"


def in_a_fresh_process(script, touch, cache):
    """What a script prints, with an empty disk cache."""
    done = subprocess.run(
        [sys.executable, "-c", script.format(touch=touch)],
        env=os.environ
        | {"PYTENSOR_FLAGS": f"base_compiledir={cache}", "PYTHONPATH": str(FRONT.parents[1])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.slow("other processes", quick=["import pymc_tempering"])
@pytest.mark.parametrize("touch", ["import pymc_tempering", EVERYTHING])
def test_nothing_is_compiled_or_cached(touch, tmp_path):
    assert in_a_fresh_process(WATCHED, touch, tmp_path) == []
    assert not list(tmp_path.rglob("*.nb*"))


@pytest.mark.slow("other processes")
def test_one_use_compiles_what_it_calls(tmp_path):
    # The check above can fail: the recorder sees our functions, and only those that are used.
    touch = (
        "from pymc_tempering.warmup.log_z_rounds import new_schedule, update, np; "
        "v = np.ones(2); update(0, v, v, new_schedule(), v, v, 0)"
    )
    compiled = in_a_fresh_process(WATCHED, touch, tmp_path)
    ours = [name.split()[1] for name in compiled if name.startswith("pymc_tempering")]
    assert ours == ["update", "_is_flat"]


def test_slow_libraries_are_not_loaded(tmp_path):
    loaded = set(in_a_fresh_process(LOADED, "import pymc_tempering", tmp_path))
    assert not loaded & set(SLOW)
    assert not {name for name in loaded if name.startswith("pymc_tempering.")} - {
        "pymc_tempering.exceptions"
    }


@pytest.mark.slow("other processes")
def test_sampling_loads_no_statistics_and_no_other_front_door(tmp_path):
    touch = "import pymc_tempering; pymc_tempering.sample"
    loaded = set(in_a_fresh_process(LOADED, touch, tmp_path))
    assert not loaded & {"scipy.stats", "sklearn", "arviz_stats"}
    others = ("annealed", "bridge", "crosscheck", "plots", "testsystems", "variational")
    assert not loaded & {f"pymc_tempering.{other}" for other in others}


def names_for_type_checkers():
    """Names that the front imports where only type checkers look, with their modules."""
    for node in ast.parse(FRONT.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If):
            for line in node.body:
                for alias in line.names:
                    assert alias.asname == alias.name, "else type checkers take it for private"
                    yield alias.name, line.module.removeprefix("pymc_tempering").lstrip(".")


def test_type_checkers_see_the_names_and_modules_that_are_loaded_late():
    homes = {name: home for home, names in pmt._HOMES.items() for name in names}
    assert dict(names_for_type_checkers()) == homes | dict.fromkeys(pmt._MODULES, "")


def test_the_front_is_small_enough_to_be_learned():
    shown = [name for name in dir(pmt) if not name.startswith("_")]
    assert sorted(pmt.__all__) == shown
    assert len(shown) <= 54
    classes = {n for n in shown if isinstance(getattr(pmt, n), type)}
    assert classes == {"SimulatedTempering", "TemperingError", "TemperingWarning"}


def test_every_public_name_resolves_to_one_object():
    for home, names in pmt._HOMES.items():
        for name in names:
            assert getattr(pmt, name) is getattr(pmt, name)
            assert getattr(sys.modules[f"pymc_tempering.{home}"], name) is getattr(pmt, name)


def test_every_folder_is_found_and_a_module_that_is_not_there_is_no_attribute():
    for path in FRONT.parent.glob("*/__init__.py"):
        assert getattr(pmt, path.parent.name).__name__ == f"pymc_tempering.{path.parent.name}"
    assert not hasattr(pmt, "sampler")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sampel'") as error:
        pmt.sampel  # noqa: B018
    assert "Did you mean: 'sample'?" in "".join(traceback.format_exception_only(error.value))
