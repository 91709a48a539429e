"""Tests of work on threads."""

import sys
from importlib.util import LazyLoader, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pymc_tempering.core.threads import run_tasks


def of_linear_algebra() -> set[int]:
    """Return how many threads the libraries of linear algebra may have."""
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_in_a_task_and_its_own_after_it() -> None:
    np.linalg.cholesky(np.eye(2))
    with threadpool_limits(2, "blas"):
        before = of_linear_algebra()
        inside, _ = run_tasks([lambda stop: of_linear_algebra()] * 3, cores=2)
        assert (before, of_linear_algebra()) == ({2}, {2})
    assert inside == [{1}] * 3


def test_an_array_library_whose_import_was_put_off_is_whole_in_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SciPy asks modules that are loaded for their class of arrays."""
    path = tmp_path / "jax.py"
    path.write_text("import time\ntime.sleep(0.2)\nArray = list\n")
    spec = spec_from_file_location("jax", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "jax", module)
    spec.loader.exec_module(module)
    found, _ = run_tasks([lambda stop: sys.modules["jax"].Array] * 4, cores=2)
    assert found == [list] * 4
