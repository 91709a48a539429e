"""Nothing damaged is run, whoever wrote it: the result is that of a fresh compilation."""

import random

import numba
import numpy as np
import pytest
from numba import float64
from numba.core import caching
from numba.core.event import install_recorder

from pymc_tempering.model.disk_cache import forgetting_damage
from pymc_tempering.model.jit import njit

OF_VECTOR = float64(float64[::1])
X = np.arange(4.0)


def half_sum(x):
    return 0.5 * x.sum()


def double_sum(x):
    return 2.0 * x.sum()


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def entries(folder, suffix):
    return sorted(folder.rglob(f"*{suffix}"))


def fresh(function=half_sum):
    """A dispatcher as another process has it: it has the disk alone."""
    return njit(OF_VECTOR)(function)


def hits(dispatcher):
    return sum(dispatcher.stats.cache_hits.values())


def garbled(content):
    changed = bytearray(content)
    for place in random.Random(1).sample(range(len(changed)), 5):
        changed[place] ^= 0xFF
    return bytes(changed)


DAMAGE = {
    "cut short": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "empty": lambda content: b"",
    "changed bytes": garbled,
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_compiled_anew_and_written_over(folder, suffix, damage):
    assert fresh()(X) == 3.0
    [file] = entries(folder, suffix)
    file.write_bytes(damage(file.read_bytes()))
    again = fresh()
    assert again(X) == 3.0
    assert hits(again) == 0
    mended = fresh()
    assert mended(X) == 3.0
    assert hits(mended) == 1


def test_numbas_own_cache_would_stop_at_it(folder):
    numba.njit(OF_VECTOR, cache=True)(half_sum)
    [file] = entries(folder, ".nbi")
    file.write_bytes(DAMAGE["cut short"](file.read_bytes()))
    with pytest.raises(Exception, match="truncated"):
        numba.njit(OF_VECTOR, cache=True)(half_sum)


def test_the_data_of_another_function_are_not_run(folder):
    """As two processes can leave them that write at once."""
    fresh()(X)
    [half] = entries(folder, ".nbc")
    fresh(double_sum)(X)
    [double] = set(entries(folder, ".nbc")) - {half}
    half.write_bytes(double.read_bytes())
    again = fresh()
    assert again(X) == 3.0
    assert hits(again) == 0


def test_a_full_disk_costs_a_compilation_and_no_more(folder, monkeypatch):
    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", full)
    assert fresh()(X) == 3.0
    assert not entries(folder, ".nbc")


def test_without_a_folder_that_can_be_written_to_it_compiles(folder, monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert fresh()(X) == 3.0
    assert not entries(folder, ".nbc")


def test_a_damaged_entry_of_another_package_is_forgotten(folder):
    def compile_both():
        callee = numba.njit(cache=True)(double_sum)
        return numba.njit(OF_VECTOR)(lambda x: 1.0 + callee(x))

    assert compile_both()(X) == 13.0
    for suffix in (".nbi", ".nbc"):
        [file] = entries(folder, suffix)
        file.write_bytes(DAMAGE["cut short"](file.read_bytes()))
        with pytest.raises(Exception, match="truncated"):
            compile_both()
        assert forgetting_damage(compile_both)(X) == 13.0
        with install_recorder("numba:compile") as recorder:
            compile_both()
        names = [e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer]
        assert "double_sum" not in names  # it is on disk again


def refuse(self, path):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(
    ("method", "instead", "message"),
    [
        ("_open_for_write", refuse, "is damaged and cannot be written to"),
        ("flush", lambda self: None, "cannot be read even when emptied"),
    ],
)
def test_a_damaged_entry_that_cannot_be_emptied_is_named(
    folder, monkeypatch, method, instead, message
):
    def compile_it():
        return numba.njit(OF_VECTOR, cache=True)(half_sum)

    compile_it()
    [file] = entries(folder, ".nbi")
    file.write_bytes(b"")
    monkeypatch.setattr(caching.IndexDataCacheFile, method, instead)
    with pytest.raises(OSError, match=rf"{file.name} {message}"):
        forgetting_damage(compile_it)


def test_other_errors_pass():
    calls = []

    def work(x):
        calls.append(x)
        raise EOFError("of the user's own")

    with pytest.raises(EOFError, match="own"):
        forgetting_damage(work, 1)
    assert calls == [1]
