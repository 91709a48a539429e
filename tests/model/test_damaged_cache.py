"""A cache that cannot be read is emptied with a warning, and everything is compiled anew."""

import numba
import numpy as np
import pytest
from numba import float64
from pytensor.link.numba import cache

from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.model import jit
from pymc_tempering.model.jit import compile_now, njit, without_damage

OF_VECTOR = float64(float64[::1])
X = np.arange(4.0)


def half_sum(x):
    return 0.5 * x.sum()


def double_sum(x):
    return 2.0 * x.sum()


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "NUMBA_CACHE_PATH", tmp_path)
    monkeypatch.setattr(jit, "FOLDER", tmp_path)
    return tmp_path


def fresh(function=half_sum):
    """A dispatcher as another process has it: it has the disk alone."""
    return njit(OF_VECTOR)(function)


DAMAGE = {
    "cut short": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_compiled_anew_and_written_over(folder, suffix, damage):
    compile_now(fresh())
    [file] = folder.glob(f"*{suffix}")
    file.write_bytes(damage(file.read_bytes()))
    again = fresh()
    with pytest.warns(TemperingWarning, match=f"{folder} was emptied"):
        compile_now(again)
    assert again(X) == 3.0
    mended = fresh()
    compile_now(mended)
    assert mended(X) == 3.0
    assert sum(mended.stats.cache_hits.values()) == 1


def test_a_damaged_entry_of_a_callee_is_forgotten(folder):
    def compile_both():
        callee = njit()(double_sum)
        return numba.njit(OF_VECTOR)(lambda x: 1.0 + callee(x))

    assert compile_both()(X) == 13.0
    for file in folder.glob("*.nbi"):
        file.write_bytes(b"")
    with pytest.warns(TemperingWarning, match="was emptied"):
        assert without_damage(compile_both)(X) == 13.0


def test_other_errors_pass(folder):
    compile_now(fresh())
    calls = []

    def work():
        calls.append(1)
        raise EOFError("of the user's own")

    with pytest.raises(EOFError, match="own"):
        without_damage(work)
    assert calls == [1]
    assert list(folder.glob("*.nbi"))
